//! Places on the web and the ids that stand for them.

use weft_remote::{FileId, Neighbourhood};
use xxhash_rust::xxh3::xxh3_64;

use crate::name::Part;

/// A URL without its scheme, in canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// `host` or `host:port`, lower case, as the user's tree names it.
    pub authority: String,
    /// Starts with a slash.
    pub path: String,
    /// What follows the question mark.
    pub query: Option<String>,
}

/// What a [`FileId`] of this kind stands for. As bytes: `/` is the root, `D host/a/` a directory, `F host/a/b?q` a
/// file; `F host/a/` is the page of the directory `D host/a/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// The directory of all hosts.
    Root,
    /// A directory; the path ends in a slash and there is no query.
    Dir(Place),
    /// A file.
    File(Place),
}

impl Place {
    /// The top of a host.
    pub fn top(authority: &str) -> Place {
        Place { authority: authority.to_owned(), path: "/".to_owned(), query: None }
    }

    /// The place `part` in the directory `self`.
    pub fn join(&self, part: &Part) -> Place {
        Place {
            authority: self.authority.clone(),
            path: format!("{}{}", self.path, part.segment),
            query: part.query.clone(),
        }
    }

    /// The place of this canonical segment in the directory `self`.
    pub fn child(&self, segment: &str) -> Place {
        Place { authority: self.authority.clone(), path: format!("{}{segment}", self.path), query: None }
    }

    /// The same with a slash at the end.
    pub fn slashed(&self) -> Place {
        Place { authority: self.authority.clone(), path: format!("{}/", self.path), query: None }
    }

    /// The same without the slash at the end; `None` for the top of a host and after an empty segment.
    pub fn unslashed(&self) -> Option<Place> {
        let path = self.path.strip_suffix('/').filter(|p| !p.is_empty() && !p.ends_with('/'))?;
        Some(Place { authority: self.authority.clone(), path: path.to_owned(), query: None })
    }

    /// The directory that this place lies in (a directory lies in itself).
    pub fn dir(&self) -> Place {
        let end = self.path.rfind('/').map_or(0, |at| at + 1);
        Place { authority: self.authority.clone(), path: self.path[..end].to_owned(), query: None }
    }

    /// Path and query, as in a request.
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Its id as a directory.
    pub fn dir_id(&self) -> FileId {
        FileId::new(format!("D {}{}", self.authority, self.path))
    }

    /// Its id as a file.
    pub fn file_id(&self) -> FileId {
        FileId::new(format!("F {}{}", self.authority, self.path_and_query()))
    }

    /// Files of a directory lie near each other, in no order: there may be many, and names mostly begin alike.
    pub fn neighbourhood(&self) -> Neighbourhood {
        let dir = self.dir();
        let area = xxh3_64(format!("{}{}", dir.authority, dir.path).as_bytes());
        let [position, ..] = xxh3_64(self.path_and_query().as_bytes()).to_le_bytes();
        Neighbourhood { area, position }
    }

    /// Whether its ids are short enough to be ids.
    pub fn fits(&self) -> bool {
        let query = self.query.as_ref().map_or(0, |q| q.len() + 1);
        2 + self.authority.len() + self.path.len() + query <= FileId::BYTES_MAX
    }
}

impl Id {
    /// The id of the root.
    pub fn root() -> FileId {
        FileId::new("/")
    }

    /// Reads an id; `None` for bytes that no id of this kind has.
    pub fn parse(id: &FileId) -> Option<Id> {
        let text = std::str::from_utf8(id.as_bytes()).ok()?;
        if text == "/" {
            return Some(Id::Root);
        }
        let (kind, url) = text.split_once(' ')?;
        let slash = url.find('/')?;
        let (authority, rest) = url.split_at(slash);
        if authority.is_empty() || !url.bytes().all(|b| b.is_ascii_graphic()) {
            return None;
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        let place = Place { authority: authority.to_owned(), path: path.to_owned(), query };
        match kind {
            "D" if place.path.ends_with('/') && place.query.is_none() => Some(Id::Dir(place)),
            "F" => Some(Id::File(place)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_as_what_they_were() {
        let dir = Place { authority: "h:8080".into(), path: "/a/b/".into(), query: None };
        let file = Place { authority: "[::1]".into(), path: "/a".into(), query: Some("x=/?".into()) };
        assert_eq!(Id::parse(&dir.dir_id()), Some(Id::Dir(dir.clone())));
        assert_eq!(Id::parse(&dir.file_id()), Some(Id::File(dir)));
        assert_eq!(Id::parse(&file.file_id()), Some(Id::File(file)));
        assert_eq!(Id::parse(&Id::root()), Some(Id::Root));
    }

    #[test]
    fn foreign_bytes_are_no_ids() {
        for bad in ["", "D h", "D h/a", "X h/", "F /a", "F h/a b", "F h/\r\n", "D h/?x/"] {
            assert_eq!(Id::parse(&FileId::new(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn places_know_their_neighbours() {
        let place = Place { authority: "h".into(), path: "/a/b".into(), query: None };
        assert_eq!(place.slashed().path, "/a/b/");
        assert_eq!(place.slashed().unslashed(), Some(place.clone()));
        assert_eq!(place.dir().path, "/a/");
        assert_eq!(Place::top("h").unslashed(), None);
    }
}
