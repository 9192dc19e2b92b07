//! Readers of files whose names and attributes are changed through the mount meanwhile, or whose content is dropped.

use std::fs::{File, Metadata, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::interrupts::wait_until;
use crate::kept_names::requests;
use crate::support::{Pair, names_in, noise};

/// Goal: a read of a large file that has begun goes on to its end while the file is renamed, linked, given another mode
/// and other times through the mount: its bytes are the same all along.
#[test]
fn a_read_goes_on_while_the_file_is_renamed() {
    const LENGTH: usize = 64 << 20;
    let Some(pair) = Pair::new() else { return };
    let bytes = noise(LENGTH);
    std::fs::write(pair.there("large"), &bytes).expect("written");
    let mut file = std::fs::File::open(pair.at("large")).expect("opened");
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    let mut read_piece = |what: &str| {
        file.read_exact(&mut piece).unwrap_or_else(|error| panic!("after {what}, at {at}: {error}"));
        assert!(piece == bytes[at..at + piece.len()], "after {what}, at {at}");
        at += piece.len();
    };
    read_piece("the open");
    std::fs::rename(pair.at("large"), pair.at("moved")).expect("renamed");
    read_piece("rename");
    std::fs::set_permissions(pair.at("moved"), std::fs::Permissions::from_mode(0o600)).expect("set");
    read_piece("chmod");
    std::fs::hard_link(pair.at("moved"), pair.at("linked")).expect("linked");
    read_piece("link");
    pair.script("touch -d 2001-02-03 moved; mkdir folder; mv moved folder/moved");
    read_piece("utimensat and mv");
    std::fs::remove_file(pair.at("linked")).expect("removed");
    for _ in 5..LENGTH >> 20 {
        read_piece("unlink");
    }
    pair.agree();
}

/// Goal: who has a file open for writing reads and writes it together with whoever opens it next, also when the cache was told to
/// drop it meanwhile. Method: a file is written, emptied, lengthened by another descriptor right after `weft rm -w`.
#[test]
fn what_is_open_for_writing_is_dropped_for_nobody() {
    let Some(pair) = Pair::new() else { return };
    let change: [fn(&File); 3] = [
        |other| other.write_all_at(b"other", 3).expect("written"),
        |other| other.set_len(0).expect("cut"),
        |other| other.write_all_at(b"other", 400_000).expect("written"),
    ];
    for (nth, change) in change.into_iter().enumerate() {
        for of_both in [false, true] {
            let path = pair.at(format!("file-{nth}-{of_both}"));
            std::fs::write(&path, noise(300_000)).expect("written");
            let open = || File::options().read(true).write(true).open(&path).expect("opened");
            let file = open();
            let other = of_both.then(open);
            assert_eq!(pair.mount.verb("rm -w", [&path]).code, Some(0));
            let other = other.unwrap_or_else(open);
            change(&other);
            drop(other);
            file.write_all_at(b"one", 1000).expect("it is the same file");
            let mut bytes = Vec::new();
            (&file).read_to_end(&mut bytes).expect("read");
            drop(file);
            assert!(std::fs::read(&path).expect("read") == bytes && bytes.len() >= 1003);
            assert_eq!(&bytes[1000..1003], b"one");
        }
    }
    pair.agree();
}

/// Goal: who has an older version of a file open is told the mode that the file is given here. Method: its mode is changed beside
/// the mount, by which it is another version for whoever opens it then; what the kernel knew of it before, it trusted.
#[test]
fn who_has_an_older_version_open_is_told_of_modes() {
    let Some(pair) = Pair::new() else { return };
    let (here, there) = (pair.at("file"), pair.there("file"));
    let mode = |told: std::io::Result<Metadata>| told.expect("told").permissions().mode() & 0o7777;
    std::fs::write(&there, "0123456789").expect("written");
    assert_eq!(names_in(&pair.at("")), ["file"]);
    let open = File::open(&here).expect("opened");
    std::fs::set_permissions(&there, Permissions::from_mode(0o777)).expect("set");
    wait_until("what was set beside the mount", || mode(std::fs::metadata(&here)) == 0o777);
    // The first answers cross the word that there are others.
    wait_until("attributes that the kernel trusts", || {
        let before = requests(&pair.mount, &["getattr", "lookup"]);
        assert_eq!(mode(std::fs::metadata(&here)), 0o777);
        requests(&pair.mount, &["getattr", "lookup"]) == before
    });
    assert_eq!(std::fs::read(&here).expect("read"), b"0123456789");
    assert_eq!(mode(open.metadata()), 0o777);
    std::fs::set_permissions(&here, Permissions::from_mode(0o444)).expect("set");
    wait_until("what was set here", || mode(open.metadata()) == 0o444);
}
