//! Names that are known to be absent, and of which that need not be known any more: each name that was taken away, or asked
//! for in vain, is one. In a directory where files come and go they would get more and more, and each list of it would pass
//! them all.
//!
//! That a name is absent saves a question. So it is forgotten when nobody trusts it any more, or when a list of its directory
//! says the same. It is not when whoever relies on that list would take the name for absent longer than he does now, nor where
//! it was put in doubt. While an answer of before may be on its way, it tells that it is old: so it stays for a while. What the
//! kernel was told by it is taken back with it, for nobody would know later that there is something to take back.

use std::time::{Duration, SystemTime};

use weft_remote::Name;
use weft_store::{DentryRecord, DentryTarget, ListingRecord, NodeId, Record};

use crate::Result;
use crate::absences::ON_ITS_WAY_MAX;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// Those of one directory.
pub(crate) struct Bygones {
    dir: NodeId,
    listing: Option<ListingRecord>,
    /// For how long after that was found names are kept of which nobody trusts that they are absent.
    spent_for: Duration,
    now: SystemTime,
    /// Which they are, and since when that is known.
    names: Vec<(Name, SystemTime)>,
}

impl Bygones {
    pub(crate) fn dir(&self) -> NodeId {
        self.dir
    }

    /// Notes a name that is known to be absent, if that need not be known any more.
    pub(crate) fn note(&mut self, name: &Name, dentry: &DentryRecord) {
        if self.are_past(name, dentry) {
            self.names.push((name.clone(), dentry.learnt));
        }
    }

    fn are_past(&self, name: &Name, dentry: &DentryRecord) -> bool {
        let Ok(age) = self.now.duration_since(dentry.learnt) else { return false };
        if age < AGE_MIN || dentry.learnt == SystemTime::UNIX_EPOCH {
            return false;
        }
        let left = dentry.lease.remaining_at(self.now);
        let is_denied = self.listing.as_ref().filter(|listing| listing.completeness.denies(name));
        match is_denied {
            Some(listing) => listing.learnt > dentry.learnt || listing.lease.remaining_at(self.now) <= left,
            None => left.is_zero() && age >= self.spent_for,
        }
    }
}

impl Vfs {
    /// None yet, of this directory, which need not be known.
    pub(crate) fn bygones_in(&self, dir: NodeId, now: SystemTime) -> Result<Bygones> {
        let listing = self.store.listing(dir)?;
        let binding = self.store.node(dir)?.and_then(|record| self.namespace.bound(record.binding));
        // Off the network what a site did not have last is all that is known.
        let has_identities = binding.is_some_and(|bound| bound.remote.capabilities().stable_ids);
        let spent_for = if has_identities { AGE_MIN } else { SPENT_FOR };
        Ok(Bygones { dir, listing, spent_for, now, names: Vec::new() })
    }

    /// Forgets them. May wait for the kernel: not for a thread that a request needs.
    pub(crate) fn forget_bygones(&self, bygones: Option<Bygones>) -> Result<()> {
        let Some(Bygones { dir, names, .. }) = bygones else { return Ok(()) };
        for names in names.chunks(NAMES_AT_ONCE) {
            let mut forgotten = Vec::with_capacity(names.len());
            {
                let _names = self.renames.lock();
                for (name, learnt) in names {
                    let known = self.store.dentry(dir, name)?;
                    if known.is_some_and(|known| known.target == DentryTarget::Absent && known.learnt == *learnt) {
                        forgotten.push(name.clone());
                    }
                }
                self.store.apply(forgotten.iter().map(|name| Record::Dentry(dir, name.clone(), None)).collect())?;
            }
            // Whoever hears of a change takes back what the kernel was told of names that are known to be absent.
            let parent = self.namespace.shown(dir);
            let expired = || forgotten.iter().map(|name| Notice::Expired { parent, name: name.clone() });
            expired().for_each(|notice| self.notices.send_surely(notice));
            self.notices.send_after(ON_ITS_WAY_MAX, expired().collect(), &self.runtime);
        }
        Ok(())
    }

    /// The same if they are many; there may be more in the directory.
    pub(crate) fn forget_many_bygones(&self, bygones: Option<Bygones>) -> Result<Option<Bygones>> {
        match bygones {
            Some(bygones) if bygones.names.len() >= NAMES_AT_ONCE => {
                let onward = self.bygones_in(bygones.dir, bygones.now)?;
                self.forget_bygones(Some(bygones))?;
                Ok(Some(onward))
            }
            bygones => Ok(bygones),
        }
    }
}

/// How long it is known in any case.
const AGE_MIN: Duration = Duration::from_secs(300);
/// How long of a site, also if it is not trusted any more.
const SPENT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Names that are forgotten at once.
const NAMES_AT_ONCE: usize = 1024;

#[cfg(test)]
mod tests {
    use weft_remote::{Audience, Completeness, Lease, Version};
    use weft_store::DentrySource;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn listing(learnt: SystemTime, lease: Lease, completeness: Completeness) -> Option<ListingRecord> {
        let (version, audience, origin) = (Version::None, Audience::Everyone, None);
        Some(ListingRecord { version, lease, completeness, audience, learnt, origin })
    }

    /// Goal: an absence goes when it is not trusted or a list says the same, and never so that a list is trusted longer.
    #[test]
    fn what_nobody_needs_to_know_is_past() {
        let name = Name::new("name").expect("a good name");
        let is_past = |listing, (learnt, lease), now| {
            let spent_for = Duration::from_secs(3600);
            let bygones = Bygones { dir: NodeId(5000), listing, spent_for, now, names: Vec::new() };
            let (target, source) = (DentryTarget::Absent, DentrySource::LookedUp);
            bygones.are_past(&name, &DentryRecord { target, lease, source, learnt })
        };
        let complete = |learnt, end| listing(at(learnt), Lease::Until(at(end)), Completeness::Complete);
        let lasting = (at(1000), Lease::Until(at(3000)));
        assert!(is_past(complete(1, 3000), lasting, at(1300)), "the list is trusted as long");
        assert!(!is_past(complete(1, 3000), lasting, at(1200)), "an old answer may be on its way");
        assert!(!is_past(complete(1, 3001), lasting, at(1300)), "the list is trusted longer");
        assert!(is_past(complete(1001, 9000), lasting, at(1300)), "the list came later");
        assert!(!is_past(complete(1, 3000), (SystemTime::UNIX_EPOCH, lasting.1), at(1300)), "it is in doubt");
        let partial = listing(at(1001), Lease::Forever, Completeness::Partial);
        for unlisted in [None, partial] {
            assert!(!is_past(unlisted.clone(), lasting, at(2999)), "it is trusted");
            assert!(!is_past(unlisted.clone(), lasting, at(4599)), "not for long enough");
            assert!(is_past(unlisted, lasting, at(4600)));
        }
        assert!(!is_past(complete(1, 3000), lasting, at(500)), "the clock was set back");
    }
}
