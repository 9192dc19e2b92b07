//! Where versions of places came from, after redirects.
//!
//! A host may send whoever asks to one of several mirrors, whose copies have the same bytes and other entity tags. So a part
//! of a version that is being read is asked for where that version came from: the landing. To its host that request is what
//! it would be right behind the redirects: a login is bound to the place's own origin, and every hop to the rules for
//! addresses and schemes. When the landing does not have the version (any more), or does not answer, the place itself is asked.

use std::collections::VecDeque;
use std::time::SystemTime;

use hyper::StatusCode;
use parking_lot::Mutex;
use url::Url;
use weft_remote::{Audience, Caller, Version};

use crate::exchange::Reply;
use crate::fetch::content_range;
use crate::headers::content_length;
use crate::id::Place;
use crate::validator::{holds_pieces_together, version_of};

/// Where one version of a place came from.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    place: Place,
    version: Version,
    /// What was asked for first.
    pub asked: Url,
    /// Every hop on the way.
    pub redirects: Vec<String>,
    pub url: Url,
    /// Who may be led there: a login may have been shown on the way.
    pub audience: Audience,
}

/// Those that were of use last, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Landings(Mutex<VecDeque<Landing>>);

impl Landings {
    /// Remembers where the content of a place came from, if that may be asked for in parts.
    pub fn note(&self, place: &Place, reply: &Reply) {
        let Some(landing) = landing_of(place, reply) else { return };
        let mut landings = self.0.lock();
        landings.retain(|known| !known.is_of(&landing.place, &landing.version) || known.audience != landing.audience);
        landings.push_front(landing);
        landings.truncate(LANDINGS_MAX);
    }

    /// Where this version came from, as far as the caller may be led there.
    pub fn of(&self, caller: &Caller, place: &Place, version: &Version) -> Option<Landing> {
        let mut landings = self.0.lock();
        let fits = |known: &Landing| known.is_of(place, version) && known.audience.includes(caller);
        let landing = landings.iter().position(fits).and_then(|at| landings.remove(at))?;
        landings.push_front(landing.clone());
        Some(landing)
    }

    /// Forgets one that has led nowhere.
    pub fn forget(&self, landing: &Landing) {
        let is_same = |known: &Landing| known.is_of(&landing.place, &landing.version) && known.url == landing.url;
        self.0.lock().retain(|known| !is_same(known));
    }
}

impl Landing {
    fn is_of(&self, place: &Place, version: &Version) -> bool {
        self.version == *version && self.place == *place
    }
}

fn landing_of(place: &Place, reply: &Reply) -> Option<Landing> {
    let length = match reply.status {
        StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => content_length(&reply.headers)?,
        StatusCode::PARTIAL_CONTENT => content_range(&reply.headers)?.total?,
        _ => return None,
    };
    let version = version_of(&reply.headers, Some(length), SystemTime::now());
    let is_asked_in_parts = length >= PARTED_BYTES_MIN && holds_pieces_together(&version);
    if reply.redirects.is_empty() || reply.slashed || !is_asked_in_parts || reply.url.as_str().len() > URL_BYTES_MAX {
        return None;
    }
    let asked = Url::parse(&reply.asked).ok()?;
    let (redirects, url, audience) = (reply.redirects.clone(), reply.url.clone(), reply.audience);
    Some(Landing { place: place.clone(), version, asked, redirects, url, audience })
}

/// Landings that are remembered.
const LANDINGS_MAX: usize = 512;
/// Shorter files come whole.
const PARTED_BYTES_MIN: u64 = 64 << 10;
/// Longest URL of one.
const URL_BYTES_MAX: usize = 8 << 10;
