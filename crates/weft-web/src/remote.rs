//! The web, as the file system above sees it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use weft_remote::{
    Answer, Attributes, Call, Capabilities, Checked, Completeness, Crawl, Cursor, Entry, Event, Fetched, FileId,
    FileKind, Found, Lease, Listing, Name, Neighbourhood, Notes, Origin, Page, Remote, RemoteError, Result, Rules,
    Source, Span, Traffic, Version,
};

use crate::WebOptions;
use crate::authority::Authority;
use crate::bucket::Twins;
use crate::client::Client;
use crate::confirm::Confirmed;
use crate::content::{Content, has_content, status_error};
use crate::crawl::Crawls;
use crate::exchange::{Needs, Reply};
use crate::host::{Host, NOTE_PREFIX, Scheme};
use crate::id::{Id, Place};
use crate::ladder::{Document, holds_nothing, is_for_people};
use crate::listing::page_name;
use crate::lookup::refused_dir;
use crate::name::{canonical_path, name_of};
use crate::validator::hashed;

/// The web: a directory of hosts, each a directory of what it serves. Read-only.
///
/// Known hosts are remembered in the notes. Content is never kept here.
pub struct Web {
    pub(crate) client: Arc<Client>,
    pub(crate) twins: Twins,
    pub(crate) crawls: Crawls,
    pub(crate) root: Id,
}

impl Web {
    /// The web with all its hosts.
    ///
    /// # Errors
    /// `Failed` when the file of extra certificate authorities cannot be used.
    pub fn new(options: WebOptions, notes: Arc<dyn Notes>) -> Result<Arc<Web>> {
        Ok(Arc::new(Web {
            client: Client::new(options, notes)?,
            twins: Twins::default(),
            crawls: Crawls::default(),
            root: Id::Root,
        }))
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
        Ok(Arc::new(Web {
            client: Client::new(options, notes)?,
            twins: Twins::default(),
            crawls: Crawls::default(),
            root: Id::Dir(place),
        }))
    }

    /// The host that a file lies on, if it was used.
    pub(crate) fn host_of(&self, file: &FileId) -> Option<Arc<Host>> {
        let (Id::Dir(place) | Id::File(place)) = Id::parse(file)? else { return None };
        self.client.known_host(&Authority::parse(&place.authority)?)
    }

    pub(crate) fn options(&self) -> &WebOptions {
        &self.client.options
    }

    /// Gives up at the deadline.
    pub(crate) async fn within<T>(
        &self,
        call: &Call,
        what: &FileId,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.within_shown(call, || shown(what), work).await
    }

    async fn within_shown<T>(
        &self,
        call: &Call,
        what: impl FnOnce() -> String + Send,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match tokio::time::timeout_at(call.deadline.into(), work).await {
            Ok(done) => done,
            Err(_) => Err(RemoteError::TimedOut { detail: what() }),
        }
    }

    async fn check(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let (place, is_dir) = match Id::parse(file) {
            Some(Id::Root) => return Ok(Answer::new(Checked::Unchanged, Version::None, Lease::Forever)),
            Some(Id::Dir(dir)) => (dir, true),
            Some(Id::File(place)) => (place, false),
            None => return Err(foreign(file)),
        };
        if is_dir && let Some(found) = self.find_by_protocol(call, last_name(&place), &place).await? {
            return Ok(found.map(|found| Checked::Is(Box::new(found))));
        }
        let reply = match self.ask_unless_same(call, &place, known, Needs::Headers).await? {
            Confirmed::Same(answer) => return Ok(answer.map(|()| Checked::Unchanged)),
            Confirmed::Reply(reply) => *reply,
        };
        if is_dir
            && let Some(page) = place.unslashed()
            && self.is_file_instead(call, &place, &reply).await
        {
            let detail = format!("{}: {}", reply.url, reply.status);
            reply.body.drain().await;
            return self.dir_by_page(call, &place, &page, detail).await;
        }
        if is_dir {
            if !has_content(&reply) && self.leads_on(call, &place, reply.status) {
                let found = refused_dir(last_name(&place), &place, reply).await;
                return Ok(found.map(|found| Checked::Is(Box::new(found))));
            }
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
            let found = self.found_dir(call, last_name(&place), &place, &place, reply).await;
            return Ok(found.map(|found| Checked::Is(Box::new(found))));
        }
        if reply.slashed {
            let found = self.found_dir(call, last_name(&place), &place.slashed(), &place, reply).await;
            return Ok(found.map(|found| Checked::Is(Box::new(found))));
        }
        if !has_content(&reply) {
            let (status, error) = (reply.status, status_error(&reply));
            reply.body.drain().await;
            if let Some(found) = self.dir_instead(call, &place, status).await? {
                return Ok(found.map(|found| Checked::Is(Box::new(found))));
            }
            return Err(error);
        }
        let found = self.found_file(last_name(&place), &place, reply);
        if known.still_holds(&found.version) {
            return Ok(found.map(|_| Checked::Unchanged));
        }
        Ok(found.map(|found| Checked::Is(Box::new(found))))
    }

    async fn list_any(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        match Id::parse(dir) {
            Some(Id::Root) => self.list_hosts(known),
            Some(Id::Dir(place)) => self.list(call, &place, known, cursor).await,
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

    pub(crate) async fn list(
        &self,
        call: &Call,
        dir: &Place,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        if let Some(listed) = self.list_by_protocol(call, dir, known, cursor).await? {
            return Ok(listed);
        }
        let reply = match self.ask_unless_same(call, dir, known, Needs::Body).await? {
            Confirmed::Same(answer) => return Ok(answer.map(|()| Listing::Unchanged)),
            Confirmed::Reply(reply) => *reply,
        };
        if self.is_file_instead(call, dir, &reply).await {
            reply.body.drain().await;
            return Err(not_a_directory(&dir.dir_id()));
        }
        let nothing = holds_nothing(&reply);
        if has_content(&reply) {
            if (nothing || is_for_people(&reply))
                && let Some(listed) = self.try_dav(call, dir).await
            {
                return Ok(listed);
            }
            return self.list_page(call, dir, reply, known).await;
        }
        let leads_on = self.leads_on(call, dir, reply.status);
        let (error, audience) = (status_error(&reply), reply.audience);
        reply.body.drain().await;
        let absent = matches!(error, RemoteError::NotFound { .. } | RemoteError::Denied { .. });
        if absent && let Some(page) = dir.unslashed() {
            if self.is_listed_file(call, &page).await {
                return Err(not_a_directory(&dir.dir_id()));
            }
            let reply = self.client.get(call, &page, &[]).await?;
            if has_content(&reply) && !reply.slashed {
                return self.list_content(dir, &page, reply, known).await;
            }
            reply.body.drain().await;
        }
        if nothing && let Some(listed) = self.try_dav(call, dir).await {
            return Ok(listed);
        }
        let is_top = dir.unslashed().is_none() && matches!(error, RemoteError::NotFound { .. });
        if is_top || leads_on {
            // There whatever the host says about it: as its top is, if it answers.
            let page = Page { entries: Vec::new(), completeness: Completeness::Partial, next: None };
            let lease = Lease::lasting(self.options().absence_time);
            return Ok(Answer { audience, ..Answer::new(Listing::Page(page, None), Version::None, lease) });
        }
        Err(error)
    }

    /// Lists `dir` from what its own URL gave.
    async fn list_page(&self, call: &Call, dir: &Place, reply: Reply, known: &Version) -> Result<Answer<Listing>> {
        let content = Content::read(reply, self.options());
        if !content.is_xml() {
            return self.list_read(dir, dir, content, known).await;
        }
        let (entry, answer) = (content.entry(page_name(), dir.file_id()), content.answer(()));
        match self.document(dir, content).await? {
            Document::Page(gathered) => {
                let along = gathered.along(dir.file_id(), None, answer.lease, Vec::new());
                let listed = Page { entries: vec![entry], completeness: Completeness::Partial, next: None };
                Ok(answer.map(|()| Listing::Page(listed, Some(along))))
            }
            Document::Bucket => {
                self.learn_bucket(dir);
                let listed = self.list_bucket(call, dir, &dir.path, known, None).await?;
                let detail = format!("{}{}: the bucket answers with something else", dir.authority, dir.path);
                listed.ok_or(RemoteError::Damaged { detail })
            }
        }
    }

    /// Lists `dir` from the content of `page`: its own URL, or that without the slash.
    async fn list_content(&self, dir: &Place, page: &Place, reply: Reply, known: &Version) -> Result<Answer<Listing>> {
        self.list_read(dir, page, Content::read(reply, self.options()), known).await
    }

    async fn list_read(&self, dir: &Place, page: &Place, content: Content, known: &Version) -> Result<Answer<Listing>> {
        let entry = content.entry(page_name(), page.file_id());
        if !content.may_hold_names() {
            let answer = content.answer(());
            let listed = Page { entries: vec![entry], completeness: Completeness::Partial, next: None };
            let along = content.along(page.file_id(), None, None);
            return Ok(answer.map(|()| Listing::Page(listed, along)));
        }
        let mut tap = content.tap(page, dir.clone(), Some(entry), self.options());
        let (lease, audience) = (content.lease, content.audience);
        let mut gathered = content.gather(&mut tap, self.options().page_bytes_max).await?;
        let mut learnt = tap.finish();
        gathered.put_first(std::mem::take(&mut learnt.page));
        let answer = Answer::new((), learnt.version.clone(), lease);
        let answer = Answer { origin: Some(learnt.origin.clone()), audience, ..answer };
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
            special_files: false,
            extended: false,
            access_lists: false,
            rights: false,
        }
    }

    fn root(&self) -> FileId {
        match &self.root {
            Id::Dir(place) => place.dir_id(),
            Id::Root | Id::File(_) => Id::root(),
        }
    }

    fn neighbourhood(&self, file: &FileId) -> Option<Neighbourhood> {
        match Id::parse(file)? {
            Id::Dir(place) | Id::File(place) => Some(place.neighbourhood()),
            Id::Root => None,
        }
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let what = || format!("{}{name}", shown(dir));
        self.within_shown(call, what, self.lookup_name(call, dir, name)).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.within(call, file, self.check(call, file, known)).await
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.within(call, dir, self.list_any(call, dir, known, cursor)).await
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        self.within(call, file, self.fetch_span(call, file, expected, span)).await
    }

    fn traffic(&self) -> Vec<Traffic> {
        self.client.traffic()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.client.probes.events()
    }

    fn sources(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = self.client.hosts().iter().map(|host| host.source()).collect();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        sources
    }

    fn source(&self, file: &FileId) -> Option<Source> {
        Some(self.host_of(file)?.source())
    }

    fn try_again(&self, file: &FileId) -> bool {
        match Id::parse(file) {
            Some(Id::Root) => self.client.hosts().iter().fold(false, |any, host| host.release() | any),
            _ => self.host_of(file).is_some_and(|host| host.release()),
        }
    }

    async fn may_crawl(&self, call: &Call, file: &FileId, below: &[Name], rules: Rules) -> Result<Crawl> {
        self.within(call, file, self.crawl(call, file, below, rules)).await
    }

    async fn reach(&self, call: &Call, dir: &FileId, names: &[Name]) -> Result<bool> {
        self.within(call, dir, self.reach_names(call, dir, names)).await
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
        if host.builtin.is_none() {
            let logins = self.options().credentials.about(&authority);
            facts.extend(logins.into_iter().map(|how| ("login".to_owned(), how)));
            let proxies = self.options().proxies.about(&authority, scheme);
            facts.extend(proxies.map(|ways| ("proxies".to_owned(), ways)));
            facts.push(("addresses".to_owned(), self.options().addresses.about(&authority)));
        }
        facts
    }
}

/// The name that a place has in its directory.
pub(crate) fn last_name(place: &Place) -> Name {
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

pub(crate) fn not_a_directory(id: &FileId) -> RemoteError {
    RemoteError::NotADirectory { detail: shown(id) }
}

/// What people are shown of an id: the host and the path, without a query, which may hold a secret; nothing of the root.
fn shown(id: &FileId) -> String {
    match Id::parse(id) {
        Some(Id::Root) => String::new(),
        Some(Id::Dir(place) | Id::File(place)) => format!("{}{}", place.authority, place.path),
        None => id.as_bytes().escape_ascii().to_string(),
    }
}
