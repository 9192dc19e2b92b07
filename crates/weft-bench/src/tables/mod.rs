//! The tables of the report.

mod crowd;
mod directory;
mod door;
mod far;
mod large;
mod listing;
mod memory;
mod random;
mod small;

use anyhow::Result;
use clap::ValueEnum;

use crate::door::DoorArgs;
use crate::report::Section;
use crate::workshop::Workshop;

/// A table that can be asked for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Small files: cold, warm, after a remount.
    Small,
    /// `ls -lR` of a tree that nobody has seen before.
    Listing,
    /// One large file.
    Large,
    /// A host 20 ms away.
    Far,
    /// Many readers, and hosts that do not answer.
    Crowd,
    /// A huge file read here and there.
    Random,
    /// Memory of the daemon with many names.
    Memory,
    /// What a request costs.
    Door,
    /// A directory of this machine.
    Directory,
}

impl Table {
    /// Those that were asked for; all when none was.
    pub fn chosen(only: &[Table]) -> Vec<Table> {
        let all = [
            Table::Small,
            Table::Listing,
            Table::Large,
            Table::Far,
            Table::Crowd,
            Table::Random,
            Table::Memory,
            Table::Door,
            Table::Directory,
        ];
        all.into_iter().filter(|table| only.is_empty() || only.contains(table)).collect()
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Table::Small => "500 small files",
            Table::Listing => "`ls -lR` of 2,000 files in 20 folders, cold",
            Table::Large => "One file of 500 MiB",
            Table::Far => "A host 20 ms away",
            Table::Crowd => "1,000 readers on 100 hosts, of which 10 are dead",
            Table::Random => "10 GB read here and there",
            Table::Memory => "Memory of the daemon",
            Table::Door => "What a request costs",
            Table::Directory => "A directory of this machine, read again",
        }
    }

    /// Measures it.
    pub fn measure(self, workshop: &Workshop, doors: &DoorArgs, rounds: usize) -> Result<Section> {
        match self {
            Table::Small => small::measure(workshop, rounds),
            Table::Listing => listing::measure(workshop, rounds),
            Table::Large => large::measure(workshop, rounds),
            Table::Far => far::measure(workshop, rounds),
            Table::Crowd => crowd::measure(workshop, rounds),
            Table::Random => random::measure(workshop),
            Table::Memory => memory::measure(workshop),
            Table::Door => door::measure(workshop, doors, rounds),
            Table::Directory => directory::measure(workshop, rounds),
        }
    }
}

/// `contenders` in another order in every round.
pub fn in_turn<T: Copy>(contenders: &[T], round: usize) -> Vec<T> {
    let mut order = contenders.to_vec();
    order.rotate_left(round % contenders.len());
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_every_turn() {
        let orders: Vec<Vec<i32>> = (0..6).map(|round| in_turn(&[1, 2, 3], round)).collect();
        for turn in 0..3 {
            let had: std::collections::BTreeSet<i32> = orders.iter().map(|order| order[turn]).collect();
            assert_eq!(had.len(), 3, "{orders:?}");
        }
    }
}
