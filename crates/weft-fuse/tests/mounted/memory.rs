//! A file system in memory, which remembers what it was asked.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::io::Errno as E;
use weft_fuse::{Attributes, EntryReply, Errno, Handler, OpenReply, SourceLocks};
use weft_remote::{Caller, FileKind, LockMode, NewMode, RenameTarget, Seek, Space};
use weft_vfs::{
    Allocate, AsOf, Data, DirectoryName, HandleId, LockChange, NewNode, NodeId, OnTurned, OpenFor, OpenRecord, ReadBy,
    Removal, SetStat, SetTime, Snapshot, Stat, Write,
};

type Answer<T> = Result<T, Errno>;

/// The file system. Its root is node 1.
#[derive(Clone, Default)]
pub struct Memory(Arc<(Mutex<Files>, Condvar)>);

/// What it has.
pub struct Files {
    nodes: HashMap<NodeId, Node>,
    names: BTreeMap<(NodeId, Vec<u8>), NodeId>,
    /// Open files, and whether they may be written.
    handles: HashMap<HandleId, (NodeId, bool)>,
    last: u64,
    /// What was asked of open files, and how many bytes.
    pub asked: Vec<(&'static str, u64)>,
    /// What the next flush ends with.
    pub flush_fails: Option<E>,
    /// A name that the next lookup does not find.
    pub unseen: Option<Vec<u8>>,
    /// Its tree takes changes.
    pub writable: bool,
    /// It has locks.
    pub has_locks: bool,
    /// Somebody else has locked every file.
    pub locked_elsewhere: bool,
    /// What others have of every file, by the word of its source.
    pub others_have: LockMode,
    /// What cannot be made stronger is lost.
    pub locks_get_lost: bool,
    /// How often something was.
    pub locks_lost: usize,
    /// What every request for a lock ends with.
    pub locks_fail: Option<E>,
    /// What was asked for of locks.
    pub locked: Vec<(NodeId, LockMode, LockMode)>,
}

struct Node {
    stat: Stat,
    bytes: Vec<u8>,
    extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Default for Files {
    fn default() -> Files {
        let mut files = Files {
            nodes: HashMap::new(),
            names: BTreeMap::new(),
            handles: HashMap::new(),
            last: 1,
            asked: Vec::new(),
            flush_fails: None,
            unseen: None,
            writable: true,
            has_locks: false,
            locked_elsewhere: false,
            others_have: LockMode::Unlocked,
            locks_get_lost: false,
            locks_lost: 0,
            locks_fail: None,
            locked: Vec::new(),
        };
        files.nodes.insert(NodeId(1), node(1, FileKind::Directory, 0o755, 0));
        files
    }
}

impl Memory {
    pub fn files(&self) -> MutexGuard<'_, Files> {
        self.0.0.lock().expect("no panic in here")
    }

    /// The same when all files are closed: that comes after close(2) has ended.
    pub fn files_when_closed(&self) -> MutexGuard<'_, Files> {
        let (files, closed) = (self.files(), &self.0.1);
        let waited = closed.wait_timeout_while(files, PATIENCE, |files| !files.handles.is_empty());
        let (files, waited) = waited.expect("no panic in here");
        assert!(!waited.timed_out(), "files stay open");
        files
    }
}

impl Files {
    fn node(&mut self, id: NodeId) -> Answer<&mut Node> {
        self.nodes.get_mut(&id).ok_or(Errno(E::STALE))
    }

    fn entry(&mut self, id: NodeId) -> Answer<EntryReply> {
        let node = self.node(id)?;
        node.stat.size = node.bytes.len() as u64;
        Ok(EntryReply::Found { attributes: node.stat, ttl: Duration::ZERO })
    }

    fn make(&mut self, dir: NodeId, name: Vec<u8>, new: NewNode) -> Answer<NodeId> {
        if self.names.contains_key(&(dir, name.clone())) {
            return Err(Errno(E::EXIST));
        }
        self.last += 1;
        self.nodes.insert(NodeId(self.last), node(self.last, new.kind, new.mode.masked(), new.device));
        self.names.insert((dir, name), NodeId(self.last));
        Ok(NodeId(self.last))
    }

    fn open(&mut self, node: NodeId, writing: bool) -> OpenReply {
        self.last += 1;
        let handle = HandleId(self.last);
        self.handles.insert(handle, (node, writing));
        let record = OpenRecord::default();
        OpenReply { handle, keep_pages: false, bypass_pages: false, backing: None, record }
    }

    /// The node behind a handle, for a request that is noted.
    fn opened(&mut self, what: &'static str, bytes: u64, handle: HandleId) -> Answer<&mut Node> {
        self.asked.push((what, bytes));
        let (node, writing) = *self.handles.get(&handle).ok_or(Errno(E::BADF))?;
        if !writing && ["write", "allocate"].contains(&what) {
            return Err(Errno(E::BADF));
        }
        self.node(node)
    }
}

impl SourceLocks for Memory {
    fn lock(
        &self,
        _: Caller,
        node: NodeId,
        LockChange { from, to, .. }: LockChange,
        mut changes: impl FnMut(LockMode) + Send + 'static,
    ) -> impl Future<Output = Answer<Vec<(HandleId, OpenRecord)>>> + Send + 'static {
        let mut files = self.files();
        if let Some(errno) = files.locks_fail.filter(|_| to > from) {
            return ready(Err(Errno(errno)));
        }
        if to > from && files.locked_elsewhere {
            let is_lost = from > LockMode::Unlocked && files.locks_get_lost;
            files.locks_lost += usize::from(is_lost);
            return ready(Err(Errno(if is_lost { E::STALE } else { E::AGAIN })));
        }
        files.locked.push((node, from, to));
        drop(files);
        changes(to);
        ready(Ok(Vec::new()))
    }

    fn locked_by_others(&self, _: Caller, _: NodeId) -> impl Future<Output = Answer<LockMode>> + Send + 'static {
        let files = self.files();
        ready(files.locks_fail.map_or(Ok(files.others_have), |errno| Err(Errno(errno))))
    }
}

impl Handler for Memory {
    fn known_at(&self, _dir: NodeId, _name: &[u8]) -> Option<NodeId> {
        None
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn lookup(
        &self,
        _: Caller,
        parent: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let mut files = self.files();
        let seen = files.unseen.take_if(|unseen| *unseen == name).is_none();
        let found = files.names.get(&(parent, name)).copied().filter(|_| seen);
        ready(match found {
            Some(node) => files.entry(node),
            None => Ok(EntryReply::Absent { ttl: Duration::ZERO }),
        })
    }

    fn modes_allow(&self, _: Caller, _: NodeId, _: u32) -> bool {
        true
    }

    fn attributes(
        &self,
        _: Caller,
        node: NodeId,
        _: Option<HandleId>,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static {
        ready(self.files().entry(node).map(stat_of))
    }

    fn read_link(&self, _: Caller, node: NodeId) -> impl Future<Output = Answer<Vec<u8>>> + Send + 'static {
        ready(self.files().node(node).map(|node| node.bytes.clone()))
    }

    fn open(&self, _: Caller, node: NodeId, how: OpenFor) -> impl Future<Output = Answer<OpenReply>> + Send + 'static {
        let mut files = self.files();
        if how.truncating {
            files.asked.push(("truncate", 0));
            let emptied = files.node(node).expect("the kernel knows it");
            emptied.bytes.clear();
            if how.kill_suidgid {
                emptied.stat.mode &= 0o1777;
            }
        }
        ready(Ok(files.open(node, how.writing)))
    }

    fn read(
        &self,
        _: Caller,
        handle: HandleId,
        offset: u64,
        size: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static {
        let mut files = self.files();
        ready(files.opened("read", size as u64, handle).map(|node| {
            let from = (offset as usize).min(node.bytes.len());
            let to = (from + size).min(node.bytes.len());
            Data::Bytes(Bytes::copy_from_slice(&node.bytes[from..to]))
        }))
    }

    fn read_unopened(
        &self,
        _: Caller,
        _: NodeId,
        _: u64,
        _: usize,
    ) -> impl Future<Output = Answer<Data>> + Send + 'static {
        ready(Err(Errno(E::BADF)))
    }

    fn content_at_hand(&self, _: HandleId) -> Option<Bytes> {
        None
    }

    fn close(&self, handle: HandleId) {
        let mut files = self.files();
        assert!(files.handles.remove(&handle).is_some(), "closed once");
        files.asked.push(("close", 0));
        self.0.1.notify_all();
    }

    fn open_directory(&self, _: Caller, _: NodeId) -> impl Future<Output = Answer<AsOf>> + Send + 'static {
        ready(Ok(AsOf::default()))
    }

    fn directory_names(&self, _: Caller, _: NodeId) -> Answer<Snapshot> {
        Ok(Snapshot::default())
    }

    fn names_mark(&self, _: NodeId) -> u64 {
        0
    }

    fn entries_known(&self, _: NodeId) -> impl Fn(&DirectoryName<'_>) -> Option<(Attributes, Duration)> {
        |_| None
    }

    fn create(
        &self,
        _: Caller,
        dir: NodeId,
        name: Vec<u8>,
        new: NewNode,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let mut files = self.files();
        ready(files.make(dir, name, new).and_then(|node| files.entry(node)))
    }

    fn create_open(
        &self,
        _: Caller,
        dir: NodeId,
        name: Vec<u8>,
        mode: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static {
        let memory = self.clone();
        // Not at once: as one that asks somebody.
        async move {
            tokio::task::yield_now().await;
            let mut files = memory.files();
            let node = files.make(dir, name, NewNode { kind: FileKind::File, mode, device: 0 })?;
            Ok((files.entry(node)?, files.open(node, true)))
        }
    }

    fn create_nameless(
        &self,
        _: Caller,
        _: NodeId,
        _: NewMode,
    ) -> impl Future<Output = Answer<(EntryReply, OpenReply)>> + Send + 'static {
        ready(Err(Errno::from(weft_vfs::VfsError::ReadOnly)))
    }

    fn symlink(
        &self,
        _: Caller,
        dir: NodeId,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let mut files = self.files();
        let made = files.make(dir, name, NewNode { kind: FileKind::Symlink, mode: 0o777.into(), device: 0 });
        ready(made.and_then(|node| {
            files.node(node)?.bytes = target;
            files.entry(node)
        }))
    }

    fn link(
        &self,
        _: Caller,
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<EntryReply>> + Send + 'static {
        let mut files = self.files();
        files.names.insert((dir, name), node);
        ready(files.node(node).map(|node| node.stat.links += 1).and_then(|()| files.entry(node)))
    }

    fn remove_name(
        &self,
        _: Caller,
        dir: NodeId,
        name: Vec<u8>,
        of: Removal,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let mut files = self.files();
        let Some(node) = files.names.get(&(dir, name.clone())).copied() else { return ready(Err(Errno(E::NOENT))) };
        if files.names.keys().any(|(dir, _)| *dir == node) {
            return ready(Err(Errno(E::NOTEMPTY)));
        }
        let is_directory = files.node(node).is_ok_and(|node| node.stat.kind == FileKind::Directory);
        assert_eq!(is_directory, of == Removal::Directory);
        files.names.remove(&(dir, name));
        ready(Ok(()))
    }

    fn rename(
        &self,
        _: Caller,
        from: (NodeId, Vec<u8>),
        to: (NodeId, Vec<u8>),
        target: RenameTarget,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let mut files = self.files();
        let Some(node) = files.names.get(&from).copied() else { return ready(Err(Errno(E::NOENT))) };
        let there = files.names.get(&to).copied();
        match (target, there) {
            (RenameTarget::Absent, Some(_)) => return ready(Err(Errno(E::EXIST))),
            (RenameTarget::Exchanged, Some(other)) => drop(files.names.insert(from, other)),
            (RenameTarget::Exchanged, None) => return ready(Err(Errno(E::NOENT))),
            _ => drop(files.names.remove(&from)),
        }
        files.names.insert(to, node);
        ready(Ok(()))
    }

    fn set_stat(
        &self,
        _: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        new: SetStat,
    ) -> impl Future<Output = Answer<Attributes>> + Send + 'static {
        let mut files = self.files();
        assert!(handle.is_none_or(|handle| files.handles.contains_key(&handle)));
        let id = node;
        let node = files.node(node).expect("the kernel knows it");
        let time = |time: SetTime| match time {
            SetTime::Now => SystemTime::now(),
            SetTime::At(time) => time,
        };
        let (old, stat) = (node.stat, &mut node.stat);
        stat.mode = new.mode.unwrap_or(old.mode) & if new.kill_suidgid { 0o1777 } else { 0o7777 };
        (stat.uid, stat.gid) = (new.uid.unwrap_or(old.uid), new.gid.unwrap_or(old.gid));
        stat.modified = new.modified.map_or(old.modified, time);
        stat.accessed = new.accessed.map_or(old.accessed, time);
        if let Some(size) = new.size {
            node.bytes.resize(size as usize, 0);
        }
        ready(files.entry(id).map(stat_of))
    }

    fn write(&self, _: Caller, handle: HandleId, write: Write) -> impl Future<Output = Answer<usize>> + Send + 'static {
        let Write { offset, bytes, kill_suidgid, .. } = write;
        let mut files = self.files();
        ready(files.opened("write", bytes.len() as u64, handle).map(|node| {
            let end = offset as usize + bytes.len();
            node.bytes.resize(end.max(node.bytes.len()), 0);
            node.bytes[offset as usize..end].copy_from_slice(&bytes);
            if kill_suidgid {
                node.stat.mode &= 0o1777;
            }
            bytes.len()
        }))
    }

    fn flush(&self, _: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static {
        let memory = self.clone();
        async move {
            tokio::task::yield_now().await;
            let mut files = memory.files();
            files.opened("flush", 0, handle)?;
            files.flush_fails.take().map_or(Ok(()), |errno| Err(Errno(errno)))
        }
    }

    fn sync(&self, _: Caller, handle: HandleId) -> impl Future<Output = Answer<()>> + Send + 'static {
        ready(self.files().opened("sync", 0, handle).map(drop))
    }

    fn sync_directory(&self, _: Caller, node: NodeId) -> impl Future<Output = Answer<()>> + Send + 'static {
        let mut files = self.files();
        files.asked.push(("sync directory", node.0));
        ready(Ok(()))
    }

    fn allocate(
        &self,
        _: Caller,
        handle: HandleId,
        offset: u64,
        length: u64,
        how: Allocate,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let mut files = self.files();
        ready(files.opened("allocate", length, handle).map(|node| {
            let (from, to) = (offset as usize, (offset + length) as usize);
            if matches!(how, Allocate::Extend | Allocate::Zero) {
                node.bytes.resize(to.max(node.bytes.len()), 0);
            }
            let to = to.min(node.bytes.len());
            if !matches!(how, Allocate::Extend | Allocate::Reserve) {
                node.bytes[from..to].fill(0);
            }
        }))
    }

    /// Zeros are holes.
    fn seek(
        &self,
        _: Caller,
        handle: HandleId,
        offset: u64,
        what: Seek,
    ) -> impl Future<Output = Answer<Option<u64>>> + Send + 'static {
        let found = || {
            let mut files = self.files();
            let node = files.opened("seek", offset, handle)?;
            let mut rest = node.bytes.iter().skip(offset as usize);
            let found = rest.position(|byte| (*byte == 0) == (what == Seek::Hole));
            let end = || (what == Seek::Hole && offset < node.bytes.len() as u64).then_some(node.bytes.len() as u64);
            Ok(found.map(|place| offset + place as u64).or_else(end))
        };
        ready(found())
    }

    fn extended(
        &self,
        _: Caller,
        node: NodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Answer<Option<Vec<u8>>>> + Send + 'static {
        ready(self.files().node(node).map(|node| node.extended.get(&name).cloned()))
    }

    fn extended_names(&self, _: Caller, node: NodeId) -> impl Future<Output = Answer<Vec<Vec<u8>>>> + Send + 'static {
        ready(self.files().node(node).map(|node| node.extended.keys().cloned().collect()))
    }

    fn set_extended(
        &self,
        _: Caller,
        node: NodeId,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        must_exist: Option<bool>,
    ) -> impl Future<Output = Answer<()>> + Send + 'static {
        let mut files = self.files();
        let extended = &mut files.node(node).expect("the kernel knows it").extended;
        match (must_exist, extended.contains_key(&name)) {
            (Some(true), false) => return ready(Err(Errno(E::NODATA))),
            (Some(false), true) => return ready(Err(Errno(E::EXIST))),
            _ => {}
        }
        match value {
            Some(value) => drop(extended.insert(name, value)),
            None => drop(extended.remove(&name)),
        }
        ready(Ok(()))
    }

    fn is_writable(&self, _: NodeId) -> bool {
        self.files().writable
    }

    fn is_unsent(&self, _: NodeId) -> bool {
        false
    }

    fn generation(&self, _: NodeId) -> u64 {
        0
    }

    fn is_running(&self, _: NodeId) -> bool {
        false
    }

    fn reopen(&self, _: NodeId, _: HandleId, _: &OpenRecord, _: ReadBy) -> Answer<()> {
        Err(Errno(E::STALE))
    }

    fn place_reopened(&self, _: Vec<NodeId>) -> impl Future<Output = ()> + Send + 'static {
        ready(())
    }

    fn on_turned(&self, _: OnTurned) {}

    fn has_locks(&self) -> bool {
        self.files().has_locks
    }

    fn has_access_lists(&self) -> bool {
        false
    }

    fn space(&self, _: Caller, _: NodeId) -> impl Future<Output = Answer<Space>> + Send + 'static {
        ready(Ok(Space::of_bytes(1 << 30, 1 << 29)))
    }
}

fn node(id: u64, kind: FileKind, mode: u16, device: u32) -> Node {
    let now = SystemTime::now();
    let stat = Stat {
        node: NodeId(id),
        generation: 0,
        kind,
        size: 0,
        modified: now,
        changed: now,
        accessed: now,
        mode,
        links: 1,
        device,
        allocated: 0,
        uid: 0,
        gid: 0,
        ttl: Duration::ZERO,
    };
    Node { stat, bytes: Vec::new(), extended: BTreeMap::new() }
}

fn stat_of(entry: EntryReply) -> Stat {
    match entry {
        EntryReply::Found { attributes, .. } => attributes,
        EntryReply::Absent { .. } => unreachable!("it was found"),
    }
}

/// How long the kernel may take to tell that files are closed.
const PATIENCE: Duration = Duration::from_secs(10);
