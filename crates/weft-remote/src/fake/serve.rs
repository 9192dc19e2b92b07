//! The fake as a remote.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::fault::{self, Fault, Operation};
use super::stream::Content;
use super::tree::{self, Node, ROOT, Tree, What};
use super::{Fake, Promise, Quality, Terms};
use crate::{
    ACCESS_LIST, Along, Answer, Attributes, Body, Call, Capabilities, Checked, Completeness, Cursor, Entry, Event,
    Fetched, Figure, FileId, FileKind, Found, Known, Listing, Mutation, Name, Origin, Outcome, Page, Remote,
    RemoteError, Result, Sameness, Source, SourceState, Span, Version,
};

#[async_trait]
impl Remote for Fake {
    fn capabilities(&self) -> Capabilities {
        let terms = self.terms();
        Capabilities {
            writable: self.shared.writable,
            ranges: terms.ranges,
            stable_ids: terms.stable_ids,
            breakable_leases: matches!(terms.promise, Promise::Breakable(_)),
            links: false,
            locks: false,
            symlinks: true,
            special_files: false,
            extended: terms.access_lists,
            access_lists: terms.access_lists,
            rights: false,
        }
    }

    fn root(&self) -> FileId {
        tree::file_id(ROOT)
    }

    fn forget(&self, _file: &FileId) {
        self.shared.counts.lock().forget += 1;
    }

    fn source(&self, file: &FileId) -> Option<Source> {
        let number = self.number_of(file).ok()?;
        let path = self.shared.tree.lock().path(number);
        let host = path.split(|byte| *byte == b'/').find(|name| !name.is_empty())?;
        self.terms().hosts.then(|| Source {
            name: String::from_utf8_lossy(host).into_owned(),
            state: SourceState::Connected,
            since: SystemTime::UNIX_EPOCH,
            last_contact: None,
            last_error: None,
            requests: 0,
            received_bytes: 0,
        })
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.shared.counts.lock().lookup += 1;
        let dir_number = self.number_of(dir)?;
        let path = self.path_below(dir_number, name);
        self.suffer(call, Operation::Lookup, &path).await?;
        let (entry, dir_version) = {
            let tree = self.shared.tree.lock();
            let parent = directory(&tree, dir_number)?;
            let entry = tree.child(dir_number, name).map(|number| self.entry(&tree, number, Quality::Exact));
            (entry, parent.version(self.terms().validator))
        };
        let along = entry.as_ref().and_then(|entry| self.along(entry, Operation::Lookup, &path));
        self.suffer(call, Operation::LookupAnswer, &path).await?;
        let Some(entry) = entry else { return Ok(self.answer(None, dir_version, &path)) };
        let version = entry.version.clone();
        Ok(self.answer(Some(Found { entry, along }), version, &path))
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.shared.counts.lock().attributes += 1;
        // Whoever does not answer does not say either that a file is gone.
        let number = self.number_of(file);
        let path = number.as_ref().map(|number| self.path(*number)).unwrap_or_default();
        self.suffer(call, Operation::Attributes, &path).await?;
        let number = number?;
        let (entry, is_touched) = {
            let tree = self.shared.tree.lock();
            let is_touched = node(&tree, number)?.has_bytes_of(known, self.terms().validator);
            (self.entry(&tree, number, Quality::Exact), is_touched)
        };
        let version = entry.version.clone();
        if known.still_holds(&version) {
            return Ok(self.answer(Checked::Unchanged, version, &path));
        }
        if is_touched {
            return Ok(self.answer(Checked::Touched(Box::new(entry)), version, &path));
        }
        let along = self.along(&entry, Operation::Attributes, &path);
        Ok(self.answer(Checked::Is(Box::new(Found { entry, along })), version, &path))
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.shared.counts.lock().entries += 1;
        let number = self.number_of(dir)?;
        let path = self.path(number);
        self.suffer(call, Operation::Entries, &path).await?;
        let (mut page, version) = {
            let tree = self.shared.tree.lock();
            let version = directory(&tree, number)?.version(self.terms().validator);
            (self.listing(&tree, number, cursor, self.terms().page_entries)?, version)
        };
        self.suffer(call, Operation::EntriesAnswer, &path).await?;
        if cursor.is_none() && known.still_holds(&version) {
            return Ok(self.answer(Listing::Unchanged, version, &path));
        }
        let standing = if self.terms().standing { self.standing(number, &mut page) } else { Vec::new() };
        if !standing.is_empty() {
            return Ok(self.answer(Listing::Changes(page, standing), version, &path));
        }
        let along = if cursor.is_none() { self.page_along(number, Operation::Entries) } else { None };
        Ok(self.answer(Listing::Page(page, along), version, &path))
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.shared.counts.lock().fetch += 1;
        let number = self.number_of(file)?;
        let path = self.path(number);
        self.suffer(call, Operation::Fetch, &path).await?;
        let (attributes, content) = {
            let tree = self.shared.tree.lock();
            let node = node(&tree, number)?;
            (self.attributes_of(node, Quality::Exact), self.content_of(node, number)?)
        };
        if content.version.compare(expected) == Sameness::Different {
            return Err(RemoteError::VersionChanged { detail: shown(&path) });
        }
        let faults = self.body_faults(Operation::Fetch, &path);
        let version = content.version.clone();
        let body = self.body(Content { faults, ..content }, span);
        Ok(self.answer(Fetched { attributes, body }, version, &path))
    }

    async fn extended(&self, _call: &Call, file: &FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared.counts.lock().extended += 1;
        let number = self.number_of(file)?;
        let list = node(&self.shared.tree.lock(), number)?.access_list.clone();
        Ok(list.filter(|_| name == ACCESS_LIST))
    }

    async fn read_link(&self, call: &Call, file: &FileId) -> Result<Answer<Vec<u8>>> {
        self.shared.counts.lock().read_link += 1;
        let number = self.number_of(file)?;
        let path = self.path(number);
        self.suffer(call, Operation::ReadLink, &path).await?;
        let tree = self.shared.tree.lock();
        let node = node(&tree, number)?;
        let version = node.version(self.terms().validator);
        match &node.what {
            What::Symlink(target) => Ok(self.answer(target.clone(), version, &path)),
            What::File(_) | What::Dir(_) => {
                Err(RemoteError::Unsupported { detail: format!("{}: not a link", shown(&path)) })
            }
        }
    }

    async fn apply(&self, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        self.shared.counts.lock().apply += 1;
        if !self.shared.writable {
            return Err(RemoteError::ReadOnly { detail: format!("{:?}", mutation.change) });
        }
        let path = self.path(self.number_of(mutation.subject())?);
        self.suffer(call, Operation::Apply, &path).await?;
        let entry = self.make_change(mutation, expected)?;
        self.suffer(call, Operation::ApplyAnswer, &path).await?;
        let version = entry.as_ref().map_or(Version::None, |entry| entry.version.clone());
        Ok(self.answer(Outcome { entry, dirs: Vec::new() }, version, &path))
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.event_stream()
    }

    async fn login(&self, _call: &Call) -> u64 {
        self.terms().login
    }

    fn has_told_all(&self) -> bool {
        Fake::has_told_all(self)
    }

    fn about(&self, file: &FileId) -> Vec<(String, String)> {
        match tree::number_of(file) {
            Some(number) => vec![("path".to_owned(), shown(&self.path(number)))],
            None => Vec::new(),
        }
    }
}

impl Fake {
    /// Counts down and lives through the faults of one call.
    async fn suffer(&self, call: &Call, operation: Operation, path: &[u8]) -> Result<()> {
        let late = || RemoteError::TimedOut { detail: shown(path) };
        if call.deadline <= Instant::now() {
            return Err(late());
        }
        let faults = fault::take(&mut self.shared.orders.lock(), operation, path, false);
        for fault in faults {
            match fault {
                Fault::Delay(gate) => {
                    tokio::time::timeout_at(call.deadline.into(), gate.pass()).await.map_err(|_| late())?;
                }
                Fault::Error(error) => return Err(error),
                Fault::Disappear => {
                    let mut tree = self.shared.tree.lock();
                    if let Some(number) = tree.find(path) {
                        tree.remove(number);
                    }
                }
                Fault::Stall { .. }
                | Fault::ChangeUnderReader { .. }
                | Fault::Outdated { .. }
                | Fault::CutShort { .. } => {}
            }
        }
        Ok(())
    }

    fn body_faults(&self, operation: Operation, path: &[u8]) -> Vec<Fault> {
        fault::take(&mut self.shared.orders.lock(), operation, path, true)
    }

    pub(super) fn entry(&self, tree: &Tree, number: u64, quality: Quality) -> Entry {
        let node = tree.node(number).expect("the caller has found this node under the same lock");
        // The root has no name of its own; the one given here is never shown.
        let name = node.name.clone().unwrap_or_else(|| Name::new("root").expect("a good name"));
        let version = node.version(self.terms().validator);
        let attributes = self.attributes_of(node, quality);
        Entry { name, id: tree::file_id(number), attributes, version }
    }

    fn attributes_of(&self, node: &Node, quality: Quality) -> Attributes {
        let has_access_list = self.terms().access_lists.then_some(node.access_list.is_some());
        Attributes { has_access_list, ..node.attributes(quality) }
    }

    fn listing(&self, tree: &Tree, number: u64, cursor: Option<&Cursor>, entries_max: usize) -> Result<Page> {
        let quality = self.terms().listing;
        let dir = directory(tree, number)?;
        let What::Dir(names) = &dir.what else { unreachable!("directory() has checked") };
        let after = |name: &Name| cursor.is_none_or(|cursor| name.as_bytes() > cursor.0.as_slice());
        let visible = |child: &u64| tree.node(*child).is_some_and(|node| !node.hidden);
        let mut rest = names.iter().filter(|(name, child)| after(name) && visible(child)).map(|(_, child)| *child);
        let mut entries = Vec::new();
        for child in rest.by_ref().take(entries_max.max(1)) {
            let mut entry = self.entry(tree, child, quality);
            if let Some(FileKind::Unknown) = tree.node(child).and_then(|node| node.listed_kind) {
                entry.attributes = crate::Attributes::of_kind(FileKind::Unknown);
            }
            entries.push(entry);
        }
        let next = match (rest.next(), entries.last()) {
            (Some(_), Some(last)) => Some(Cursor(last.name.as_bytes().to_vec())),
            _ => None,
        };
        Ok(Page { entries, completeness: dir.completeness, next })
    }

    /// Takes rows out of a page that an earlier listing has told as they are.
    fn standing(&self, number: u64, page: &mut Page) -> Vec<Arc<Entry>> {
        let told = self.shared.rows.lock().insert(number, page.entries.clone()).unwrap_or_default();
        let (standing, changed): (Vec<Entry>, _) = page.entries.drain(..).partition(|entry| told.contains(entry));
        page.entries = changed;
        standing.into_iter().map(Arc::new).collect()
    }

    /// The body that comes along with the answer to a lookup or check.
    fn along(&self, entry: &Entry, operation: Operation, path: &[u8]) -> Option<Along> {
        let number = tree::number_of(&entry.id)?;
        match entry.attributes.kind {
            FileKind::Directory => self.page_along(number, operation),
            FileKind::File if self.terms().along => {
                let content = {
                    let tree = self.shared.tree.lock();
                    self.content_of(tree.node(number)?, number).ok()?
                };
                let faults = self.body_faults(operation, path);
                Some(self.along_with(self.body(Content { faults, ..content }, Span::WHOLE), None))
            }
            _ => None,
        }
    }

    /// The page of a directory, with the directory's listing in its stream.
    fn page_along(&self, dir: u64, operation: Operation) -> Option<Along> {
        let (content, path) = {
            let tree = self.shared.tree.lock();
            let node = tree.node(dir)?;
            let page = tree.child(dir, node.page.as_ref()?)?;
            let mut content = self.content_of(tree.node(page)?, page).ok()?;
            let mut names = self.listing(&tree, dir, None, usize::MAX).ok()?;
            names.completeness = Completeness::Partial;
            let version = node.version(self.terms().validator);
            let path = tree.path(page);
            content.known = Some(Known { dir: tree::file_id(dir), page: self.answer(names, version, &tree.path(dir)) });
            (content, path)
        };
        let faults = self.body_faults(operation, &path);
        Some(self.along_with(self.body(Content { faults, ..content }, Span::WHOLE), Some(tree::file_id(dir))))
    }

    fn along_with(&self, body: Body, lists: Option<FileId>) -> Along {
        let terms = self.terms();
        Along { body, lists, lease: terms.promise.lease(), audience: terms.audience }
    }

    fn content_of(&self, node: &Node, number: u64) -> Result<Content> {
        let bytes: Bytes = match &node.what {
            What::File(bytes) => bytes.clone(),
            What::Dir(_) => return Err(RemoteError::IsADirectory { detail: format!("fake:{number}") }),
            What::Symlink(_) => return Err(RemoteError::Unsupported { detail: format!("fake:{number}: a link") }),
        };
        let announced = matches!(node.attributes(Quality::Exact).size, Figure::Exact(_));
        let version = node.version(self.terms().validator);
        Ok(Content { number, version, bytes, announced, faults: Vec::new(), known: None })
    }

    fn answer<T>(&self, value: T, version: Version, path: &[u8]) -> Answer<T> {
        let Terms { promise, audience, .. } = self.terms();
        let origin = Origin { source: shown(path), how: "in memory".to_owned(), redirects: Vec::new() };
        Answer { audience, origin: Some(origin), ..Answer::new(value, version, promise.lease()) }
    }

    fn number_of(&self, file: &FileId) -> Result<u64> {
        let number = tree::number_of(file).filter(|number| self.shared.tree.lock().node(*number).is_some());
        number.ok_or_else(|| RemoteError::NotFound { detail: format!("{file:?}") })
    }

    fn path(&self, number: u64) -> Vec<u8> {
        self.shared.tree.lock().path(number)
    }

    fn path_below(&self, dir: u64, name: &Name) -> Vec<u8> {
        let mut path = self.path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }
}

pub(super) fn node(tree: &Tree, number: u64) -> Result<&Node> {
    tree.node(number).ok_or_else(|| RemoteError::NotFound { detail: format!("fake:{number}") })
}

pub(super) fn directory(tree: &Tree, number: u64) -> Result<&Node> {
    match node(tree, number)? {
        node @ Node { what: What::Dir(_), .. } => Ok(node),
        _ => Err(RemoteError::NotADirectory { detail: shown(&tree.path(number)) }),
    }
}

fn shown(path: &[u8]) -> String {
    format!("fake:/{}", path.escape_ascii())
}
