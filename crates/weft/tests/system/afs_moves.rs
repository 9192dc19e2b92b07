//! Directories of AFS cells that another machine has moved.

use std::fs::{create_dir, create_dir_all, remove_dir_all, rename};
use std::path::Path;

use rustix::io::Errno;

use crate::afs::{mounted, mounted_on};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, fails_with, names_in};

/// Has the kernel know the directories at and below a path.
fn walk(dir: &Path) {
    for name in names_in(dir) {
        let path = dir.join(name);
        if path.is_dir() {
            walk(&path);
        }
    }
}

/// Goal: a directory that another machine has moved is moved on from here at once, from one directory to another and back, and
/// is replaced as any other is; by its former name it is not there. Method: nothing of what is moved is looked at in between.
#[test]
fn what_another_has_moved_is_moved_on() {
    let Some(cell) = AfsCell::up() else { return };
    let (Some(mount), Some(other)) = (mounted(cell, "afs", &[]), mounted_on(cell, "c2", "afs", &[])) else { return };
    let (here, there) = (mount.at("weft.test/scratch/moves"), other.at("weft.test/scratch/moves"));
    for turn in 0..5 {
        create_dir_all(there.join("x/a/deep/deeper")).expect("made");
        create_dir(there.join("y")).expect("made");
        wait_until("both are seen", || here.join("y").is_dir() && here.join("x/a/deep").is_dir());
        walk(&here);
        rename(there.join("x/a"), there.join("y/a")).expect("moved");
        rename(here.join("y/a"), here.join("x/b")).unwrap_or_else(|error| panic!("turn {turn}, on: {error}"));
        fails_with(rename(here.join("x/a"), here.join("y/b")), Errno::NOENT);
        assert_eq!((names_in(&there.join("x")), names_in(&there.join("y"))), (vec!["b".to_owned()], vec![]));

        rename(there.join("x/b"), there.join("y/b")).expect("moved");
        rename(here.join("y/b"), here.join("x/b")).unwrap_or_else(|error| panic!("turn {turn}, back: {error}"));
        rename(there.join("x/b/deep"), there.join("x/deep")).expect("moved");
        rename(here.join("x/deep"), here.join("y/deep")).unwrap_or_else(|error| panic!("turn {turn}, up: {error}"));
        assert_eq!(names_in(&here.join("y/deep")), ["deeper"]);

        create_dir(here.join("x/empty")).expect("made");
        rename(there.join("y/deep"), there.join("y/full")).expect("moved");
        rename(there.join("y/full"), there.join("x/b/full")).expect("moved");
        fails_with(rename(here.join("x/empty"), here.join("x/b/full")), Errno::NOTEMPTY);
        assert_eq!(names_in(&there.join("x/b/full")), ["deeper"]);
        remove_dir_all(&here).expect("removed");
        wait_until("it is gone there", || !there.exists());
    }
}
