//! What a status says, in the words of the contract.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, Entry, Figure, FileKind, Name, Version};

use crate::identity::{Identity, Spot};
use crate::wire::status::{Kind, Status};

/// Which content a file has: its data version, and the time that its last writer gave it. A volume that was restored may
/// come to the same data version again, with other bytes; hardly in the same second.
pub(crate) fn version(status: &Status) -> Version {
    let mut token = status.data_version.to_be_bytes().to_vec();
    token.extend_from_slice(&status.modified_s.to_be_bytes());
    Version::strong(token)
}

/// The identity of something with a status.
pub(crate) fn identity(spot: Spot, status: &Status) -> Identity {
    if status.is_mount_point() { Identity::Mount(spot) } else { Identity::File(spot) }
}

/// Attributes of a file, link or directory; a mount point is a directory of which no more is told, so that whoever lists
/// names contacts no further server.
pub(crate) fn attributes(status: &Status) -> Attributes {
    let time = |seconds: u32| Figure::Exact(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into()));
    let kind = match status.kind {
        Kind::Directory => FileKind::Directory,
        Kind::Symlink if status.is_mount_point() => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::File => FileKind::File,
    };
    let bits = (status.mode & 0o7777) as u16;
    Attributes {
        size: if kind == FileKind::Directory { Figure::Unknown } else { Figure::Exact(status.length) },
        modified: time(status.modified_s),
        changed: time(status.changed_s),
        // Bits of directories mean nothing in AFS: the access list decides, which the server knows.
        mode: Some(if kind == FileKind::Directory { bits & 0o7000 | DIRECTORY_MODE } else { bits }),
        links: Some(if status.is_mount_point() { 2 } else { status.links }),
        ..Attributes::of_kind(kind)
    }
}

/// A name with what it stands for.
pub(crate) fn entry(name: Name, spot: Spot, status: &Status) -> Entry {
    Entry { name, id: identity(spot, status).file_id(), attributes: attributes(status), version: version(status) }
}

/// A name for what was asked about without one.
pub(crate) fn nameless(spot: &Spot) -> Name {
    Name::new(spot.fid.to_string()).expect("digits and dots are a name")
}

/// Permission bits of directories.
const DIRECTORY_MODE: u16 = 0o755;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::status::tests::status;

    #[test]
    fn a_link_that_nobody_may_execute_is_a_directory() {
        let link = Status { kind: Kind::Symlink, mode: 0o755, ..status() };
        assert_eq!(attributes(&link).kind, FileKind::Symlink);
        let mount = Status { mode: 0o644, ..link };
        assert_eq!((attributes(&mount).kind, attributes(&mount).mode), (FileKind::Directory, Some(0o755)));
    }

    #[test]
    fn another_time_is_another_version() {
        let one = status();
        assert_eq!(version(&one), version(&Status { mode: 0, changed_s: 9, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { data_version: one.data_version ^ 1, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { modified_s: one.modified_s ^ 1, ..one.clone() }));
    }
}
