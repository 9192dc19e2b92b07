//! The web, as the file system above sees it.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use hyper::StatusCode;
use weft_remote::{
    Answer, Attributes, Call, Capabilities, Checked, Completeness, Cursor, Entry, Fetched, FileId, FileKind, Found,
    Lease, Listing, Name, Notes, Origin, Page, Remote, RemoteError, Result, Span, Version,
};

use crate::WebOptions;
use crate::authority::Authority;
use crate::client::{Client, GetError, Reply};
use crate::content::{Content, has_content, origin_of, status_error};
use crate::freshness::absence_lease;
use crate::host::{NOTE_PREFIX, Scheme};
use crate::id::{Id, Place};
use crate::listing::page_name;
use crate::name::{Part, Wanted, canonical_path, name_of, wanted_of};
use crate::validator::{hashed, unless_same};

/// The web: a directory of hosts, each a directory of what it serves. Read-only.
///
/// Known hosts are remembered in the notes. Content is never kept here.
pub struct Web {
    pub(crate) client: Client,
    root: Id,
}

impl Web {
    /// The web with all its hosts.
    ///
    /// # Errors
    /// `Failed` when the file of extra certificate authorities cannot be used.
    pub fn new(options: WebOptions, notes: Arc<dyn Notes>) -> Result<Arc<Web>> {
        Ok(Arc::new(Web { client: Client::new(options, notes)?, root: Id::Root }))
    }

    /// One tree of the web, such as `example.org/docs`: its root is that directory.
    ///
    /// # Errors
    /// `BadName` when `tree` does not start with a host; as [`Web::new`].
    pub fn for_tree(tree: &str, options: WebOptions, notes: Arc<dyn Notes>) -> Result<Arc<Web>> {
        let bad = |why: &str| RemoteError::BadName { detail: format!("{tree}: {why}") };
        let bare = tree.strip_prefix("https://").or_else(|| tree.strip_prefix("http://")).unwrap_or(tree);
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let authority = Authority::parse(host).ok_or_else(|| bad("does not start with a host"))?.text();
        let path = canonical_path(path.trim_end_matches('/'));
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(bad("a tree cannot have . or .. in its path"));
        }
        let path = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
        let place = Place { authority, path, query: None };
        if !place.fits() || !place.path.is_ascii() {
            return Err(bad("too long"));
        }
        Ok(Arc::new(Web { client: Client::new(options, notes)?, root: Id::Dir(place) }))
    }

    pub(crate) fn options(&self) -> &WebOptions {
        &self.client.options
    }

    /// Gives up at the deadline.
    async fn within<T>(&self, call: &Call, what: &FileId, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match tokio::time::timeout_at(call.deadline.into(), work).await {
            Ok(done) => done,
            Err(_) => {
                let detail = what.as_bytes().escape_ascii().to_string();
                Err(RemoteError::TimedOut { detail })
            }
        }
    }

    fn no_answer_needed(&self) -> Answer<Option<Found>> {
        Answer::new(None, Version::None, Lease::lasting(self.options().absence_time))
    }

    async fn lookup_name(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let dir = match Id::parse(dir) {
            Some(Id::Root) => return self.lookup_host(call, name).await,
            Some(Id::Dir(dir)) => dir,
            Some(Id::File(_)) => return Err(not_a_directory(dir)),
            None => return Err(foreign(dir)),
        };
        if self.options().is_probe(name) {
            return Ok(self.no_answer_needed());
        }
        if *name == page_name() {
            return self.lookup_page(call, &dir).await;
        }
        match wanted_of(name) {
            Wanted::Impossible => Ok(self.no_answer_needed()),
            Wanted::Shortened => self.lookup_listed(call, &dir, name).await,
            Wanted::Part(part) => self.lookup_part(call, &dir, name, &part).await,
        }
    }

    async fn lookup_host(&self, call: &Call, name: &Name) -> Result<Answer<Option<Found>>> {
        let text = String::from_utf8_lossy(name.as_bytes()).to_ascii_lowercase();
        let authority = match self.options().builtin.contains_key(&text) {
            true => Authority::parse(&text),
            false if self.options().is_probe(name) => None,
            false => Authority::from_name(name),
        };
        let Some(authority) = authority else { return Ok(self.no_answer_needed()) };
        let top = Place::top(&authority.text());
        match self.client.get(call, &top, &[]).await {
            Ok(reply) => Ok(self.found_dir(name.clone(), &top, &top, reply).await.map(Some)),
            Err(GetError::NoSuchHost(detail)) => {
                let origin = Origin { source: top.authority, how: detail, redirects: Vec::new() };
                Ok(Answer { origin: Some(origin), ..self.no_answer_needed() })
            }
            // It answered, if only to say that it is busy: so there is such a host.
            Err(GetError::Remote(RemoteError::Busy { .. })) => Ok(bare_dir(name.clone(), &top, None).map(Some)),
            Err(error) => Err(error.into()),
        }
    }

    async fn lookup_part(&self, call: &Call, dir: &Place, name: &Name, part: &Part) -> Result<Answer<Option<Found>>> {
        let mut place = dir.join(part);
        let empty = part.segment.is_empty() && part.query.is_none();
        if empty {
            // The directory behind an empty segment: `a//`.
            place = place.slashed();
        }
        if !place.fits() {
            return Err(RemoteError::BadName { detail: format!("{}: too long for a URL", name) });
        }
        let reply = self.client.get(call, &place, &[]).await?;
        if reply.slashed {
            return Ok(self.found_dir(name.clone(), &place.slashed(), &place, reply).await.map(Some));
        }
        if has_content(&reply) {
            if empty {
                return Ok(self.found_dir(name.clone(), &place, &place, reply).await.map(Some));
            }
            return Ok(self.found_file(name.clone(), &place, reply).map(Some));
        }
        self.absent_or_error(reply).await
    }

    /// The page of a directory: what its URL gives, unless that is a generated index; else what its URL without
    /// the slash gives (a page that is a prefix of others), or a file of that very name.
    async fn lookup_page(&self, call: &Call, dir: &Place) -> Result<Answer<Option<Found>>> {
        let reply = self.client.get(call, dir, &[]).await?;
        if has_content(&reply) {
            return self.page_in(dir, reply).await;
        }
        if !matches!(reply.status.as_u16(), 401 | 403 | 404 | 410) {
            return self.absent_or_error(reply).await;
        }
        reply.body.drain().await;
        let named = dir.join(&Part { segment: "index.html".to_owned(), query: None });
        let reply = self.client.get(call, &named, &[]).await?;
        if has_content(&reply) {
            return Ok(self.found_file(page_name(), &named, reply).map(Some));
        }
        if let Some(page) = dir.unslashed() {
            let above = self.client.get(call, &page, &[]).await?;
            if has_content(&above) && !above.slashed {
                reply.body.drain().await;
                return Ok(self.found_file(page_name(), &page, above).map(Some));
            }
            above.body.drain().await;
        }
        self.absent_or_error(reply).await
    }

    async fn page_in(&self, dir: &Place, reply: Reply) -> Result<Answer<Option<Found>>> {
        let content = Content::read(reply, self.options());
        let entry = content.entry(page_name(), dir.file_id());
        let mut tap = content.tap(dir, dir.clone(), Some(entry.clone()), self.options());
        let answer = content.answer(());
        if !content.may_hold_names() {
            let along = content.along(dir.file_id(), Some(dir.dir_id()), Some(tap));
            return Ok(answer.map(|()| Some(Found { entry, along: Some(along) })));
        }
        let gathered = content.gather(&mut tap, self.options().page_bytes_max).await?;
        let learnt = tap.finish();
        let named =
            learnt.names.first().and_then(|names| names.entries.iter().find(|e| e.name == page_name())).cloned();
        let Some(named) = named else { return Ok(answer.map(|()| None)) };
        if named.id != dir.file_id() {
            // A generated index lists a file of that name.
            return Ok(answer.map(|()| Some(Found { entry: named, along: None })));
        }
        let entry = Entry { attributes: gathered.attributes, ..entry };
        let known = learnt.into_known().into_iter().map(weft_remote::Piece::Known).collect();
        let along = gathered.along(dir.file_id(), Some(dir.dir_id()), answer.lease, known);
        Ok(answer.map(|()| Some(Found { entry, along: Some(along) })))
    }

    /// A name that was shortened is where the listing says.
    async fn lookup_listed(&self, call: &Call, dir: &Place, name: &Name) -> Result<Answer<Option<Found>>> {
        let listing = self.list(call, dir, &Version::None).await?;
        let found = match listing.value {
            Listing::Unchanged => None,
            Listing::Page(page, _) => page.entries.into_iter().find(|entry| entry.name == *name),
        };
        let found = found.map(|entry| Found { entry, along: None });
        Ok(Answer {
            value: found,
            version: Version::None,
            lease: listing.lease,
            audience: listing.audience,
            origin: listing.origin,
        })
    }

    async fn absent_or_error<T>(&self, reply: Reply) -> Result<Answer<Option<T>>> {
        let error = status_error(&reply);
        if let RemoteError::NotFound { .. } = error {
            let lease = absence_lease(&reply.headers, SystemTime::now(), self.options());
            let origin = origin_of(&reply, reply.status.as_str());
            reply.body.drain().await;
            return Ok(Answer { origin: Some(origin), ..Answer::new(None, Version::None, lease) });
        }
        reply.body.drain().await;
        Err(error)
    }

    /// A file whose content is on its way.
    fn found_file(&self, name: Name, place: &Place, reply: Reply) -> Answer<Found> {
        let content = Content::read(reply, self.options());
        let entry = content.entry(name, place.file_id());
        let (tap, lists) = self.tap_on_file(place, &content, &entry);
        let answer = content.answer(());
        let along = content.along(place.file_id(), lists, Some(tap));
        answer.map(|()| Found { entry, along: Some(along) })
    }

    fn tap_on_file(&self, place: &Place, content: &Content, entry: &Entry) -> (crate::tap::Tap, Option<FileId>) {
        let own_page =
            (place.path.ends_with('/') && place.query.is_none()).then(|| Entry { name: page_name(), ..entry.clone() });
        let lists = own_page.is_some().then(|| place.dir_id());
        (content.tap(place, place.dir(), own_page, self.options()), lists)
    }

    /// A directory that a reply is about, with its page on its way if there is one. `asked` was asked for.
    async fn found_dir(&self, name: Name, dir: &Place, asked: &Place, reply: Reply) -> Answer<Found> {
        if !has_content(&reply) {
            let answer = bare_dir(name, dir, Some(origin_of(&reply, reply.status.as_str())));
            reply.body.drain().await;
            return answer;
        }
        let content = Content::read(reply, self.options());
        let page = content.entry(page_name(), dir.file_id());
        let tap = content.tap(asked, dir.clone(), Some(page), self.options());
        let attributes =
            Attributes { modified: content.attributes.modified, ..Attributes::of_kind(FileKind::Directory) };
        let entry = Entry { name, id: dir.dir_id(), attributes, version: content.version.clone() };
        let answer = content.answer(());
        let along = content.along(dir.file_id(), Some(dir.dir_id()), Some(tap));
        answer.map(|()| Found { entry, along: Some(along) })
    }

    async fn check(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let (place, is_dir) = match Id::parse(file) {
            Some(Id::Root) => return Ok(Answer::new(Checked::Unchanged, Version::None, Lease::Forever)),
            Some(Id::Dir(dir)) => (dir, true),
            Some(Id::File(place)) => (place, false),
            None => return Err(foreign(file)),
        };
        let condition: Vec<_> = unless_same(known).into_iter().collect();
        let reply = self.client.get(call, &place, &condition).await?;
        if reply.status == StatusCode::NOT_MODIFIED && !condition.is_empty() {
            return Ok(unchanged(reply, known, self.options()).map(|()| Checked::Unchanged));
        }
        if is_dir {
            let top = place.path == "/";
            if !has_content(&reply) && !top && !matches!(reply.status.as_u16(), 401 | 403) {
                let error = status_error(&reply);
                reply.body.drain().await;
                return match (error, place.unslashed()) {
                    (RemoteError::NotFound { detail }, Some(page)) => {
                        self.dir_by_page(call, &place, &page, detail).await
                    }
                    (error, _) => Err(error),
                };
            }
            let found = self.found_dir(last_name(&place), &place, &place, reply).await;
            return Ok(found.map(|found| Checked::Is(Box::new(found))));
        }
        if reply.slashed {
            let found = self.found_dir(last_name(&place), &place.slashed(), &place, reply).await;
            return Ok(found.map(|found| Checked::Is(Box::new(found))));
        }
        if !has_content(&reply) {
            let error = status_error(&reply);
            reply.body.drain().await;
            return Err(error);
        }
        let found = self.found_file(last_name(&place), &place, reply);
        if known.still_holds(&found.version) {
            return Ok(found.map(|_| Checked::Unchanged));
        }
        Ok(found.map(|found| Checked::Is(Box::new(found))))
    }

    /// A directory whose own URL gives nothing exists if the page of its name does.
    async fn dir_by_page(&self, call: &Call, dir: &Place, page: &Place, detail: String) -> Result<Answer<Checked>> {
        let reply = self.client.get(call, page, &[]).await?;
        if !has_content(&reply) || reply.slashed {
            reply.body.drain().await;
            return Err(RemoteError::NotFound { detail });
        }
        let lease = Content::read(reply, self.options()).lease;
        let found = bare_dir(last_name(dir), dir, None);
        Ok(Answer { lease, ..found }.map(|found| Checked::Is(Box::new(found))))
    }

    async fn list_any(&self, call: &Call, dir: &FileId, known: &Version) -> Result<Answer<Listing>> {
        match Id::parse(dir) {
            Some(Id::Root) => self.list_hosts(known),
            Some(Id::Dir(place)) => self.list(call, &place, known).await,
            Some(Id::File(_)) => Err(not_a_directory(dir)),
            None => Err(foreign(dir)),
        }
    }

    /// The hosts visited, and those of the house.
    fn list_hosts(&self, known: &Version) -> Result<Answer<Listing>> {
        let noted = self.client.notes.list(NOTE_PREFIX).map_err(|e| RemoteError::Failed { detail: e.to_string() })?;
        let noted = noted.into_iter().map(|(key, _)| key[NOTE_PREFIX.len()..].to_vec());
        let mut hosts: Vec<Vec<u8>> = self.options().builtin.keys().map(|host| host.clone().into_bytes()).collect();
        hosts.extend(noted);
        hosts.sort();
        hosts.dedup();
        let version = hashed(xxhash_rust::xxh3::xxh3_128(&hosts.join(&b'\n')));
        if known.still_holds(&version) {
            return Ok(Answer::new(Listing::Unchanged, version, Lease::Spent));
        }
        let entry = |host: Vec<u8>| {
            let top = Place::top(std::str::from_utf8(&host).ok()?);
            let attributes = Attributes::of_kind(FileKind::Directory);
            Some(Entry { name: Name::new(&host).ok()?, id: top.dir_id(), attributes, version: Version::None })
        };
        let entries = hosts.into_iter().filter_map(entry).collect();
        let page = Page { entries, completeness: Completeness::Partial, next: None };
        let origin = Origin { how: "hosts visited".to_owned(), ..Origin::default() };
        Ok(Answer { origin: Some(origin), ..Answer::new(Listing::Page(page, None), version, Lease::Spent) })
    }

    async fn list(&self, call: &Call, dir: &Place, known: &Version) -> Result<Answer<Listing>> {
        let condition: Vec<_> = unless_same(known).into_iter().collect();
        let reply = self.client.get(call, dir, &condition).await?;
        if reply.status == StatusCode::NOT_MODIFIED && !condition.is_empty() {
            return Ok(unchanged(reply, known, self.options()).map(|()| Listing::Unchanged));
        }
        if has_content(&reply) {
            return self.list_content(dir, dir, reply, known).await;
        }
        let error = status_error(&reply);
        reply.body.drain().await;
        if !matches!(error, RemoteError::NotFound { .. } | RemoteError::Denied { .. }) {
            return Err(error);
        }
        if let Some(page) = dir.unslashed() {
            let reply = self.client.get(call, &page, &[]).await?;
            if has_content(&reply) && !reply.slashed {
                return self.list_content(dir, &page, reply, known).await;
            }
            reply.body.drain().await;
        } else if let RemoteError::NotFound { .. } = error {
            // The top of a host that answers is there, whatever it says about it.
            let page = Page { entries: Vec::new(), completeness: Completeness::Partial, next: None };
            let lease = Lease::lasting(self.options().absence_time);
            return Ok(Answer::new(Listing::Page(page, None), Version::None, lease));
        }
        Err(error)
    }

    /// Lists `dir` from the content of `page`: its own URL, or that without the slash.
    async fn list_content(&self, dir: &Place, page: &Place, reply: Reply, known: &Version) -> Result<Answer<Listing>> {
        let content = Content::read(reply, self.options());
        let entry = content.entry(page_name(), page.file_id());
        if !content.may_hold_names() {
            let answer = content.answer(());
            let listed = Page { entries: vec![entry], completeness: Completeness::Partial, next: None };
            let along = content.along(page.file_id(), None, None);
            return Ok(answer.map(|()| Listing::Page(listed, Some(along))));
        }
        let mut tap = content.tap(page, dir.clone(), Some(entry), self.options());
        let lease = content.lease;
        let gathered = content.gather(&mut tap, self.options().page_bytes_max).await?;
        let mut learnt = tap.finish();
        let answer = Answer::new((), learnt.version.clone(), lease);
        let answer = Answer { origin: Some(learnt.origin.clone()), ..answer };
        if known.still_holds(&learnt.version) {
            return Ok(answer.map(|()| Listing::Unchanged));
        }
        let completeness = learnt.completeness;
        let is_page = learnt.has_page(&page.file_id());
        let mut entries = std::mem::take(&mut learnt.names[0].entries);
        if !gathered.is_whole() {
            for entry in entries.iter_mut().filter(|entry| entry.id == page.file_id()) {
                entry.attributes = gathered.attributes;
            }
        }
        let along = is_page.then(|| {
            let deeper = learnt.into_known().into_iter().skip(1).map(weft_remote::Piece::Known).collect();
            gathered.along(page.file_id(), None, lease, deeper)
        });
        let listed = Page { entries, completeness, next: None };
        Ok(answer.map(|()| Listing::Page(listed, along)))
    }
}

#[async_trait]
impl Remote for Web {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            writable: false,
            ranges: true,
            stable_ids: false,
            breakable_leases: false,
            links: false,
            locks: false,
            symlinks: false,
        }
    }

    fn root(&self) -> FileId {
        match &self.root {
            Id::Dir(place) => place.dir_id(),
            Id::Root | Id::File(_) => Id::root(),
        }
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.within(call, dir, self.lookup_name(call, dir, name)).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.within(call, file, self.check(call, file, known)).await
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        _cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.within(call, dir, self.list_any(call, dir, known)).await
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.within(call, file, self.fetch_span(call, file, expected, span)).await
    }

    fn about(&self, file: &FileId) -> Vec<(String, String)> {
        let place = match Id::parse(file) {
            Some(Id::Dir(place) | Id::File(place)) => place,
            Some(Id::Root) | None => return Vec::new(),
        };
        let Some(authority) = Authority::parse(&place.authority) else { return Vec::new() };
        let host = self.client.host(&authority);
        let scheme = host.memory().map_or(Scheme::Https, |memory| memory.scheme);
        let url = format!("{}://{}{}", scheme.as_str(), place.authority, place.path_and_query());
        let mut facts = vec![("url".to_owned(), url)];
        facts.extend(host.about());
        facts
    }
}

/// A directory of which nothing but its being there is known.
fn bare_dir(name: Name, dir: &Place, origin: Option<Origin>) -> Answer<Found> {
    let attributes = Attributes::of_kind(FileKind::Directory);
    let entry = Entry { name, id: dir.dir_id(), attributes, version: Version::None };
    // As short as an absence: what the server could not show now may be there soon.
    let lease = Lease::lasting(BARE_DIR_TIME);
    Answer { origin, ..Answer::new(Found { entry, along: None }, Version::None, lease) }
}

fn unchanged(reply: Reply, known: &Version, options: &WebOptions) -> Answer<()> {
    let content = Content::read(reply, options);
    Answer { version: known.clone(), ..content.answer(()) }
}

/// The name that a place has in its directory.
fn last_name(place: &Place) -> Name {
    if place.path == "/" && place.query.is_none() {
        return Name::new(&place.authority).unwrap_or_else(|_| page_name());
    }
    let path = place.path.strip_suffix('/').filter(|_| place.query.is_none()).unwrap_or(&place.path);
    let segment = path.rsplit('/').next().unwrap_or_default();
    name_of(segment, place.query.as_deref()).unwrap_or_else(page_name)
}

pub(crate) fn foreign(id: &FileId) -> RemoteError {
    RemoteError::NotFound { detail: format!("{id:?}: not an id of the web") }
}

fn not_a_directory(id: &FileId) -> RemoteError {
    RemoteError::NotADirectory { detail: id.as_bytes().escape_ascii().to_string() }
}

/// How long a directory is trusted to be there that showed nothing of itself.
const BARE_DIR_TIME: std::time::Duration = std::time::Duration::from_secs(60);
