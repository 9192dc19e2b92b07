//! Names over the mount.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, makedev, mknodat, open, renameat_with};
use rustix::io::Errno as E;
use weft_fuse::Transport;

use crate::{Place, can_mount, over_both};

#[test]
fn names_are_made_and_taken_away() {
    over_both(|place| {
        fs::create_dir(place.path("dir")).expect("a directory");
        assert_eq!(fs::create_dir(place.path("dir")).expect_err("twice").kind(), std::io::ErrorKind::AlreadyExists);
        fs::write(place.path("dir/file"), "text").expect("a file");
        fs::hard_link(place.path("dir/file"), place.path("dir/other")).expect("a link");
        assert_eq!(fs::metadata(place.path("dir/file")).expect("there").nlink(), 2);
        symlink("some/where", place.path("dir/link")).expect("a symbolic link");
        assert_eq!(fs::read_link(place.path("dir/link")).expect("there").to_str(), Some("some/where"));

        let mode = Mode::from_raw_mode(0o640);
        let make = |name: &str, kind, device| mknodat(CWD, place.path(name), kind, mode, device);
        make("fifo", FileType::Fifo, 0).expect("a fifo");
        make("socket", FileType::Socket, 0).expect("a socket");
        make("plain", FileType::RegularFile, 0).expect("a file");
        make("device", FileType::CharacterDevice, makedev(10, 300)).expect("a device");
        let found = |name: &str| fs::symlink_metadata(place.path(name)).expect("there");
        assert!(found("fifo").file_type().is_fifo() && found("socket").file_type().is_socket());
        assert!(found("plain").is_file() && found("plain").mode() & 0o7777 == 0o640);
        assert_eq!(found("device").rdev(), makedev(10, 300));

        assert_eq!(fs::remove_dir(place.path("dir")).expect_err("full").kind(), std::io::ErrorKind::DirectoryNotEmpty);
        for name in ["dir/file", "dir/other", "dir/link", "fifo", "socket", "plain", "device"] {
            fs::remove_file(place.path(name)).expect(name);
        }
        fs::remove_dir(place.path("dir")).expect("it is empty");
        assert_eq!(fs::metadata(place.path("dir")).expect_err("gone").kind(), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn names_are_moved_as_the_flags_say() {
    over_both(|place| {
        fs::write(place.path("a"), "a").expect("a file");
        fs::write(place.path("b"), "b").expect("a file");
        let moved = |flags| renameat_with(CWD, place.path("a"), CWD, place.path("b"), flags);
        let texts = || ["a", "b"].map(|name| fs::read_to_string(place.path(name)).ok());
        assert_eq!(moved(RenameFlags::NOREPLACE), Err(E::EXIST));
        assert_eq!(moved(RenameFlags::WHITEOUT), Err(E::INVAL));
        moved(RenameFlags::EXCHANGE).expect("exchanged");
        assert_eq!(texts(), [Some("b".to_owned()), Some("a".to_owned())]);
        moved(RenameFlags::empty()).expect("moved");
        assert_eq!(texts(), [None, Some("b".to_owned())]);
    });
}

/// Goal: whoever makes a file without wanting to be the first opens the one that somebody else made meanwhile, and only
/// who wants to be is refused. Method: a lookup that does not see a file that is there.
#[test]
fn a_file_that_somebody_else_made_is_opened() {
    over_both(|place| {
        fs::write(place.path("log"), "theirs, ").expect("a file");
        let unseen = || place.memory.files().unseen = Some(b"log".to_vec());
        let mode = Mode::from_raw_mode(0o600);
        unseen();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let file = open(place.path("log"), flags, mode).expect("the one that is there");
        rustix::io::write(&file, b"ours").expect("written");
        drop(file);
        assert_eq!(fs::read_to_string(place.path("log")).expect("read"), "theirs, ours");
        unseen();
        assert_eq!(open(place.path("log"), flags | OFlags::EXCL, mode).err(), Some(E::EXIST));
        unseen();
        assert_eq!(fs::write(place.path("log"), "cut").map_err(|error| error.kind()), Ok(()));
        assert_eq!(fs::read_to_string(place.path("log")).expect("read"), "cut");
    });
}

/// Goal: on a mount that is only read, changes end in the kernel, and what programs do to files that they read works as
/// where nobody answers it.
#[test]
fn a_read_only_mount_takes_no_changes() {
    if !can_mount() {
        return;
    }
    let place = Place::new(Transport::Classic, true).expect("mounted");
    let made = open(place.path("new"), OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o600));
    assert_eq!(made.err(), Some(E::ROFS));
    let directory = fs::File::open(place.path("")).expect("the root");
    directory.sync_all().expect("nothing to be done");
    assert_eq!(place.memory.files().asked, []);
}
