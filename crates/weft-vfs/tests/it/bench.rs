//! A mount without a kernel: what every test starts from.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Handle;
use weft_remote::fake::{Fake, Promise};
use weft_remote::{Call, Caller, Name, Remote};
use weft_store::{Store, StoreOptions};
use weft_vfs::{
    Binding, Data, Freshness, HandleId, Looked, NodeId, NoticeReceivers, Notices, OpenFiles, Opened, Policies,
    SpaceOptions, Stat, Vfs, VfsError, VfsOptions,
};

pub const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 1 };

/// A fake remote, a store in a temporary directory and a file system over them.
pub struct Bench {
    pub fake: Fake,
    pub vfs: Arc<Vfs>,
    pub dir: TempDir,
    policies: Policies,
    space: SpaceOptions,
}

impl Bench {
    /// A fake with `a/b/hello.txt`, whose answers last an hour, under the default policy.
    pub fn new() -> Bench {
        Bench::with(Freshness::Http)
    }

    pub fn with(freshness: Freshness) -> Bench {
        Bench::with_space(freshness, SpaceOptions::default())
    }

    pub fn with_space(freshness: Freshness, space: SpaceOptions) -> Bench {
        Bench::of(Fake::new(), Policies::new(freshness, Vec::new()), space)
    }

    /// The same over a fake that takes changes.
    pub fn writable() -> Bench {
        Bench::of(Fake::writable(), usual(), SpaceOptions::default())
    }

    /// The same, where open files show the newest version.
    pub fn newest() -> Bench {
        Bench::newest_in(SpaceOptions::default())
    }

    /// The same with bounds.
    pub fn newest_in(space: SpaceOptions) -> Bench {
        let policies = usual().with_open_files(OpenFiles::Newest, Vec::new());
        Bench::of(Fake::writable(), policies, space)
    }

    fn of(fake: Fake, policies: Policies, space: SpaceOptions) -> Bench {
        fake.dir("a/b");
        fake.file("a/b/hello.txt", "hello");
        fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::from_secs(3600)));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let vfs = build(Arc::new(fake.clone()), &dir, &policies, &space);
        Bench { fake, vfs, dir, policies, space }
    }

    /// A file system over a remote that stands before a fake.
    pub fn over(fake: Fake, remote: Arc<dyn Remote>) -> Bench {
        Bench::telling(fake, remote, Notices::nowhere())
    }

    /// The same, and where it tells the kernel.
    pub fn telling(fake: Fake, remote: Arc<dyn Remote>, notices: Notices) -> Bench {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let space = SpaceOptions::default();
        let policies = usual();
        let vfs = build_with(remote, &dir, &policies, &space, notices);
        Bench { fake, vfs, dir, policies, space }
    }

    /// The same store and fake under a new file system, as after a remount.
    pub fn remount(self) -> Bench {
        let space = self.space.clone();
        self.remount_with(space)
    }

    /// The same with other bounds and classes.
    pub fn remount_with(self, space: SpaceOptions) -> Bench {
        let Bench { fake, vfs, dir, policies, .. } = self;
        vfs.store().flush().expect("the store flushes");
        wait_dropped(vfs);
        let vfs = build(Arc::new(fake.clone()), &dir, &policies, &space);
        Bench { fake, vfs, dir, policies, space }
    }

    /// The same as after a remount, with what it tells the kernel.
    pub fn heard(self) -> (Bench, NoticeReceivers) {
        let Bench { fake, vfs, dir, policies, space } = self;
        wait_dropped(vfs);
        let (notices, heard) = Notices::channel();
        let vfs = build_with(Arc::new(fake.clone()), &dir, &policies, &space, notices);
        (Bench { fake, vfs, dir, policies, space }, heard)
    }

    pub fn call(&self) -> Call {
        Call::within(USER, Duration::from_secs(20))
    }

    pub async fn lookup(&self, parent: NodeId, name: &str) -> Result<Looked, VfsError> {
        self.vfs.clone().lookup(self.call(), parent, name.as_bytes().to_vec()).await
    }

    /// Follows a path from the root, as the kernel would.
    pub async fn walk(&self, path: &str) -> Result<Stat, VfsError> {
        let mut stat = self.vfs.clone().stat(self.call(), NodeId::ROOT, None).await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match self.lookup(stat.node, name).await? {
                Looked::Entry { stat: found, .. } => stat = found,
                Looked::Absent { .. } => return Err(VfsError::NotFound),
            }
        }
        Ok(stat)
    }

    /// Opens a file to read it, and looks its name up once more where the kernel does.
    pub async fn open(&self, path: &str) -> Result<Opened, VfsError> {
        let open = async || {
            let stat = self.walk(path).await?;
            self.vfs.clone().open(self.call(), stat.node, weft_vfs::OpenFor::default()).await
        };
        match open().await {
            Err(VfsError::Stale) => open().await,
            opened => opened,
        }
    }

    pub async fn read_at(&self, handle: HandleId, offset: u64, size: usize) -> Result<Bytes, VfsError> {
        self.vfs.clone().read(self.call(), handle, offset, size).await.and_then(Data::into_bytes)
    }

    /// Reads a whole file as `cat` would.
    pub async fn cat(&self, path: &str) -> Result<Vec<u8>, VfsError> {
        let handle = self.open(path).await?.handle;
        let content = self.drain(handle).await;
        self.vfs.close(handle);
        content
    }

    /// Waits until what was read of a file is stored, or is known not to be: its last bytes are read before that.
    pub async fn settled(&self, path: &str) {
        let coming = || {
            let why = self.vfs.why(&names(path)).expect("an explanation");
            why.facts.iter().any(|(key, value)| key == "cached" && value.starts_with("on its way"))
        };
        while coming() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn drain(&self, handle: HandleId) -> Result<Vec<u8>, VfsError> {
        let mut content = Vec::new();
        loop {
            let bytes = self.read_at(handle, content.len() as u64, 128 << 10).await?;
            if bytes.is_empty() {
                return Ok(content);
            }
            content.extend_from_slice(&bytes);
        }
    }

    pub async fn list(&self, path: &str) -> Result<Vec<String>, VfsError> {
        let node = self.walk(path).await?.node;
        self.vfs.clone().open_directory(self.call(), node).await?;
        let snapshot = self.vfs.directory_names(node, &self.call().caller)?;
        let rows = (0..snapshot.len()).filter_map(|index| snapshot.get(index));
        Ok(rows.map(|row| String::from_utf8_lossy(row.name).into_owned()).collect())
    }
}

pub fn names(path: &str) -> Vec<Name> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| Name::new(name).expect("a good name")).collect()
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn build(remote: Arc<dyn Remote>, dir: &TempDir, policies: &Policies, space: &SpaceOptions) -> Arc<Vfs> {
    build_with(remote, dir, policies, space, Notices::nowhere())
}

fn build_with(
    remote: Arc<dyn Remote>,
    dir: &TempDir,
    policies: &Policies,
    space: &SpaceOptions,
    notices: Notices,
) -> Arc<Vfs> {
    // The former store may still be ending on another thread, with the folder's lock.
    let store = loop {
        match Store::open(dir.path(), StoreOptions::default()) {
            Err(weft_store::StoreError::InUse { .. }) => std::thread::yield_now(),
            opened => break opened.expect("a store"),
        }
    };
    let at = names("fake");
    let binding = Binding { at, source: "fake".to_string(), remote };
    let options = VfsOptions { policies: policies.clone(), space: space.clone(), ..VfsOptions::default() };
    Vfs::new(store, vec![binding], options, notices, Handle::current()).expect("a file system")
}

fn usual() -> Policies {
    Policies::new(Freshness::Http, Vec::new())
}

/// The store's lock is free when the last task that holds the file system has ended.
fn wait_dropped(vfs: Arc<Vfs>) {
    let weak = Arc::downgrade(vfs.store());
    drop(vfs);
    while weak.upgrade().is_some() {
        std::thread::yield_now();
    }
}
