//! Directories that were fetched of late, in memory: a name is found without asking while the directory's promise holds.
//!
//! What is held is shown to those whom its server has let in: with their tokens, or as anybody. Who else asks, asks the
//! server first. That somebody was let in counts as long as the promise that came with that word: whoever changes an access
//! list breaks the promises of its directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use weft_remote::Name;

use crate::cell::CellName;
use crate::facts::Stamp;
use crate::fid::Fid;
use crate::names::Content;
use crate::promises::Ticket;

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Anybody,
    /// Whoever has the token of this number.
    Token(u64),
}

/// A server's word that somebody may have a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub who: Who,
    /// Taken before the question; the word ends with the first break since.
    pub ticket: Ticket,
    /// When the promise ends that came with it.
    pub until: SystemTime,
}

/// As many of them as there is room for.
#[derive(Debug)]
pub(crate) struct Directories {
    bytes_max: usize,
    /// Held for one look or one change.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_fid: HashMap<(CellName, Fid), Kept>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    content: Content,
    used: u64,
    admissions: Vec<Admission>,
}

impl Directories {
    pub fn new(bytes_max: usize) -> Directories {
        Directories { bytes_max, held: Mutex::default() }
    }

    /// What is held of a directory.
    pub fn get(&self, cell: &CellName, fid: Fid) -> Option<Content> {
        let mut held = self.held.lock();
        held.clock += 1;
        let now = held.clock;
        let kept = held.by_fid.get_mut(&(cell.clone(), fid))?;
        kept.used = now;
        Some(kept.content.clone())
    }

    /// Who was let in, of anybody and whoever has this token; whether the word still counts is not looked at.
    pub fn admissions(&self, cell: &CellName, fid: Fid, token: Option<u64>) -> Vec<Admission> {
        let held = self.held.lock();
        let all = held.by_fid.get(&(cell.clone(), fid)).into_iter().flat_map(|kept| &kept.admissions);
        let concerns = |who| who == Who::Anybody || token.map(Who::Token) == Some(who);
        all.filter(|admission| concerns(admission.who)).copied().collect()
    }

    /// Somebody is let in to a directory, if it is held in the state that this came with.
    pub fn admit(&self, cell: &CellName, fid: Fid, stamp: Stamp, admission: Admission) {
        let mut held = self.held.lock();
        let kept = held.by_fid.get_mut(&(cell.clone(), fid));
        let Some(kept) = kept.filter(|kept| kept.content.stamp == stamp) else { return };
        kept.admissions.retain(|other| other.who != admission.who);
        if kept.admissions.len() >= ADMISSIONS_MAX {
            kept.admissions.remove(0);
        }
        kept.admissions.push(admission);
    }

    /// What is held of a directory is of use only if it is of this state.
    pub fn keep_only(&self, cell: &CellName, fid: Fid, stamp: Stamp) {
        let key = (cell.clone(), fid);
        let mut held = self.held.lock();
        if held.by_fid.get(&key).is_some_and(|kept| kept.content.stamp != stamp)
            && let Some(gone) = held.by_fid.remove(&key)
        {
            held.bytes -= gone.content.length();
        }
    }

    /// A change of ours brought a directory to this state: what is held follows, or is of no use any more.
    pub fn change(&self, cell: &CellName, fid: Fid, stamp: Stamp, changes: &[(&Name, Option<Fid>)]) {
        let mut held = self.held.lock();
        if let Some(kept) = held.by_fid.get_mut(&(cell.clone(), fid))
            && let Some(after) = kept.content.after(stamp, changes)
        {
            kept.content = after;
            return;
        }
        drop(held);
        self.keep_only(cell, fid, stamp);
    }

    /// Keeps what was fetched; what was used longest ago goes.
    pub fn put(&self, cell: &CellName, fid: Fid, content: Content) {
        if content.length() > self.bytes_max {
            return;
        }
        let mut held = self.held.lock();
        held.clock += 1;
        let (used, length) = (held.clock, content.length());
        let key = (cell.clone(), fid);
        let same = |kept: &&Kept| kept.content.stamp == content.stamp;
        let admissions = held.by_fid.get(&key).filter(same).map(|kept| kept.admissions.clone()).unwrap_or_default();
        let former = held.by_fid.insert(key, Kept { content, used, admissions });
        held.bytes = held.bytes + length - former.map_or(0, |former| former.content.length());
        while held.bytes > self.bytes_max {
            held.drop_oldest();
        }
    }

    /// A directory is there no more.
    pub fn forget(&self, cell: &CellName, fid: Fid) {
        let mut held = self.held.lock();
        if let Some(gone) = held.by_fid.remove(&(cell.clone(), fid)) {
            held.bytes -= gone.content.length();
        }
    }
}

impl Held {
    /// Lets go of one directory in eight, of those that were used longest ago: looking for each by itself would take long where
    /// there are many.
    fn drop_oldest(&mut self) {
        let mut uses: Vec<u64> = self.by_fid.values().map(|kept| kept.used).collect();
        uses.sort_unstable();
        let Some(last) = uses.get(uses.len() / 8) else { return };
        let bytes = &mut self.bytes;
        self.by_fid.retain(|_, kept| {
            let stays = kept.used > *last;
            if !stays {
                *bytes -= kept.content.length();
            }
            stays
        });
    }
}

/// Has only one at a time fetch a directory: others find it when their turn comes.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<(CellName, Fid), Turn>>);

/// Whoever fetches a directory holds it.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Turns {
    /// The turn of a directory.
    pub fn of(&self, cell: &CellName, fid: Fid) -> Turn {
        let mut turns = self.0.lock();
        if turns.len() >= TURNS_KEPT {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry((cell.clone(), fid)).or_default().clone()
    }
}

/// Those who were let in to one directory that are remembered.
const ADMISSIONS_MAX: usize = 64;
/// Turns that are kept though nobody waits.
const TURNS_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Made;
    use crate::fid::VolumeId;
    use crate::names::tests::{content, stamp};

    #[test]
    fn what_was_used_longest_ago_goes() {
        let cell = CellName::new(b"example.org").expect("a name");
        let fid = |vnode| Fid { volume: VolumeId(1), vnode, unique: 1 };
        let page = content(1, &[]).length();
        let content = |pages: usize| {
            let names: Vec<String> = (0..(pages - 1) * 63).map(|at| format!("n{at}")).collect();
            let names: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 2)).collect();
            content(1, &names)
        };
        let directories = Directories::new(page * 10);
        let held = |vnode| directories.get(&cell, fid(vnode)).is_some();
        directories.put(&cell, fid(1), content(4));
        directories.put(&cell, fid(3), content(4));
        assert!(held(1) && held(3));
        assert!(held(1));
        directories.put(&cell, fid(5), content(4));
        assert!(held(1) && !held(3) && held(5));
        directories.put(&cell, fid(1), content(1));
        directories.put(&cell, fid(7), content(5));
        assert!(held(1) && held(5) && held(7), "another content of one takes the place of the former");
        directories.put(&cell, fid(9), content(11));
        assert!(!held(9) && held(7), "what is too long is not kept");
        directories.keep_only(&cell, fid(7), stamp(1));
        assert!(held(7));
        directories.keep_only(&cell, fid(7), Stamp { made: Some(Made::Volume(6)), ..stamp(1) });
        assert!(!held(7), "the same version of a volume that was restored");
        directories.put(&cell, fid(7), content(4));
        directories.keep_only(&cell, fid(7), stamp(2));
        assert!(!held(7), "another version");
        directories.put(&cell, fid(7), content(4));
        directories.forget(&cell, fid(7));
        assert!(!held(7), "it is there no more");
        (100..140).for_each(|vnode| directories.put(&cell, fid(vnode), content(1)));
        assert!((100..139).filter(|vnode| held(*vnode)).count() < 10 && held(139), "the last ones");
    }

    #[test]
    fn a_word_is_for_whom_it_was_given() {
        let cell = CellName::new(b"example.org").expect("a name");
        let fid = Fid { volume: VolumeId(1), vnode: 1, unique: 1 };
        let promises = crate::promises::Promises::new(10, Arc::new(weft_remote::News::new(10)));
        let admission = |who| Admission { who, ticket: promises.ticket(), until: SystemTime::now() };
        let directories = Directories::new(1 << 20);
        let who = |token| directories.admissions(&cell, fid, token).iter().map(|one| one.who).collect::<Vec<_>>();
        directories.admit(&cell, fid, stamp(1), admission(Who::Anybody));
        assert_eq!(who(None), [], "nothing is held");
        let content = |data_version| content(data_version, &[]);
        directories.put(&cell, fid, content(1));
        directories.admit(&cell, fid, stamp(1), admission(Who::Token(1)));
        assert_eq!((who(Some(1)), who(Some(2)), who(None)), (vec![Who::Token(1)], vec![], vec![]));
        directories.admit(&cell, fid, stamp(1), admission(Who::Anybody));
        directories.put(&cell, fid, content(1));
        assert_eq!((who(Some(1)).len(), who(Some(2)), who(None)), (2, vec![Who::Anybody], vec![Who::Anybody]));
        for token in 0..=ADMISSIONS_MAX as u64 {
            directories.admit(&cell, fid, stamp(1), admission(Who::Token(token)));
        }
        assert_eq!((who(Some(0)), who(Some(ADMISSIONS_MAX as u64)).len()), (vec![], 1), "the oldest are forgotten");
        directories.put(&cell, fid, content(2));
        assert_eq!(who(Some(1)), [], "another version");
        directories.admit(&cell, fid, stamp(1), admission(Who::Anybody));
        assert_eq!(who(None), [], "let in to what was there before");
        directories.admit(&cell, fid, stamp(2), admission(Who::Anybody));
        assert_eq!(who(None), [Who::Anybody]);
    }
}
