//! Writing many segments: while some are being written by a thread of their own, the next ones are planned and put
//! together in the other half of the memory.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::mpsc;

use crate::core::{Core, Shared};
use crate::device::Aligned;
use crate::packer::{AT_ONCE, Encoded, Outgoing};
use crate::packing::{self, Plan};
use crate::{Result, segment};

/// Segments that lie on the disk but are not in the index yet, and the memory that they were put together in.
struct Written<'m> {
    run: Vec<Outgoing>,
    memory: &'m mut [u8],
}

/// The ends of the channels to and from the writer.
struct Ends<'m> {
    encoded: mpsc::Sender<Encoded<'m>>,
    written: mpsc::Receiver<Written<'m>>,
}

impl Shared {
    /// Writes segments, and goes on with what has come meanwhile, while that is all that is to be done. `None` when
    /// there can be no such thread.
    pub(crate) fn write_side_by_side(&self, scratch: &mut Aligned, plans: &[Plan]) -> Option<Result<()>> {
        let (one, other) = scratch.split_at_mut(AT_ONCE / 2 * self.segment_bytes());
        let (hand_back, written) = mpsc::channel();
        let (encoded, to_write) = mpsc::channel::<Encoded<'_>>();
        for memory in [one, other] {
            // It is taken: the receiver is here.
            let _ = hand_back.send(Written { run: Vec::new(), memory });
        }
        std::thread::scope(|scope| {
            let write_all = move || {
                to_write.into_iter().try_for_each(|encoded| {
                    let (run, memory) = self.write_encoded(encoded)?;
                    // It is taken while there is anything to write.
                    let _ = hand_back.send(Written { run, memory });
                    Ok(())
                })
            };
            let writer = std::thread::Builder::new().name("segment-writer".to_owned());
            let writer = writer.spawn_scoped(scope, write_all).ok()?;
            let prepared = self.keep_busy(Ends { encoded, written }, plans);
            let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Some(written.and(prepared))
        })
    }

    /// Puts segments together for the writer, and enters those that it has written.
    fn keep_busy(&self, ends: Ends<'_>, plans: &[Plan]) -> Result<()> {
        let Ends { encoded, written } = ends;
        let mut plans = Cow::Borrowed(plans);
        let mut on_their_way = HashSet::new();
        let mut outcome = Ok(());
        'planned: while outcome.is_ok() && !plans.is_empty() {
            for plans in plans.chunks(AT_ONCE / 2) {
                let (runs, prepared) = self.prepare_runs(plans);
                for run in runs {
                    // Without memory the writer has failed, which says so itself.
                    let Ok(Written { run: done, memory }) = written.recv() else { break 'planned };
                    self.enter_run(done);
                    on_their_way.extend(run.iter().flat_map(|outgoing| &outgoing.objects).map(|one| one.arrival));
                    let _ = encoded.send(self.encode(run, memory));
                }
                outcome = prepared;
                if outcome.is_err() {
                    break 'planned;
                }
            }
            plans = Cow::Owned(self.plan_more(&mut on_their_way));
        }
        drop(encoded);
        written.into_iter().for_each(|written| self.enter_run(written.run));
        outcome
    }

    /// Plans for what waits and is not on its way to the disk; none when there is too little of it, or something else
    /// is to be done first.
    fn plan_more(&self, on_their_way: &mut HashSet<u64>) -> Vec<Plan> {
        self.lift_risen();
        let items = {
            let core = self.core.lock();
            if core.stop || core.group.cost() < self.pack_at() || self.has_else_to_do(&core) {
                return Vec::new();
            }
            on_their_way.retain(|arrival| core.group.has(*arrival));
            core.group.items(on_their_way)
        };
        if items.iter().map(|item| item.cost).sum::<usize>() < self.pack_at() {
            return Vec::new();
        }
        let room = segment::room(self.block.segment_bytes);
        packing::plan(&items, &self.groups.lock(), room, packing::full_at(room))
    }

    fn enter_run(&self, run: Vec<Outgoing>) {
        if run.is_empty() {
            return;
        }
        run.into_iter().for_each(|outgoing| self.enter(outgoing));
        // There is room in the memory of what waits.
        self.done.notify_all();
    }

    /// Whether the packer has something to do beside packing what waits.
    pub(crate) fn has_else_to_do(&self, core: &Core) -> bool {
        core.wanted != core.served
            || core.scan.is_some()
            || self.is_log_long(core)
            || self.is_aged(core)
            || self.needs_room(core)
    }
}
