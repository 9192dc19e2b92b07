//! What is mounted and unmounted where that changes what is shown: the file system that the top is in, and others below the
//! top. No watch tells of either. The kernel tells whoever waits for it that its table of mounts is another
//! (proc_pid_mountinfo(5)).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use crate::top::Top;

/// The mounts that matter, as they were when they were looked at last.
#[derive(Debug)]
pub(crate) struct Mounts {
    /// What tells that they may be others.
    table: File,
    /// Whether the mount that the top is in is one of them: it is not where that is in another namespace.
    has_top: bool,
    below: BTreeSet<Mount>,
}

/// Its number, and where it is, as the table writes it.
type Mount = (Vec<u8>, Vec<u8>);

/// What has become of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that matters.
    Nothing,
    /// Something was mounted or unmounted below the top.
    Below,
    /// What the top is in was unmounted; only who holds something of it open still sees it.
    Unmounted,
}

impl Mounts {
    /// Looks at them; `None` where there is no table.
    pub fn look(top: &Top) -> Option<Mounts> {
        let mut mounts = Mounts { table: File::open(TABLE).ok()?, has_top: false, below: BTreeSet::new() };
        mounts.look_again(top);
        Some(mounts)
    }

    /// What poll(2) tells with `POLLPRI` of: that the table is another.
    pub fn told_by(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }

    /// Looks again; what has changed since.
    pub fn look_again(&mut self, top: &Top) -> Change {
        // The table is read by another descriptor: of this one it is told.
        let (Some(path), Ok(table)) = (top.real_path(), std::fs::read(TABLE)) else { return Change::Nothing };
        let had_top = std::mem::replace(&mut self.has_top, has(&table, top.mount));
        let below = below(&table, path.as_os_str().as_bytes());
        let were_below = std::mem::replace(&mut self.below, below);
        match (had_top && !self.has_top, were_below == self.below) {
            (true, _) => Change::Unmounted,
            (false, false) => Change::Below,
            (false, true) => Change::Nothing,
        }
    }
}

/// Whether a mount of this number is in the table.
fn has(table: &[u8], number: u64) -> bool {
    let number = number.to_string();
    table.split(|byte| *byte == b'\n').any(|line| line.split(|byte| *byte == b' ').next() == Some(number.as_bytes()))
}

/// The mounts below a directory, by the table.
fn below(table: &[u8], top: &[u8]) -> BTreeSet<Mount> {
    let mut top: Vec<u8> = top.iter().flat_map(escaped).collect();
    if !top.ends_with(b"/") {
        top.push(b'/');
    }
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (number, at) = (fields.next()?, fields.nth(3)?);
        (at.len() > top.len() && at.starts_with(&top)).then(|| (number.to_vec(), at.to_vec()))
    };
    table.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// A byte of a path as the table writes it.
fn escaped(byte: &u8) -> Vec<u8> {
    match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![*byte],
    }
}

const TABLE: &str = "/proc/self/mountinfo";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_those_in_it() {
        let table = b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n23 22 0:40 / /srv rw - tmpfs none rw\n\
            24 23 0:41 / /srv/in\\040it rw - tmpfs none rw\n25 22 0:42 / /srvother rw - tmpfs none rw\nno line\n\
            26 24 0:43 / /srv/in\\040it/deep rw - tmpfs none rw\n";
        let numbers = |top: &[u8]| -> Vec<String> {
            below(table, top).into_iter().map(|(number, _)| String::from_utf8(number).unwrap()).collect()
        };
        assert_eq!(numbers(b"/srv"), ["24", "26"]);
        assert_eq!(numbers(b"/srv/in it"), ["26"]);
        assert_eq!(numbers(b"/"), ["23", "24", "25", "26"]);
        assert!(numbers(b"/srv/in it/deep").is_empty());
        assert!(has(table, 22) && has(table, 26) && !has(table, 2) && !has(table, 0) && !has(table, 254));
    }
}
