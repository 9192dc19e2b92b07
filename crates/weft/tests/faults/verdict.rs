//! What somebody made of a lie, in one word, by the same rule for everybody.

use std::collections::BTreeMap;
use std::fmt;

use crate::cases::decoded;
use crate::row::{Row, See, Seen, errno_name};

/// What came of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What had to be seen: bytes or names.
    Right,
    /// An error, where one is due or not.
    Error(i32),
    /// The bytes of the file, taken from an answer that contradicts itself: right by luck.
    Accepted,
    /// Success, and bytes that are not those of the file.
    Wrong,
    /// A listing without some names, with names that must not be, and with names whose files could not be read.
    Names { missing: usize, added: usize, unread: usize },
    /// Nothing within the time.
    Hang,
    /// It could not be mounted.
    NoMount,
}

impl Verdict {
    /// Judges what was seen of a row at first.
    pub fn of(row: &Row, seen: &Seen) -> Verdict {
        let right = match &row.cold {
            See::This(right) | See::Either(right, _) => Some(right),
            See::Fails(_) => None,
        };
        match (seen, right) {
            (seen, Some(right)) if seen == right => Verdict::Right,
            (Seen::Fails(errno), _) => Verdict::Error(*errno),
            (Seen::Names(seen), right) => {
                let none = BTreeMap::new();
                names(seen, if let Some(Seen::Names(right)) = right { right } else { &none })
            }
            // An error page is no content, whatever stands in it.
            (Seen::Bytes(bytes), None) if *bytes == row.content && !row.says_error() => Verdict::Accepted,
            (Seen::Bytes(_) | Seen::Folder, _) => Verdict::Wrong,
        }
    }
}

fn names(seen: &BTreeMap<Vec<u8>, Seen>, right: &BTreeMap<Vec<u8>, Seen>) -> Verdict {
    let missing = right.keys().filter(|name| !seen.contains_key(*name)).count();
    let added = seen.keys().filter(|name| !right.contains_key(*name)).count();
    let both = || seen.iter().filter_map(|(name, seen)| Some((seen, right.get(name)?)));
    // The content tells the request, of which there are several spellings.
    let spelt = |bytes: &[u8]| decoded(&String::from_utf8_lossy(bytes));
    let wrong = |(seen, right): &(&Seen, &Seen)| match (seen, right) {
        (Seen::Bytes(seen), Seen::Bytes(right)) => spelt(seen) != spelt(right),
        _ => false,
    };
    if both().any(|pair| wrong(&pair)) {
        return Verdict::Wrong;
    }
    let unread = both().filter(|(seen, right)| matches!(seen, Seen::Fails(_)) && seen != right).count();
    let kinds = both().filter(|(seen, right)| matches!(seen, Seen::Folder) != matches!(right, Seen::Folder)).count();
    match missing + added + unread + kinds {
        0 => Verdict::Right,
        _ => Verdict::Names { missing, added, unread },
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Right => write!(f, "right"),
            Verdict::Error(errno) => write!(f, "{}", errno_name(*errno)),
            Verdict::Accepted => write!(f, "accepted"),
            Verdict::Wrong => write!(f, "**WRONG BYTES**"),
            Verdict::Names { missing: 0, added: 0, unread: 0 } => write!(f, "a kind differs"),
            Verdict::Names { missing, added, unread } => {
                let counts = [(missing, "missing"), (added, "too many"), (unread, "unreadable")];
                let told: Vec<String> =
                    counts.iter().filter(|(n, _)| **n > 0).map(|(n, what)| format!("{n} {what}")).collect();
                write!(f, "names: {}", told.join(", "))
            }
            Verdict::Hang => write!(f, "**hang**"),
            Verdict::NoMount => write!(f, "no mount"),
        }
    }
}
