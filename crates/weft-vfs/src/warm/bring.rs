//! Bringing all of one file, as a reader that reads it from its beginning to its end would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_remote::{Call, Caller, FileKind, RemoteError, Version};
use weft_store::{NodeId, Object, PIECE_BYTES};

use crate::arrival::{Arrival, State};
use crate::content::Check;
use crate::handle::{Handle, Held};
use crate::inode::Inode;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What became of a file.
pub(crate) enum Brought {
    /// All of it is here, after so many bytes came.
    Whole(u64),
    /// What was held is right still.
    Confirmed,
    /// The name leads to this now.
    Elsewhere(NodeId),
}

impl Vfs {
    /// Whether all of a file is here, and may be used without asking.
    pub(crate) fn is_here(&self, call: &Call, inode: &Arc<Inode>) -> Result<bool> {
        Ok(self.trusted_content(call, inode)?.is_some_and(|object| object.is_complete()))
    }

    /// Sees to it that all of a file is here: what is held is asked about where it cannot be trusted, what is missing is
    /// fetched. Bytes are added to `came` as they come.
    ///
    /// # Cancel safety
    /// What came stays where it can be taken up again.
    pub(crate) async fn bring_whole(
        self: &Arc<Self>,
        caller: Caller,
        inode: &Arc<Inode>,
        came: &AtomicU64,
    ) -> Result<Brought> {
        let call = self.call(caller).ahead();
        self.admit(&call, inode).await?;
        let before = self.held_content(inode)?.map(|current| current.object);
        let held = before.as_ref().map_or(0, |object| bytes_of(object));
        let object = match self.begin(&call, inode).await? {
            Ok(object) => object,
            Err(elsewhere) => return Ok(Brought::Elsewhere(elsewhere)),
        };
        object.touch(std::time::SystemTime::now());
        let is_old = before.is_some_and(|before| before.generation() == object.generation());
        let held = if is_old { held } else { 0 };
        let mut counted = 0;
        let mut rounds_left = ROUNDS_MAX;
        while !object.is_complete() {
            let missing = object.missing_from(0).unwrap_or(0);
            let arrival = match inode.arrival(|arrival| brings(arrival, &object, missing)) {
                Some(arrival) => arrival,
                None => match self.take_up(caller, inode, &object, missing).await? {
                    Some(arrival) => arrival,
                    None => continue,
                },
            };
            self.drive(caller, &arrival, |more| {
                counted += more;
                came.fetch_add(more, Ordering::Relaxed);
            })
            .await?;
            if object.missing_from(0) == Some(missing) {
                rounds_left -= 1;
                if rounds_left == 0 {
                    let detail = format!("{}: bytes at {missing} do not arrive", self.path_text(inode.id));
                    return Err(RemoteError::Failed { detail }.into());
                }
            }
        }
        self.keep_ranges(inode, &object);
        let bytes = object.length().unwrap_or(0).saturating_sub(held);
        // Some may have come before anybody looked.
        came.fetch_add(bytes.saturating_sub(counted), Ordering::Relaxed);
        Ok(if is_old && bytes == 0 { Brought::Confirmed } else { Brought::Whole(bytes) })
    }

    /// The object to be completed, or what the name leads to instead.
    async fn begin(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
    ) -> Result<std::result::Result<Arc<Object>, NodeId>> {
        if let Some(object) = self.trusted_content(call, inode)? {
            return Ok(Ok(object));
        }
        let _gate = inode.gate.lock().await;
        if let Some(object) = self.trusted_content(call, inode)? {
            return Ok(Ok(object));
        }
        if self.held_content(inode)?.is_none() && inode.kind() != FileKind::Unknown {
            match self.fetch_whole(call, inode).await {
                // What it is now, a check tells.
                Err(VfsError::Remote(RemoteError::IsADirectory { .. })) => {}
                fetched => return Ok(Ok(fetched?.object.clone())),
            }
        }
        match self.check(call, inode).await {
            Ok(Check::Unchanged | Check::Changed) => {}
            Ok(Check::Elsewhere(id)) => return Ok(Err(id)),
            Err(error) => {
                inode.note_error(&error);
                if is_gone(&error) {
                    self.learn_gone(call, inode).await?;
                }
                return Err(error);
            }
        }
        if let Some(current) = self.held_content(inode)? {
            return Ok(Ok(current.object));
        }
        Ok(Ok(self.fetch_whole(call, inode).await?.object.clone()))
    }

    /// Has bytes fetched that nobody is bringing: those up to the next that are held. `None` when they have come.
    async fn take_up(
        self: &Arc<Self>,
        caller: Caller,
        inode: &Arc<Inode>,
        object: &Arc<Object>,
        missing: u64,
    ) -> Result<Option<Arc<Arrival>>> {
        let _gate = inode.gate.lock().await;
        if object.missing_from(0) != Some(missing) {
            return Ok(None);
        }
        if let Some(arrival) = inode.arrival(|arrival| brings(arrival, object, missing)) {
            return Ok(Some(arrival));
        }
        let handle = Handle::new(inode.clone(), Held::Object(object.clone()), object.generation());
        self.refuse_spoilt(&handle, object)?;
        let arrival = self.fetch_range(&self.call(caller).ahead(), &handle, object, missing, None).await?;
        let length = object.length().unwrap_or(u64::MAX);
        let mut held_from = missing + PIECE_BYTES;
        while held_from < length && object.available(held_from) == 0 {
            held_from += PIECE_BYTES;
        }
        if held_from < length {
            arrival.end_at(held_from);
        }
        Ok(Some(arrival))
    }

    /// Takes a body to its end, step by step: whoever drops this leaves a body that stops before long.
    async fn drive(self: &Arc<Self>, caller: Caller, arrival: &Arrival, mut came: impl FnMut(u64)) -> Result<()> {
        let mut counted = arrival.reached();
        let mut noted_at = counted;
        let keeps = arrival.is_resumable() && *arrival.object.version() != Version::None;
        loop {
            let before = arrival.reached();
            let end = before.saturating_add(STEP_BYTES);
            arrival.want(end);
            let outcome = arrival.reach(&self.call(caller), end).await;
            let reached = arrival.reached();
            came(reached.saturating_sub(counted));
            counted = counted.max(reached);
            match outcome {
                Ok(State::Running) => {}
                Err(VfsError::TimedOut) if reached > before => {}
                Err(error) => return Err(error),
                Ok(State::Done | State::Stopped) => return Ok(()),
                Ok(State::Failed(error)) => return Err(error),
            }
            if keeps && reached.saturating_sub(noted_at) >= NOTED_BYTES {
                // Should the daemon be killed, this much of a long file is not fetched again.
                noted_at = reached;
                arrival.object.commit()?;
            }
        }
    }

    /// Has ranges that came into the object's record.
    fn keep_ranges(&self, inode: &Inode, object: &Arc<Object>) {
        let unrecorded = std::mem::take(&mut inode.content.lock().unrecorded);
        if unrecorded && let Err(error) = object.commit() {
            tracing::warn!(%error, "pieces of a file were not recorded");
        }
    }
}

/// How much of an object is here, in whole pieces.
fn bytes_of(object: &Object) -> u64 {
    let length = object.length().unwrap_or(0);
    let starts = (0..length).step_by(PIECE_BYTES as usize);
    starts.filter(|start| object.available(*start) > 0).map(|start| PIECE_BYTES.min(length - start)).sum()
}

/// Whether a body will bring the first byte that is missing of an object.
fn brings(arrival: &Arrival, object: &Arc<Object>, missing: u64) -> bool {
    // A piece counts as missing until its last byte has come.
    Arc::ptr_eq(&arrival.object, object) && arrival.covers(missing) && arrival.reached() < missing + PIECE_BYTES
}

/// How much of a body is asked for at a time: what still comes when nobody wants it any more.
const STEP_BYTES: u64 = 1 << 20;
/// After so many bytes of a file what came is noted.
const NOTED_BYTES: u64 = 8 << 20;
/// Bodies that may bring nothing before one gives up.
const ROUNDS_MAX: usize = 3;
