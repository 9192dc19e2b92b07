//! Who lists the directories of a host: what is remembered of it, in its own note `list/<authority>`.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weft_remote::{Audience, Caller, Notes};

/// How a directory is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lister {
    /// By the page that its URL gives.
    Page,
    /// By WebDAV.
    Dav,
    /// By the listing of the S3 bucket whose top is at this path.
    Bucket(String),
}

/// What a host was found to speak besides pages.
pub(crate) struct Lists {
    key: Vec<u8>,
    /// Held while WebDAV is tried, so that it is tried once.
    pub trying: tokio::sync::Mutex<()>,
    noted: Mutex<Noted>,
}

/// As JSON in the note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// Whether it speaks WebDAV, and until when (in seconds since 1970) that counts.
    dav: Option<(bool, u64)>,
    /// The paths of buckets, each with a slash at its end.
    #[serde(default)]
    buckets: Vec<String>,
    /// The paths of directories that the host does not tell of, in which something was found; each with a slash at its
    /// end, and with whom it was given to.
    #[serde(default)]
    ways: Vec<(String, Audience)>,
}

impl Lists {
    /// What the notes know of a host.
    pub fn load(authority: &str, notes: &dyn Notes) -> Lists {
        let key = [b"list/", authority.as_bytes()].concat();
        let noted = match notes.get(&key) {
            Ok(noted) => noted.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default(),
            Err(e) => {
                tracing::warn!("{authority}: {e}");
                Noted::default()
            }
        };
        Lists { key, trying: tokio::sync::Mutex::new(()), noted: Mutex::new(noted) }
    }

    /// Whether the host speaks WebDAV, as far as that is known at `now`.
    pub fn dav(&self, now: SystemTime) -> Option<bool> {
        let (speaks, until) = self.noted.lock().dav?;
        (seconds(now) < until).then_some(speaks)
    }

    /// Remembers whether the host speaks WebDAV.
    pub fn learn_dav(&self, speaks: bool, lasting: Duration, notes: &dyn Notes) {
        let until = seconds(SystemTime::now() + lasting);
        self.change(notes, |noted| noted.dav = Some((speaks, until)));
    }

    /// The top of the innermost bucket that `path` lies in.
    pub fn bucket_of(&self, path: &str) -> Option<String> {
        let noted = self.noted.lock();
        noted.buckets.iter().filter(|top| path.starts_with(top.as_str())).max_by_key(|top| top.len()).cloned()
    }

    /// Remembers that a bucket begins at `top`.
    pub fn learn_bucket(&self, top: &str, notes: &dyn Notes) {
        self.change(notes, |noted| {
            noted.buckets.retain(|other| other != top);
            if noted.buckets.len() >= BUCKETS_MAX {
                noted.buckets.remove(0);
            }
            noted.buckets.push(top.to_owned());
        });
    }

    /// Forgets a bucket that is none any more.
    pub fn forget_bucket(&self, top: &str, notes: &dyn Notes) {
        self.change(notes, |noted| noted.buckets.retain(|other| other != top));
    }

    /// Whether something that this caller may see was found in the directory with this path, or deeper, that the host does
    /// not tell of.
    pub fn is_way(&self, path: &str, caller: &Caller) -> bool {
        let noted = self.noted.lock();
        noted.ways.iter().any(|(way, audience)| way.starts_with(path) && audience.includes(caller))
    }

    /// Whether something was found in the directory with this path, or deeper, that the host does not tell of: then there may
    /// be more in it than its list has.
    pub fn has_way(&self, path: &str) -> bool {
        self.noted.lock().ways.iter().any(|(way, _)| way.starts_with(path))
    }

    /// Remembers that something was found in a directory that the host does not tell of.
    pub fn learn_way(&self, path: &str, audience: Audience, notes: &dyn Notes) {
        self.change(notes, |noted| {
            let holds = |(other, of): &(String, Audience)| {
                other.starts_with(path) && (*of == Audience::Everyone || *of == audience)
            };
            if noted.ways.iter().any(holds) {
                return;
            }
            noted.ways.retain(|(other, of)| {
                !path.starts_with(other.as_str()) || (audience != Audience::Everyone && *of != audience)
            });
            if noted.ways.len() >= WAYS_MAX {
                noted.ways.remove(0);
            }
            noted.ways.push((path.to_owned(), audience));
        });
    }

    /// Facts for people.
    pub fn about(&self) -> Vec<(String, String)> {
        let dav = self.dav(SystemTime::now());
        let dav =
            dav.map(|speaks| ("webdav", if speaks { "it speaks it" } else { "tried, and not spoken" }.to_owned()));
        let buckets = self.noted.lock().buckets.clone();
        let buckets = (!buckets.is_empty()).then(|| ("buckets", buckets.join(" ")));
        dav.into_iter().chain(buckets).map(|(what, value)| (what.to_owned(), value)).collect()
    }

    fn change(&self, notes: &dyn Notes, change: impl FnOnce(&mut Noted)) {
        let value = {
            let mut noted = self.noted.lock();
            change(&mut noted);
            serde_json::to_vec(&*noted).expect("a flag, a number and texts are always JSON")
        };
        if let Err(e) = notes.put(&self.key, Some(&value)) {
            tracing::warn!("{}: {e}", self.key.escape_ascii());
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Buckets remembered of one host; the oldest is forgotten first.
const BUCKETS_MAX: usize = 64;
/// Directories remembered of one host that it does not tell of; the oldest is forgotten first.
const WAYS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_remote::MemoryNotes;

    #[test]
    fn what_a_host_speaks_is_noted_for_a_time() {
        let notes = MemoryNotes::default();
        let lists = Lists::load("h", &notes);
        let now = SystemTime::now();
        assert_eq!(lists.dav(now), None);
        lists.learn_dav(false, Duration::from_secs(100), &notes);
        let again = Lists::load("h", &notes);
        assert_eq!(again.dav(now), Some(false));
        assert_eq!(again.dav(now + Duration::from_secs(200)), None, "it may have learnt it since");
    }

    #[test]
    fn the_innermost_bucket_counts_and_there_are_not_too_many() {
        let notes = MemoryNotes::default();
        let lists = Lists::load("h", &notes);
        for top in ["/a/", "/a/b/"] {
            lists.learn_bucket(top, &notes);
        }
        let again = Lists::load("h", &notes);
        assert_eq!(again.bucket_of("/a/b/c/"), Some("/a/b/".to_owned()));
        assert_eq!(again.bucket_of("/a/x"), Some("/a/".to_owned()));
        assert_eq!(again.bucket_of("/ab/"), None);
        again.forget_bucket("/a/b/", &notes);
        assert_eq!(Lists::load("h", &notes).bucket_of("/a/b/c/"), Some("/a/".to_owned()));
        (0..100).for_each(|n| again.learn_bucket(&format!("/n{n}/"), &notes));
        assert_eq!(again.bucket_of("/a/"), None);
        assert_eq!(again.bucket_of("/n99/x"), Some("/n99/".to_owned()));
    }

    #[test]
    fn a_way_holds_all_that_leads_to_it() {
        let notes = MemoryNotes::default();
        let lists = Lists::load("h", &notes);
        for path in ["/a/", "/a/b/c/", "/a/b/"] {
            lists.learn_way(path, Audience::Everyone, &notes);
        }
        let again = Lists::load("h", &notes);
        let caller = Caller { uid: 7, gid: 7, pid: 0 };
        for (path, is_way) in [("/", true), ("/a/", true), ("/a/b/c/", true), ("/a/b/c/d/", false), ("/a/x/", false)] {
            assert_eq!(again.is_way(path, &caller), is_way, "{path}");
        }
        assert_eq!(again.noted.lock().ways.len(), 1, "the longest");
        (0..300).for_each(|n| again.learn_way(&format!("/n{n}/"), Audience::Everyone, &notes));
        assert!(!again.is_way("/a/", &caller) && again.is_way("/n299/", &caller));
        assert_eq!(again.noted.lock().ways.len(), WAYS_MAX);
    }

    #[test]
    fn a_way_is_for_whom_its_end_was_given_to() {
        let notes = MemoryNotes::default();
        let lists = Lists::load("h", &notes);
        let of = |uid| Caller { uid, gid: uid, pid: 0 };
        lists.learn_way("/a/b/", Audience::Only { uid: 7 }, &notes);
        let seen = |path: &str| [7, 8].map(|uid| lists.is_way(path, &of(uid)));
        assert_eq!(seen("/a/"), [true, false]);
        lists.learn_way("/a/", Audience::Everyone, &notes);
        assert_eq!((seen("/a/"), seen("/a/b/")), ([true, true], [true, false]));
        lists.learn_way("/a/b/", Audience::Everyone, &notes);
        assert_eq!(seen("/a/b/"), [true, true]);
        assert_eq!(lists.noted.lock().ways.len(), 1);
    }
}
