//! Which content an open gets: what is held, if it may be trusted; otherwise what the remote has now.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use weft_remote::{Along, Answer, Call, Checked, Fetched, FileKind, Found, Lease, Sameness, Span, Version, clock};
use weft_store::{NodeId, Object};

use crate::arrival::{Arrival, Delivery};
use crate::figures::count;
use crate::inode::{Current, Inode};
use crate::learn::Told;
use crate::notice::Notice;
use crate::prefetch::Want;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What a check found.
pub(crate) enum Check {
    /// The inode is what it was; its content, if held, is still right.
    Unchanged,
    /// The inode is something new now.
    Changed,
    /// The name leads to another node now.
    Elsewhere(NodeId),
}

impl Vfs {
    /// The object that an open of this file gets, asking the remote where what is held cannot be trusted.
    pub(crate) async fn content(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Arc<Object>> {
        if let Some(object) = self.trusted_content(call, inode)? {
            count(&self.figures.opens_local);
            self.used(call, inode);
            return Ok(object);
        }
        Box::pin(self.content_asking(call, inode)).await
    }

    pub(crate) async fn content_asking(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Arc<Object>> {
        let _gate = inode.gate.lock().await;
        if let Some(object) = self.trusted_content(call, inode)? {
            count(&self.figures.opens_local);
            self.used(call, inode);
            return Ok(object);
        }
        count(&self.figures.opens_remote);
        self.walked(call, inode, Want::Content);
        if self.held_content(inode)?.is_some() {
            match self.check(call, inode).await {
                Ok(Check::Unchanged | Check::Changed) => {}
                // The kernel looks the path up again and finds what the name leads to now.
                Ok(Check::Elsewhere(_)) => return Err(VfsError::Stale),
                Err(error) => return self.stale_content(call, inode, error).await,
            }
            // Another user's look-up may have brought another version since the answer.
            if let Some(Current { object, .. }) = self.held_content(inode)?
                && self.shows(inode, object.audience(), object.version(), &call.caller)
            {
                inode.opened_for(call);
                return Ok(object);
            }
        }
        match self.fetch_whole(call, inode).await {
            Ok(arrival) => {
                inode.came_for(call);
                inode.opened_for(call);
                arrival.claim();
                Ok(arrival.object.clone())
            }
            Err(error) => self.superseded_content(call, inode, error),
        }
    }

    /// What is held and may be used without asking.
    pub(crate) fn trusted_content(&self, call: &Call, inode: &Arc<Inode>) -> Result<Option<Arc<Object>>> {
        let is_told_all = self.is_told_all(inode);
        let Some(current) = self.held_content(inode)? else { return Ok(None) };
        if !self.admits(inode, call) {
            return Ok(None);
        }
        // The record may be newer than the content: a list that anyone may see tells of a file that one user's rights
        // brought here. Whether this caller may have it, the source says.
        if !self.shows(inode, current.object.audience(), current.object.version(), &call.caller) {
            return Ok(None);
        }
        let is_same_use = match current.object.version() {
            Version::None => inode.opens_same_use(call),
            _ => self.opens_confirmed(call, inode, &current),
        };
        if is_same_use {
            return Ok(Some(current.object));
        }
        Ok((is_told_all && self.is_current(inode, &current)?).then_some(current.object))
    }

    /// Whether what is held is taken to be what the source has, without asking it.
    pub(crate) fn is_current(&self, inode: &Inode, current: &Current) -> Result<bool> {
        let left = self.trusted_for(inode, &current.lease, current.checked, clock::now());
        Ok(!left.is_zero() || self.attributes_vouch(inode, current)?)
    }

    /// Whether what is trusted of the attributes says that the content is the one that is held: a look at a file brings its
    /// version, and who opens it then need not ask for that again (for HTTP: RFC 9111 section 4.3.5). What had the content
    /// doubted had the attributes doubted as well, so the look came after it.
    fn attributes_vouch(&self, inode: &Inode, current: &Current) -> Result<bool> {
        let is_same = inode.record.read().version.compare(current.object.version()) == Sameness::Same;
        Ok(is_same && !self.attributes_remaining(inode)?.is_zero())
    }

    /// What is held, trusted or not; superseded content is not.
    pub(crate) fn held_content(&self, inode: &Arc<Inode>) -> Result<Option<Current>> {
        if let Some(current) = inode.content.lock().current.clone() {
            return Ok(Some(current));
        }
        let Some(object) = self.store.object(inode.id)? else { return Ok(None) };
        let record = self.store.object_record(inode.id)?.filter(|record| !record.is_superseded());
        let Some(record) = record else { return Ok(None) };
        let current = Current { object, lease: record.lease, checked: record.checked };
        Ok(Some(inode.content.lock().current.get_or_insert(current).clone()))
    }

    /// The source does not answer: what is held serves, where the policy allows it.
    async fn stale_content(&self, call: &Call, inode: &Arc<Inode>, error: VfsError) -> Result<Arc<Object>> {
        inode.note_error(&error);
        if is_gone(&error) {
            return Err(self.learn_gone(call, inode).await?);
        }
        match inode.content.lock().current.clone() {
            Some(current)
                if self.serves_after(inode, &current.lease, current.checked, &error)
                    && current.object.audience().includes(&call.caller) =>
            {
                count(&self.figures.served_stale);
                Ok(current.object)
            }
            _ => Err(error),
        }
    }

    /// Asks the remote what a file is now and learns the answer. The caller holds the inode's gate.
    pub(crate) async fn check(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Check> {
        count(&self.figures.checks_remote);
        let record = inode.record();
        let held = self.held_content(inode)?.map(|current| current.object.version().clone());
        let known = held.unwrap_or(if inode.is_settled() { record.version.clone() } else { Version::None });
        let remote = self.remote_of(inode)?.clone();
        let answer = self.ask_of(call, inode, || remote.attributes(call, &record.file, &known)).await?;
        let answer = Box::pin(self.compared(call, inode, &known, answer)).await?;
        let outcome = self.learn_check(call, inode, &known, answer)?;
        if let Check::Unchanged = outcome {
            inode.confirmed_for(call);
        }
        Ok(outcome)
    }

    /// Learns what the remote said of a file that was asked about as `known`.
    pub(crate) fn learn_check(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        known: &Version,
        answer: Answer<Checked>,
    ) -> Result<Check> {
        let record = inode.record();
        let told = Told::by(&answer);
        let told = match &answer.value {
            Checked::Is(found) if found.entry.id != record.file => told,
            Checked::Is(found) => told.beside(&record, &answer.version, Some(&found.entry.attributes)),
            Checked::Unchanged | Checked::Touched(_) => told.beside(&record, known, None),
        };
        match answer.value {
            Checked::Unchanged => {
                count(&self.figures.checks_confirmed);
                inode.grant(known.clone(), &told);
                self.tell_back(&record);
                self.learn_unchanged(inode, &told)?;
                Ok(Check::Unchanged)
            }
            Checked::Touched(entry) => {
                count(&self.figures.checks_confirmed);
                inode.grant(known.clone(), &told);
                self.learn_attributes(inode, entry.attributes, &told)?;
                self.confirm_content(inode, &told)?;
                Ok(Check::Unchanged)
            }
            Checked::Is(found) if found.entry.id != record.file => {
                let mut entry = found.entry.clone();
                entry.name = record.name.clone();
                let (id, _) = self.learn_entry(record.parent, record.binding, &entry, &told)?;
                // What has its place now is no version of it, and whatever has it later is another file.
                self.give_up_content(inode.id)?;
                self.take_along(call, id, record.binding, *found, &told)?;
                Ok(Check::Elsewhere(id))
            }
            Checked::Is(found) => {
                self.learn_attributes(inode, found.entry.attributes, &told)?;
                let same = known.still_holds(&told.version) && self.held_content(inode)?.is_some();
                if same {
                    count(&self.figures.checks_confirmed);
                    inode.grant(known.clone(), &told);
                    self.learn_unchanged(inode, &told)?;
                    return Ok(Check::Unchanged);
                }
                if known.compare(&told.version) == Sameness::Different {
                    count(&self.figures.checks_changed);
                }
                self.supersede_content(inode)?;
                self.take_along(call, inode.id, record.binding, *found, &told)?;
                inode.confirmed_for(call);
                Ok(Check::Changed)
            }
        }
    }

    /// Gives up what is held of a node's content and returns the bytes freed. Open handles keep theirs. An object that
    /// is still arriving is given up first, so that its end does not bring it back.
    pub(crate) fn give_up_content(&self, node: NodeId) -> Result<u64> {
        self.let_go_of_content(node);
        Ok(self.store.remove_object(node)?)
    }

    /// Has opens not get what is held any more.
    pub(crate) fn let_go_of_content(&self, node: NodeId) {
        let current = self.inodes.get(node).and_then(|inode| {
            let mut content = inode.content.lock();
            content.outdated_before = self.store.next_generation();
            content.current.take()
        });
        if let Some(current) = current {
            current.object.discard();
        }
        self.forget_pages_unopened(node);
    }

    /// Nobody opens files: so the kernel is told when the pages that it has may be old.
    pub(crate) fn forget_pages_unopened(&self, node: NodeId) {
        if self.options.unopened {
            self.notices.send_later(Notice::Content { node: self.namespace.shown(node) }, &self.runtime);
        }
    }

    /// Takes up a body that came along with an answer about `node`, of which that was told.
    pub(crate) fn take_along(
        self: &Arc<Self>,
        call: &Call,
        node: NodeId,
        binding: weft_store::BindingId,
        found: Found,
        told: &Told,
    ) -> Result<()> {
        let Some(along) = found.along else { return Ok(()) };
        let (asked, checked) = (told.asked, self.learnt(binding, told));
        let Along { body, lists, lease, audience } = along;
        let body_node = self.identify(binding, &body.file)?;
        let lists = match lists {
            Some(dir) => {
                let id = self.identify(binding, &dir)?;
                Some((dir, id))
            }
            None => None,
        };
        if lists.is_none() && self.inode(body_node).is_ok_and(|inode| self.has_version(&inode, &body.version)) {
            return Ok(());
        }
        let target = match &lists {
            Some((_, dir)) => Some(self.inode(*dir)?),
            None => self.inode(body_node).ok(),
        };
        let is_page = lists.is_some();
        let owner_uid = call.caller.uid;
        let delivery = Delivery { node: body_node, binding, body, lease, audience, owner_uid, lists, asked, checked };
        let register = |arrival: &Arc<Arrival>| match &target {
            Some(dir) if is_page => dir.content.lock().arrivals.push(arrival.clone()),
            Some(inode) => adopt(inode, arrival, lease, checked),
            None => {}
        };
        match self.receive(delivery, register) {
            Ok(_) => Ok(()),
            Err(error) if error.is_full() => {
                self.tell_unstored(node, &error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether what opens get is of this version.
    pub(crate) fn has_version(&self, inode: &Arc<Inode>, version: &Version) -> bool {
        let current = inode.content.lock().current.clone();
        current.is_some_and(|current| current.object.version().still_holds(version))
    }

    /// Fetches a file that is not held. The caller holds the inode's gate.
    pub(crate) async fn fetch_whole(self: &Arc<Self>, call: &Call, inode: &Arc<Inode>) -> Result<Arc<Arrival>> {
        self.fetch_version(call, inode, &Version::None).await
    }

    /// Fetches a file that is not held, in this version only unless that is none. The caller holds the inode's gate.
    pub(crate) async fn fetch_version(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        version: &Version,
    ) -> Result<Arc<Arrival>> {
        let record = inode.record();
        let remote = self.remote_of(inode)?.clone();
        let since = Instant::now();
        let fetched = self.ask_of(call, inode, || remote.fetch(call, &record.file, version, Span::WHOLE)).await;
        inode.content.lock().latency = since.elapsed();
        let answer = match fetched {
            Ok(answer) => answer,
            Err(error) => {
                inode.note_error(&error);
                if is_gone(&error) {
                    return Err(self.learn_gone(call, inode).await?);
                }
                return Err(self.of_another_kind(call, inode, error).await);
            }
        };
        let told = Told::by(&answer).beside(&inode.record(), &answer.version, Some(&answer.value.attributes));
        let Answer { value: Fetched { attributes, body }, lease, audience, .. } = answer;
        self.learn_attributes(inode, attributes, &told)?;
        let delivery = Delivery {
            node: inode.id,
            binding: record.binding,
            body,
            lease,
            audience,
            owner_uid: call.caller.uid,
            lists: None,
            asked: told.asked,
            checked: self.learnt(record.binding, &told),
        };
        let checked = delivery.checked;
        self.receive(delivery, |arrival| adopt(inode, arrival, lease, checked))
    }

    /// Sees to it that what `stat` shows of an inode is exact; returns the inode that the name leads to now.
    pub(crate) async fn settle(self: &Arc<Self>, call: &Call, inode: Arc<Inode>) -> Result<Arc<Inode>> {
        if inode.is_settled() {
            return Ok(inode);
        }
        self.walked(call, &inode, Want::Attributes);
        Box::pin(self.settle_asking(call, inode)).await
    }

    async fn settle_asking(self: &Arc<Self>, call: &Call, mut inode: Arc<Inode>) -> Result<Arc<Inode>> {
        // The answer had a body, which there is no room for.
        let mut is_unstored = false;
        for round in 1..=SETTLE_ROUNDS_MAX {
            if inode.is_settled() {
                return Ok(inode);
            }
            let gate = inode.gate.lock().await;
            if inode.is_settled() {
                continue;
            }
            // Of several the newest: it was asked for by this look, or after it.
            if let Some(arrival) = inode.newest_arrival(|arrival| arrival.covers(0)) {
                drop(gate);
                // Where others ask again and again, the newest has not ended by then.
                let takes_any = round >= NEWEST_ROUNDS_MAX;
                is_unstored |= self.wait_for_length(call, &inode, &arrival, takes_any).await?;
                continue;
            }
            if inode.kind() == FileKind::File
                && let Some(object) = self.held_content(&inode)?.map(|current| current.object)
                && self.shows(&inode, object.audience(), object.version(), &call.caller)
                && let Some(length) = object.length()
            {
                self.learn_length(inode.id, length)?;
                continue;
            }
            let asked = match is_unstored && inode.kind() == FileKind::File {
                true => self.measure(call, &inode).await.map(|()| Check::Unchanged),
                false => self.check(call, &inode).await,
            };
            let elsewhere = match asked {
                Ok(Check::Elsewhere(id)) => Some(id),
                Ok(Check::Unchanged) => None,
                Ok(Check::Changed) => {
                    is_unstored = inode.arrival(|arrival| arrival.covers(0)).is_none();
                    None
                }
                Err(error) => {
                    inode.note_error(&error);
                    if is_gone(&error) {
                        return Err(self.learn_gone(call, &inode).await?);
                    }
                    return Err(error);
                }
            };
            drop(gate);
            if let Some(id) = elsewhere {
                inode = self.inode(id)?;
            }
        }
        match inode.is_settled() {
            true => Ok(inode),
            false => Err(VfsError::TimedOut),
        }
    }

    /// Waits for a body that is to tell how long a file is, and takes its word where it is the newest, or `takes_any` is said;
    /// tells whether there was no room for it.
    async fn wait_for_length(&self, call: &Call, inode: &Inode, arrival: &Arrival, takes_any: bool) -> Result<bool> {
        match arrival.whole(call).await {
            Err(error) if error.is_full() => return Ok(true),
            outcome => outcome?,
        }
        if let Some(length) = arrival.object.length()
            && takes_any
        {
            self.learn_missing_length(inode.id, arrival.object.version(), length)?;
        }
        Ok(false)
    }
}

/// Makes an arriving object the one that opens get.
fn adopt(inode: &Inode, arrival: &Arc<Arrival>, lease: Lease, checked: SystemTime) {
    let former = {
        let mut content = inode.content.lock();
        content.outdated_before = content.outdated_before.max(arrival.object.generation());
        content.arrivals.push(arrival.clone());
        content.current.replace(Current { object: arrival.object.clone(), lease, checked })
    };
    // It may still be arriving: its end is not to bring it back.
    if let Some(former) = former {
        former.object.discard();
    }
}

/// How often a file may turn out to be something else before one gives up on it.
const SETTLE_ROUNDS_MAX: usize = 16;
/// For how many bodies one waits for the newest alone.
const NEWEST_ROUNDS_MAX: usize = 4;
