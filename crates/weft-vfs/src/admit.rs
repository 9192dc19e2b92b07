//! Who may be shown what the store holds.
//!
//! What one user's rights brought here is for that user. Another who asks for it is not refused out of hand: the
//! source is asked as that user whether it gives the very version that is held. If it does, the user is granted this
//! version for as long as the source's word is good; if it gives it to anybody, it is everyone's from then on. One
//! path has one content at a time: while what is held may be trusted, somebody to whom the source gives another
//! version is refused. Who may look at a file and not read it is granted its attributes alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{Audience, Call, Caller, Checked, FileKind, Lease, Version, clock};
use weft_store::{ListingRecord, NodeRecord, Record};

use crate::content::Check;
use crate::figures::count;
use crate::freshness::Freshness;
use crate::inode::Inode;
use crate::learn::Told;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What somebody wants to be shown of a file, the lesser first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    Attributes,
    /// All of it, and of a directory its names.
    Content,
}

/// The source's word that somebody else may have a version that is held as well.
#[derive(Debug)]
struct Grant {
    to: Audience,
    what: Want,
    version: Version,
    lease: Lease,
    asked: SystemTime,
    learnt: SystemTime,
}

/// The grants of one inode, in memory alone: whoever has none asks the source.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Grant>);

impl Grants {
    fn add(&mut self, version: Version, what: Want, told: &Told) {
        self.0.retain(|grant| grant.to != told.audience || grant.version != version);
        if self.0.len() >= GRANTS_MAX {
            self.0.remove(0);
        }
        let (asked, learnt) = (told.asked, clock::now());
        self.0.push(Grant { to: told.audience, what, version, lease: told.lease, asked, learnt });
    }

    /// `has_ended`: whether the source has ended since what was asked for then.
    fn hold(
        &self,
        caller: &Caller,
        (version, want): (&Version, Want),
        freshness: Freshness,
        has_ended: impl Fn(SystemTime) -> bool,
    ) -> bool {
        let now = clock::now();
        let fresh = |grant: &Grant| now.duration_since(grant.learnt).is_ok_and(|age| age < GRANT_TIME_MIN);
        let holds = |grant: &Grant| {
            grant.to.includes(caller)
                && grant.what >= want
                && version.still_holds(&grant.version)
                && (fresh(grant) || freshness.holds(&grant.lease, grant.learnt, now))
                && !has_ended(grant.asked)
        };
        self.0.iter().any(holds)
    }
}

impl Inode {
    /// Remembers that the source gives this version to an audience as well.
    pub(crate) fn grant(&self, version: Version, told: &Told) {
        self.content.lock().grants.add(version, Want::Content, told);
    }

    fn grant_attributes(&self, version: Version, told: &Told) {
        self.content.lock().grants.add(version, Want::Attributes, told);
    }
}

impl Vfs {
    /// Lets a caller pass who may see what is known of an inode, asking the source where another user's rights
    /// brought it.
    ///
    /// # Errors
    /// `Denied` where the source gives this caller another version than the one that is held; whatever keeps the
    /// source from giving it.
    pub(crate) async fn admit(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        self.admit_to(Want::Content, call, inode).await
    }

    /// The same of who wants its attributes alone.
    ///
    /// # Errors
    /// As of [`Vfs::admit`].
    pub(crate) async fn admit_to_attributes(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        self.admit_to(Want::Attributes, call, inode).await
    }

    async fn admit_to(self: &Arc<Self>, want: Want, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        if self.admits_to(want, inode, call) {
            return Ok(());
        }
        Box::pin(self.admit_asking(want, call, inode)).await
    }

    async fn admit_asking(self: &Arc<Self>, want: Want, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        let _gate = inode.gate.lock().await;
        if self.admits_to(want, inode, call) {
            return Ok(());
        }
        self.confirm(want, call, inode).await.inspect_err(|error| inode.note_error(error))
    }

    /// The same without asking.
    pub(crate) fn admits(&self, inode: &Inode, call: &Call) -> bool {
        self.admits_to(Want::Content, inode, call)
    }

    fn admits_to(&self, want: Want, inode: &Inode, call: &Call) -> bool {
        let (audience, version) = {
            let record = inode.record.read();
            if record.audience.includes(&call.caller) {
                return true;
            }
            (record.audience, record.version.clone())
        };
        // Not under the record's lock: that of the content comes first.
        self.shows_as(want, inode, (audience, &version), &call.caller)
    }

    /// Whether something of an inode that came with an audience may be shown to a caller without asking. The word on its name
    /// counts as that on itself: whoever may list a directory, and see what is in it, is said by the directory.
    pub(crate) fn shows(&self, inode: &Inode, audience: Audience, version: &Version, caller: &Caller) -> bool {
        self.shows_as(Want::Content, inode, (audience, version), caller)
    }

    fn shows_as(&self, want: Want, inode: &Inode, (audience, version): (Audience, &Version), caller: &Caller) -> bool {
        if audience.includes(caller) {
            return true;
        }
        let (binding, parent, name) = {
            let record = inode.record.read();
            (record.binding, record.parent, record.name.clone())
        };
        let breaks = self.namespace.breaks(binding);
        let has_ended = |asked| {
            breaks.is_some_and(|breaks| breaks.ended(inode.id, asked) || breaks.name_ended(parent, &name, asked))
        };
        inode.content.lock().grants.hold(caller, (version, want), inode.freshness, has_ended)
    }

    /// Whether the kernel must not keep what it is told of an inode: it would show it to others.
    pub(crate) fn is_private(&self, audience: Audience) -> bool {
        self.options.shared && audience != Audience::Everyone
    }

    /// Whether a directory's listing may be shown to a caller without asking.
    pub(crate) fn shows_listing(&self, dir: &Inode, listing: &ListingRecord, caller: &Caller) -> bool {
        self.shows(dir, listing.audience, &listing.version, caller)
    }

    /// Whether a user may be told that a path is known, and what of it.
    pub fn may_know(&self, path: &[weft_remote::Name], uid: u32) -> bool {
        let caller = Caller { uid, gid: 0, pid: 0 };
        let open = |record: NodeRecord| record.audience.includes(&caller);
        let may = |depth: usize| {
            let node = self.find(&path[..depth]).ok()?;
            if self.namespace.is_own(node) {
                return Some(true);
            }
            self.store.node(self.namespace.real(node)).ok().flatten().map(open)
        };
        // What is not known gives nothing away.
        (0..=path.len()).all(|depth| may(depth).unwrap_or(true))
    }

    /// Asks the source as this caller. The gate is held.
    async fn confirm(self: &Arc<Self>, want: Want, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        if inode.kind() == FileKind::Directory {
            return self.confirm_directory(call, inode).await;
        }
        count(&self.figures.checks_remote);
        let record = inode.record();
        let held = self.held_content(inode)?;
        let (known, lease, learnt) = match &held {
            Some(current) => (current.object.version().clone(), current.lease, current.checked),
            None => (record.version.clone(), record.lease, record.learnt),
        };
        let remote = self.remote_of(inode)?.clone();
        let answer = self.ask_of(call, inode, || remote.attributes(call, &record.file, &known)).await?;
        let told = Told::by(&answer);
        if !told.audience.includes(&call.caller) {
            return Err(VfsError::Denied);
        }
        let same = match &answer.value {
            Checked::Unchanged | Checked::Touched(_) => true,
            Checked::Is(found) => found.entry.id == record.file && known.still_holds(&told.version),
        };
        if same {
            inode.grant(known, &told);
            return if told.audience == Audience::Everyone { self.open_to_everyone(inode) } else { Ok(()) };
        }
        if remote.is_looked_at(&told.version, &known) {
            inode.grant_attributes(known, &told);
            return if want == Want::Attributes { Ok(()) } else { Err(VfsError::Denied) };
        }
        // A mere name that another user's page told is of no version that this one could contradict.
        let only_named = held.is_none() && known == Version::None;
        if only_named || !inode.freshness.holds(&lease, learnt, clock::now()) {
            return match self.learn_check(call, inode, &known, answer)? {
                Check::Elsewhere(_) => Err(VfsError::Stale),
                Check::Unchanged | Check::Changed => Ok(()),
            };
        }
        self.troubles.tell(self.path_text(inode.id), ANOTHER_VERSION.to_string());
        Err(VfsError::Denied)
    }

    /// The same of a directory: the caller may pass if the source shows the caller its name. What it tells of it to the
    /// caller is no secret of anybody else's, so it is what is known from then on; the directory's list has an audience
    /// of its own.
    async fn confirm_directory(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<()> {
        count(&self.figures.lookups_remote);
        let record = inode.record();
        let parent = self.inode(record.parent)?.record().file;
        let remote = self.remote_of(inode)?.clone();
        let answer = self.ask(call, remote.lookup(call, &parent, &record.name)).await?;
        let told = Told::by(&answer);
        if !told.audience.includes(&call.caller) {
            return Err(VfsError::Denied);
        }
        let found = answer.value.filter(|found| found.entry.id == record.file).ok_or(VfsError::NotFound)?;
        if told.audience != Audience::Everyone && record.version.still_holds(&told.version) {
            inode.grant(record.version, &told);
            return Ok(());
        }
        self.learn_attributes(inode, found.entry.attributes, &told)?;
        self.take_along(call, inode.id, record.binding, found, &told)
    }

    fn open_to_everyone(&self, inode: &Inode) -> Result<()> {
        let record = {
            let mut record = inode.record.write();
            record.audience = Audience::Everyone;
            record.clone()
        };
        self.store.apply(vec![Record::Node(inode.id, Some(record))])?;
        Ok(())
    }
}

/// A grant lasts for the use that it was asked for, if no longer.
const GRANT_TIME_MIN: Duration = Duration::from_secs(2);
/// Grants remembered for one inode.
const GRANTS_MAX: usize = 32;
const ANOTHER_VERSION: &str = "refused to a user to whom the source gives another version than the one that is held for \
    another user; one path has one content at a time, until the trust in what is held ends";
