//! What a status says, in the words of the contract.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, Audience, Entry, Figure, FileKind, Name, Version};

use crate::access::{Operation, Rights, Subject};
use crate::identity::{Identity, Spot};
use crate::options::Modes;
use crate::rotate::Teller;
use crate::wire::status::{Kind, Status};

/// Which content a file has: its data version, and the time that its last writer gave it (`retimed.rs`). A volume that was
/// restored may come to the same data version again, with other bytes; hardly in the same second.
pub(crate) fn version(status: &Status, written_s: u32) -> Version {
    Version::strong(format!("{}.{written_s}", status.data_version))
}

/// The data version that a version of this form says.
pub(crate) fn data_version(told: &Version) -> Option<u64> {
    let Version::Strong(bytes) = told else { return None };
    let (data_version, _) = std::str::from_utf8(bytes).ok()?.split_once('.')?;
    data_version.parse().ok()
}

/// The version as it is told with a status: to who may read the file, that of its content. Who may only look at it gets one
/// that no content has, for whoever is told the version of what is held is shown it.
pub(crate) fn shown_version(status: &Status, written_s: u32) -> Version {
    let may_read = may(status, Operation::Read, status.caller_access);
    if may_read { version(status, written_s) } else { outside_version(status, written_s) }
}

fn outside_version(status: &Status, written_s: u32) -> Version {
    let version = version(status, written_s);
    Version::strong([version.token().unwrap_or_default(), LOOKED_AT].concat())
}

/// Whether a version that was told is this one, of whatever form.
pub(crate) fn is_version(told: &Version, status: &Status, written_s: u32) -> bool {
    told.still_holds(&version(status, written_s)) || told.still_holds(&outside_version(status, written_s))
}

/// What of a file an answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Its name and its status.
    Status,
    /// Its content, or that what is held of that is the same.
    Content,
}

/// Who may be told what a server told with a status: everybody, if it tells nobody's token or anybody.
pub(crate) fn audience(told: Told, status: &Status, teller: &Teller) -> Audience {
    let Some(token) = &teller.token else { return Audience::Everyone };
    let to_anybody = |operation| may(status, operation, status.anonymous_access);
    let is_open = match told {
        // Servers tell the status of files to readers alone.
        Told::Status if status.kind == Kind::File => {
            to_anybody(Operation::Lookup) && status.anonymous_access.has(Rights::READ)
        }
        Told::Status => to_anybody(Operation::Lookup),
        Told::Content => to_anybody(Operation::Lookup) && to_anybody(Operation::Read),
    };
    if is_open { Audience::Everyone } else { Audience::Only { uid: token.uid } }
}

/// Those who may be told both. Two users' words in one answer are for the caller, whose token is another by now.
pub(crate) fn stricter(one: Audience, other: Audience) -> Audience {
    if one == Audience::Everyone { other } else { one }
}

/// Whether a status says that whoever has these rights may do something.
pub(crate) fn may(status: &Status, operation: Operation, rights: Rights) -> bool {
    operation.is_allowed(Subject { kind: status.kind, rights, mode: status.mode })
}

/// The identity of something with a status.
pub(crate) fn identity(spot: Spot, status: &Status) -> Identity {
    if status.is_mount_point() { Identity::Mount(spot) } else { Identity::File(spot) }
}

/// Attributes of a file, link or directory; a mount point is a directory of which no more is told, so that whoever lists
/// names contacts no further server.
pub(crate) fn attributes(status: &Status, modes: Modes) -> Attributes {
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
        mode: Some(match (kind, modes) {
            // Bits of directories mean nothing in AFS: the access list decides, which the server knows.
            (FileKind::Directory, Modes::Exact) => bits & 0o7000 | DIRECTORY_MODE,
            (FileKind::Directory, Modes::Everybodys) => bits & 0o7000 | 0o777,
            // Of a link that is none of a mount point they mean nothing either, and Linux has one form of them (symlink(7)).
            (FileKind::Symlink, _) => 0o777,
            (_, Modes::Exact) => bits,
            (_, Modes::Everybodys) => bits & 0o7000 | ((bits >> 6 & 7) * 0o111),
        }),
        links: Some(if status.is_mount_point() { 2 } else { status.links }),
        ..Attributes::of_kind(kind)
    }
}

/// A name with what it stands for.
pub(crate) fn entry(name: Name, spot: Spot, status: &Status, modes: Modes, written_s: u32) -> Entry {
    Entry {
        name,
        id: identity(spot, status).file_id(),
        attributes: attributes(status, modes),
        version: shown_version(status, written_s),
    }
}

/// A name for what was asked about without one.
pub(crate) fn nameless(spot: &Spot) -> Name {
    Name::new(spot.fid.to_string()).expect("digits and dots are a name")
}

/// What ends the version of a file that its asker may not read.
const LOOKED_AT: &[u8] = b"l";
/// Permission bits of directories.
const DIRECTORY_MODE: u16 = 0o755;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::status::tests::status;

    #[test]
    fn a_link_that_nobody_may_execute_is_a_directory() {
        let link = Status { kind: Kind::Symlink, mode: 0o755, ..status() };
        let attributes = |status: &Status| attributes(status, Modes::Exact);
        assert_eq!((attributes(&link).kind, attributes(&link).mode), (FileKind::Symlink, Some(0o777)));
        let mount = Status { mode: 0o644, ..link };
        assert_eq!((attributes(&mount).kind, attributes(&mount).mode), (FileKind::Directory, Some(0o755)));
    }

    #[test]
    fn linux_leaves_the_files_of_several_users_to_the_server() {
        let shown = |kind, mode, modes| attributes(&Status { kind, mode, ..status() }, modes).mode;
        for (kind, mode, exact, everybodys) in [
            (Kind::File, 0o600, 0o600, 0o666),
            (Kind::File, 0o4750, 0o4750, 0o4777),
            (Kind::File, 0o444, 0o444, 0o444),
            (Kind::Directory, 0o1700, 0o1755, 0o1777),
        ] {
            assert_eq!(shown(kind, mode, Modes::Exact), Some(exact));
            assert_eq!(shown(kind, mode, Modes::Everybodys), Some(everybodys));
        }
    }

    /// Goal: what a token brought is everybody's only where anybody may have it, and who may only look is not told which
    /// version a reader has.
    #[test]
    fn what_anybody_may_have_is_everybodys() {
        let file = |anonymous: Rights, caller: Rights, mode| Status {
            kind: Kind::File,
            mode,
            anonymous_access: anonymous,
            caller_access: caller,
            ..status()
        };
        let server = crate::servers::ServerId::Address([192, 0, 2, 1].into());
        let alice = Teller { server, token: Some(std::sync::Arc::new(crate::tokens::tests::token(1))) };
        let only = Audience::Only { uid: 1000 };
        for (status, of_status, of_content) in [
            (file(Rights::READING, Rights::ALL, 0o644), Audience::Everyone, Audience::Everyone),
            (file(Rights::LOOKUP, Rights::ALL, 0o644), only, only),
            (
                Status { kind: Kind::Symlink, ..file(Rights::LOOKUP, Rights::ALL, 0o755) },
                Audience::Everyone,
                Audience::Everyone,
            ),
            (file(Rights::READ, Rights::ALL, 0o644), only, only),
            (file(Rights::READING, Rights::ALL, 0o044), Audience::Everyone, only),
            (file(Rights(0), Rights::ALL, 0o644), only, only),
        ] {
            let audiences =
                |teller| (audience(Told::Status, &status, teller), audience(Told::Content, &status, teller));
            assert_eq!(audiences(&alice), (of_status, of_content), "{status:?}");
            let nobody = Teller { server, token: None };
            assert_eq!(audiences(&nobody), (Audience::Everyone, Audience::Everyone));
        }
        assert_eq!(stricter(only, Audience::Everyone), only);
        assert_eq!(stricter(Audience::Everyone, only), only);
        let (reader, looker) = (file(Rights(0), Rights::READING, 0o644), file(Rights(0), Rights::LOOKUP, 0o644));
        let version = |status: &Status| version(status, status.modified_s);
        let shown_version = |status: &Status| shown_version(status, status.modified_s);
        let is_version = |told: &Version, status: &Status| is_version(told, status, status.modified_s);
        assert_eq!(shown_version(&reader), version(&reader));
        assert!(!version(&looker).still_holds(&shown_version(&looker)));
        assert!(is_version(&shown_version(&looker), &reader) && is_version(&version(&looker), &looker));
    }

    #[test]
    fn another_time_is_another_version() {
        let version = |status: &Status| version(status, status.modified_s);
        let one = status();
        assert_eq!(version(&one), version(&Status { mode: 0, changed_s: 9, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { data_version: one.data_version ^ 1, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { modified_s: one.modified_s ^ 1, ..one.clone() }));
    }
}
