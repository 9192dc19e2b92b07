//! The trait that every kind implements.

use std::os::fd::OwnedFd;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::{
    Answer, Attributes, Call, Checked, Crawl, Cursor, Event, Fetched, FileId, Found, Listing, Mutation, Name,
    Neighbourhood, Outcome, RemoteError, Result, Rules, Source, Span, Traffic, Version,
};

/// What a kind can do. Declared, never guessed from errors; the conformance suite holds a kind to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Takes mutations.
    pub writable: bool,
    /// Can fetch from the middle of a file (at least of some).
    pub ranges: bool,
    /// An id stays with a file when it is renamed.
    pub stable_ids: bool,
    /// Sends [`Event::Broken`].
    pub breakable_leases: bool,
    /// Has hard links.
    pub links: bool,
    /// Has locks.
    pub locks: bool,
    /// Has symbolic links.
    pub symlinks: bool,
    /// Has fifos, sockets and devices.
    pub special_files: bool,
    /// Has extended attributes.
    pub extended: bool,
    /// Has POSIX access lists, as extended attributes ([`is_access_list`](crate::is_access_list)).
    pub access_lists: bool,
    /// Tells who may write a file before it is tried ([`Remote::may_write`]).
    pub rights: bool,
}

/// Figures for `df`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Of these for an ordinary user: a file system may keep some back for root.
    pub available: u64,
    /// How many files there may be; 0 where that is not counted.
    pub files: u64,
    /// How many more there may be.
    pub files_free: u64,
}

impl Space {
    /// Of which all that is free is anybody's, and files are not counted.
    pub fn of_bytes(total: u64, free: u64) -> Space {
        Space { total, free, available: free, files: 0, files_free: 0 }
    }
}

/// How a whole file is locked, the weaker first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Not at all.
    Unlocked,
    /// Others may share it.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next data at or after the place.
    Data,
    /// The next hole at or after the place; the end of the file is one.
    Hole,
}

/// A local file that the kernel may read itself instead of asking.
#[derive(Debug)]
pub struct Backing {
    /// Open for reading.
    pub file: OwnedFd,
    /// The content's version.
    pub version: Version,
}

/// A remote tree.
///
/// Every call names the caller and a deadline ([`Call`]) and gives up by itself at that deadline; dropping a
/// call's future cancels it and leaves nothing half done that a later call could see. An implementation keeps no
/// content: only the file system above moves bytes between a remote and the store. It never panics on what a
/// source sends. Calls may run at the same time.
///
/// The identities in answers are the kind's own; one identity means one file for as long as it exists.
#[async_trait]
pub trait Remote: Send + Sync {
    /// What this kind can do.
    fn capabilities(&self) -> Capabilities;

    /// The directory that the tree starts with. Known without asking anybody.
    fn root(&self) -> FileId;

    /// Finds `name` in `dir`. Absence is an answer too, with a lease; the first bytes may come along.
    ///
    /// # Errors
    /// `NotADirectory` when `dir` is none, `NotFound` when `dir` itself is gone; otherwise whatever keeps the
    /// source from answering. A missing `name` is not an error.
    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>>;

    /// What `file` is now; [`Checked::Unchanged`] when it still is the `known` version, [`Checked::Touched`] when its
    /// content is, as far as the source can tell.
    ///
    /// # Errors
    /// `NotFound` when it is gone; otherwise whatever keeps the source from answering.
    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>>;

    /// The names in `dir`, from `cursor` on (`None`: from the start); [`Listing::Unchanged`] when the listing
    /// still is the `known` version. A listing's version covers all that its rows tell, sizes and times too.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound`; otherwise whatever keeps the source from answering.
    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>>;

    /// Bytes of `file`: of exactly the `expected` version, or of whatever it is now where that is
    /// [`Version::None`]. The body starts at `span.start` or before it (a source without ranges starts at 0) and
    /// may end after the span. At or past the end of the file the body is empty.
    ///
    /// # Errors
    /// `VersionChanged` when it no longer is the expected version; `IsADirectory`, `NotFound`; otherwise whatever
    /// keeps the source from answering.
    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>>;

    /// Where data or a hole begins at or after `offset` in the `expected` version of a file; `None` past its end. What a
    /// hole covers reads as zeros.
    ///
    /// # Errors
    /// `Unsupported` where the kind knows of no holes, `VersionChanged`; whatever keeps the source from answering. Then all
    /// of it is to be taken for data.
    async fn seek(
        &self,
        _call: &Call,
        file: &FileId,
        _expected: &Version,
        _offset: u64,
        _what: Seek,
    ) -> Result<Option<u64>> {
        Err(RemoteError::Unsupported { detail: format!("{file:?}: holes") })
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `Unsupported` where the kind has no links.
    async fn read_link(&self, _call: &Call, file: &FileId) -> Result<Answer<Vec<u8>>> {
        Err(RemoteError::Unsupported { detail: format!("{file:?}: symbolic links") })
    }

    /// Refuses who may not write a file, as far as the source tells that without its being tried. `dir` is a directory that has
    /// it, where one is known; with `appends` it will be written at its end alone.
    ///
    /// # Errors
    /// `Denied`, `NotPermitted`, `ReadOnly`; whatever keeps the source from telling: then who writes it finds out.
    async fn may_write(&self, _call: &Call, _file: &FileId, _dir: Option<&FileId>, _appends: bool) -> Result<()> {
        Ok(())
    }

    /// A mark of the login with which whoever makes this call is asked for: another one when the caller has logged in anew since,
    /// or out. Never asks a source.
    async fn login(&self, _call: &Call) -> u64 {
        0
    }

    /// Makes one change, provided that the file it changes still is the `expected` version (where that is not
    /// [`Version::None`]). For a write that is: still has that version's bytes; a kind may let a change of mere
    /// attributes pass.
    ///
    /// What it did is told by the outcome, and need not be told by an event: whoever asks for a change takes what was known
    /// of the names and directories in it for ended.
    ///
    /// # Errors
    /// `ReadOnly` where the kind takes no changes; `VersionChanged` when the expectation fails.
    async fn apply(&self, _call: &Call, mutation: &Mutation, _expected: &Version) -> Result<Answer<Outcome>> {
        Err(RemoteError::ReadOnly { detail: format!("{:?}", mutation.change) })
    }

    /// Makes what was applied to a file, or to the names of a directory, durable at the source. A kind whose `apply`
    /// answers only when the change is durable has nothing to do.
    ///
    /// # Errors
    /// `NotFound`; whatever keeps the source from doing it.
    async fn sync(&self, _call: &Call, _file: &FileId) -> Result<()> {
        Ok(())
    }

    /// The value of an extended attribute; `None` when the file has none of that name.
    ///
    /// # Errors
    /// `Unsupported` where the kind has no extended attributes, or none with this prefix.
    async fn extended(&self, _call: &Call, file: &FileId, _name: &[u8]) -> Result<Option<Vec<u8>>> {
        Err(RemoteError::Unsupported { detail: format!("{file:?}: extended attributes") })
    }

    /// The names of a file's extended attributes.
    ///
    /// # Errors
    /// As of [`Remote::extended`].
    async fn extended_names(&self, _call: &Call, file: &FileId) -> Result<Vec<Vec<u8>>> {
        Err(RemoteError::Unsupported { detail: format!("{file:?}: extended attributes") })
    }

    /// Changes the lock that this mount has on a whole file, for all of its users together. The kind keeps it from ending
    /// until it is given back. Twice the same: a former daemon of this mount has taken it, and it is to be kept.
    ///
    /// # Errors
    /// `Unsupported` where the kind has no locks; `Busy` when somebody else's is in the way: then there is what there was;
    /// `VersionChanged` when what there was has been lost to somebody else as well: then there is nothing.
    async fn lock(&self, _call: &Call, file: &FileId, _from: LockMode, _to: LockMode) -> Result<()> {
        Err(RemoteError::Unsupported { detail: format!("{file:?}: locks") })
    }

    /// The strongest lock that others than this mount have on a whole file, now.
    ///
    /// # Errors
    /// What keeps the source from answering.
    async fn locked_by_others(&self, _call: &Call, _file: &FileId) -> Result<LockMode> {
        Ok(LockMode::Unlocked)
    }

    /// Figures for `df` of what holds a file (a disk, a volume with its quota); `None` where the kind has none.
    ///
    /// # Errors
    /// What keeps the source from answering.
    async fn space(&self, _call: &Call, _file: &FileId) -> Result<Option<Space>> {
        Ok(None)
    }

    /// A local file that the kernel may read itself, where the kind has one: never asks anybody.
    fn backing(&self, _file: &FileId) -> Option<Backing> {
        None
    }

    /// Messages that nobody asked for. Called once, when the tree is bound.
    ///
    /// A message may overtake the answer to a call that was made before it. Who keeps answers by their leases keeps none
    /// of a file that was told of between the call and its answer.
    fn events(&self) -> BoxStream<'static, Event> {
        Box::pin(futures_util::stream::pending())
    }

    /// Whether everything that has changed at the source up to now is told, and heard by who listens to [`Remote::events`].
    /// Where a source tells of changes after it has made them, what was promised is to be asked about in between. It asks nobody
    /// and does not wait.
    fn has_told_all(&self) -> bool {
        true
    }

    /// Returns when [`Remote::has_told_all`] was so. It asks nobody; it may not return while there are changes all the time.
    async fn told_all(&self) {}

    /// Whether a file that has the version `told` now may have the bytes that it had when it was `known`, although the two differ:
    /// where versions tell of changes of attributes and names as well. Who has those bytes compares them. Never asks anybody.
    fn may_have_bytes_of(&self, _told: &Version, _known: &Version) -> bool {
        false
    }

    /// Whether the version `told` is the word on `known` to somebody who may look at the file and not read it: where that has a
    /// version of its own. Never asks anybody.
    fn is_looked_at(&self, _told: &Version, _known: &Version) -> bool {
        false
    }

    /// Whether a file may still have a name under which it was told of, by what the kind has heard since: not where somebody else
    /// has moved it and nothing is known of another file there. Never asks anybody.
    fn may_be_named(&self, _file: &FileId, _dir: &FileId, _name: &Name) -> bool {
        true
    }

    /// Whether the kind knows where a file is, as far as it has to: where not, a question about it is
    /// [`Unplaced`](RemoteError::Unplaced), and that it is moved is not heard, until its name is looked up. Never asks anybody.
    fn is_placed(&self, _file: &FileId) -> bool {
        true
    }

    /// Facts about a file for people (`weft why`), from what the kind remembers: never asks anybody.
    fn about(&self, _file: &FileId) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What was exchanged with each source that the tree is made of: never asks anybody.
    fn traffic(&self) -> Vec<Traffic> {
        Vec::new()
    }

    /// A file is at its source no more, and nobody here has it open: what is remembered of it is of no use. Never waits.
    fn forget(&self, _file: &FileId) {}

    /// The sources that were used so far, where a kind has several; bounded by the kind. Never waits.
    fn sources(&self) -> Vec<Source> {
        Vec::new()
    }

    /// The source that holds a file; `None` when it has not been used yet. Never waits.
    fn source(&self, _file: &FileId) -> Option<Source> {
        None
    }

    /// Where a file lies among the others: what is known of neighbours is kept together. Of an identity it never changes,
    /// also not from one version of weft to the next. Never waits.
    fn neighbourhood(&self, _file: &FileId) -> Option<Neighbourhood> {
        None
    }

    /// The user wants the source of this file (of the root: every source) tried now: the next call asks it, however
    /// lately it failed. Says whether any had been given up for the moment. Never waits.
    fn try_again(&self, _file: &FileId) -> bool {
        false
    }

    /// Whether a program that goes through the tree by itself may ask for what has these names, one in the other, below
    /// `file` (for `file` itself where there are none), and at what pace. May ask the source for its rules, and remembers them.
    ///
    /// # Errors
    /// What keeps the source from giving its rules, where that may pass soon.
    async fn may_crawl(&self, _call: &Call, _file: &FileId, _below: &[Name], _rules: Rules) -> Result<Crawl> {
        Ok(Crawl::default())
    }

    /// Asks for a longer path at once: for what has these names, one in the other, below `dir`, of which the source shows
    /// no directory with the first. Some sources give a file to whoever knows its whole path, and tell nothing of the
    /// directories on the way to it. `true` when there is something: from now on a lookup of each name on the way finds a
    /// directory.
    ///
    /// # Errors
    /// Whatever keeps the source from answering.
    async fn reach(&self, _call: &Call, _dir: &FileId, _names: &[Name]) -> Result<bool> {
        Ok(false)
    }

    /// Attributes of the root directory. Known without asking anybody.
    fn root_attributes(&self) -> Attributes {
        Attributes::of_kind(crate::FileKind::Directory)
    }
}
