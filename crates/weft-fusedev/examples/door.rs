//! A file system that answers from memory, to measure what a request costs: `door TRANSPORT DIRECTORY [FILE]` mounts
//! it over the named transport, says `ready` and serves until it is unmounted. Needs root.
//!
//! `memory` is a file of 4 KiB whose pages are kept; its attributes are asked for each time. With `FILE` (complete, on
//! a disk) there are two more, which the kernel reads by itself: `kept`, with one backing id for all opens, and `new`,
//! with an id for each open. Who else should answer the same, in the same order, is measured beside it by `make bench`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, Result, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_fusedev::{
    Attributes, Backing, Backings, Entry, InitFlags, Interrupted, MountOptions, Opened, Operation, Reply, Request,
    RingLimits, Serve, Session, Transport, Wanted, mount,
};

struct Door {
    backed: Option<Backed>,
}

/// The file that the kernel reads by itself.
struct Backed {
    backings: Backings,
    file: File,
    bytes: u64,
    kept: Backing,
    /// Those of opens of `new`, by handle.
    each: Mutex<HashMap<u64, Backing>>,
    handles: AtomicU64,
}

impl Door {
    fn attributes(&self, node: u64) -> Attributes {
        let (mode, size) = match (node, &self.backed) {
            (ROOT, _) => (0o040_755, 0),
            (KEPT | NEW, Some(backed)) => (0o100_644, backed.bytes),
            _ => (0o100_644, CONTENT.len() as u64),
        };
        Attributes { node, mode, links: 1, size, block_bytes: 4096, ..Attributes::default() }
    }

    fn node(&self, name: &[u8]) -> Option<u64> {
        match name {
            b"memory" => Some(MEMORY),
            b"kept" if self.backed.is_some() => Some(KEPT),
            b"new" if self.backed.is_some() => Some(NEW),
            _ => None,
        }
    }

    fn open(&self, node: u64) -> Result<Opened> {
        let Some(backed) = self.backed.as_ref().filter(|_| node != MEMORY) else {
            return Ok(Opened { handle: 0, flags: Opened::KEEP_CACHE | Opened::NOFLUSH, backing_id: 0 });
        };
        let flags = Opened::PASSTHROUGH | Opened::NOFLUSH;
        if node == KEPT {
            return Ok(Opened { handle: 0, flags, backing_id: backed.kept.id() });
        }
        let backing = backed.backings.open(&backed.file)?;
        let handle = backed.handles.fetch_add(1, Ordering::Relaxed);
        let opened = Opened { handle, flags, backing_id: backing.id() };
        backed.each.lock().expect("nobody panics with it").insert(handle, backing);
        Ok(opened)
    }
}

impl Serve for Door {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node;
        match request.operation {
            Operation::Lookup(name) => match self.node(name) {
                Some(node) => reply.entry(&Entry {
                    node,
                    generation: 0,
                    name_ttl: Duration::from_secs(3600),
                    attributes_ttl: Duration::ZERO,
                    attributes: self.attributes(node),
                }),
                None => reply.absent(Duration::from_secs(3600)),
            },
            Operation::Getattr { .. } => reply.attributes(&self.attributes(node), Duration::ZERO),
            Operation::Open { .. } => match self.open(node) {
                Ok(opened) => reply.opened(opened),
                Err(error) => reply.error(error.raw_os_error().unwrap_or(EIO)),
            },
            Operation::Read(read) => {
                let rest = usize::try_from(read.offset).ok().and_then(|offset| CONTENT.get(offset..));
                let rest = rest.unwrap_or_default();
                reply.data(&rest[..rest.len().min(read.size as usize)])
            }
            Operation::Release { handle, .. } => {
                if let Some(backed) = &self.backed {
                    backed.each.lock().expect("nobody panics with it").remove(&handle);
                }
                reply.done()
            }
            _ => reply.error(ENOSYS),
        };
    }

    fn interrupt(&self, _: u64) -> Interrupted {
        Interrupted::Taken
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (transport, directory, file) = match arguments.as_slice() {
        [transport, directory] => (transport, PathBuf::from(directory), None),
        [transport, directory, file] => (transport, PathBuf::from(directory), Some(File::open(file)?)),
        _ => return Err(Error::other("door classic|io_uring DIRECTORY [FILE]")),
    };
    let transport: Transport = transport.parse().map_err(Error::other)?;
    let options = MountOptions {
        mountpoint: directory,
        source: "door".to_owned(),
        subtype: "door".to_owned(),
        allow_other: false,
        check_permissions: false,
        read_only: true,
        exec: false,
        atime: false,
        sync: false,
    };
    let flags = InitFlags::PARALLEL_DIROPS | InitFlags::ASYNC_READ | InitFlags::PASSTHROUGH;
    let wanted = Wanted { flags, max_stack_depth: 1, ..Wanted::default() };
    let session = Session::begin_over(mount(&options)?, &wanted, transport, RingLimits::default());
    let session = session.map_err(Error::other)?;
    let backed = match file {
        Some(file) => {
            let backings = session.backings();
            let (kept, bytes) = (backings.open(&file)?, file.metadata()?.len());
            Some(Backed { backings, file, bytes, kept, each: Mutex::default(), handles: AtomicU64::new(1) })
        }
        None => None,
    };
    let serving = session.serve(Arc::new(Door { backed }), 1, "door")?;
    println!("ready");
    std::io::stdout().flush()?;
    serving.join().map(drop)
}

const ROOT: u64 = 1;
const MEMORY: u64 = 2;
const KEPT: u64 = 3;
const NEW: u64 = 4;
const CONTENT: [u8; 4096] = [7; 4096];
const EIO: i32 = 5;
const ENOSYS: i32 = 38;
