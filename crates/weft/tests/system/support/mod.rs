//! What the system tests stand on: real mounts, real servers, lying servers, trees on disk.

mod afs_cell;
mod afsd;
mod certificate;
mod chance;
mod clock;
mod damage;
mod liar;
mod mount;
mod network;
mod offered;
mod pair;
mod process;
mod running;
mod server;
mod tree;

pub use afs_cell::AfsCell;
pub use afsd::Afsd;
pub use certificate::Certificate;
pub use chance::Chance;
pub use clock::Clock;
pub use damage::damage_small;
pub use liar::{Asked, Liar, answer, page};
pub use mount::{Exit, Mount, Setup, supervisor_of, weft_program};
pub use network::{Confirming, Network};
pub use offered::{NotOffered, Offered};
pub use pair::{Pair, same_trees};
pub use process::{Outcome, Program, find_program, is_root, run, without};
pub use running::Running;
pub use server::{Hit, Server, free_port};
pub use tree::{big_tree, compare, folders_in, noise, odd_names, small_tree, write_aged};

/// Asserts that an operation failed with this error number, and no other.
#[track_caller]
pub fn fails_with<T: std::fmt::Debug>(result: std::io::Result<T>, errno: rustix::io::Errno) {
    let error = match result {
        Ok(value) => panic!("expected {errno:?}, got {value:?}"),
        Err(error) => error,
    };
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// The names in a directory, sorted.
#[track_caller]
pub fn names_in(dir: &std::path::Path) -> Vec<String> {
    names_if_there(dir).unwrap_or_else(|| panic!("{}: there is none", dir.display()))
}

/// The same; none where there is no directory.
#[track_caller]
pub fn names_if_there(dir: &std::path::Path) -> Option<Vec<String>> {
    let read = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.unwrap_or_else(|error| panic!("{}: {error}", dir.display())),
    };
    let mut names: Vec<String> =
        read.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Some(names)
}
