//! A process that is killed while it writes: what it had been told is durable is there, in a real file.
//!
//! Method: this test program runs itself again as the process that is killed; it writes the number of every object
//! that was confirmed to its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use weft_segment::device::Prepare;
use weft_segment::{Class, Options, Packer, Volume};

use crate::sample::{SHAPE, VOLUME_BYTES, content, get, options, put};

/// The folder of the volume, for the process that is killed.
const FOLDER: &str = "SEGMENT_TEST_FOLDER";

fn threaded() -> Options {
    Options { packer: Packer::Thread, age: std::time::Duration::from_millis(30), ..options() }
}

#[test]
fn what_was_confirmed_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    drop(Volume::create(&path, VOLUME_BYTES as u64, Prepare::Written, &SHAPE, threaded()).unwrap());
    for round in 0..5usize {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["killed::victim", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
        let confirmed = lines.filter_map(|line| line.strip_prefix("confirmed ")?.parse::<u64>().ok());
        // Each round it is killed at another place of what it does.
        let confirmed: Vec<u64> = confirmed.take(40 + round * 37).collect();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_eq!(confirmed.len(), 40 + round * 37, "it did not end by itself");
        let volume = Volume::open(&path, threaded()).unwrap();
        assert!(!volume.stats().scanning);
        for number in (0..150).filter(|number| confirmed.contains(number)) {
            let found = get(&volume, number);
            // It may have been killed in a later round of its own.
            assert_eq!(found, Some(content(number, 3000 + number as usize * 50)), "round {round}, key {number}");
        }
        assert!(volume.check().unwrap().is_sound());
    }
}

/// Writes until it is killed.
#[test]
#[ignore = "is started by what_was_confirmed_outlives_a_kill, to be killed"]
fn victim() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        println!("skipped: it writes for ever, and only the test that kills it sets {FOLDER}");
        return;
    };
    let volume = Volume::open(&std::path::Path::new(&folder).join("volume"), threaded()).unwrap();
    let mut out = std::io::stdout();
    for number in (0..150u64).cycle() {
        let class = if number % 3 == 0 { Class::Durable } else { Class::Cache };
        put(&volume, number, content(number, 3000 + number as usize * 50), class);
        if class == Class::Durable {
            writeln!(out, "confirmed {number}").unwrap();
        }
        if number % 40 == 39 {
            volume.checkpoint().unwrap();
        }
    }
}
