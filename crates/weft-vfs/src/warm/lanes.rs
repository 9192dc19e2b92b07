//! What is to be done, by source: one that is slow keeps no other waiting.

use std::collections::{HashMap, HashSet, VecDeque};

use weft_remote::Name;
use weft_store::NodeId;

use super::work::Work;
use super::{Phase, WarmRequest};

/// Work that waits.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    places: HashMap<Vec<Name>, usize>,
    /// Files and directories that were seen: several names may lead to one.
    seen: HashSet<NodeId>,
    /// Where the next look begins.
    next: usize,
}

struct Lane {
    /// Paths and directories, which are gone through first.
    walks: VecDeque<Work>,
    files: VecDeque<Work>,
    under_way: usize,
    /// Most under way; one until the source was asked.
    limit: usize,
}

impl Lanes {
    /// Adds work for the lane of this name.
    pub(super) fn push(&mut self, name: Vec<Name>, work: Work) {
        let next = self.lanes.len();
        let lane = *self.places.entry(name).or_insert(next);
        if lane == next {
            self.lanes.push(Lane { walks: VecDeque::new(), files: VecDeque::new(), under_way: 0, limit: 1 });
        }
        self.lanes[lane].walks.push_back(work);
    }

    /// Adds work that was found in a lane, unless it was seen; says whether it is a file that is wanted.
    pub(super) fn found(&mut self, lane: usize, work: Work) -> bool {
        let (node, counts) = match &work {
            Work::File { node, wanted, .. } => (*node, *wanted),
            Work::Directory { node, .. } => (*node, false),
            // Paths are not found.
            Work::Root { .. } => return false,
        };
        if !self.seen.insert(node) {
            return false;
        }
        let lane = &mut self.lanes[lane];
        let queue = if matches!(work, Work::File { .. }) { &mut lane.files } else { &mut lane.walks };
        queue.push_back(work);
        counts
    }

    /// The next work whose lane has room; files only where they are to be fetched.
    pub(super) fn take(&mut self, phase: Phase) -> Option<(usize, Work)> {
        for step in 0..self.lanes.len() {
            let at = (self.next + step) % self.lanes.len();
            let lane = &mut self.lanes[at];
            if lane.under_way >= lane.limit {
                continue;
            }
            let work = lane.walks.pop_front();
            let work = work.or_else(|| if phase == Phase::Fetch { lane.files.pop_front() } else { None });
            if let Some(work) = work {
                lane.under_way += 1;
                self.next = at + 1;
                return Some((at, work));
            }
        }
        None
    }

    /// Work of a lane is over; the lane may have so many under way.
    pub(super) fn done(&mut self, lane: usize, limit: Option<usize>) {
        let lane = &mut self.lanes[lane];
        lane.under_way -= 1;
        if let Some(limit) = limit {
            lane.limit = if limit == 0 { WarmRequest::JOBS_MAX } else { limit };
        }
    }

    /// Takes away what waits in a lane; how much it was.
    pub(super) fn give_up(&mut self, lane: usize) -> u64 {
        let lane = &mut self.lanes[lane];
        let files =
            std::mem::take(&mut lane.files).into_iter().filter(|work| matches!(work, Work::File { wanted: true, .. }));
        (files.count() + std::mem::take(&mut lane.walks).len()) as u64
    }

    /// The files that are wanted and wait.
    pub(super) fn files(&self) -> impl Iterator<Item = NodeId> + Send {
        let waiting = self.lanes.iter().flat_map(|lane| &lane.files);
        waiting.filter_map(|work| match work {
            Work::File { node, wanted: true, .. } => Some(*node),
            Work::File { .. } | Work::Root { .. } | Work::Directory { .. } => None,
        })
    }
}
