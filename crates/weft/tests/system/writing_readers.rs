//! Readers of files whose names and attributes are changed through the mount meanwhile.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Pair, noise};

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
