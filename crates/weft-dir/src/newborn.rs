//! Files that go right after they came. The time of birth moves in ticks, and an inode that is used again within one would
//! be the same identity: so what we remove that young is kept open, and with it its inode, until the tick is over.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::resolve::At;

/// The files that are kept open.
#[derive(Debug)]
pub(crate) struct Newborn {
    /// Free places.
    room: Arc<Semaphore>,
}

impl Newborn {
    pub fn new() -> Newborn {
        Newborn { room: Arc::new(Semaphore::new(KEPT_MAX)) }
    }

    /// Keeps a file that may have lost its last name for as long as its inode must not be used again. Where too many are
    /// kept, it waits.
    pub fn keep(&self, gone: At) {
        if let Some(young) = gone.facts.young_for(SystemTime::now()) {
            self.keep_for(gone.fd, young);
        }
    }

    fn keep_for(&self, fd: OwnedFd, young: Duration) {
        match (self.room.clone().try_acquire_owned(), Handle::try_current()) {
            (Ok(place), Ok(runtime)) => drop(runtime.spawn(async move {
                tokio::time::sleep(young).await;
                // The disk may have to let go of what the file held.
                let closed = tokio::task::spawn_blocking(move || drop((fd, place)));
                drop(closed);
            })),
            _ => std::thread::sleep(young),
        }
    }
}

/// Most files kept open at a time.
const KEPT_MAX: usize = 256;
