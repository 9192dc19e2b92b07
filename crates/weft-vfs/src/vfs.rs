//! The file system: what it is made of and how it is put together.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Answer, Call, FileId, Name, Neighbourhood, Remote, RemoteError, clock};
use weft_store::{BindingId, NodeId, NodeRecord, Store};

use crate::absences::Absences;
use crate::absent_names::AbsentNames;
use crate::aliases::Aliases;
use crate::attempt::Room;
use crate::changes::Changes;
use crate::ending::Ending;
use crate::figures::{Figures, FiguresSnapshot};
use crate::freshness::Freshness;
use crate::handle::Handles;
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::moved_directories::MovedDirectories;
use crate::namespace::Namespace;
use crate::notice::Notices;
use crate::offline::Offline;
use crate::orphans::Orphans;
use crate::overtaken::Overtaken;
use crate::policies::{Policies, Policy};
use crate::prefetch::Prefetch;
use crate::reopen::OnTurned;
use crate::retry::Retries;
use crate::space::{Space, SpaceOptions};
use crate::stat::DefaultOwner;
use crate::trouble::{Trouble, Troubles};
use crate::warm::Warms;
use crate::{Result, VfsError};

/// A remote and where the mount shows it.
pub struct Binding {
    /// Where in the mount: no name when the remote's root is the mount's root, one for a remote that is all of its
    /// kind, two (the kind and its own) for one of several.
    pub at: Vec<Name>,
    /// What is shown, in the words of the configuration; keeps its number in the store for ever.
    pub source: String,
    /// The remote.
    pub remote: Arc<dyn Remote>,
}

/// Settings of the file system.
pub struct VfsOptions {
    /// Longest wait for a remote in one request.
    pub deadline: Duration,
    /// Which tree is trusted how long.
    pub policies: Policies,
    /// Owner of what has no owner at its source.
    pub uid: u32,
    /// Group of what has none at its source.
    pub gid: u32,
    /// Inodes kept in memory that nobody uses.
    pub inodes_max: usize,
    /// What is fetched of a large body when nobody has opened it.
    pub unclaimed_bytes_max: u64,
    /// Whether users other than the one who mounted may use the mount.
    pub shared: bool,
    /// Files at least this long are read by the kernel itself when they are complete; `u64::MAX` where it may not.
    pub passthrough_bytes_min: u64,
    /// What may be held, and where.
    pub space: SpaceOptions,
    /// Whether files are read without having been opened: the kernel keeps pages until it is told that they are old.
    pub unopened: bool,
}

impl Default for VfsOptions {
    fn default() -> VfsOptions {
        VfsOptions {
            deadline: Duration::from_secs(30),
            policies: Policies::new(Freshness::Http, Vec::new()),
            uid: 0,
            gid: 0,
            inodes_max: 4096,
            unclaimed_bytes_max: 256 << 10,
            shared: false,
            passthrough_bytes_min: 128 << 10,
            space: SpaceOptions::default(),
            unopened: false,
        }
    }
}

/// The file system of one mount.
///
/// All operations take the caller and a deadline ([`Call`]). They are futures that are ready at once when the
/// answer is in the store, so that the kernel side can poll them once on the thread that read the request and hand
/// only those that wait to the runtime.
pub struct Vfs {
    pub(crate) store: Arc<Store>,
    pub(crate) namespace: Namespace,
    pub(crate) options: VfsOptions,
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    /// Held while what is known of a name, or where a node lies, is looked at and changed by what it was.
    pub(crate) renames: Mutex<()>,
    /// Inodes that are being written, or of which something is unsent.
    pub(crate) drafts: Mutex<HashMap<NodeId, Arc<Inode>>>,
    /// Told when something could not be sent for a reason that may pass.
    pub(crate) left_over: Arc<tokio::sync::Notify>,
    pub(crate) attempts: Room,
    pub(crate) absences: Absences,
    /// What the store knows of such names.
    pub(crate) absent_names: AbsentNames,
    pub(crate) retries: Retries,
    pub(crate) moved_directories: MovedDirectories,
    /// Whether extended attributes of files without a name are noted, or were since the start.
    pub(crate) has_nameless_notes: AtomicBool,
    /// Who is told of open files that are of another version than when they were opened.
    pub(crate) on_turned: OnceLock<OnTurned>,
    /// Told whenever what was read under some lock may be relied on no more.
    pub(crate) reliance_ended: tokio::sync::Notify,
    /// What was changed from here, for answers that were asked for before.
    pub(crate) overtaken: Overtaken,
    /// Files whose identities give another number than theirs.
    pub(crate) aliases: Aliases,
    pub(crate) orphans: Orphans,
    pub(crate) notices: Notices,
    pub(crate) figures: Figures,
    pub(crate) troubles: Troubles,
    pub(crate) changes: Changes,
    pub(crate) offline: Offline,
    pub(crate) prefetch: Prefetch,
    /// Held once by each open file that is read past the store.
    pub(crate) throughs: Arc<()>,
    pub(crate) space: Space,
    pub(crate) warms: Warms,
    pub(crate) ending: Arc<Ending>,
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Vfs {
    /// Puts a file system together and starts to listen to its remotes' events. Asks no remote.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub fn new(
        store: Arc<Store>,
        bindings: Vec<Binding>,
        options: VfsOptions,
        notices: Notices,
        runtime: tokio::runtime::Handle,
    ) -> Result<Arc<Vfs>> {
        let namespace = Namespace::new(&store, bindings)?;
        let vfs = Arc::new(Vfs {
            inodes: Inodes::new(options.inodes_max),
            handles: Handles::default(),
            renames: Mutex::default(),
            drafts: Mutex::default(),
            left_over: Arc::default(),
            attempts: Room::default(),
            absences: Absences::default(),
            absent_names: AbsentNames::default(),
            retries: Retries::default(),
            moved_directories: MovedDirectories::default(),
            has_nameless_notes: Vfs::finds_nameless_notes(&store)?.into(),
            on_turned: OnceLock::new(),
            reliance_ended: tokio::sync::Notify::new(),
            overtaken: Overtaken::default(),
            aliases: Aliases::default(),
            orphans: Orphans::default(),
            figures: Figures::default(),
            troubles: Troubles::default(),
            changes: Changes::default(),
            offline: Offline::noted(store.notes("offline")),
            prefetch: Prefetch::default(),
            throughs: Arc::default(),
            space: Space::new(&store, store.notes("pins"), options.space.clone()),
            warms: Warms::default(),
            ending: Arc::default(),
            store,
            namespace,
            options,
            notices,
            runtime,
        });
        vfs.take_up_drafts();
        // Also of what could not be taken up.
        for text in vfs.store.troubles() {
            vfs.troubles.tell(String::new(), text);
        }
        vfs.listen();
        vfs.keep_space();
        vfs.keep_names();
        vfs.send_again();
        Ok(vfs)
    }

    /// A call that this mount's deadline bounds.
    pub fn call(&self, caller: weft_remote::Caller) -> Call {
        Call::within(caller, self.options.deadline)
    }

    /// Counters since the start.
    pub fn figures(&self) -> FiguresSnapshot {
        self.figures.snapshot()
    }

    /// The last things that went wrong.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.recent()
    }

    /// What is shown where: the path below the mount's root (empty when it is the whole mount), the source in the words of
    /// the configuration, and the sources behind it that were used so far.
    pub fn bindings(&self) -> impl Iterator<Item = (&[Name], &str, Vec<weft_remote::Source>)> {
        self.namespace.all().iter().map(|bound| (bound.at.as_slice(), bound.source.as_str(), bound.remote.sources()))
    }

    /// What was exchanged with the sources of each binding, by the binding's source in the words of the
    /// configuration.
    pub fn traffic(&self) -> Vec<(&str, Vec<weft_remote::Traffic>)> {
        self.namespace.all().iter().map(|bound| (bound.source.as_str(), bound.remote.traffic())).collect()
    }

    /// The sources behind all remotes, as far as they were used.
    pub fn sources(&self) -> Vec<weft_remote::Source> {
        self.namespace.all().iter().flat_map(|bound| bound.remote.sources()).collect()
    }

    /// Handles open and inodes in memory.
    pub fn in_use(&self) -> (usize, usize) {
        (self.handles.count(), self.inodes.count())
    }

    /// The store behind this file system.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Figures for `df`: of what holds the file at its source, where that takes changes and tells them in time; otherwise
    /// those of the disk that holds the cache.
    pub async fn stat_fs(self: Arc<Self>, call: Call, node: NodeId) -> weft_remote::Space {
        let at_source = self.space_at_source(&call, node).await;
        at_source.unwrap_or_else(|| {
            let usage = self.store.usage();
            weft_remote::Space::of_bytes(usage.total_bytes, usage.free_bytes)
        })
    }

    async fn space_at_source(&self, call: &Call, node: NodeId) -> Option<weft_remote::Space> {
        if self.namespace.is_own(node) {
            return None;
        }
        let inode = self.inode(node).ok()?;
        let remote = self.remote_of(&inode).ok()?;
        if !remote.capabilities().writable {
            return None;
        }
        // `df` goes through all mounts: one source that is away must not keep it from the others.
        let call = Call { deadline: call.deadline.min(Instant::now() + SPACE_PATIENCE), ..*call };
        let file = inode.record().file;
        match self.ask_for(&call, remote.space(&call, &file)).await {
            Ok(space) => space,
            Err(error) => {
                tracing::debug!(%error, "how full it is at the source is not told");
                None
            }
        }
    }

    pub(crate) fn default_owner(&self) -> DefaultOwner {
        DefaultOwner { uid: self.options.uid, gid: self.options.gid }
    }

    /// The inode of a node, from memory or the store.
    pub(crate) fn inode(&self, id: NodeId) -> Result<Arc<Inode>> {
        let id = self.namespace.real(id);
        if let Some(inode) = self.inodes.get(id) {
            return Ok(inode);
        }
        let record = self.store.node(id)?.ok_or(VfsError::Stale)?;
        let policy = self.policy_of(&record)?;
        let inode = self.inodes.add(Inode::new(id, policy, record.clone()));
        self.note_alias(id, &record)?;
        Ok(inode)
    }

    pub(crate) fn remote(&self, binding: BindingId) -> Result<&Arc<dyn Remote>> {
        self.namespace.remote(binding).ok_or(VfsError::Stale)
    }

    /// The number of a file of a binding.
    pub(crate) fn identify(&self, binding: BindingId, file: &FileId) -> Result<NodeId> {
        let number = self.store.identify(binding, file, self.neighbourhood(binding, file))?;
        match self.alias_of(number, binding, file)? {
            // Whoever has met it by its own goes on with that.
            Some(alias) if self.store.node(number)?.is_none() => Ok(alias),
            _ => Ok(number),
        }
    }

    /// The same with what is known of it.
    pub(crate) fn identify_known(&self, binding: BindingId, file: &FileId) -> Result<(NodeId, Option<NodeRecord>)> {
        let (number, known) = self.store.identify_known(binding, file, self.neighbourhood(binding, file))?;
        match self.alias_of(number, binding, file)? {
            Some(alias) if known.is_none() => Ok((alias, self.store.node(alias)?)),
            _ => Ok((number, known)),
        }
    }

    /// The numbers that a file of a binding may have.
    pub(crate) fn numbers_of(&self, binding: BindingId, file: &FileId) -> Result<impl Iterator<Item = NodeId> + use<>> {
        let number = self.store.identify(binding, file, self.neighbourhood(binding, file))?;
        Ok(std::iter::once(number).chain(self.alias_of(number, binding, file)?))
    }

    pub(crate) fn neighbourhood(&self, binding: BindingId, file: &FileId) -> Option<Neighbourhood> {
        self.namespace.remote(binding).and_then(|remote| remote.neighbourhood(file))
    }

    /// Runs a question to a remote, bounded by the call's deadline. The answer counts from when it was asked.
    pub(crate) async fn ask<T>(
        &self,
        call: &Call,
        question: impl Future<Output = weft_remote::Result<Answer<T>>>,
    ) -> Result<Answer<T>> {
        let asked = clock::now();
        let answer = self.ask_for(call, question).await?;
        Ok(Answer { asked, ..answer })
    }

    /// The same, of a question whose answer is no knowledge.
    pub(crate) async fn ask_for<T>(
        &self,
        call: &Call,
        question: impl Future<Output = weft_remote::Result<T>>,
    ) -> Result<T> {
        let outcome = tokio::time::timeout_at(call.deadline.into(), question).await;
        let answer = outcome.map_err(|_| VfsError::TimedOut).and_then(|answer| Ok(answer?));
        if answer.is_err() {
            crate::figures::count(&self.figures.failures);
        }
        answer
    }

    pub(crate) fn policy_of(&self, record: &NodeRecord) -> Result<Policy> {
        let policies = &self.options.policies;
        if !policies.depend_on_path() {
            return Ok(policies.for_path(&[]));
        }
        Ok(policies.for_path(&self.path_of_record(record)?))
    }

    /// The path of a node below the mount's root, by the directories that it was found in.
    pub(crate) fn path_of(&self, id: NodeId) -> Result<Vec<Name>> {
        let id = self.namespace.real(id);
        if let Some(path) = self.namespace.own_path(id) {
            return Ok(path);
        }
        let record = self.store.node(id)?.ok_or(VfsError::Stale)?;
        self.path_of_record(&record)
    }

    pub(crate) fn path_of_record(&self, record: &NodeRecord) -> Result<Vec<Name>> {
        let mut path = Vec::new();
        let mut record = record.clone();
        while path.len() < DEPTH_MAX {
            let bound = self.namespace.bound(record.binding).ok_or(VfsError::Stale)?;
            if bound.remote.root() == record.file {
                path.extend(bound.at.iter().rev().cloned());
                break;
            }
            path.push(record.name.clone());
            record = match self.store.node(record.parent)? {
                Some(parent) => parent,
                None => break,
            };
        }
        path.reverse();
        Ok(path)
    }

    /// Ends the bodies that are on their way and keeps what came of them, as far as it can be gone on with. To be
    /// waited for when the mount has ended, before the store is flushed; it takes at most a few seconds.
    pub async fn wind_down(&self) {
        self.ending.settle().await;
    }

    /// A node's path for people.
    pub(crate) fn path_text(&self, id: NodeId) -> String {
        let path = self.path_of(id).unwrap_or_default();
        path.iter().map(Name::to_string).collect::<Vec<_>>().join("/")
    }
}

/// What a remote says of a thing that it no longer has.
pub(crate) fn is_gone(error: &VfsError) -> bool {
    matches!(error, VfsError::Remote(RemoteError::NotFound { .. }) | VfsError::NotFound)
}

/// Deepest path that is followed upwards; deeper ones get the policy of their upper part.
pub(crate) const DEPTH_MAX: usize = 1024;

/// How long `df` waits for a source.
const SPACE_PATIENCE: Duration = Duration::from_secs(2);
