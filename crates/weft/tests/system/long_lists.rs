//! Directories of 100,000 names, from each way that a server tells so many.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Mount, Server, Setup};

/// Files in the directory; the size of each is in its name.
const FILES: usize = 100_000;

fn make(root: &Path) {
    let dir = root.join("many");
    std::fs::create_dir(&dir).expect("made");
    for number in 0..FILES {
        let size = size_of(number);
        std::fs::write(dir.join(name_of(number)), &b"0123456789012345678901234567890123456"[..size]).expect("written");
    }
}

fn name_of(number: usize) -> String {
    format!("file {number:06} of & many")
}

fn size_of(number: usize) -> usize {
    number * 7 % 37
}

/// Lists the directory through a mount: every name once, no other, and the sizes of some.
#[track_caller]
fn check(server: &Server, how: &str) {
    // Without optimisation, on a busy machine, so much takes its time.
    let setup = Setup::default().config("[mount]\ndeadline = \"300s\"\n");
    let Some(mount) = Mount::with(setup) else { return };
    let dir = mount.at(server.site()).join("many");
    let read = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{how}: {error}"));
    let names: Vec<_> = read.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    assert_eq!(names.len(), FILES, "{how}");
    let names: BTreeSet<_> = names.into_iter().collect();
    let wanted: BTreeSet<_> = (0..FILES).map(name_of).collect();
    assert!(names == wanted, "{how}: {:?} to {:?}", names.first(), names.last());
    for number in [0, 1, 31_337, 77_777, FILES - 1] {
        let told = std::fs::metadata(dir.join(name_of(number))).expect("there").len();
        assert_eq!(told, size_of(number) as u64, "{how}: {number}");
    }
    let listing = mount.why(&dir, "listing");
    assert!(listing.starts_with(how), "{how}: {listing}");
    let absent = std::fs::metadata(dir.join("not there")).expect_err("no such name");
    assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_hundred_thousand_names_come_by_page_by_json_and_by_webdav() {
    let Some(pages) = Server::nginx("") else { return };
    make(&pages.root());
    check(&pages, "nginx index page;");
    let json = Server::nginx("autoindex_format json;");
    for (server, how) in [(json, "nginx JSON index page;"), (Server::apache_dav(), "WebDAV PROPFIND;")] {
        let Some(server) = server else { return };
        std::fs::rename(pages.root().join("many"), server.root().join("many")).expect("beside each other");
        check(&server, how);
        std::fs::rename(server.root().join("many"), pages.root().join("many")).expect("and back");
    }
}
