//! Learning names from a page while its bytes go by.

use weft_remote::{Answer, Audience, Completeness, Entry, FileId, Known, Lease, Origin, Page, Version};
use xxhash_rust::xxh3::Xxh3;

use crate::id::Place;
use crate::index;
use crate::links::{LinkScanner, Scope};
use crate::listing::{self, Names};
use crate::validator::hashed;
use url::Url;

/// What a tap needs to know of the page.
pub(crate) struct TapSettings {
    /// The directory that is learnt about.
    pub dir: Place,
    /// Whether a generated list of it has all that is there, as far as is known: nothing else was found in it.
    pub tells_all: bool,
    /// Set when the bytes are what the directory's own URL gave: the entry that its page would have.
    pub own_page: Option<Entry>,
    /// Where the bytes came from in the end.
    pub url: Url,
    /// Another host that stands for the directory's own.
    pub alias: Option<String>,
    pub media: Media,
    /// The `Server` header.
    pub server: Option<Vec<u8>>,
    pub version: Version,
    pub lease: Lease,
    pub origin: Origin,
    /// Who may see what is learnt.
    pub audience: Audience,
    pub page_bytes_max: usize,
    pub links_max: usize,
}

/// What sort of content may hold names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Html,
    Json,
    Xml,
    Other,
}

/// Reads along.
pub(crate) struct Tap {
    settings: TapSettings,
    state: State,
    /// The beginning of the page, when it was held as an index and is none.
    released: Vec<u8>,
    hash: Xxh3,
    bytes: u64,
    /// It had more bytes than are read along.
    cut: bool,
}

enum State {
    /// Not enough bytes yet to tell a page from an index.
    Start(Vec<u8>),
    /// An index perhaps, kept whole.
    Index(Vec<u8>),
    /// An ordinary page.
    Links(Box<LinkScanner>),
    /// Nothing (more) is learnt from it.
    Nothing,
}

/// What was learnt.
pub(crate) struct Learnt {
    /// The directory's own names first, then those below it.
    pub names: Vec<Names>,
    /// The page, when it was held as an index and is none.
    pub page: Vec<u8>,
    pub completeness: Completeness,
    /// The version of the directory's listing.
    pub version: Version,
    pub lease: Lease,
    pub audience: Audience,
    pub origin: Origin,
}

impl Tap {
    pub fn new(settings: TapSettings) -> Tap {
        let state = match (settings.media, settings.own_page.is_some()) {
            (Media::Html, true) => State::Start(Vec::new()),
            (Media::Html, false) => State::Links(Box::new(scanner(&settings))),
            (Media::Json, true) => State::Index(Vec::new()),
            (Media::Json, false) | (Media::Xml | Media::Other, _) => State::Nothing,
        };
        Tap { settings, state, released: Vec::new(), hash: Xxh3::new(), bytes: 0, cut: false }
    }

    /// Whether there is anything to read along for.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Nothing) && self.settings.own_page.is_none()
    }

    /// Whether the bytes so far are held here: nobody else needs to hold them.
    pub fn holds_page(&self) -> bool {
        matches!(self.state, State::Index(_))
    }

    /// The bytes that were held here and are of use to others after all. `holds_page` is false from then on.
    pub fn released(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.released)
    }

    /// The next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        let room = (self.settings.page_bytes_max as u64).saturating_sub(self.bytes);
        self.bytes += bytes.len() as u64;
        let within = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let cut = within.len() < bytes.len();
        self.cut |= cut;
        match &mut self.state {
            State::Start(head) => {
                head.extend_from_slice(within);
                if head.len() >= index::HEAD_BYTES || cut {
                    self.decide();
                }
            }
            State::Index(page) => page.extend_from_slice(within),
            State::Links(scanner) => scanner.feed(within),
            State::Nothing => {}
        }
        if cut && let State::Index(page) = &mut self.state {
            // Too long to be held, so its links must do.
            let mut page = std::mem::take(page);
            self.state = match self.settings.media {
                Media::Html => self.links_of(&page),
                Media::Json | Media::Xml | Media::Other => State::Nothing,
            };
            // Whoever fed these bytes has them at hand.
            page.truncate(page.len() - within.len());
            self.released = page;
        }
    }

    /// What the whole page said.
    pub fn finish(mut self) -> Learnt {
        if let State::Start(_) = self.state {
            self.decide();
        }
        if let State::Index(page) = &mut self.state {
            let page = std::mem::take(page);
            let index = match self.settings.media {
                Media::Json => index::read_json(&page),
                Media::Html | Media::Xml | Media::Other => index::read_html(&page),
            };
            match index {
                Some(index) => {
                    drop(page);
                    return self.learnt_index(index);
                }
                None if self.settings.media == Media::Html => self.state = self.links_of(&page),
                None => self.state = State::Nothing,
            }
            self.released = page;
        }
        self.learnt_links()
    }

    fn decide(&mut self) {
        if let State::Start(head) = &mut self.state {
            let head = std::mem::take(head);
            let candidate = index::may_be_html(&head, self.settings.server.as_deref());
            self.state = if candidate { State::Index(head) } else { self.links_of(&head) };
        }
    }

    fn links_of(&self, page: &[u8]) -> State {
        let mut scanner = scanner(&self.settings);
        scanner.feed(page);
        State::Links(Box::new(scanner))
    }

    fn version(&self) -> Version {
        match &self.settings.version {
            Version::None => hashed(self.hash.digest128()),
            told => told.clone(),
        }
    }

    fn learnt_index(self, index: index::Index) -> Learnt {
        let version = self.version();
        let how = format!("{} index page", index.server);
        let completeness = if self.settings.tells_all { index.completeness() } else { Completeness::Partial };
        Learnt {
            names: vec![listing::from_index(&self.settings.dir, index)],
            page: Vec::new(),
            completeness,
            version,
            lease: self.settings.lease,
            audience: self.settings.audience,
            origin: Origin { how, ..self.settings.origin },
        }
    }

    fn learnt_links(self) -> Learnt {
        let version = self.version();
        let read = self.settings.page_bytes_max >> 20;
        let how = match (self.cut, self.settings.media) {
            (false, _) => "links of the page".to_owned(),
            (true, Media::Html) => format!("links of the first {read} MiB of the page"),
            (true, _) => format!("no names: the page is too long to be a list, more than {read} MiB"),
        };
        let mut page = self.settings.own_page;
        if let Some(page) = &mut page {
            page.attributes.size = weft_remote::Figure::Exact(self.bytes);
        }
        let links = match self.state {
            State::Links(scanner) => scanner.finish(),
            State::Start(_) | State::Index(_) | State::Nothing => Vec::new(),
        };
        Learnt {
            names: listing::from_links(&self.settings.dir, page, &links),
            page: self.released,
            completeness: Completeness::Partial,
            version,
            lease: self.settings.lease,
            audience: self.settings.audience,
            origin: Origin { how, ..self.settings.origin },
        }
    }
}

impl Learnt {
    /// One piece per directory that something was learnt about.
    pub fn into_known(self) -> Vec<Known> {
        let (completeness, lease, origin, version) = (self.completeness, self.lease, self.origin, self.version);
        let audience = self.audience;
        let known = |(at, names): (usize, Names)| {
            let version = if at == 0 { version.clone() } else { Version::None };
            let page = Page { entries: names.entries, completeness, next: None };
            Known {
                dir: names.dir.dir_id(),
                page: Answer { origin: Some(origin.clone()), audience, ..Answer::new(page, version, lease) },
            }
        };
        self.names.into_iter().enumerate().map(known).collect()
    }

    /// Whether the directory has this file as its page.
    pub fn has_page(&self, id: &FileId) -> bool {
        self.names.first().is_some_and(|names| names.entries.iter().any(|entry| entry.id == *id))
    }
}

fn scanner(settings: &TapSettings) -> LinkScanner {
    let scope = Scope { dir: settings.dir.clone(), alias: settings.alias.clone(), links_max: settings.links_max };
    LinkScanner::new(settings.url.clone(), scope)
}
