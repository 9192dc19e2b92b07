//! A crowd: 900 readers on 90 hosts, alone, and with 100 more on 10 hosts that do not answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::in_turn;
use crate::book::Book;
use crate::contender::Contender;
use crate::dead::Dead;
use crate::reader;
use crate::report::{Bound, Section, Unit};
use crate::sample::{file_name, folder_name};
use crate::server::CROWD_HOSTS;
use crate::workshop::Workshop;

/// Measures the table.
pub fn measure(workshop: &Workshop, rounds: usize) -> Result<Section> {
    workshop.sample.make_small()?;
    let dead = Dead::hosts(DEAD_HOSTS)?;
    let mut book = Book::default();
    for round in 0..rounds {
        for with_dead in in_turn(&[false, true], round) {
            let mounted = workshop.mount(Contender::Weft, workshop.small, &workshop.fresh("cache"))?;
            let hosts = mounted.root.parent().unwrap_or(&mounted.root).to_owned();
            let living: Vec<PathBuf> = (0..CROWD_HOSTS)
                .flat_map(|host| {
                    let top = hosts.join(workshop.small.authority_of(host));
                    (0..READERS_PER_HOST).map(move |reader| top.join(folder_name(reader)).join(file_name(host)))
                })
                .collect();
            let silent: Vec<PathBuf> = match with_dead {
                false => Vec::new(),
                true => dead
                    .authorities()
                    .flat_map(|host| {
                        let top = hosts.join(host);
                        (0..READERS_PER_HOST).map(move |reader| top.join(file_name(reader)))
                    })
                    .collect(),
            };
            let reading = reader::crowd(&workshop.fresh("crowd"), &living, &silent, LIMIT)?;
            ensure!(reading.bytes > 0, "nothing was read");
            let who = if with_dead { "weft" } else { "without the dead" };
            book.note(who, "wall", reading.inner_wall.as_secs_f64());
            mounted.unmount()?;
        }
    }
    let against = ("without the dead", "wall");
    let rows = [book.compare("time of the 900", Unit::Seconds, "wall", against, Some(Bound::AtMost(1.2)))];
    let notes = vec![
        "Ten threads for each host, each reads one small file cold, all at once. Of the ten dead hosts five take \
         connections and say nothing, five do not take them."
            .to_owned(),
    ];
    Ok(Section { title: super::Table::Crowd.title().to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

const READERS_PER_HOST: usize = 10;
const DEAD_HOSTS: u8 = 10;
/// The dead are waited for to their deadlines.
const LIMIT: Duration = Duration::from_secs(120);
