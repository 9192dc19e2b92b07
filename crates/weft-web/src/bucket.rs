//! Listing a bucket of S3 (Amazon S3 API reference, ListObjectsV2), at its own host or below a path.
//!
//! A key is a path: `a/b.txt` is `b.txt` in the directory `a`. What the key of a directory itself holds (`a/`, a marker
//! that some tools leave) is the directory. An object `a` beside keys below `a/` is `index.html` in `a`, as a page that
//! is a prefix of links is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_decode_str, percent_encode};
use weft_remote::{
    Answer, Attributes, Call, Completeness, Cursor, Entry, Figure, FileKind, Found, Listing, Name, Page, RemoteError,
    Result, Version,
};

use crate::authority::Authority;
use crate::content::{Content, has_content, origin_of, status_error};
use crate::freshness::{Came, lease_of};
use crate::id::Place;
use crate::index::{exact_size, parse_rfc3339};
use crate::listing::page_name;
use crate::lookup::bare_dir;
use crate::name::{encode_segment, name_of};
use crate::remote::Web;
use crate::validator::{hashed, version_of_tag};
use crate::xml::{Visitor, read_xml};

/// Which names in a listed directory are objects as well as directories, so that listing such a directory need not ask.
#[derive(Default)]
pub(crate) struct Twins(Mutex<HashMap<Place, BTreeSet<String>>>);

/// What is asked of a bucket.
struct Range<'a> {
    /// The keys that begin so.
    prefix: &'a [u8],
    /// Whether what lies below a further slash is put together.
    grouped: bool,
    keys_max: Option<usize>,
    cursor: Option<&'a Cursor>,
}

/// An answer, read.
struct Told {
    /// Without a version.
    answer: Answer<()>,
    keys: Keys,
}

impl Web {
    /// Lists a directory of the bucket at `top`, a page at a time; `None` when there is no bucket any more.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Damaged`; what keeps the host from answering.
    pub(crate) async fn list_bucket(
        &self,
        call: &Call,
        dir: &Place,
        top: &str,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Option<Answer<Listing>>> {
        let prefix = prefix_of(dir, top);
        let range = Range { prefix: &prefix, grouped: true, keys_max: None, cursor };
        let Some(told) = self.keys(call, dir, top, &range).await? else { return Ok(None) };
        let next = told.keys.next(cursor, &dir.path)?;
        let mut rows = Rows::new(dir);
        told.keys.objects.iter().for_each(|object| rows.add_object(&told.keys, &prefix, object));
        told.keys.prefixes.iter().for_each(|group| rows.add_group(&told.keys.plain(group), &prefix));
        if cursor.is_none() && dir.path != top {
            match self.twin(call, dir, top, &prefix).await? {
                Some(twin) if rows.by_name.contains_key(&twin.name) => rows.hidden += 1,
                Some(twin) => rows.put(twin),
                None => {}
            }
        }
        let whole = cursor.is_none() && next.is_none();
        if whole {
            self.twins.learn(dir, std::mem::take(&mut rows.twins));
        }
        // A version is about all rows, so that one of many pages has none.
        let version = if whole { hashed(rows.hash()) } else { Version::None };
        let mut answer = Answer { version, ..told.answer };
        if let Some(origin) = &mut answer.origin
            && rows.hidden > 0
        {
            origin.how = format!("S3 listing ({} keys cannot be shown)", rows.hidden);
        }
        if whole && known.still_holds(&answer.version) {
            return Ok(Some(answer.map(|()| Listing::Unchanged)));
        }
        let page = Page { entries: rows.entries, completeness: Completeness::Complete, next };
        Ok(Some(answer.map(|()| Listing::Page(page, None))))
    }

    /// Whether any key lies below `dir`.
    ///
    /// # Errors
    /// As [`Web::list_bucket`].
    pub(crate) async fn find_in_bucket(
        &self,
        call: &Call,
        name: Name,
        dir: &Place,
        top: &str,
    ) -> Result<Option<Answer<Found>>> {
        let prefix = prefix_of(dir, top);
        let range = Range { prefix: &prefix, grouped: false, keys_max: Some(1), cursor: None };
        let Some(told) = self.keys(call, dir, top, &range).await? else { return Ok(None) };
        let below = |object: &Object| told.keys.plain(&object.key).starts_with(&prefix);
        if !told.keys.objects.iter().any(below) {
            return Ok(None);
        }
        Ok(Some(Answer { audience: told.answer.audience, ..bare_dir(name, dir, told.answer.origin) }))
    }

    /// Whether a bucket answers at `top`, which is remembered, and not a file that was a bucket's answer once: asked for no
    /// keys, a bucket gives none. To some servers (`rclone serve s3`) none is as many as they like; those give none that begin
    /// as no key does.
    pub(crate) async fn is_bucket(&self, call: &Call, top: &Place) -> bool {
        for (prefix, keys_max) in [(&b""[..], 0), (NO_KEYS, 1)] {
            let range = Range { prefix, grouped: true, keys_max: Some(keys_max), cursor: None };
            let Ok(Some(told)) = self.keys(call, top, &top.path, &range).await else { return false };
            if told.keys.objects.is_empty() {
                self.learn_bucket(top);
                return true;
            }
        }
        false
    }

    /// The object whose key is that of `dir` without its slash, as the directory's page.
    async fn twin(&self, call: &Call, dir: &Place, top: &str, prefix: &[u8]) -> Result<Option<Entry>> {
        let Some(page) = dir.unslashed().filter(|page| page.path.len() >= top.len()) else { return Ok(None) };
        if self.twins.know_none(&page) {
            return Ok(None);
        }
        // The shortest key that begins so is the first one.
        let key = &prefix[..prefix.len() - 1];
        let range = Range { prefix: key, grouped: false, keys_max: Some(1), cursor: None };
        let Some(told) = self.keys(call, dir, top, &range).await? else { return Ok(None) };
        let object = told.keys.objects.iter().find(|object| told.keys.plain(&object.key) == key);
        Ok(object.map(|object| object.entry(page_name(), &page)))
    }

    async fn keys(&self, call: &Call, dir: &Place, top: &str, range: &Range<'_>) -> Result<Option<Told>> {
        let place = Place { authority: dir.authority.clone(), path: top.to_owned(), query: Some(range.query()?) };
        let reply = self.client.get(call, &place, &[]).await?;
        if !has_content(&reply) {
            let error = status_error(&reply);
            reply.body.drain().await;
            return Err(error);
        }
        let lease = lease_of(&reply.headers, Came::now(), self.options());
        let (origin, audience, url) = (origin_of(&reply, "S3 listing"), reply.audience, reply.url.to_string());
        let content = Content::read(reply, self.options());
        if !content.is_xml() {
            if let Some(authority) = Authority::parse(&dir.authority) {
                self.client.host(&authority).lists.forget_bucket(top, &*self.client.notes);
            }
            return Ok(None);
        }
        let mut keys = Keys::default();
        read_xml(&url, content.into_flow(), &mut keys).await?;
        let answer = Answer { origin: Some(origin), audience, ..Answer::new((), Version::None, lease) };
        Ok(Some(Told { answer, keys }))
    }
}

impl Range<'_> {
    fn query(&self) -> Result<String> {
        let mut query = format!("list-type=2&encoding-type=url&prefix={}", escaped(self.prefix));
        if self.grouped {
            query.push_str("&delimiter=%2F");
        }
        if let Some(max) = self.keys_max {
            query.push_str(&format!("&max-keys={max}"));
        }
        if let Some(cursor) = self.cursor {
            let bad = || RemoteError::BadName { detail: format!("{cursor:?}: no place to go on in a listing") };
            let (_, way, token) = read_cursor(cursor).ok_or_else(bad)?;
            query.push_str(&format!("&{way}={}", escaped(token.as_bytes())));
        }
        Ok(query)
    }
}

fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, NON_ALPHANUMERIC).to_string()
}

/// The number of the page before, the parameter that goes on, and its value.
fn read_cursor(cursor: &Cursor) -> Option<(usize, &'static str, &str)> {
    let mut words = std::str::from_utf8(&cursor.0).ok()?.splitn(3, ' ');
    let page = words.next()?.parse().ok()?;
    let way = match words.next()? {
        "continuation-token" => "continuation-token",
        "marker" => "marker",
        _ => return None,
    };
    Some((page, way, words.next()?))
}

/// The beginning that all keys in `dir` share.
fn prefix_of(dir: &Place, top: &str) -> Vec<u8> {
    percent_decode_str(dir.path.strip_prefix(top).unwrap_or_default()).collect()
}

/// What the answer of a bucket says.
#[derive(Default)]
struct Keys {
    stack: Vec<String>,
    object: Object,
    objects: Vec<Object>,
    prefixes: Vec<String>,
    /// Keys come percent-encoded.
    encoded: bool,
    truncated: bool,
    token: Option<String>,
    /// Of servers that know the first version of the request only.
    marker: Option<String>,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Object {
    key: String,
    size: Option<u64>,
    modified: Option<SystemTime>,
    tag: Option<String>,
}

impl Visitor for Keys {
    fn start(&mut self, _: &str, name: &str) -> std::result::Result<(), String> {
        if self.stack.is_empty() && name != "ListBucketResult" {
            return Err(format!("the listing of a bucket was asked for, and {name:.40} came"));
        }
        if name == "Contents" {
            self.object = Object::default();
        }
        self.stack.push(name.chars().take(NAME_MAX).collect());
        Ok(())
    }

    fn end(&mut self, text: &str) -> std::result::Result<(), String> {
        let name = self.stack.pop().unwrap_or_default();
        let above = self.stack.last().map_or("", String::as_str);
        match (above, name.as_str()) {
            ("Contents", "Key") => self.object.key = text.to_owned(),
            ("Contents", "Size") => self.object.size = text.trim().parse().ok(),
            ("Contents", "LastModified") => self.object.modified = parse_rfc3339(text),
            ("Contents", "ETag") => self.object.tag = Some(text.trim().to_owned()),
            ("CommonPrefixes", "Prefix") => self.prefixes.push(text.to_owned()),
            ("ListBucketResult", "Contents") => self.objects.push(std::mem::take(&mut self.object)),
            ("ListBucketResult", "EncodingType") => self.encoded = text.trim() == "url",
            ("ListBucketResult", "IsTruncated") => self.truncated = text.trim() == "true",
            ("ListBucketResult", "NextContinuationToken") => self.token = Some(text.to_owned()),
            ("ListBucketResult", "NextMarker") => self.marker = Some(text.to_owned()),
            _ => {}
        }
        match self.objects.len() + self.prefixes.len() > ROWS_MAX {
            true => Err(format!("it lists more than {ROWS_MAX} keys at once")),
            false => Ok(()),
        }
    }
}

impl Keys {
    /// A key as it is.
    fn plain(&self, key: &str) -> Vec<u8> {
        match self.encoded {
            true => percent_decode(key.replace('+', " ").as_bytes()).collect(),
            false => key.as_bytes().to_vec(),
        }
    }

    /// Where the listing goes on.
    fn next(&self, cursor: Option<&Cursor>, dir: &str) -> Result<Option<Cursor>> {
        if !self.truncated {
            return Ok(None);
        }
        let damaged = |why: &str| RemoteError::Damaged { detail: format!("{dir}: {why}") };
        let before = cursor.and_then(read_cursor);
        let page = before.map_or(0, |(page, ..)| page) + 1;
        if page > PAGES_MAX {
            return Err(damaged("the listing of the bucket does not end"));
        }
        let last = || self.objects.iter().map(|object| &object.key).chain(&self.prefixes).max();
        let (way, token) = match (&self.token, &self.marker) {
            (Some(token), _) => ("continuation-token", token.clone().into_bytes()),
            (None, Some(marker)) => ("marker", self.plain(marker)),
            // Without groups the first version of the request leaves it to the client.
            (None, None) => ("marker", self.plain(last().ok_or_else(|| damaged("more keys were promised"))?)),
        };
        let next = Cursor([format!("{page} {way} ").as_bytes(), &token].concat());
        if read_cursor(&next).is_none_or(|(_, _, token)| before.is_some_and(|(_, _, old)| old == token)) {
            return Err(damaged("the listing of the bucket goes on where it was"));
        }
        Ok(Some(next))
    }
}

impl Object {
    fn entry(&self, name: Name, place: &Place) -> Entry {
        let size = self.size.map_or(Figure::Unknown, exact_size);
        let modified = self.modified.map_or(Figure::Unknown, Figure::Exact);
        let attributes = Attributes { size, modified, ..Attributes::of_kind(FileKind::File) };
        let version = self.tag.as_deref().and_then(|tag| version_of_tag(tag.as_bytes())).unwrap_or(Version::None);
        Entry { name, id: place.file_id(), attributes, version }
    }
}

/// Entries made of keys.
struct Rows<'a> {
    dir: &'a Place,
    entries: Vec<Entry>,
    by_name: BTreeMap<Name, usize>,
    twins: BTreeSet<String>,
    /// Keys that cannot be shown.
    hidden: usize,
}

impl Rows<'_> {
    fn new(dir: &Place) -> Rows<'_> {
        Rows { dir, entries: Vec::new(), by_name: BTreeMap::new(), twins: BTreeSet::new(), hidden: 0 }
    }

    fn add_object(&mut self, keys: &Keys, prefix: &[u8], object: &Object) {
        let key = keys.plain(&object.key);
        match key.strip_prefix(prefix) {
            // The key of the directory itself: nothing is lost if nothing is in it.
            Some([]) => self.hidden += usize::from(object.size.unwrap_or(0) > 0),
            Some(rest) if rest.contains(&b'/') => self.add_group(&key, prefix),
            Some(rest) => {
                let segment = encode_segment(rest);
                let place = self.dir.child(&segment);
                match name_of(&segment, None).filter(|_| place.fits()) {
                    Some(name) => self.put(object.entry(name, &place)),
                    None => self.hidden += 1,
                }
            }
            None => self.hidden += 1,
        }
    }

    /// Keys below a slash: a directory.
    fn add_group(&mut self, group: &[u8], prefix: &[u8]) {
        // A group that is the directory itself would lead into it for ever.
        let rest = group.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        let Some(segment) = rest.and_then(|rest| rest.split(|byte| *byte == b'/').next()) else {
            self.hidden += 1;
            return;
        };
        let segment = encode_segment(segment);
        let place = self.dir.child(&segment).slashed();
        match name_of(&segment, None).filter(|_| place.fits()) {
            Some(name) => {
                let attributes = Attributes::of_kind(FileKind::Directory);
                if self.by_name.get(&name).is_some_and(|at| self.entries[*at].attributes.kind == FileKind::File) {
                    self.twins.insert(segment);
                }
                self.put(Entry { name, id: place.dir_id(), attributes, version: Version::None });
            }
            None => self.hidden += 1,
        }
    }

    fn put(&mut self, entry: Entry) {
        match self.by_name.get(&entry.name) {
            // The directory holds the object, so that it goes before it.
            Some(at) if entry.attributes.kind == FileKind::Directory => self.entries[*at] = entry,
            Some(_) => self.hidden += 1,
            None => {
                self.by_name.insert(entry.name.clone(), self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    fn hash(&self) -> u128 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        self.entries.iter().for_each(|entry| hash.update(format!("{entry:?}").as_bytes()));
        hash.digest128()
    }
}

impl Twins {
    fn learn(&self, dir: &Place, names: BTreeSet<String>) {
        let mut known = self.0.lock();
        if known.len() >= TWINS_MAX {
            known.clear();
        }
        known.insert(dir.clone(), names);
    }

    /// Whether the directory that `page` lies in is known to have no directory beside an object of that name.
    fn know_none(&self, page: &Place) -> bool {
        let name = &page.path[page.dir().path.len()..];
        self.0.lock().get(&page.dir()).is_some_and(|names| !names.contains(name))
    }
}

/// Longest element name kept.
const NAME_MAX: usize = 40;
/// No key begins so.
const NO_KEYS: &[u8] = b"weft-asks-whether-this-is-a-bucket/";
/// Most keys in one answer: servers give a thousand.
const ROWS_MAX: usize = 100_000;
/// Most pages of one listing.
const PAGES_MAX: usize = 10_000;
/// Most directories whose twins are remembered.
const TWINS_MAX: usize = 4096;
