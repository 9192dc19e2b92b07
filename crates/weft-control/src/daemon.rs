//! What the control socket needs of a daemon.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    CacheReport, Checked, Copied, Covered, Decision, Depth, Eviction, Grouped, Hello, Lines, Measures, NameInfo,
    OfPinned, PathBytes, Refusal, Reloaded, Removed, Status, UnsentReport, WarmOrder, Warmed, Watched, Why,
};

/// The daemon as the control socket sees it. Paths are bytes relative to the mount's root, without a leading or
/// trailing slash and without `.` or `..`; the empty path is the root. `uid` is the user who asks, as the kernel
/// tells it: the daemon shows no user what was fetched with another's rights.
#[async_trait]
pub trait Daemon: Send + Sync {
    /// Who this is. Never waits.
    fn hello(&self) -> Hello;

    /// How things are. Never waits for a remote.
    ///
    /// # Errors
    /// Any [`Refusal`], as for every call here.
    async fn status(&self, uid: u32) -> Result<Status, Refusal>;

    /// The names known to be in the directory at `path`; of a file, the file's own. Never waits for a remote.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    async fn names(&self, path: &[u8], uid: u32) -> Result<Vec<NameInfo>, Refusal>;

    /// Drops content from the cache, never from the remote.
    ///
    /// # Errors
    /// `NotFound`; `Denied` when the content is another user's and the caller is not root, or pinned and to stay;
    /// `Invalid` for a directory without [`Depth::Below`].
    async fn remove(&self, path: &[u8], depth: Depth, of_pinned: OfPinned, uid: u32) -> Result<Removed, Refusal>;

    /// Asks the source now.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    async fn reload(&self, path: &[u8], depth: Depth, uid: u32) -> Result<Reloaded, Refusal>;

    /// What there is to know about a file. Never waits for a remote.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    async fn why(&self, path: &[u8], uid: u32) -> Result<Why, Refusal>;

    /// Has everything below `path` ask no remote until it is brought online again; with `fetch_only`, only for what is
    /// missing.
    ///
    /// # Errors
    /// `Failed` when it cannot be noted.
    async fn take_offline(&self, path: &[u8], fetch_only: bool, uid: u32) -> Result<(), Refusal>;

    /// Ends that for everything at and below `path`.
    ///
    /// # Errors
    /// `NotFound` when nothing there was offline.
    async fn bring_online(&self, path: &[u8], uid: u32) -> Result<(), Refusal>;

    /// Has what is or will be cached at and below `path` never evicted.
    ///
    /// # Errors
    /// `NotFound` when neither the path nor a host above it is known.
    async fn pin(&self, path: &[u8], uid: u32) -> Result<Covered, Refusal>;

    /// Ends that for everything at and below `path`.
    ///
    /// # Errors
    /// `NotFound` when nothing there was pinned.
    async fn unpin(&self, path: &[u8], uid: u32) -> Result<Covered, Refusal>;

    /// Who uses what of the cache, of all or at and below `path`.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    async fn cache(&self, path: &[u8], uid: u32) -> Result<CacheReport, Refusal>;

    /// The newest evictions, oldest first.
    ///
    /// # Errors
    /// `Failed` when the journal cannot be read.
    async fn evictions(&self, limit: usize, uid: u32) -> Result<Vec<Eviction>, Refusal>;

    /// Takes the mount away, and ends the daemon soon after it has answered.
    ///
    /// # Errors
    /// `Busy` when files are open and `lazy` is not set.
    async fn unmount(&self, lazy: bool) -> Result<(), Refusal>;

    /// Has another daemon, of the program that is installed now, take the mount over; ends this one soon after it has
    /// answered.
    ///
    /// # Errors
    /// `Failed` when nobody is there who would start one.
    async fn replace(&self) -> Result<(), Refusal>;

    /// Tells the changes that are found at and below `path` from now on; a path that is not known yet may become so.
    /// With `validate_every` it asks about what is held there at that pace for as long as the stream lives.
    ///
    /// # Errors
    /// `Invalid` for a pace that is too fast.
    async fn watch(&self, path: &[u8], validate_every: Option<Duration>, uid: u32) -> Result<Lines<Watched>, Refusal>;

    /// Fetches trees ahead on behalf of the user who asks, and tells what happens; ends with the stream.
    ///
    /// # Errors
    /// `Invalid` for what cannot be a glob.
    async fn warm(&self, order: WarmOrder, uid: u32) -> Result<Lines<Warmed>, Refusal>;

    /// Reads everything that the cache holds and tells what is damaged; with `repair` that is given up. Ends with the
    /// stream.
    ///
    /// # Errors
    /// Any [`Refusal`].
    async fn check(&self, repair: bool, uid: u32) -> Result<Lines<Checked>, Refusal>;

    /// Is told which files are read together; `linked`: one of each group refers to the others.
    ///
    /// # Errors
    /// Any [`Refusal`]; paths that are not known are counted.
    async fn group(&self, groups: Vec<Vec<PathBytes>>, linked: bool, uid: u32) -> Result<Grouped, Refusal>;

    /// What was written at and below `path` and is not at its source. Never waits for a remote.
    ///
    /// # Errors
    /// Any [`Refusal`]; where nothing is unsent, the report is empty.
    async fn unsent(&self, path: &[u8], uid: u32) -> Result<UnsentReport, Refusal>;

    /// Decides what becomes of an unsent file, and tells how many bytes that was about.
    ///
    /// # Errors
    /// `NotFound` when nothing of it is unsent, `Busy` when it is open for writing, `Failed` when the source has another
    /// version and that is not to be written over; whatever keeps it from being sent.
    async fn decide(&self, path: &[u8], decision: Decision, uid: u32) -> Result<u64, Refusal>;

    /// Tells an unsent file's bytes, as it is in the mount; ends with [`Copied::Done`].
    ///
    /// # Errors
    /// `NotFound` when nothing of it is unsent.
    async fn copy_unsent(&self, path: &[u8], uid: u32) -> Result<Lines<Copied>, Refusal>;

    /// Tells the bytes of what has an unsent file's name at its source; ends with [`Copied::Done`].
    ///
    /// # Errors
    /// `NotFound` when nothing of it is unsent, or the source has no such file; whatever keeps that from answering.
    async fn copy_source(&self, path: &[u8], uid: u32) -> Result<Lines<Copied>, Refusal>;

    /// Everything that is counted. Never waits for a remote.
    ///
    /// # Errors
    /// Any [`Refusal`].
    async fn stats(&self, uid: u32) -> Result<Measures, Refusal>;
}
