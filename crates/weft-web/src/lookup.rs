//! Finding names: one GET, answered from its headers.

use hyper::StatusCode;
use weft_remote::{
    Answer, Attributes, Call, Entry, FileId, FileKind, Found, Lease, Listing, Name, Origin, RemoteError, Result,
    Version,
};

use crate::authority::Authority;
use crate::content::{Content, has_content, origin_of, status_error};
use crate::exchange::{GetError, Reply};
use crate::freshness::{Came, absence_lease};
use crate::id::{Id, Place};
use crate::ladder::{Document, holds_nothing, is_for_people};
use crate::lister::Lister;
use crate::listing::page_name;
use crate::name::{Part, Wanted, wanted_of};
use crate::remote::{Web, foreign, not_a_directory};

impl Web {
    /// [`Remote::lookup`](weft_remote::Remote::lookup) without the deadline.
    pub(crate) async fn lookup_name(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
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
        match self.client.look(call, &top, &[]).await {
            Ok(reply) => Ok(self.found_dir(call, name.clone(), &top, &top, reply).await.map(Some)),
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
        let (below, plain) = (if empty { place.clone() } else { place.slashed() }, part.query.is_none());
        let reply = self.client.look(call, &place, &[]).await?;
        if reply.slashed {
            return Ok(self.found_dir(call, name.clone(), &place.slashed(), &place, reply).await.map(Some));
        }
        if has_content(&reply) {
            if empty {
                return Ok(self.found_dir(call, name.clone(), &place, &place, reply).await.map(Some));
            }
            if plain && self.led_on(call, &below) {
                // It has longer names below it: it lies in their directory.
                return Ok(refused_dir(name.clone(), &below, reply).await.map(Some));
            }
            return Ok(self.found_file_or_listed(call, name, &place, reply).await?.map(Some));
        }
        if let Some(found) = self.dir_instead(call, &place, reply.status).await? {
            reply.body.drain().await;
            return Ok(found.map(|found| Some(Found { entry: Entry { name: name.clone(), ..found.entry }, ..found })));
        }
        if plain && self.leads_on(call, &below, reply.status) {
            return Ok(refused_dir(name.clone(), &below, reply).await.map(Some));
        }
        if let StatusCode::NOT_FOUND = reply.status
            && let Some(link) = part.with_session()
        {
            // It is no file's name: so it is that of a link.
            reply.body.drain().await;
            return Box::pin(self.lookup_part(call, dir, name, &link)).await;
        }
        self.absent_or_error(reply).await
    }

    /// The page of a directory: what its URL gives, unless that is a generated index; else what its URL without
    /// the slash gives (a page that is a prefix of others), or a file of that very name.
    async fn lookup_page(&self, call: &Call, dir: &Place) -> Result<Answer<Option<Found>>> {
        if self.lister(dir) == Lister::Page {
            let reply = self.client.get(call, dir, &[]).await?;
            let listed_otherwise = is_for_people(&reply) && self.find_out_dav(call, dir).await;
            if has_content(&reply) && !listed_otherwise {
                return self.page_in(dir, reply).await;
            }
            if !listed_otherwise && !matches!(reply.status.as_u16(), 401 | 403 | 404 | 410) {
                return self.absent_or_error(reply).await;
            }
            reply.body.drain().await;
        }
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
            return Ok(answer.map(|()| Some(Found { entry, along })));
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
        let mut cursor = None;
        let (listing, found) = loop {
            let listing = self.list(call, dir, &Version::None, cursor.as_ref()).await?;
            let Listing::Page(page, _) = &listing.value else { break (listing, None) };
            let found = page.entries.iter().find(|entry| entry.name == *name).cloned();
            if found.is_some() || page.next.is_none() {
                break (listing, found);
            }
            cursor = page.next.clone();
        };
        let found = found.map(|entry| Found { entry, along: None });
        let Answer { lease, audience, origin, .. } = listing;
        Ok(Answer { audience, origin, ..Answer::new(found, Version::None, lease) })
    }

    async fn absent_or_error<T>(&self, reply: Reply) -> Result<Answer<Option<T>>> {
        let error = status_error(&reply);
        if let RemoteError::NotFound { .. } = error {
            let lease = absence_lease(&reply.headers, Came::now(), self.options());
            let (origin, audience) = (origin_of(&reply, reply.status.as_str()), reply.audience);
            reply.body.drain().await;
            return Ok(Answer { origin: Some(origin), audience, ..Answer::new(None, Version::None, lease) });
        }
        reply.body.drain().await;
        Err(error)
    }

    /// A file whose content is on its way.
    pub(crate) fn found_file(&self, name: Name, place: &Place, reply: Reply) -> Answer<Found> {
        self.found_content(name, place, Content::read(reply, self.options()))
    }

    fn found_content(&self, name: Name, place: &Place, content: Content) -> Answer<Found> {
        let entry = content.entry(name, place.file_id());
        let (tap, lists) = self.tap_on_file(place, &content, &entry);
        let answer = content.answer(());
        let along = content.along(place.file_id(), lists, Some(tap));
        answer.map(|()| Found { entry, along })
    }

    /// As [`Web::found_file`], unless the file is a page that stands for a directory: the listing of a bucket, which many servers
    /// give without a redirect to the URL with a slash, or one for people of a server for WebDAV, which may do the same (sabre).
    async fn found_file_or_listed(
        &self,
        call: &Call,
        name: &Name,
        place: &Place,
        reply: Reply,
    ) -> Result<Answer<Found>> {
        // Dots are common in the names of buckets.
        let plain = place.query.is_none() && !XML_ENDINGS.iter().any(|ending| name.as_bytes().ends_with(ending));
        let unplaced = reply.unplaced;
        let content = Content::read(reply, self.options());
        if content.may_hold_names()
            && place.query.is_none()
            && self.lister(&place.slashed()) == Lister::Dav
            && let Some(found) = self.find_by_protocol(call, name.clone(), &place.slashed()).await?
        {
            content.into_flow().drain().await;
            return Ok(found);
        }
        if unplaced || !plain || !content.is_xml() || self.lister(place) != Lister::Page {
            return Ok(self.found_content(name.clone(), place, content));
        }
        let (entry, answer) = (content.entry(name.clone(), place.file_id()), content.answer(()));
        match self.document(place, content).await? {
            Document::Bucket if self.is_bucket(call, &place.slashed()).await => {
                let found = bare_dir(name.clone(), &place.slashed(), answer.origin);
                Ok(Answer { audience: answer.audience, ..found })
            }
            Document::Bucket => {
                let reply = self.client.get(call, place, &[]).await?;
                Ok(self.found_file(name.clone(), place, reply))
            }
            Document::Page(gathered) => {
                let along = gathered.along(place.file_id(), None, answer.lease, Vec::new());
                Ok(answer.map(|()| Found { entry, along: Some(along) }))
            }
        }
    }

    fn tap_on_file(&self, place: &Place, content: &Content, entry: &Entry) -> (crate::tap::Tap, Option<FileId>) {
        let own_page =
            (place.path.ends_with('/') && place.query.is_none()).then(|| Entry { name: page_name(), ..entry.clone() });
        let lists = own_page.is_some().then(|| place.dir_id());
        (content.tap(place, place.dir(), own_page, self.options()), lists)
    }

    /// A directory that a reply is about, with its page on its way if there is one. `asked` was asked for.
    pub(crate) async fn found_dir(
        &self,
        call: &Call,
        name: Name,
        dir: &Place,
        asked: &Place,
        reply: Reply,
    ) -> Answer<Found> {
        if !has_content(&reply) {
            let answer = bare_dir(name, dir, Some(origin_of(&reply, reply.status.as_str())));
            let (audience, nothing) = (reply.audience, holds_nothing(&reply));
            reply.body.drain().await;
            if nothing {
                // Names in it cannot be asked for by GET if they are directories.
                self.find_out_dav(call, dir).await;
            }
            return Answer { audience, ..answer };
        }
        if is_for_people(&reply) {
            self.find_out_dav(call, dir).await;
        }
        let content = Content::read(reply, self.options());
        if content.is_xml() || self.lister(dir) != Lister::Page {
            return self.found_listed_dir(name, dir, content).await;
        }
        let page = content.entry(page_name(), dir.file_id());
        let tap = content.tap(asked, dir.clone(), Some(page), self.options());
        let attributes =
            Attributes { modified: content.attributes.modified, ..Attributes::of_kind(FileKind::Directory) };
        let entry = Entry { name, id: dir.dir_id(), attributes, version: content.version.clone() };
        let answer = content.answer(());
        let along = content.along(dir.file_id(), Some(dir.dir_id()), Some(tap));
        answer.map(|()| Found { entry, along })
    }

    /// A directory of which the page tells nothing about what is in it: that is asked for otherwise.
    async fn found_listed_dir(&self, name: Name, dir: &Place, content: Content) -> Answer<Found> {
        let (answer, is_xml) = (content.answer(()), content.is_xml());
        let found = Answer { audience: answer.audience, ..bare_dir(name, dir, answer.origin) };
        if !is_xml || self.lister(dir) != Lister::Page {
            content.into_flow().drain().await;
            return found;
        }
        match self.document(dir, content).await {
            Ok(Document::Bucket) => self.learn_bucket(dir),
            Ok(Document::Page(_)) => {}
            Err(error) => tracing::debug!("{}{}: {error}", dir.authority, dir.path),
        }
        found
    }

    fn no_answer_needed(&self) -> Answer<Option<Found>> {
        Answer::new(None, Version::None, Lease::lasting(self.options().absence_time))
    }
}

/// A directory of which nothing but its being there is known.
pub(crate) fn bare_dir(name: Name, dir: &Place, origin: Option<Origin>) -> Answer<Found> {
    let attributes = Attributes::of_kind(FileKind::Directory);
    let entry = Entry { name, id: dir.dir_id(), attributes, version: Version::None };
    // As short as an absence: what the server could not show now may be there soon.
    let lease = Lease::lasting(BARE_DIR_TIME);
    Answer { origin, ..Answer::new(Found { entry, along: None }, Version::None, lease) }
}

/// A directory that is there whatever its host says of it.
pub(crate) async fn refused_dir(name: Name, dir: &Place, reply: Reply) -> Answer<Found> {
    let origin = origin_of(&reply, &format!("{}; it leads to more", reply.status.as_str()));
    let audience = reply.audience;
    reply.body.drain().await;
    Answer { audience, ..bare_dir(name, dir, Some(origin)) }
}

/// How long a directory is trusted to be there that showed nothing of itself.
const BARE_DIR_TIME: std::time::Duration = std::time::Duration::from_secs(60);
/// How names of files in XML end: they are no buckets, and are not read to see whether they are.
const XML_ENDINGS: [&[u8]; 14] = [
    b".atom", b".gpx", b".kml", b".osm", b".plist", b".pom", b".rdf", b".rss", b".svg", b".wsdl", b".xhtml", b".xml",
    b".xsd", b".xsl",
];
