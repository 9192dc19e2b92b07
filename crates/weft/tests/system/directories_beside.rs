//! What is done through a mount of a directory right after something else was done in the directory itself, and the other
//! way round: both are one.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::support::Pair;

/// Goal: a name that was taken away, moved, exchanged or given to another file through the mount, and has another file beside it
/// right after, leads to that. Nobody has promised to tell of it: what was promised was of another name, or has ended by
/// the change.
#[test]
fn what_is_made_beside_under_a_name_that_was_changed_here_is_there() {
    type Change = fn(&Pair);
    let changes: [(&str, Change); 5] = [
        ("removed", |pair| std::fs::remove_file(pair.at("name")).expect("removed")),
        ("moved", |pair| std::fs::rename(pair.at("name"), pair.at("other")).expect("moved")),
        ("moved to another directory", |pair| std::fs::rename(pair.at("name"), pair.at("dir/name")).expect("moved")),
        ("exchanged", |pair| {
            std::fs::write(pair.at("other"), "of the other").expect("written");
            let exchange = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, pair.at("name"), CWD, pair.at("other"), exchange).expect("exchanged");
        }),
        ("linked", |pair| {
            let _ = std::fs::remove_file(pair.there("linked"));
            std::fs::hard_link(pair.at("name"), pair.at("linked")).expect("linked");
        }),
    ];
    let Some(pair) = Pair::new() else { return };
    std::fs::create_dir(pair.there("dir")).expect("made");
    for (how, change) in changes {
        for round in 0..ROUNDS {
            replace(&pair, "name", "before");
            assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
            change(&pair);
            let text = format!("made anew in round {round}");
            replace(&pair, "name", &text);
            assert_eq!(std::fs::read_to_string(pair.at("name")).expect("it is there"), text, "{how}, round {round}");
        }
    }
}

/// Goal: what is moved through the mount is what has the name at its source, though another was put in its place right
/// before.
#[test]
fn what_is_moved_is_what_was_put_in_its_place_beside() {
    let Some(pair) = Pair::new() else { return };
    for round in 0..ROUNDS {
        std::fs::write(pair.there("name"), "before").expect("written");
        assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
        let text = format!("put there in round {round}");
        replace(&pair, "name", &text);
        std::fs::rename(pair.at("name"), pair.at("moved")).expect("moved");
        assert_eq!(std::fs::read_to_string(pair.there("moved")).expect("read"), text, "round {round}");
        assert_eq!(std::fs::read_to_string(pair.at("moved")).expect("read"), text, "round {round}");
    }
}

/// Goal: a file that the kernel still knows, and that was removed or replaced beside right before, is made or opened, emptied,
/// added to or given an attribute as if that had been seen.
#[test]
fn what_was_removed_beside_is_made_and_what_was_replaced_is_changed() {
    let Some(pair) = Pair::new() else { return };
    let written = |how: &OpenOptions, round| {
        let mut file = how.open(pair.at("name")).unwrap_or_else(|error| panic!("round {round}: {error}"));
        file.write_all(b"here").expect("written");
        drop(file);
        std::fs::read_to_string(pair.there("name")).expect("read")
    };
    let known = || {
        replace(&pair, "name", "before");
        assert_eq!(std::fs::read_to_string(pair.at("name")).expect("read"), "before");
    };
    let made = |options: &mut OpenOptions| options.create(true).write(true).clone();
    for round in 0..ROUNDS {
        for how in [made(OpenOptions::new().truncate(true)), made(OpenOptions::new().append(true))] {
            known();
            std::fs::remove_file(pair.there("name")).expect("removed");
            assert_eq!(written(&how, round), "here", "round {round}");
        }
        known();
        replace(&pair, "name", "replaced");
        assert_eq!(written(OpenOptions::new().append(true), round), "replacedhere", "round {round}");
        known();
        replace(&pair, "name", "replaced");
        assert_eq!(written(OpenOptions::new().write(true).truncate(true), round), "here", "round {round}");
        known();
        replace(&pair, "name", "replaced");
        match rustix::fs::setxattr(pair.at("name"), "user.told", b"here", XattrFlags::empty()) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            set => set.unwrap_or_else(|error| panic!("round {round}: {error}")),
        }
    }
}

/// Goal: what is added to a file, and what is copied of it within the kernel, goes by the length that it has, though the kernel
/// has not looked at it since somebody made it longer beside.
#[test]
fn what_is_added_and_copied_goes_by_the_length_that_a_file_has() {
    let Some(pair) = Pair::new() else { return };
    let line = |path: &Path, text: &str| {
        let mut file = OpenOptions::new().append(true).open(path).expect("opened");
        writeln!(file, "{text}").expect("written");
    };
    std::fs::write(pair.there("log"), "").expect("written");
    let mut all = String::new();
    for round in 0..ROUNDS {
        for (whose, path) in [("beside", pair.there("log")), ("here", pair.at("log"))] {
            let text = format!("{whose}, round {round}");
            line(&path, &text);
            all = format!("{all}{text}\n");
        }
        assert_eq!(std::fs::read_to_string(pair.there("log")).expect("read"), all, "round {round}");
        line(&pair.there("log"), "and one more");
        all.push_str("and one more\n");
        let (from, to) = (File::open(pair.at("log")).expect("opened"), tempfile::tempfile().expect("a file"));
        let sent = rustix::fs::sendfile(&to, &from, None, 1 << 20).expect("sent");
        assert_eq!(sent, all.len(), "round {round}");
    }
}

/// Writes a file and puts it in the place of another, in the directory.
fn replace(pair: &Pair, name: &str, text: &str) {
    std::fs::write(pair.there(".saved"), text).expect("written");
    std::fs::rename(pair.there(".saved"), pair.there(name)).expect("renamed");
}

/// How often each is tried: which of the two is faster, the program or what the kernel tells, is chance.
const ROUNDS: usize = 40;
