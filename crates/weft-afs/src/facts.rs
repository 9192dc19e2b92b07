//! What a status says, in the words of the contract.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, Audience, Entry, Figure, FileKind, Name, Version};

use crate::access::{Operation, Rights, Subject};
use crate::identity::{Identity, Spot};
use crate::options::Modes;
use crate::rotate::Teller;
use crate::volume_name::VolumeType;
use crate::wire::status::{Kind, Status};

/// Which content a file or directory has.
///
/// A volume that was restored from a dump comes to the same data versions again, with other bytes, and gives what is made anew
/// the fids of what was made since the dump. Programs that unpack archives give files the same times as well. What differs is
/// in [`Made`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub data_version: u64,
    /// The time that its last writer gave it (`retimed.rs`).
    pub written_s: u32,
    /// Where it is told.
    pub made: Option<Made>,
}

/// A time by the clock of a server that nobody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// When the volume was made, of one that is written to: `vos restore` makes it anew, and nothing else does.
    Volume(u32),
    /// When the file was changed last, in whatever way, of a copy, which each release and each backup makes anew. Dumps and
    /// clones keep it (OpenAFS `src/volser/dumpstuff.c`).
    File(u32),
}

impl Made {
    /// As a status of a volume of this sort tells it.
    pub fn of(status: &Status, teller: &Teller) -> Option<Made> {
        match teller.copy {
            VolumeType::ReadWrite => teller.volume_s.map(Made::Volume),
            VolumeType::ReadOnly | VolumeType::Backup => Some(Made::File(status.changed_s)),
        }
    }
}

impl Stamp {
    /// What a version of this form says, to whomever it was told.
    pub fn of(told: &Version) -> Option<Stamp> {
        let Version::Strong(bytes) = told else { return None };
        let text = std::str::from_utf8(bytes.strip_suffix(LOOKED_AT).unwrap_or(bytes)).ok()?;
        let mut parts = text.split('.');
        let (data_version, written_s) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let made = match parts.next().map(|made| (made, made.strip_prefix(FILE))) {
            None => None,
            Some((_, Some(file_s))) => Some(Made::File(file_s.parse().ok()?)),
            Some((volume_s, None)) => Some(Made::Volume(volume_s.parse().ok()?)),
        };
        parts.next().is_none().then_some(Stamp { data_version, written_s, made })
    }

    /// The version that a reader has.
    pub fn version(&self) -> Version {
        let Stamp { data_version, written_s, made } = self;
        Version::strong(match made {
            Some(Made::Volume(volume_s)) => format!("{data_version}.{written_s}.{volume_s}"),
            Some(Made::File(file_s)) => format!("{data_version}.{written_s}.{FILE}{file_s}"),
            None => format!("{data_version}.{written_s}"),
        })
    }

    /// The version as it is told with a status: to who may read the file, that of its content. Who may only look at it gets
    /// one that no content has, for whoever is told the version of what is held is shown it.
    pub fn shown_version(&self, status: &Status) -> Version {
        let version = self.version();
        match may(status, Operation::Read, status.caller_access) {
            true => version,
            false => Version::strong([version.token().unwrap_or_default(), LOOKED_AT].concat()),
        }
    }

    /// Whether a version was told to who may only look at the file of which a reader has been told the other.
    pub fn is_looked_at(told: &Version, known: &Version) -> bool {
        let is_look = |version: &Version| version.token().is_some_and(|token| token.ends_with(LOOKED_AT));
        is_look(told) && !is_look(known) && Stamp::of(known).is_some_and(|known| known.is_version(told))
    }

    /// Whether a version that was told is this one, of whatever form.
    pub fn is_version(&self, told: &Version) -> bool {
        Stamp::of(told).is_some_and(|told| {
            (told.data_version, told.written_s) == (self.data_version, self.written_s) && told.may_be_of(self.made)
        })
    }

    /// Whether it may be of what was made then: what former daemons have told does not say.
    pub fn may_be_of(&self, made: Option<Made>) -> bool {
        self.made.zip(made).is_none_or(|(of, now)| of == now)
    }
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
pub(crate) fn entry(name: Name, spot: Spot, status: &Status, modes: Modes, stamp: Stamp) -> Entry {
    Entry {
        name,
        id: identity(spot, status).file_id(),
        attributes: attributes(status, modes),
        version: stamp.shown_version(status),
    }
}

/// A name for what was asked about without one.
pub(crate) fn nameless(spot: &Spot) -> Name {
    Name::new(spot.fid.to_string()).expect("digits and dots are a name")
}

/// What begins the time of a file in a version.
const FILE: char = 'f';
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
        let token = Some(std::sync::Arc::new(crate::tokens::tests::token(1)));
        let alice = Teller { server, token, copy: VolumeType::ReadWrite, volume_s: None };
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
            let nobody = Teller { server, token: None, copy: VolumeType::ReadWrite, volume_s: None };
            assert_eq!(audiences(&nobody), (Audience::Everyone, Audience::Everyone));
        }
        assert_eq!(stricter(only, Audience::Everyone), only);
        assert_eq!(stricter(Audience::Everyone, only), only);
        let (reader, looker) = (file(Rights(0), Rights::READING, 0o644), file(Rights(0), Rights::LOOKUP, 0o644));
        let version = |status: &Status| stamp(status, Some(5)).version();
        let shown_version = |status: &Status| stamp(status, Some(5)).shown_version(status);
        let is_version = |told: &Version, status: &Status| stamp(status, Some(5)).is_version(told);
        assert_eq!(shown_version(&reader), version(&reader));
        assert!(!version(&looker).still_holds(&shown_version(&looker)));
        assert!(Stamp::is_looked_at(&shown_version(&looker), &version(&looker)));
        assert!(!Stamp::is_looked_at(&version(&looker), &shown_version(&looker)), "that is a reader's");
        assert!(
            !Stamp::is_looked_at(&stamp(&looker, Some(6)).shown_version(&looker), &version(&looker)),
            "of another volume"
        );
        assert!(is_version(&shown_version(&looker), &reader) && is_version(&version(&looker), &looker));
    }

    fn stamp(status: &Status, volume_s: Option<u32>) -> Stamp {
        let made = volume_s.map(Made::Volume);
        Stamp { data_version: status.data_version, written_s: status.modified_s, made }
    }

    /// Goal: a version is that of one volume as it was made; one that does not say so, of a former daemon, goes on.
    #[test]
    fn what_was_restored_is_another_version() {
        let of = |volume_s| stamp(&status(), volume_s);
        assert_ne!(of(Some(5)).version(), of(Some(6)).version());
        assert!(!of(Some(5)).is_version(&of(Some(6)).version()));
        assert!(of(Some(5)).is_version(&of(None).version()) && of(None).is_version(&of(Some(5)).version()));
        let of_copy = |file_s| Stamp { made: Some(Made::File(file_s)), ..of(None) };
        assert!(!of_copy(5).is_version(&of_copy(6).version()) && of_copy(5).is_version(&of(None).version()));
        for stamp in [of(None), of(Some(0)), of(Some(u32::MAX)), of_copy(0), of_copy(u32::MAX)] {
            assert_eq!(Stamp::of(&stamp.version()), Some(stamp));
            assert_eq!(Stamp::of(&stamp.shown_version(&status())), Some(stamp));
        }
        for text in
            ["", "1", "1.", "1.2.", "1.2.3.4", "1.2ll", "x.2", "-1.2", "1.4294967296", "1.2.f", "1.2.ff3", "1.2.f3.4"]
        {
            assert_eq!(Stamp::of(&Version::strong(text)), None, "{text}");
        }
    }

    #[test]
    fn another_time_is_another_version() {
        let version = |status: &Status| stamp(status, None).version();
        let one = status();
        assert_eq!(version(&one), version(&Status { mode: 0, changed_s: 9, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { data_version: one.data_version ^ 1, ..one.clone() }));
        assert_ne!(version(&one), version(&Status { modified_s: one.modified_s ^ 1, ..one.clone() }));
    }
}
