//! A file system in memory behind real mounts, once for each transport. Needs root (mount(2)) and `/dev/fuse`; what needs
//! a kernel that offers io_uring says so when it does not.

mod attributes;
mod content;
mod locks;
mod memory;
mod names;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use weft_fuse::{MountError, MountOptions, Mounted, RingError, Transport};
use weft_vfs::Notices;

use memory::Memory;

/// A mount of a [`Memory`], which goes when this does.
struct Place {
    directory: tempfile::TempDir,
    memory: Memory,
    mounted: Option<Mounted>,
    /// Nobody is told of anything, but somebody could be.
    _notices: Notices,
    _runtime: tokio::runtime::Runtime,
}

impl Place {
    fn new(transport: Transport, read_only: bool) -> Result<Place, MountError> {
        Place::of(Memory::default(), transport, read_only)
    }

    fn of(memory: Memory, transport: Transport, read_only: bool) -> Result<Place, MountError> {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (notices, receivers) = Notices::channel();
        let options = MountOptions {
            mountpoint: directory.path().to_owned(),
            source: "memory".to_owned(),
            allow_other: false,
            checks_modes: true,
            exec: false,
            threads: 2,
            transport,
            unopened: false,
            maps_unkept: false,
            read_only,
            sync: false,
        };
        let mounted = weft_fuse::mount(memory.clone(), &options, receivers, runtime.handle(), None)?;
        assert_eq!(mounted.transport(), transport);
        Ok(Place { directory, memory, mounted: Some(mounted), _notices: notices, _runtime: runtime })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        weft_fuse::unmount(self.directory.path(), true).expect("unmounted");
        self.mounted.take().expect("it is served until here").wait().expect("it ends");
    }
}

/// Runs a test over both transports, on a mount that can be written.
fn over_both(test: impl Fn(&Place)) {
    over_both_of(Memory::default, test);
}

fn over_both_of(memory: impl Fn() -> Memory, test: impl Fn(&Place)) {
    if !can_mount() {
        return;
    }
    test(&Place::of(memory(), Transport::Classic, false).expect("mounted"));
    // The switch is the whole machine's: those who need it on take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let switch = Switch::on();
    let place = RingError::check().map_err(|why| why.to_string()).and_then(|()| {
        let place = Place::of(memory(), Transport::IoUring, false);
        place.map_err(|why| why.to_string())
    });
    drop((switch, turn));
    match place {
        Ok(place) => test(&place),
        Err(why) => eprintln!("skipped over io_uring: {why}"),
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

/// Has the kernel offer io_uring while a mount is made, and leaves the switch as it was found.
struct Switch(Option<String>);

impl Switch {
    fn on() -> Switch {
        let found = std::fs::read_to_string(PARAMETER).ok().filter(|found| found.trim() == "N");
        Switch(found.filter(|_| std::fs::write(PARAMETER, "Y").is_ok()))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.0.take().map(|found| std::fs::write(PARAMETER, found.trim()));
    }
}

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
