//! Reading without the store, when it has no room.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use weft_remote::{Body, Call, Fetched, Piece, Span, Version};

use crate::arrival::refuse_unending;
use crate::figures::{add, count};
use crate::inode::Inode;
use crate::learn::Told;
use crate::read::to_reader;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// One version of a file, read straight from its remote: a stream that goes on where the last read ended, and the
/// last bytes of it, since the kernel reads a little out of order.
pub(crate) struct Through {
    version: parking_lot::Mutex<Version>,
    /// In bytes, where that is known.
    length: parking_lot::Mutex<Option<u64>>,
    flow: tokio::sync::Mutex<Flow>,
    /// One for each such file of the mount: they share the memory for their windows.
    shared: Arc<()>,
}

#[derive(Default)]
struct Flow {
    /// Whether bytes were asked for before.
    started: bool,
    body: Option<Body>,
    /// The body has come to its end, which may be asked for only once.
    ended: bool,
    /// Offset of the first byte in `window`.
    window_start: u64,
    window: VecDeque<u8>,
}

impl Through {
    /// Exactly this version, which is so long; of [`Version::None`], whatever the remote has when the first byte is read.
    pub(crate) fn of_version(version: Version, length: Option<u64>, vfs: &Vfs) -> Through {
        let (version, length) = (parking_lot::Mutex::new(version), parking_lot::Mutex::new(length));
        Through { version, length, flow: tokio::sync::Mutex::default(), shared: vfs.throughs.clone() }
    }

    /// Which version that is.
    pub(crate) fn version(&self) -> Version {
        self.version.lock().clone()
    }

    /// How long that is, where it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        *self.length.lock()
    }

    /// The same as a former daemon had open: without a version its bytes cannot be told from another's.
    pub(crate) fn again(version: Version, length: Option<u64>, vfs: &Vfs) -> Through {
        let through = Through::of_version(version, length, vfs);
        let flow = tokio::sync::Mutex::new(Flow { started: true, ..Flow::default() });
        Through { flow, ..through }
    }

    /// How many bytes before the place of reading are kept: fewer, the more such files are open.
    fn window_bytes(&self) -> u64 {
        (WINDOWS_BYTES_MAX / Arc::strong_count(&self.shared) as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES)
    }

    pub(crate) async fn read(&self, vfs: &Vfs, call: &Call, inode: &Inode, offset: u64, size: usize) -> Result<Bytes> {
        let mut flow = self.flow.lock().await;
        let end = offset + size as u64;
        if offset < flow.window_start || offset > flow.window_end() + SKIP_BYTES || flow.body.is_none() {
            self.restart(vfs, call, inode, &mut flow, offset).await?;
        }
        let mut broken_off = 0;
        while flow.window_end() < end && !flow.ended {
            let Some(body) = &mut flow.body else { break };
            let next = tokio::time::timeout_at(call.deadline.into(), body.stream.next());
            match next.await.map_err(|_| VfsError::TimedOut)? {
                None => flow.ended = true,
                Some(Ok(Piece::Bytes(bytes))) => {
                    add(&vfs.figures.bytes_received, bytes.len() as u64);
                    flow.window.extend(&bytes);
                    flow.trim(offset, self.window_bytes());
                }
                Some(Ok(Piece::Known(_))) => {}
                Some(Err(error)) => {
                    flow.body = None;
                    let error = to_reader(error.into());
                    broken_off += 1;
                    // Without a validator it cannot be gone on with.
                    let is_lost = matches!(error, VfsError::Changed) || self.version() == Version::None;
                    if is_lost || broken_off > BROKEN_OFF_MAX {
                        return Err(error);
                    }
                    tracing::debug!(%error, offset, "what is read past the store broke off: asked for again");
                    self.restart(vfs, call, inode, &mut flow, offset).await?;
                }
            }
        }
        Ok(flow.copy(offset, end))
    }

    async fn restart(&self, vfs: &Vfs, call: &Call, inode: &Inode, flow: &mut Flow, offset: u64) -> Result<()> {
        count(&vfs.figures.ranges_fetched);
        let record = inode.record();
        let expected = self.version.lock().clone();
        if flow.started && expected == Version::None {
            // Without a validator nothing tells whether another body is of the version that was read before.
            return Err(VfsError::Changed);
        }
        let remote = vfs.remote_of(inode)?.clone();
        // What has no validator is read from its beginning, once: there is no second body to go back to.
        let start = if expected == Version::None { 0 } else { offset };
        let span = Span { start, length: None };
        let asked = vfs.ask_of(call, inode, || remote.fetch(call, &record.file, &expected, span)).await;
        let answer = asked.map_err(to_reader)?;
        let body = answer.value.body;
        if expected != Version::None && !body.version.still_holds(&expected) {
            return Err(VfsError::Changed);
        }
        *self.version.lock() = body.version.clone();
        if let Some(length) = body.file_length {
            *self.length.lock() = Some(length);
        }
        let (window_start, window) = (body.start, VecDeque::new());
        *flow = Flow { started: true, window_start, window, body: Some(body), ended: false };
        Ok(())
    }
}

impl Vfs {
    /// Learns how long a file is whose source announces no length, by reading it to its end and keeping nothing. The caller
    /// holds the inode's gate.
    pub(crate) async fn measure(&self, call: &Call, inode: &Inode) -> Result<()> {
        count(&self.figures.ranges_fetched);
        let record = inode.record();
        let remote = self.remote_of(inode)?.clone();
        let fetch = || remote.fetch(call, &record.file, &Version::None, Span::WHOLE);
        let answer = self.ask_of(call, inode, fetch).await?;
        let told = Told::by(&answer);
        let Fetched { attributes, mut body } = answer.value;
        self.learn_attributes(inode, attributes, &told)?;
        let mut length = 0;
        while body.file_length.is_none()
            && let Some(piece) = tokio::time::timeout_at(call.deadline.into(), body.stream.next())
                .await
                .map_err(|_| VfsError::TimedOut)?
        {
            if let Piece::Bytes(bytes) = piece? {
                add(&self.figures.bytes_received, bytes.len() as u64);
                length += bytes.len() as u64;
            }
            refuse_unending(length, || self.path_text(inode.id))?;
        }
        self.learn_missing_length(inode.id, &body.version, body.file_length.unwrap_or(length))
    }
}

impl Flow {
    fn window_end(&self) -> u64 {
        self.window_start + self.window.len() as u64
    }

    /// Forgets bytes far before the place that is being read.
    fn trim(&mut self, offset: u64, window_bytes: u64) {
        let keep_from = offset.saturating_sub(window_bytes).min(self.window_end());
        if keep_from > self.window_start {
            let gone = (keep_from - self.window_start) as usize;
            self.window.drain(..gone);
            self.window_start = keep_from;
        }
    }

    fn copy(&mut self, offset: u64, end: u64) -> Bytes {
        let end = end.min(self.window_end());
        if offset >= end {
            return Bytes::new();
        }
        let from = (offset - self.window_start) as usize;
        let to = (end - self.window_start) as usize;
        Bytes::copy_from_slice(&self.window.make_contiguous()[from..to])
    }
}

/// How many bytes before the place of reading are kept, at most.
const WINDOW_BYTES: u64 = 1 << 20;
/// And at least: the kernel reads a little out of order.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Bytes that all such files keep together.
const WINDOWS_BYTES_MAX: u64 = 32 << 20;
/// How often a read asks again for what breaks off.
const BROKEN_OFF_MAX: u32 = 2;
/// A stream is read on over this many bytes rather than started anew.
const SKIP_BYTES: u64 = 4 << 20;
