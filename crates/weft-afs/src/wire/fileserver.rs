//! The calls of a file server (OpenAFS `src/fsint/afsint.xg`; Rx service 1, port 7000).
//!
//! Two calls carry data, which is neither padded nor counted as an argument. The reply of [`FetchData64`] is a length
//! of two words, that many bytes, and a [`StatusReply`]; [`FetchReader`] takes it apart as it comes. [`StoreData64`]
//! is the request's head, and the bytes follow it.

use weft_rx::XdrError;

use super::status::{
    Fids, FileName, Message, Path, Promise, Promises, Status, StatusChange, StatusRow, VolumeChange, VolumeStatus,
    VolumeSync,
};
use super::{List, Xdr, calls, decode_whole, on_the_wire};
use crate::fid::{Fid, VolumeId};

/// The Rx service of file servers; that of the callbacks is on the client's side.
pub const SERVICE: u16 = 1;
/// The port of file servers.
pub const PORT: u16 = 7000;
/// Most words of capabilities.
pub const CAPABILITIES_MAX: usize = 196;

/// What a server can do, in bits; word 0 is the one with meanings.
pub type Capabilities = List<u32, CAPABILITIES_MAX>;

/// Capability: codes of abort are of the universal table for clients that want them so.
pub const CAPABLE_ERRORS: u32 = 1;
/// Capability: files beyond 2 GiB.
pub const CAPABLE_64_BITS: u32 = 2;
/// Capability: `w` gives write locks.
pub const CAPABLE_WRITE_LOCKS: u32 = 4;
/// Capability: access control lists can be set for what is no directory without harm.
pub const CAPABLE_SANE_ACLS: u32 = 8;

on_the_wire! {
    /// The access control list of a directory, or of the one that a file is in.
    pub struct FetchAcl {
        /// Whose.
        fid: Fid,
    }

    /// Status, and a promise to tell of changes.
    pub struct FetchStatus {
        /// Whose.
        fid: Fid,
    }

    /// Sets attributes.
    pub struct StoreStatus {
        /// Whose.
        fid: Fid,
        /// Which.
        change: StatusChange,
    }

    /// Takes away a name of a file or a link; with the last one goes the file.
    pub struct RemoveFile {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
    }

    /// Makes a file. Fails if the name is taken.
    pub struct CreateFile {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
        /// Its attributes.
        status: StatusChange,
    }

    /// Moves a name, within the volume. What has the new name goes.
    pub struct Rename {
        /// From where.
        from_dir: Fid,
        /// Which name.
        from_name: FileName,
        /// Where to.
        to_dir: Fid,
        /// What the name becomes.
        to_name: FileName,
    }

    /// Makes a symbolic link, or a mount point if nobody may execute it.
    pub struct Symlink {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
        /// Where it leads.
        content: Path,
        /// Its attributes.
        status: StatusChange,
    }

    /// Gives a file a second name, in the same directory.
    pub struct Link {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
        /// The file.
        fid: Fid,
    }

    /// Makes a directory, with a copy of its parent's access control list.
    pub struct MakeDir {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
        /// Its attributes.
        status: StatusChange,
    }

    /// Takes away an empty directory.
    pub struct RemoveDir {
        /// Where.
        dir: Fid,
        /// Which name.
        name: FileName,
    }

    /// The server need not tell of changes of these any more.
    pub struct GiveUpCallBacks {
        /// Of which.
        fids: Fids,
        /// Their promises; may be empty.
        promises: Promises,
    }

    /// How full a volume is.
    pub struct GetVolumeStatus {
        /// Which.
        volume: VolumeId,
    }

    /// Sets what a volume may take.
    pub struct SetVolumeStatus {
        /// Which.
        volume: VolumeId,
        /// To what.
        change: VolumeChange,
        /// Its name; empty to leave it.
        name: FileName,
        /// Why it is offline; empty to leave it.
        offline: Message,
        /// Its message of the day; empty to leave it.
        motto: Message,
    }

    /// The name of the cell's first volume.
    pub struct GetRootVolume {}

    /// The server's clock; a probe.
    pub struct GetTime {}

    /// Status of several. One failure fails all: [`InlineBulkStatus`] is better.
    pub struct BulkStatus {
        /// Of which.
        fids: Fids,
    }

    /// Locks a file, for 300 s.
    pub struct SetLock {
        /// Which.
        fid: Fid,
        /// [`LOCK_READ`] or [`LOCK_WRITE`].
        kind: i32,
    }

    /// Keeps a lock for another 300 s.
    pub struct ExtendLock {
        /// Of which file.
        fid: Fid,
    }

    /// Lets go of a lock. The server does not know whose it is.
    pub struct ReleaseLock {
        /// Of which file.
        fid: Fid,
    }

    /// Sets the access control list of a directory.
    pub struct StoreAcl {
        /// Of which.
        dir: Fid,
        /// As text (`access.rs`).
        acl: Message,
    }

    /// As [`StoreAcl`], for servers that do not have it.
    pub struct OldStoreAcl {
        /// Of which.
        dir: Fid,
        /// As text (`access.rs`).
        acl: Message,
    }

    /// Status of several; each may fail by itself.
    pub struct InlineBulkStatus {
        /// Of which.
        fids: Fids,
    }

    /// Bytes of a file, directory or link. Past the end there are fewer, or none.
    pub struct FetchData64 {
        /// Of which.
        fid: Fid,
        /// From where, in bytes.
        position: i64,
        /// How many at most, in bytes.
        length: i64,
    }

    /// Writes bytes, which follow the request. The file's length becomes the lesser of `file_length` and its old one,
    /// or the end of what is written if that is greater.
    pub struct StoreData64 {
        /// To which file.
        fid: Fid,
        /// Attributes that are set with it.
        change: StatusChange,
        /// Where to, in bytes.
        position: u64,
        /// How many bytes follow.
        length: u64,
        /// How long the file shall be, if it is longer.
        file_length: u64,
    }

    /// The server may forget this client.
    pub struct GiveUpAllCallBacks {}

    /// What the server can do.
    pub struct GetCapabilities {}
}

calls! { SERVICE;
    FetchAcl = 131 -> AclReply;
    FetchStatus = 132 -> StatusReply;
    OldStoreAcl = 134 -> ChangeReply;
    StoreStatus = 135 -> ChangeReply;
    RemoveFile = 136 -> ChangeReply;
    CreateFile = 137 -> CreateReply;
    Rename = 138 -> RenameReply;
    Symlink = 139 -> SymlinkReply;
    Link = 140 -> LinkReply;
    MakeDir = 141 -> CreateReply;
    RemoveDir = 142 -> ChangeReply;
    GiveUpCallBacks = 147 -> ();
    GetVolumeStatus = 149 -> VolumeReply;
    SetVolumeStatus = 150 -> ();
    GetRootVolume = 151 -> FileName;
    GetTime = 153 -> TimeReply;
    BulkStatus = 155 -> BulkReply;
    SetLock = 156 -> VolumeSync;
    ExtendLock = 157 -> VolumeSync;
    ReleaseLock = 158 -> VolumeSync;
    StoreAcl = 164 -> ChangeReply;
    InlineBulkStatus = 65536 -> BulkReply;
    FetchData64 = 65537 -> FetchedData;
    StoreData64 = 65538 -> ChangeReply;
    GiveUpAllCallBacks = 65539 -> ();
    GetCapabilities = 65540 -> Capabilities;
}

/// [`SetLock::kind`]: others may read.
pub const LOCK_READ: i32 = 0;
/// [`SetLock::kind`]: nobody else may.
pub const LOCK_WRITE: i32 = 1;
/// How long a lock lives without [`ExtendLock`], in seconds.
pub const LOCK_S: u64 = 300;

on_the_wire! {
    /// An access control list.
    pub struct AclReply {
        /// As text (`access.rs`).
        acl: Message,
        /// The file's status.
        status: Status,
        /// The volume's.
        sync: VolumeSync,
    }

    /// A status with a promise; also the end of a reply with data.
    pub struct StatusReply {
        /// The status.
        status: Status,
        /// The promise.
        promise: Promise,
        /// The volume's.
        sync: VolumeSync,
    }

    /// What is after a change of one thing: the directory, where a name went.
    pub struct ChangeReply {
        /// Its status.
        status: Status,
        /// The volume's.
        sync: VolumeSync,
    }

    /// What was made.
    pub struct CreateReply {
        /// Its fid.
        fid: Fid,
        /// Its status.
        status: Status,
        /// The directory's.
        dir: Status,
        /// A promise for what was made.
        promise: Promise,
        /// The volume's.
        sync: VolumeSync,
    }

    /// A link that was made; nothing is promised.
    pub struct SymlinkReply {
        /// Its fid.
        fid: Fid,
        /// Its status.
        status: Status,
        /// The directory's.
        dir: Status,
        /// The volume's.
        sync: VolumeSync,
    }

    /// What is after a second name was given.
    pub struct LinkReply {
        /// The file's status.
        status: Status,
        /// The directory's.
        dir: Status,
        /// The volume's.
        sync: VolumeSync,
    }

    /// What is after a name was moved.
    pub struct RenameReply {
        /// Status of the directory it was in.
        from_dir: Status,
        /// Status of the directory it is in.
        to_dir: Status,
        /// The volume's.
        sync: VolumeSync,
    }

    /// How full a volume is, and what it has to say.
    pub struct VolumeReply {
        /// The figures.
        status: VolumeStatus,
        /// Its name.
        name: FileName,
        /// Why it is offline.
        offline: Message,
        /// Its message of the day.
        motto: Message,
    }

    /// The server's clock.
    pub struct TimeReply {
        /// Seconds since 1970.
        seconds: u32,
        /// Microseconds.
        microseconds: u32,
    }

    /// Status of several, in the order of the request.
    pub struct BulkReply {
        /// A row for each.
        rows: List<StatusRow, { super::status::FIDS_MAX }>,
        /// A promise for each.
        promises: Promises,
        /// The volume's.
        sync: VolumeSync,
    }
}

impl BulkReply {
    /// The answer for each of the fids that were asked for.
    ///
    /// # Errors
    /// `Invalid`, if it is not an answer for each.
    pub fn answers(self, asked: &[Fid]) -> Result<Vec<(Fid, StatusRow, Promise)>, XdrError> {
        if self.rows.0.len() != asked.len() || self.promises.0.len() != asked.len() {
            return Err(XdrError::Invalid { offset: 0, why: "another number of answers than of questions" });
        }
        let rows = self.rows.0.into_iter().zip(self.promises.0);
        Ok(asked.iter().zip(rows).map(|(fid, (row, promise))| (*fid, row, promise)).collect())
    }
}

/// A whole reply with data, for those who have all of it: the bytes and what follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedData {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What follows.
    pub end: StatusReply,
}

impl Xdr for FetchedData {
    fn encode(&self, to: &mut weft_rx::Encoder) {
        self.end.encode(to.u64(self.bytes.len() as u64).raw(&self.bytes));
    }

    fn decode(from: &mut weft_rx::Decoder<'_>) -> Result<FetchedData, XdrError> {
        let length = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
        Ok(FetchedData { bytes: from.raw(length)?.to_vec(), end: StatusReply::decode(from)? })
    }
}

/// Takes the reply of [`FetchData64`] apart as it comes: [`FetchReader::take`] for each piece, then
/// [`FetchReader::finish`].
#[derive(Clone, Debug)]
pub struct FetchReader {
    /// Most bytes that may come.
    asked: u64,
    /// What came of the length.
    head: Vec<u8>,
    /// Bytes of data that are still to come, once the length is known.
    left: Option<u64>,
    /// What came after the data.
    end: Vec<u8>,
}

/// Bytes of the length before the data.
const HEAD_BYTES: usize = 8;
/// Bytes after the data: a status of 21 words, a promise of 3, what is of the volume of 6.
const END_BYTES: usize = 30 * 4;

impl FetchReader {
    /// For a call that asked for `asked` bytes.
    #[must_use]
    pub fn new(asked: u64) -> FetchReader {
        FetchReader { asked, head: Vec::with_capacity(HEAD_BYTES), left: None, end: Vec::new() }
    }

    /// The data in the next piece of the reply.
    ///
    /// # Errors
    /// `Invalid`, if the server sends more than was asked for; `Trailing` for what follows the end.
    pub fn take<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], XdrError> {
        let (head, rest) = piece.split_at(piece.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let Ok(length) = <[u8; HEAD_BYTES]>::try_from(&self.head[..]).map(u64::from_be_bytes) else {
            return Ok(&[]);
        };
        if length > self.asked {
            return Err(XdrError::Invalid { offset: 0, why: "more data than was asked for" });
        }
        let left = *self.left.get_or_insert(length);
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        self.left = Some(left - here as u64);
        let (data, end) = rest.split_at(here);
        if self.end.len() + end.len() > END_BYTES {
            let offset = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(HEAD_BYTES + END_BYTES);
            return Err(XdrError::Trailing { offset, left: self.end.len() + end.len() - END_BYTES });
        }
        self.end.extend_from_slice(end);
        Ok(data)
    }

    /// How much data the server sends, in bytes, once that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.left.and(Some(&self.head[..])).and_then(|head| head.try_into().ok()).map(u64::from_be_bytes)
    }

    /// What follows the data, when all has come.
    ///
    /// # Errors
    /// `Short`, and what its status deserves.
    pub fn finish(self) -> Result<StatusReply, XdrError> {
        match self.left {
            Some(0) => decode_whole(&self.end),
            Some(left) => {
                let needed = usize::try_from(left).unwrap_or(usize::MAX);
                Err(XdrError::Short { offset: HEAD_BYTES, needed, left: 0 })
            }
            None => Err(XdrError::Short { offset: 0, needed: HEAD_BYTES, left: self.head.len() }),
        }
    }
}

#[cfg(test)]
#[path = "fileserver_tests.rs"]
mod tests;
