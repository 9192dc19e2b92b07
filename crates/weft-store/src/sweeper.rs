//! Removes files of objects that no record mentions: what a kill left behind.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::shelf::Shelf;
use crate::{NodeId, Result, StoreError};

/// The thread that sweeps once after the start. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Sweeper {
    stop: Arc<AtomicBool>,
    /// Guards nothing but the handle.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sweeper {
    /// Starts the thread.
    pub(crate) fn start(shelf: Arc<Shelf>) -> Result<Sweeper> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weft-sweep".into())
            .spawn(move || {
                if let Err(error) = sweep(&shelf, &asked) {
                    shelf.troubles.tell(format!(
                        "{}: the search for files left behind was given up: {error}; it is done again at the next start",
                        shelf.dir.display()
                    ));
                }
            })
            .map_err(|error| StoreError::Index(Box::new(error)))?;
        Ok(Sweeper { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until it is through.
    #[cfg(test)]
    pub(crate) fn wait(&self) {
        if let Some(thread) = self.thread.lock().take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get_mut().take() {
            // A panic of that thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn sweep(shelf: &Shelf, stop: &AtomicBool) -> Result<()> {
    let refused = |path: &Path, error| StoreError::from_io(path, error);
    for folder in std::fs::read_dir(&shelf.dir).map_err(|error| refused(&shelf.dir, error))? {
        let folder = folder.map_err(|error| refused(&shelf.dir, error))?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(&folder).map_err(|error| refused(&folder, error))? {
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            let file = file.map_err(|error| refused(&folder, error))?;
            if let Some((node, generation)) = parse(&file.file_name())
                && generation < shelf.floor
                && shelf.record(node)?.is_none_or(|record| record.generation != generation)
            {
                shelf.remove_file(&file.path());
            }
        }
    }
    // To look for those in segments, all segments are read: only where they are many.
    let (_, objects) = shelf.totals();
    if shelf.small.count() > objects + objects / 4 + UNSWEPT_MAX {
        shelf.small.sweep(|key| Ok(key.generation >= shelf.floor || shelf.refers_to(key)?))?;
    }
    Ok(())
}

/// So many contents in segments may be left behind.
const UNSWEPT_MAX: u64 = 256;

/// The node and generation in the name of an object's file; other files are not ours to remove.
fn parse(name: &OsStr) -> Option<(NodeId, u64)> {
    let (node, generation) = name.to_str()?.split_once('-')?;
    let number = |hex: &str| (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten();
    Some((NodeId(number(node)?), number(generation)?))
}
