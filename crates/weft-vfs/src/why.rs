//! Explaining: where a file comes from, what is held of it, why it is trusted and what happens next.

use std::time::{Duration, SystemTime};

use weft_remote::{
    Audience, Completeness, Figure, FileKind, Lease, Name, RemoteError, Source, SourceState, Stale, Version, clock,
};
use weft_store::{DentryTarget, ObjectRecord};

use crate::extended::{Standing, Trust, time_text};
use crate::faces::Faces;
use crate::inode::Inode;
use crate::offline::Mode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// All that weft knows about a path.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// Facts in the order to be shown: a fixed key and its value in words.
    pub facts: Vec<(String, String)>,
}

impl Vfs {
    /// Explains a path: where it comes from, what is held, why it is trusted and what happens next.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    pub fn why(&self, path: &[Name]) -> Result<Why> {
        let node = self.find(path)?;
        let mut why = Why::default();
        if self.namespace.is_own(node) {
            why.add("kind", "a directory of weft's own; known without asking anybody");
            return Ok(why);
        }
        let inode = self.inode(node)?;
        let record = inode.record();
        let bound = self.namespace.bound(record.binding).ok_or(VfsError::Stale)?;
        let (now, by_wall) = (clock::now(), SystemTime::now());
        why.add("tree", &bound.source);
        why.add("kind", kind_words(record.attributes.kind));
        why.add("inode", &Faces::number(self.namespace.shown(inode.id)).0.to_string());
        why.facts.extend(bound.remote.about(&record.file));
        if let Some(origin) = &record.origin {
            why.add("answered by", &origin.how);
            for redirect in &origin.redirects {
                why.add("redirected to", redirect);
            }
        }
        why.add("size", &figure_words(record.attributes.size, |bytes| format!("{bytes} bytes")));
        why.add("modified", &figure_words(record.attributes.modified, |at| age_words(at, by_wall)));
        why.add("learnt", &age_words(record.learnt, now));
        if let Some(source) = bound.remote.source(&record.file) {
            why.add("source state", &source_words(&source, by_wall));
        }
        self.why_written(&mut why, &inode, path, now);
        self.why_cached(&mut why, &inode, now)?;
        self.why_policy(&mut why, &inode, path);
        self.why_space(&mut why, inode.id)?;
        self.why_next(&mut why, &inode, now)?;
        if let Some((at, error)) = &inode.content.lock().last_error {
            why.add("last error", &format!("{error} ({})", age_words(*at, now)));
        }
        Ok(why)
    }

    /// The last thing that went wrong when a name on the way to a path that is not known was looked up.
    pub fn last_error_above(&self, path: &[Name]) -> Option<String> {
        let (depth, above) = (0..path.len()).rev().find_map(|depth| Some((depth, self.find(&path[..depth]).ok()?)))?;
        let inode = self.inode(above).ok()?;
        let content = inode.content.lock();
        let (_, at, error) = content.failed_names.iter().rev().find(|(name, ..)| *name == path[depth])?;
        Some(format!("{error} ({})", age_words(*at, clock::now())))
    }

    /// The first name of a path that is known to be absent, as the path that leads to it, and since when that is known.
    pub fn absent_above(&self, path: &[Name]) -> Option<(Vec<Name>, String)> {
        let (depth, above) = (0..path.len()).rev().find_map(|depth| Some((depth, self.find(&path[..depth]).ok()?)))?;
        let dentry = self.store.dentry(self.namespace.real(above), &path[depth]).ok()??;
        let absent = dentry.target == DentryTarget::Absent;
        absent.then(|| (path[..=depth].to_vec(), age_words(dentry.learnt, clock::now())))
    }

    fn why_written(&self, why: &mut Why, inode: &Inode, path: &[Name], now: SystemTime) {
        let Some(unsent) = self.unsent_of(inode, path.to_vec()) else { return };
        let because = match (&unsent.why, unsent.is_open) {
            _ if unsent.is_sending => "for it is being sent".to_owned(),
            (Some(error), _) if unsent.tried_again => format!("because {error}; it is tried again by itself"),
            (Some(error), _) => format!("because {error}; `weft unsent` says what can be done"),
            (None, true) => "because it is open for writing; it is sent at the close".to_owned(),
            (None, false) => "because it was not tried yet".to_owned(),
        };
        let (bytes, since) = (unsent.bytes, age_words(unsent.since, now));
        why.add("written here", &format!("{bytes} bytes not at the source since {since}, {because}"));
        why.add("written bytes", &format!("in {}", unsent.kept.display()));
    }

    fn why_policy(&self, why: &mut Why, inode: &Inode, path: &[Name]) {
        let shown = |path: &[Name]| path.iter().map(Name::to_string).collect::<Vec<_>>().join("/");
        let from = match self.options.policies.rule_for(path) {
            Some(rule) => format!("the rule for {}", shown(rule)),
            None => "the mount's own".to_string(),
        };
        why.add("policy", &format!("freshness = {} ({from})", inode.freshness));
        if inode.shows_newest() {
            why.add("policy for open files", &format!("open_files = {}", inode.open_files));
        }
        if let Some(time) = self.stale_if_error(inode) {
            why.add("policy for errors", &format!("stale_if_error = {} s", time.as_secs()));
        }
        match self.mode_of(inode) {
            Some(Mode::Offline) => why.add("offline", "by `weft offline`: nobody is asked; `weft online` ends that"),
            Some(Mode::FetchOnly) => {
                why.add(
                    "offline",
                    "by `weft offline --fetch-only`: what is held is not checked; `weft online` ends that",
                );
            }
            None => {}
        }
    }

    fn why_cached(&self, why: &mut Why, inode: &Inode, now: SystemTime) -> Result<()> {
        if inode.kind() == FileKind::Directory {
            match self.store.listing(inode.id)? {
                None => why.add("listing", "not fetched; only names learnt elsewhere are known"),
                Some(listing) => {
                    let how = listing.origin.map_or_else(|| "the source's list".to_string(), |origin| origin.how);
                    let all = match listing.completeness {
                        Completeness::Complete => "complete",
                        Completeness::CompleteButHidden => "complete but for what servers hide (.*, README*, *~)",
                        Completeness::CompleteButAtSys => "complete but for names that end with @sys",
                        Completeness::Partial => "partial: other names may exist",
                    };
                    why.add("listing", &format!("{how}; {all}; confirmed {}", age_words(listing.learnt, now)));
                }
            }
            return Ok(());
        }
        match self.store.object_record(inode.id)? {
            None if inode.content.lock().current.is_some() => why.add("cached", "on its way"),
            None => why.add("cached", "no"),
            Some(object) => {
                let words = held_words(&object);
                let is_coming = || inode.content.lock().current.is_some();
                let cached = match object.is_superseded() {
                    true if is_coming() => format!("on its way; {words}, of the version before"),
                    true => format!("{words}, of the version before: it serves where nobody answers"),
                    false => words,
                };
                why.add("cached", &cached);
                why.add("version", &version_words(&object.version));
                if !object.is_superseded() {
                    why.add("checked", &age_words(object.checked, now));
                }
                why.add("brought by", &format!("user id {}", object.owner_uid));
            }
        }
        Ok(())
    }

    fn why_next(&self, why: &mut Why, inode: &Inode, now: SystemTime) -> Result<()> {
        let Some(Trust { lease, checked, audience }) = self.trust_of(inode)? else {
            why.add("next", self.next_without_content(inode));
            return Ok(());
        };
        why.add("lease", &lease_words(&lease, checked, now));
        match lease.stale() {
            Stale::Forbidden => why.add("after the lease", "its source wants it confirmed before any further use"),
            Stale::Allowed { seconds } => {
                why.add("after the lease", &format!("may be used for {seconds} s when its source fails"));
            }
            Stale::Unsaid => {}
        }
        let seen_by = match audience {
            Audience::Everyone => "everyone who may use the mount".to_string(),
            Audience::Only { uid } => format!("user id {uid} alone, with whose login it came"),
        };
        why.add("visible to", &seen_by);
        let state = self.state_of(inode, now)?;
        why.add("state", state.as_str());
        if let (Standing::Stale | Standing::Offline, Some((at, error))) =
            (state, self.served_since(inode, &lease, checked))
        {
            why.add("served stale", &format!("since {}, because of: {error}", age_words(at, now)));
        }
        let next = match inode.freshness.remaining(&lease, checked, now) {
            Duration::MAX => "served from the cache until `weft reload`".to_string(),
            left if !left.is_zero() => {
                format!(
                    "served from the cache for another {} s, then checked; `weft reload` checks now",
                    left.as_secs()
                )
            }
            _ => self.next_after_lease(inode, &lease, checked).to_string(),
        };
        why.add("next", &next);
        Ok(())
    }

    /// What happens at the next use of something that is not held.
    fn next_without_content(&self, inode: &Inode) -> &'static str {
        match (self.mode_of(inode), self.source_state(inode)) {
            (Some(Mode::Offline), _) => {
                "the next use fails with ENETDOWN; `weft online` puts the tree back on the network"
            }
            (_, SourceState::Disconnected) => {
                "the next use fails with EHOSTUNREACH until the source answers a probe; `weft online` tries it now"
            }
            _ => "the next use asks the source",
        }
    }

    /// What happens at the next use of something whose lease has ended.
    fn next_after_lease(&self, inode: &Inode, lease: &Lease, checked: SystemTime) -> &'static str {
        let silence = VfsError::Remote(RemoteError::Unreachable { detail: String::new() });
        let content = inode.kind() != FileKind::Directory;
        match (self.mode_of(inode), self.source_state(inode)) {
            (Some(Mode::Offline), _) => {
                "served from the cache and not checked; `weft online` puts the tree back on the network"
            }
            (Some(Mode::FetchOnly), _) => {
                "served from the cache and not checked; `weft online` ends that, `weft reload` checks once"
            }
            _ if self.is_fetch_only(inode) => {
                "served from the cache and not checked, since the source is busy; `weft reload` checks now"
            }
            (_, SourceState::Disconnected) if content && !self.serves_after(inode, lease, checked, &silence) => {
                "the next open fails with EHOSTUNREACH, since it must be checked first; `weft offline` serves it as it is"
            }
            (_, SourceState::Disconnected) => {
                "served from the cache until the source answers a probe, then checked; `weft online` tries it now"
            }
            _ => "the lease has ended: the next use checks with the source",
        }
    }
}

impl Why {
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        self.facts.push((key.to_string(), value.to_string()));
    }
}

fn kind_words(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Unknown => "known by name only; what it is shows when it is used",
    }
}

fn source_words(source: &Source, now: SystemTime) -> String {
    let (state, since) = (source.state.as_str(), age_words(source.since, now));
    match (source.state, &source.last_error) {
        (SourceState::Connected, _) | (_, None) => state.to_string(),
        (_, Some((_, error))) => format!("{state} since {since}: {error}"),
    }
}

fn figure_words<T: Copy>(figure: Figure<T>, words: impl Fn(T) -> String) -> String {
    match figure {
        Figure::Exact(value) => words(value),
        Figure::Rounded(value) => format!("about {}", words(value)),
        Figure::Unknown => "not told".to_string(),
    }
}

fn held_words(object: &ObjectRecord) -> String {
    if object.is_complete() {
        return format!("whole, {} bytes", object.length);
    }
    format!("in part, {} of {} bytes", object.held_bytes(), object.length)
}

pub(crate) fn version_words(version: &Version) -> String {
    let strength = match version {
        Version::Strong(_) => "strong",
        Version::Weak(_) => "weak",
        Version::None => return "the source offers none".to_string(),
    };
    let token = version.token().unwrap_or_default().escape_ascii();
    format!("{token} ({strength})")
}

fn lease_words(lease: &Lease, checked: SystemTime, now: SystemTime) -> String {
    if checked == SystemTime::UNIX_EPOCH {
        return "ended by `weft reload`, or by what was told of the file since".to_string();
    }
    match lease.end() {
        None if *lease == Lease::Forever => "never ends".to_string(),
        None => "for the use that asked alone".to_string(),
        Some(end) => match end.duration_since(now) {
            Ok(left) => format!("until {}, in {} s", time_text(end), left.as_secs()),
            Err(_) => format!("ended {}", age_words(end, now)),
        },
    }
}

pub(crate) fn age_words(at: SystemTime, now: SystemTime) -> String {
    if at == SystemTime::UNIX_EPOCH {
        return "to be checked at the next use".to_string();
    }
    match now.duration_since(at) {
        Ok(age) if age < Duration::from_secs(120) => format!("{} s ago", age.as_secs()),
        Ok(age) if age < Duration::from_secs(7200) => format!("{} min ago", age.as_secs() / 60),
        Ok(age) if age < Duration::from_secs(172_800) => format!("{} h ago", age.as_secs() / 3600),
        Ok(age) => format!("{} days ago", age.as_secs() / 86_400),
        Err(_) => "in the future, by this machine's clock".to_string(),
    }
}
