//! What a file server tells of files and volumes, and what it can be told to change.
//!
//! Layouts are those of OpenAFS `src/fsint/afsint.xg` and `common.xg`. Times are seconds since 1970, unsigned, without
//! fractions. Owners and groups are numbers of the cell's protection database, not of this machine.

use weft_rx::{Decoder, Encoder, XdrError};

use super::{List, Text, Xdr, on_the_wire};
use crate::access::Rights;
use crate::fid::VolumeId;

/// Longest name of a file or a volume, in bytes; the protocol counts a NUL that is not sent.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest content of a symbolic link, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Most bytes of an access control list or of a message.
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// Most fids of one call.
pub const FIDS_MAX: usize = 50;

/// A name.
pub type FileName = Text<NAME_BYTES_MAX>;
/// The content of a symbolic link.
pub type Path = Text<PATH_BYTES_MAX>;
/// A message, or an access control list as text.
pub type Message = Text<OPAQUE_BYTES_MAX>;
/// Some fids.
pub type Fids = List<crate::fid::Fid, FIDS_MAX>;
/// As many promises as fids.
pub type Promises = List<Promise, FIDS_MAX>;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, or a mount point.
    Symlink,
}

/// Status of a file, 21 words (`AFSFetchStatus`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub kind: Kind,
    /// How many names it has.
    pub links: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Which content it has: one more after each change.
    pub data_version: u64,
    /// Who wrote it last.
    pub author: i32,
    /// Whose it is.
    pub owner: i32,
    /// What whoever asked may do, by the directory's access control list; of a file also `a`, if it is the asker's own.
    pub caller_access: Rights,
    /// What anybody may do.
    pub anonymous_access: Rights,
    /// Unix mode bits without the type.
    pub mode: u32,
    /// The directory it is in, in the same volume; of a directory, itself.
    pub parent_vnode: u32,
    /// The uniquifier of that.
    pub parent_unique: u32,
    /// When its content changed, as the writer told it.
    pub modified_s: u32,
    /// When it last changed by the server's clock.
    pub changed_s: u32,
    /// Its group.
    pub group: i32,
    /// Locks on it: how many readers, or -1 for a writer.
    pub lock_count: i32,
}

/// One status of several that were asked for, or the code why there is none (`abort.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRow(pub Result<Status, i32>);

/// What is set of a file's status, 6 words (`AFSStoreStatus`); what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusChange {
    /// When its content changed.
    pub modified_s: Option<u32>,
    /// Whose it is.
    pub owner: Option<i32>,
    /// Its group.
    pub group: Option<i32>,
    /// Unix mode bits without the type. A link without any x is a mount point.
    pub mode: Option<u32>,
    /// Whether the server shall have it on its disk before it answers.
    pub sync: Sync,
}

/// When a change has to be on the server's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the server likes.
    #[default]
    Later,
    /// Before it answers.
    Now,
}

on_the_wire! {
    /// A callback promise: the server will say when the file changes, 3 words (`AFSCallBack`).
    pub struct Promise {
        /// 1; 0 where there is no promise.
        version: u32,
        /// For how many seconds. They count from before the request was sent.
        expires_s: u32,
        /// 1 exclusive, 2 shared, 3 dropped.
        kind: u32,
    }

    /// Tells when the volume's whole content changed, 6 words (`AFSVolSync`).
    pub struct VolumeSync {
        /// When the volume was made: another time after a release of a read-only volume, and after a restore.
        created_s: u32,
        /// Nothing.
        spares: Spares,
    }

    /// Status of a volume, 12 words (`AFSFetchVolumeStatus`). Sizes are in KiB and end at 2^31.
    pub struct VolumeStatus {
        /// The volume.
        volume: VolumeId,
        /// The read-write volume that it is a copy of.
        parent: VolumeId,
        /// Not 0: it is online.
        online: Char,
        /// Not 0: it is in service.
        in_service: Char,
        /// Not 0: it was not made wrong.
        blessed: Char,
        /// Not 0: it has to be repaired.
        needs_salvage: Char,
        /// 0 read-only, 1 read-write.
        kind: i32,
        /// Room that is kept for it.
        quota_min_kib: i32,
        /// Room that it may take, 0 for any.
        quota_max_kib: i32,
        /// Room that it takes.
        used_kib: i32,
        /// Room that is left in its partition.
        partition_free_kib: i32,
        /// Size of its partition.
        partition_kib: i32,
    }

    /// What is set of a volume, 3 words (`AFSStoreVolumeStatus`).
    pub struct VolumeChange {
        /// 1: the minimum, 2: the maximum is set.
        mask: i32,
        /// Room that is kept for it, in KiB.
        quota_min_kib: i32,
        /// Room that it may take, in KiB; 0 for any.
        quota_max_kib: i32,
    }
}

/// A `char`, which has a word on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Char(pub u8);

/// Five words that mean nothing: written as 0, not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spares;

/// `VolumeChange::mask`: the minimum is set.
pub const SET_QUOTA_MIN: i32 = 1;
/// `VolumeChange::mask`: the maximum is set.
pub const SET_QUOTA_MAX: i32 = 2;

/// Words of a status.
const STATUS_WORDS: usize = 21;
/// The only version of the structure.
const INTERFACE_VERSION: u32 = 1;
const SET_MODIFIED: u32 = 1;
const SET_OWNER: u32 = 2;
const SET_GROUP: u32 = 4;
const SET_MODE: u32 = 8;
const SYNC_NOW: u32 = 1024;
/// The kind of a promise that is none any more.
const DROPPED: u32 = 3;

impl Status {
    /// Whether this link is a mount point: one that nobody may execute.
    #[must_use]
    pub fn is_mount_point(&self) -> bool {
        self.kind == Kind::Symlink && self.mode & 0o111 == 0
    }

    fn of_words(words: &[u32; STATUS_WORDS], from: &Decoder<'_>) -> Result<Status, XdrError> {
        if words[0] != INTERFACE_VERSION {
            return Err(from.invalid("a status of another version"));
        }
        let kind = match words[1] {
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink,
            _ => return Err(from.invalid("a status of no kind of file")),
        };
        let long = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Ok(Status {
            kind,
            links: words[2],
            length: long(words[19], words[3]),
            data_version: long(words[17], words[4]),
            author: words[5].cast_signed(),
            owner: words[6].cast_signed(),
            caller_access: Rights(words[7]),
            anonymous_access: Rights(words[8]),
            mode: words[9],
            parent_vnode: words[10],
            parent_unique: words[11],
            modified_s: words[13],
            changed_s: words[14],
            group: words[15].cast_signed(),
            lock_count: words[18].cast_signed(),
        })
    }

    fn to_words(&self) -> [u32; STATUS_WORDS] {
        let kind = match self.kind {
            Kind::File => 1,
            Kind::Directory => 2,
            Kind::Symlink => 3,
        };
        let halves = |long: u64| ((long >> 32) as u32, long as u32);
        let (length_high, length_low) = halves(self.length);
        let (version_high, version_low) = halves(self.data_version);
        [
            INTERFACE_VERSION,
            kind,
            self.links,
            length_low,
            version_low,
            self.author.cast_unsigned(),
            self.owner.cast_unsigned(),
            self.caller_access.0,
            self.anonymous_access.0,
            self.mode,
            self.parent_vnode,
            self.parent_unique,
            0, // where it lies
            self.modified_s,
            self.changed_s,
            self.group.cast_unsigned(),
            0, // a counter that is not used
            version_high,
            self.lock_count.cast_unsigned(),
            length_high,
            0, // an error, which only rows have
        ]
    }
}

impl Promise {
    /// No promise.
    pub const NONE: Promise = Promise { version: 0, expires_s: 0, kind: 0 };

    /// Whether something is promised.
    #[must_use]
    pub fn is_promise(&self) -> bool {
        self.version != 0 && self.kind != DROPPED && self.expires_s > 0
    }
}

impl Xdr for Status {
    fn encode(&self, to: &mut Encoder) {
        write_words(to, &self.to_words());
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Status, XdrError> {
        let words = read_words(from)?;
        Status::of_words(&words, from)
    }
}

impl Xdr for StatusRow {
    fn encode(&self, to: &mut Encoder) {
        match &self.0 {
            Ok(status) => status.encode(to),
            Err(code) => {
                let mut words = [0; STATUS_WORDS];
                (words[0], words[STATUS_WORDS - 1]) = (INTERFACE_VERSION, code.cast_unsigned());
                write_words(to, &words);
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<StatusRow, XdrError> {
        let words = read_words(from)?;
        // Beside an error nothing is certain: some servers leave even the version 0.
        match words[STATUS_WORDS - 1] {
            0 => Status::of_words(&words, from).map(|status| StatusRow(Ok(status))),
            code => Ok(StatusRow(Err(code.cast_signed()))),
        }
    }
}

impl Xdr for StatusChange {
    fn encode(&self, to: &mut Encoder) {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        let mask = bit(self.modified_s.is_some(), SET_MODIFIED)
            | bit(self.owner.is_some(), SET_OWNER)
            | bit(self.group.is_some(), SET_GROUP)
            | bit(self.mode.is_some(), SET_MODE)
            | bit(self.sync == Sync::Now, SYNC_NOW);
        to.u32(mask).u32(self.modified_s.unwrap_or(0)).i32(self.owner.unwrap_or(0)).i32(self.group.unwrap_or(0));
        // The last word is the size of a segment, which nothing has any more.
        to.u32(self.mode.unwrap_or(0)).u32(0);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<StatusChange, XdrError> {
        let [mask, modified_s, owner, group, mode, _segment] = read_words(from)?;
        let set = |bit: u32| mask & bit != 0;
        Ok(StatusChange {
            modified_s: set(SET_MODIFIED).then_some(modified_s),
            owner: set(SET_OWNER).then_some(owner.cast_signed()),
            group: set(SET_GROUP).then_some(group.cast_signed()),
            mode: set(SET_MODE).then_some(mode),
            sync: if set(SYNC_NOW) { Sync::Now } else { Sync::Later },
        })
    }
}

impl Xdr for Char {
    fn encode(&self, to: &mut Encoder) {
        to.char(self.0);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Char, XdrError> {
        from.char().map(Char)
    }
}

impl Xdr for Spares {
    fn encode(&self, to: &mut Encoder) {
        write_words(to, &[0; 5]);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Spares, XdrError> {
        read_words::<5>(from).map(|_| Spares)
    }
}

/// Some words.
pub(crate) fn read_words<const N: usize>(from: &mut Decoder<'_>) -> Result<[u32; N], XdrError> {
    let mut words = [0; N];
    for word in &mut words {
        *word = from.u32()?;
    }
    Ok(words)
}

/// Some words.
pub(crate) fn write_words(to: &mut Encoder, words: &[u32]) {
    for word in words {
        to.u32(*word);
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
pub(crate) mod tests;
