//! Files that become directories at their source, and directories that become files.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::support::{Mount, Server, Setup, fails_with, names_in, write_aged};

/// Servers that tell by a list what is a file, each in its own way.
fn servers() -> impl Iterator<Item = Server> {
    let json = || Server::nginx("autoindex_format json;");
    let starts: [&dyn Fn() -> Option<Server>; 5] =
        [&|| Server::nginx(""), &json, &Server::apache, &Server::apache_dav, &Server::python];
    starts.map(|start| start()).into_iter().flatten()
}

/// Goal: what has become a directory is one from the first look on; who has the file open goes on in it. Method: it is opened
/// first, or looked at; a file that was never read.
#[test]
fn a_file_becomes_a_directory() {
    for server in servers() {
        let Some(mount) = Mount::with(Setup::default().option("freshness=always")) else { return };
        let (root, dir) = (server.root(), mount.at(server.site()));
        let names = ["opened", "seen", "unread"];
        // What was changed this second is one for all that a thread asks within two.
        names.iter().for_each(|name| write_aged(&root.join(name), b"file", 0));
        assert_eq!(names_in(&dir).len(), names.len());
        for name in &names[..2] {
            assert_eq!(std::fs::read(dir.join(name)).expect("read"), b"file");
        }
        let open = File::open(dir.join("opened")).expect("opened");
        for name in names {
            std::fs::remove_file(root.join(name)).expect("removed");
            std::fs::create_dir(root.join(name)).expect("made");
            std::fs::write(root.join(name).join("new.txt"), "new").expect("written");
        }
        fails_with(std::fs::read(dir.join("opened")), Errno::ISDIR);
        assert!(std::fs::metadata(dir.join("seen")).expect("seen").is_dir());
        fails_with(std::fs::read(dir.join("unread")), Errno::ISDIR);
        for name in names {
            assert_eq!(names_in(&dir.join(name)), ["new.txt"]);
            assert_eq!(std::fs::read(dir.join(name).join("new.txt")).expect("read"), b"new");
        }
        let mut bytes = [0; 4];
        open.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!((&bytes, open.metadata().expect("seen").len()), (b"file", 4));
    }
}

/// Goal: what has become a file is one, without names in it, from the first use on. Method: it is opened first, or listed; a
/// directory that was never listed.
#[test]
fn a_directory_becomes_a_file() {
    for server in servers() {
        let Some(mount) = Mount::with(Setup::default().option("freshness=always")) else { return };
        let (root, dir) = (server.root(), mount.at(server.site()));
        let names = ["opened", "listed", "unlisted"];
        for name in names {
            std::fs::create_dir(root.join(name)).expect("made");
            std::fs::write(root.join(name).join("old.txt"), "old").expect("written");
        }
        assert_eq!(names_in(&dir).len(), names.len());
        names[..2].iter().for_each(|name| assert_eq!(names_in(&dir.join(name)), ["old.txt"]));
        for name in names {
            std::fs::remove_dir_all(root.join(name)).expect("removed");
            std::fs::write(root.join(name), "file").expect("written");
        }
        assert_eq!(std::fs::read(dir.join("opened")).expect("read"), b"file");
        for name in ["listed", "unlisted"] {
            fails_with(std::fs::read_dir(dir.join(name)).map(drop), Errno::NOTDIR);
        }
        for name in names {
            assert_eq!(std::fs::read(dir.join(name)).expect("read"), b"file");
            fails_with(std::fs::read(dir.join(name).join("old.txt")), Errno::NOTDIR);
        }
    }
}
