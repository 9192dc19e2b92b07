//! WebDAV's own way to list a directory: PROPFIND (RFC 4918 section 9.1).

use std::time::SystemTime;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderName, HeaderValue};
use url::Url;
use weft_remote::{
    Answer, Attributes, Call, Completeness, Entry, Figure, FileKind, Found, Listing, Name, Page, RemoteError, Result,
    Version,
};

use crate::content::{origin_of, status_error};
use crate::exchange::{Needs, Question, Reply};
use crate::freshness::{Came, lease_of};
use crate::id::Place;
use crate::index::exact_size;
use crate::name::{listed_path, name_of};
use crate::remote::Web;
use crate::target::{place_of, same_host};
use crate::validator::{hashed, version_of_tag};
use crate::xml::{Visitor, read_xml};

/// How far PROPFIND looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The directory alone.
    Itself,
    /// The directory and what lies in it.
    Children,
}

/// A directory as PROPFIND tells it.
struct Told {
    /// Answer without a value; its version is that of the listing.
    answer: Answer<()>,
    /// The directory's own row.
    itself: Option<Resource>,
    entries: Vec<Entry>,
    /// Rows that cannot be shown, because what they say makes no name.
    dropped: usize,
}

/// A row: the resource with the properties that could be told.
#[derive(Clone, Debug, Default, PartialEq)]
struct Resource {
    href: String,
    collection: bool,
    size: Option<u64>,
    modified: Option<SystemTime>,
    tag: Option<String>,
    /// The row says that there is no such thing (any more).
    failed: bool,
}

impl Web {
    /// Lists a directory by PROPFIND; `None` when the server does not answer in WebDAV.
    ///
    /// # Errors
    /// What keeps the host from answering.
    pub(crate) async fn list_dav(&self, call: &Call, dir: &Place, known: &Version) -> Result<Option<Answer<Listing>>> {
        let Some(told) = self.propfind(call, dir, Depth::Children).await? else { return Ok(None) };
        if told.itself.as_ref().is_some_and(|itself| !itself.collection) {
            return Err(RemoteError::NotADirectory { detail: format!("{}{}", dir.authority, dir.path) });
        }
        if known.still_holds(&told.answer.version) {
            return Ok(Some(told.answer.map(|()| Listing::Unchanged)));
        }
        let completeness = if told.dropped == 0 { Completeness::Complete } else { Completeness::Partial };
        let page = Page { entries: told.entries, completeness, next: None };
        Ok(Some(told.answer.map(|()| Listing::Page(page, None))))
    }

    /// Whether `dir` is a directory, by PROPFIND.
    ///
    /// # Errors
    /// As [`Web::list_dav`].
    pub(crate) async fn find_dav(&self, call: &Call, name: Name, dir: &Place) -> Result<Option<Answer<Found>>> {
        let Some(told) = self.propfind(call, dir, Depth::Itself).await? else { return Ok(None) };
        let Some(itself) = told.itself.filter(|itself| itself.collection) else { return Ok(None) };
        let attributes = Attributes {
            modified: itself.modified.map_or(Figure::Unknown, Figure::Exact),
            ..Attributes::of_kind(FileKind::Directory)
        };
        let entry = Entry { name, id: dir.dir_id(), attributes, version: Version::None };
        let answer = Answer { version: Version::None, ..told.answer };
        Ok(Some(answer.map(|()| Found { entry, along: None })))
    }

    /// Whether `place` is a file, by PROPFIND.
    ///
    /// # Errors
    /// As [`Web::list_dav`].
    pub(crate) async fn is_dav_file(&self, call: &Call, place: &Place) -> Result<bool> {
        let told = self.propfind(call, place, Depth::Itself).await?;
        Ok(told.and_then(|told| told.itself).is_some_and(|itself| !itself.collection))
    }

    async fn propfind(&self, call: &Call, dir: &Place, depth: Depth) -> Result<Option<Told>> {
        // A server that knows no WebDAV may leave the body of such a request unread and take it for the next one: the
        // question that finds out has none, and is about all properties then (RFC 4918 section 9.1).
        let (depth, body) = if depth == Depth::Itself { ("0", &b""[..]) } else { ("1", QUERY) };
        let headers = [
            (HeaderName::from_static("depth"), HeaderValue::from_static(depth)),
            (header::CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8")),
        ];
        let headers = if body.is_empty() { &headers[..1] } else { &headers[..] };
        let method = Method::from_bytes(b"PROPFIND").expect("letters make a method");
        let question = Question { method, headers, body: Bytes::from_static(body), needs: Needs::Body };
        let reply = self.client.ask(call, dir, &question).await?;
        if reply.status.as_u16() != MULTI_STATUS {
            let error = status_error(&reply);
            let busy = reply.status.is_server_error() && reply.status.as_u16() != NOT_IMPLEMENTED;
            reply.body.drain().await;
            return if busy { Err(error) } else { Ok(None) };
        }
        self.told(dir, reply).await.map(Some)
    }

    async fn told(&self, dir: &Place, reply: Reply) -> Result<Told> {
        let lease = lease_of(&reply.headers, Came::now(), self.options());
        let (origin, audience) = (origin_of(&reply, "WebDAV PROPFIND"), reply.audience);
        let mut told = Told {
            answer: Answer { origin: Some(origin), audience, ..Answer::new((), Version::None, lease) },
            itself: None,
            entries: Vec::new(),
            dropped: 0,
        };
        let mut rows = Rows {
            base: listed_place(&reply.url),
            url: reply.url.clone(),
            dir,
            told: &mut told,
            hash: xxhash_rust::xxh3::Xxh3::new(),
            stack: Vec::new(),
            row: Resource::default(),
            props: Resource::default(),
            props_failed: false,
        };
        read_xml(reply.url.as_str(), reply.body, &mut rows).await?;
        told.answer.version = hashed(rows.hash.digest128());
        if told.dropped > 0
            && let Some(origin) = &mut told.answer.origin
        {
            origin.how = format!("WebDAV PROPFIND ({} rows cannot be shown)", told.dropped);
        }
        Ok(told)
    }
}

/// Where the reader is (RFC 4918 section 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Multistatus,
    Response,
    Href,
    Status,
    Propstat,
    Prop,
    ResourceType,
    Collection,
    Length,
    Modified,
    Etag,
    Other,
}

/// Makes entries of rows as they come.
struct Rows<'a> {
    url: Url,
    /// Where the answer came from.
    base: Option<Place>,
    /// The directory that was asked for.
    dir: &'a Place,
    told: &'a mut Told,
    hash: xxhash_rust::xxh3::Xxh3,
    stack: Vec<Tag>,
    row: Resource,
    /// Properties of the `propstat` being read: they count if its status is 200.
    props: Resource,
    props_failed: bool,
}

impl Visitor for Rows<'_> {
    fn start(&mut self, namespace: &str, name: &str) -> std::result::Result<(), String> {
        let tag = if namespace == "DAV:" { self.tag(name) } else { Tag::Other };
        match tag {
            Tag::Response => self.row = Resource::default(),
            Tag::Propstat => (self.props, self.props_failed) = (Resource::default(), false),
            Tag::Collection => self.props.collection = true,
            _ if self.stack.is_empty() && tag != Tag::Multistatus => {
                return Err(format!("a WebDAV answer begins with multistatus, this one with {name:.40}"));
            }
            _ => {}
        }
        self.stack.push(tag);
        Ok(())
    }

    fn end(&mut self, text: &str) -> std::result::Result<(), String> {
        let text = text.trim();
        match self.stack.pop() {
            Some(Tag::Href) => self.row.href = text.to_owned(),
            Some(Tag::Length) => self.props.size = text.parse().ok(),
            Some(Tag::Modified) => self.props.modified = httpdate::parse_http_date(text).ok(),
            Some(Tag::Etag) => self.props.tag = Some(text.to_owned()),
            Some(Tag::Status) => {
                let failed = text.split(' ').nth(1).is_none_or(|status| !status.starts_with('2'));
                match self.stack.last() {
                    Some(Tag::Propstat) => self.props_failed = failed,
                    _ => self.row.failed = failed,
                }
            }
            Some(Tag::Propstat) if !self.props_failed => {
                let props = std::mem::take(&mut self.props);
                self.row.collection |= props.collection;
                self.row.size = props.size.or(self.row.size);
                self.row.modified = props.modified.or(self.row.modified);
                self.row.tag = props.tag.or(self.row.tag.take());
            }
            Some(Tag::Response) => {
                let row = std::mem::take(&mut self.row);
                if !row.failed {
                    self.add(row);
                }
                if self.told.entries.len() > ROWS_MAX {
                    return Err(format!("it lists more than {ROWS_MAX} names"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The place of a URL that names a resource.
fn listed_place(url: &Url) -> Option<Place> {
    place_of(url).map(|place| Place { path: listed_path(&place.path), ..place })
}

impl Rows<'_> {
    /// What an element of WebDAV's namespace is where it stands.
    fn tag(&self, name: &str) -> Tag {
        match (self.stack.last(), name) {
            (None, "multistatus") => Tag::Multistatus,
            (Some(Tag::Multistatus), "response") => Tag::Response,
            (Some(Tag::Response), "href") => Tag::Href,
            (Some(Tag::Response | Tag::Propstat), "status") => Tag::Status,
            (Some(Tag::Response), "propstat") => Tag::Propstat,
            (Some(Tag::Propstat), "prop") => Tag::Prop,
            (Some(Tag::Prop), "resourcetype") => Tag::ResourceType,
            (Some(Tag::ResourceType), "collection") => Tag::Collection,
            (Some(Tag::Prop), "getcontentlength") => Tag::Length,
            (Some(Tag::Prop), "getlastmodified") => Tag::Modified,
            (Some(Tag::Prop), "getetag") => Tag::Etag,
            _ => Tag::Other,
        }
    }

    /// A row of the directory itself, of something in it, or of neither: hrefs are paths or whole URLs.
    fn add(&mut self, row: Resource) {
        let (Some(base), Ok(url)) = (&self.base, self.url.join(&row.href)) else {
            self.told.dropped += 1;
            return;
        };
        let Some(place) = listed_place(&url).filter(|_| url.fragment().is_none() && url.query().is_none()) else {
            self.told.dropped += 1;
            return;
        };
        let on_host = same_host(&place.authority, &base.authority) || same_host(&place.authority, &self.dir.authority);
        let path = place.path.as_str();
        let Some(rest) = path.strip_prefix(base.path.as_str()).filter(|_| on_host) else {
            if on_host && base.path.strip_suffix('/') == Some(path) {
                self.told.itself = Some(row);
            } else {
                tracing::debug!("{}: a row about {url} is about another place", self.url);
            }
            return;
        };
        if rest.is_empty() {
            self.told.itself = Some(row);
            return;
        }
        let segment = rest.strip_suffix('/').unwrap_or(rest);
        let entry = if segment.contains('/') { None } else { self.entry(segment, &row) };
        match entry {
            Some(entry) => {
                self.hash.update(format!("{row:?}").as_bytes());
                self.told.entries.push(entry);
            }
            None => self.told.dropped += 1,
        }
    }

    fn entry(&self, segment: &str, row: &Resource) -> Option<Entry> {
        let place = self.dir.child(segment);
        let name = name_of(segment, None).filter(|_| place.fits())?;
        let modified = row.modified.map_or(Figure::Unknown, Figure::Exact);
        if row.collection {
            let attributes = Attributes { modified, ..Attributes::of_kind(FileKind::Directory) };
            return Some(Entry { name, id: place.slashed().dir_id(), attributes, version: Version::None });
        }
        let size = row.size.map_or(Figure::Unknown, exact_size);
        let attributes = Attributes { size, modified, ..Attributes::of_kind(FileKind::File) };
        let version = row.tag.as_deref().and_then(|tag| version_of_tag(tag.as_bytes())).unwrap_or(Version::None);
        Some(Entry { name, id: place.file_id(), attributes, version })
    }
}

/// What is asked of each row (RFC 4918 section 15).
const QUERY: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<propfind xmlns=\"DAV:\"><prop><resourcetype/>\
    <getcontentlength/><getlastmodified/><getetag/></prop></propfind>\n";
/// RFC 4918 section 11.1.
const MULTI_STATUS: u16 = 207;
const NOT_IMPLEMENTED: u16 = 501;
/// Most names of one directory.
const ROWS_MAX: usize = 1_000_000;
