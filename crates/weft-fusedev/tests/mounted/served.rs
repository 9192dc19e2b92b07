//! A small file system that answers from memory, and can let requests wait.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use weft_fusedev::{
    Attributes, End, Entry, InitFlags, Interrupted, LockFamily, MountOptions, Notifier, Opened, Operation, Reply,
    Request, RingLimits, Room, Serve, Serving, Session, Space, Transport, Unread, Wanted, mount, unmount,
};

/// What a file has: this many bytes, each told by its place.
pub const FILE_BYTES: u64 = 3 << 20;

/// The byte of a file at a place.
pub fn byte_at(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 17)) as u8
}

/// The files: `file` and `other` of [`FILE_BYTES`], `link`, `note` that can be written, `later` that another thread
/// answers for, `stored` whose bytes lie in another file and are read past the pages. Lookups of what begins with `dead`, and what is done with [`STUCK`], are never answered but by
/// [`Memory::release`] or an interrupt.
#[derive(Debug)]
pub struct Memory {
    note: Mutex<Vec<u8>>,
    /// Where the bytes of `stored` lie.
    pub stored: std::fs::File,
    waiting: Mutex<Waits>,
    changed: Condvar,
    elsewhere: mpsc::Sender<(Reply, Entry)>,
    pub destroyed: AtomicU64,
    /// How often a name was looked up.
    pub lookups: AtomicU64,
    /// Whether the kernel may keep names and attributes.
    pub lasting: AtomicBool,
    /// Locks that were asked for: of which family, and of which kind.
    pub locks: Mutex<Vec<(LockFamily, u32)>>,
}

#[derive(Debug, Default)]
struct Waits {
    replies: HashMap<u64, Reply>,
    interrupted: u64,
    early: Vec<u64>,
}

impl Memory {
    pub fn new() -> Arc<Memory> {
        let (elsewhere, comes) = mpsc::channel::<(Reply, Entry)>();
        std::thread::spawn(move || comes.iter().for_each(|(reply, entry)| ignore(reply.entry(&entry))));
        let waiting = Mutex::default();
        Arc::new(Memory {
            note: Mutex::default(),
            stored: stored(),
            waiting,
            changed: Condvar::new(),
            elsewhere,
            destroyed: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            lasting: AtomicBool::new(false),
            locks: Mutex::default(),
        })
    }

    /// Waits until so many requests wait.
    pub fn wait_for_waiting(&self, count: usize) {
        let waits = self.waiting.lock().expect("no panic in here");
        drop(self.changed.wait_while(waits, |waits| waits.replies.len() < count).expect("no panic in here"));
    }

    /// Answers those that wait with `ENOENT`; gives how many.
    pub fn release(&self) -> usize {
        let replies = std::mem::take(&mut self.waiting.lock().expect("no panic in here").replies);
        let count = replies.len();
        replies.into_values().for_each(|reply| ignore(reply.error(2)));
        count
    }

    /// Requests that ended by an interrupt.
    pub fn interrupted(&self) -> u64 {
        self.waiting.lock().expect("no panic in here").interrupted
    }

    /// Changes `note` without a request.
    pub fn write_behind(&self, bytes: &[u8]) {
        *self.note.lock().expect("no panic in here") = bytes.to_vec();
    }

    fn wait(&self, reply: Reply) {
        let mut waits = self.waiting.lock().expect("no panic in here");
        if waits.early.contains(&reply.unique()) {
            waits.interrupted += 1;
            reply.error(4);
        } else {
            waits.replies.insert(reply.unique(), reply);
        }
        self.changed.notify_all();
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        let usual = Attributes { node, links: 1, block_bytes: 4096, ..Attributes::default() };
        Some(match node {
            1 => Attributes { mode: 0o040_755, links: 2, ..usual },
            FILE | OTHER | LATER | STORED => Attributes { mode: 0o100_644, size: FILE_BYTES, ..usual },
            LINK => Attributes { mode: 0o120_777, size: 4, ..usual },
            STUCK_LIST => Attributes { mode: 0o040_755, links: 2, ..usual },
            STUCK_OPEN..STUCK_LIST => Attributes { mode: 0o100_666, size: FILE_BYTES, ..usual },
            NOTE => {
                let size = self.note.lock().expect("no panic in here").len() as u64;
                Attributes { mode: 0o100_666, size, ..usual }
            }
            _ => return None,
        })
    }

    fn entry(&self, node: u64) -> Option<Entry> {
        let attributes = self.attributes(node)?;
        let ttl = self.ttl();
        Some(Entry { node, generation: 0, name_ttl: ttl, attributes_ttl: ttl, attributes })
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(if self.lasting.load(Ordering::Relaxed) { 3600 } else { 0 })
    }

    fn lookup(&self, name: &[u8], reply: Reply) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if name.starts_with(b"dead") {
            return self.wait(reply);
        }
        let node = NAMES.iter().chain(&STUCK).find(|(known, _)| known.as_bytes() == name).map(|(_, node)| *node);
        match node.and_then(|node| self.entry(node)) {
            Some(entry) if node == Some(LATER) => self.elsewhere.send((reply, entry)).expect("the thread lives"),
            Some(entry) => drop(reply.entry(&entry)),
            None => drop(reply.error(2)),
        }
    }
}

impl Serve for Memory {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node;
        if is_stuck(node, &request.operation) {
            return self.wait(reply);
        }
        match request.operation {
            Operation::Lookup(name) => self.lookup(name, reply),
            Operation::Getattr { .. } => match self.attributes(node) {
                Some(attributes) => drop(reply.attributes(&attributes, self.ttl())),
                None => drop(reply.error(2)),
            },
            Operation::Setattr(changes) => {
                if let (NOTE, Some(size)) = (node, changes.size) {
                    self.note.lock().expect("no panic in here").resize(size as usize, 0);
                }
                let attributes = self.attributes(node).expect("the kernel knows the inode");
                reply.attributes(&attributes, Duration::ZERO);
            }
            Operation::Readlink => drop(reply.data(b"file")),
            Operation::Open { .. } | Operation::Opendir { .. } => {
                let flags = if [OTHER, NOTE, STORED, STUCK_READ].contains(&node) { Opened::DIRECT_IO } else { 0 };
                reply.opened(Opened { handle: node, flags, backing_id: 0 });
            }
            Operation::Read(read) if node == NOTE => {
                let note = self.note.lock().expect("no panic in here");
                let from = (read.offset as usize).min(note.len());
                let to = (from + read.size as usize).min(note.len());
                reply.data(&note[from..to]);
            }
            Operation::Read(read) if node == STORED => {
                let length = FILE_BYTES.saturating_sub(read.offset).min(read.size.into());
                if let Err(Unread { reply, .. }) = reply.file(self.stored.as_fd(), read.offset, length as usize) {
                    reply.error(NOT_STORED);
                }
            }
            Operation::Read(read) => {
                let end = (read.offset + u64::from(read.size)).min(FILE_BYTES);
                let bytes: Vec<u8> = (read.offset..end).map(byte_at).collect();
                let mut filling = reply.begin(read.size);
                let added = bytes.chunks(1000).all(|chunk| filling.add(&[chunk]) == Room::Added);
                if added {
                    filling.send()
                } else {
                    filling.error(5)
                };
            }
            Operation::Write { offset, data, .. } => {
                let mut note = self.note.lock().expect("no panic in here");
                let end = offset as usize + data.len();
                if note.len() < end {
                    note.resize(end, 0);
                }
                reply.written(data.len() as u32);
                // The bytes are still what was written after the answer is on its way.
                note[offset as usize..end].copy_from_slice(data);
            }
            Operation::Readdir(read) => {
                let mut names = reply.names(read.size);
                for (place, (name, node)) in NAMES.iter().enumerate().skip(read.offset as usize) {
                    let name = weft_fusedev::Name {
                        node: *node,
                        next: place as u64 + 1,
                        kind: weft_fusedev::Kind::Unknown,
                        name: name.as_bytes(),
                    };
                    if names.add(&name) == Room::Full {
                        break;
                    }
                }
                names.send();
            }
            Operation::Statfs => drop(reply.space(&Space::default())),
            Operation::Getxattr { name, size } => match name {
                b"user.long" => drop(reply.extended(&[b'x'; 5000], size)),
                _ => drop(reply.error(61)),
            },
            Operation::Release { .. } | Operation::Releasedir { .. } | Operation::Fsync { .. } => drop(reply.done()),
            Operation::Setlk(lock) | Operation::Setlkw(lock) => {
                self.locks.lock().expect("no panic in here").push((lock.family, lock.range.kind));
                reply.done();
            }
            Operation::Mkdir { .. } => panic!("a handler that panics"),
            _ => drop(reply.error(38)),
        }
    }

    fn interrupt(&self, unique: u64) -> Interrupted {
        let mut waits = self.waiting.lock().expect("no panic in here");
        match waits.replies.remove(&unique) {
            Some(reply) => {
                waits.interrupted += 1;
                reply.error(4);
            }
            None => waits.early.push(unique),
        }
        Interrupted::Taken
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where something is mounted, until this goes.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test may have taken it away itself.
        let _ = unmount(self.path(), true);
    }
}

/// A mount of a [`Memory`], which goes when this does.
pub struct Mounted {
    pub directory: Place,
    pub memory: Arc<Memory>,
    pub notifier: Notifier,
    serving: Option<Serving>,
}

impl Mounted {
    pub fn new(transport: Transport, limits: RingLimits) -> Mounted {
        let (directory, session) = begin(transport, limits);
        let (memory, notifier) = (Memory::new(), session.notifier());
        let serving = session.serve(memory.clone(), 2, "test").expect("threads start");
        assert_eq!(serving.has_rings(), transport == Transport::IoUring);
        Mounted { directory, memory, notifier, serving: Some(serving) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("it is served until it ends")
    }

    /// Aborts the connection through the control file system, mounted for as long as that takes.
    pub fn abort(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let ours = self.directory.path().to_str().expect("a plain name");
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(ours)).expect("it is mounted");
        let device = line.split(' ').nth(2).expect("a device");
        let connection = device.split(':').nth(1).expect("a minor number");
        let control = tempfile::tempdir().expect("a directory");
        rustix::mount::mount("none", control.path(), "fusectl", rustix::mount::MountFlags::empty(), None)
            .expect("the control file system");
        let aborted = std::fs::write(control.path().join(connection).join("abort"), "1");
        unmount(control.path(), true).expect("unmounted");
        aborted.expect("aborted");
    }

    /// Waits until all threads have ended, after something else ended the connection.
    pub fn join(mut self) -> std::io::Result<End> {
        self.serving.take().expect("it is served until it ends").join()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.memory.release();
    }
}

/// A mount that is not served yet.
pub fn begin(transport: Transport, limits: RingLimits) -> (Place, Session) {
    let (directory, device) = mounted_device();
    let flags = FLAGS.into_iter().fold(InitFlags::default(), |all, flag| all | flag);
    let session = Session::begin_over(device, &Wanted { flags, ..Wanted::default() }, transport, limits);
    let session = session.expect("the connection begins");
    assert!(session.as_fd().try_clone_to_owned().is_ok());
    (directory, session)
}

/// A mount on which nothing was said yet.
pub fn mounted_device() -> (Place, OwnedFd) {
    let directory = Place(tempfile::tempdir().expect("a directory"));
    let options = MountOptions {
        mountpoint: directory.path().to_owned(),
        source: "served".to_owned(),
        subtype: "served".to_owned(),
        allow_other: false,
        check_permissions: true,
        read_only: false,
        exec: false,
        atime: false,
        sync: false,
    };
    let device = mount(&options).expect("a mount");
    (directory, device)
}

/// A file without a name that has the bytes of a file.
fn stored() -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(byte_at).collect();
    std::io::Write::write_all(&mut file, &bytes).expect("written");
    file
}

fn ignore(_: weft_fusedev::Delivery) {}

fn is_stuck(node: u64, operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Open { .. } => node == STUCK_OPEN,
        Operation::Read(_) => node == STUCK_READ || node == STUCK_PAGES,
        Operation::Write { .. } => node == STUCK_WRITE,
        Operation::Fsync { .. } => node == STUCK_SYNC,
        Operation::Readdir(_) => node == STUCK_LIST,
        _ => false,
    }
}

/// Where tests read bytes of [`FILE_BYTES`].
pub fn check_bytes(path: &Path) {
    let bytes = std::fs::read(path).expect("the file is read");
    assert_eq!(bytes.len() as u64, FILE_BYTES);
    let wrong = bytes.iter().enumerate().find(|(place, byte)| **byte != byte_at(*place as u64));
    assert_eq!(wrong, None, "{}", path.display());
}

const FLAGS: [InitFlags; 8] = [
    InitFlags::ABORT_ERROR,
    InitFlags::ASYNC_READ,
    InitFlags::PARALLEL_DIROPS,
    InitFlags::BIG_WRITES,
    InitFlags::HAS_EXPIRE_ONLY,
    InitFlags::HAS_RESEND,
    InitFlags::POSIX_LOCKS,
    InitFlags::FLOCK_LOCKS,
];
pub const ROOT: u64 = 1;
pub const FILE: u64 = 2;
pub const OTHER: u64 = 3;
const LINK: u64 = 4;
pub const NOTE: u64 = 5;
const LATER: u64 = 6;
const STORED: u64 = 7;
pub const NAMES: [(&str, u64); 6] =
    [("file", FILE), ("other", OTHER), ("link", LINK), ("note", NOTE), ("later", LATER), ("stored", STORED)];
/// What reads of `stored` end with when the bytes are not there (`ENODATA`).
pub const NOT_STORED: i32 = 61;
const STUCK_OPEN: u64 = 10;
const STUCK_READ: u64 = 11;
const STUCK_PAGES: u64 = 12;
const STUCK_WRITE: u64 = 13;
const STUCK_SYNC: u64 = 14;
const STUCK_LIST: u64 = 15;
/// What can be found, and never be opened, read (past the pages and into them), written, made durable, listed.
pub const STUCK: [(&str, u64); 6] = [
    ("stuck-open", STUCK_OPEN),
    ("stuck-read", STUCK_READ),
    ("stuck-pages", STUCK_PAGES),
    ("stuck-write", STUCK_WRITE),
    ("stuck-sync", STUCK_SYNC),
    ("stuck-list", STUCK_LIST),
];
