//! Directory entries out of links and indexes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use weft_remote::{Attributes, Entry, Figure, FileId, FileKind, Name, Version};

use crate::id::Place;
use crate::index::Index;
use crate::name::{Part, name_of};

/// The names of one directory.
#[derive(Debug)]
pub(crate) struct Names {
    pub dir: Place,
    pub entries: Vec<Entry>,
    by_name: HashMap<Name, usize>,
}

/// The name of a directory's own page.
pub(crate) fn page_name() -> Name {
    Name::new("index.html").expect("a plain name")
}

/// What the links of a page say about `dir` and the directories below it; `dir` comes first. `page` is the entry of
/// the directory's own page.
pub(crate) fn from_links(dir: &Place, page: Option<Entry>, links: &[Place]) -> Vec<Names> {
    let mut all = vec![Names::new(dir.clone())];
    let mut by_path = HashMap::from([(dir.path.clone(), 0)]);
    if let Some(page) = page {
        all[0].put(page);
    }
    for link in links {
        add_link(&mut all, &mut by_path, link);
    }
    all
}

/// What an index says about `dir`. Names that cannot be ids are left out and reported.
pub(crate) fn from_index(dir: &Place, index: Index) -> Names {
    let mut names = Names::new(dir.clone());
    let mut items = index.items;
    names.entries.reserve_exact(items.len());
    // By the hash of a name: the names of a large directory are held once, not twice.
    let hasher = RandomState::new();
    let mut seen: HashMap<u64, usize> = HashMap::with_capacity(items.len());
    // Of a large directory the items go while the entries come: all of both are never held.
    items.reverse();
    while let Some(item) = items.pop() {
        if items.len().is_multiple_of(ITEMS_AT_ONCE) {
            items.shrink_to_fit();
        }
        let place = dir.join(&Part { segment: item.segment.clone(), query: None });
        let Some(name) = name_of(&item.segment, None).filter(|_| place.fits()) else {
            tracing::debug!("{}{}: {} cannot be a name", dir.authority, dir.path, item.segment);
            continue;
        };
        let (id, kind) = if item.is_dir {
            (place.slashed().dir_id(), FileKind::Directory)
        } else {
            (place.file_id(), FileKind::File)
        };
        // Who looks at a file wants its time as well, which comes with the answer that makes a size exact.
        let size = match (item.size, item.modified) {
            (Figure::Exact(size), Figure::Unknown) => Figure::Rounded(size),
            (size, _) => size,
        };
        let attributes = Attributes { size, modified: item.modified, ..Attributes::of_kind(kind) };
        let before = seen.entry(hasher.hash_one(&name)).or_insert(names.entries.len());
        if names.entries.get(*before).is_none_or(|before| before.name != name) {
            names.entries.push(Entry { name, id, attributes, version: Version::None });
        }
    }
    names
}

fn add_link(all: &mut Vec<Names>, by_path: &mut HashMap<String, usize>, link: &Place) {
    let mut at = 0;
    let Some(rest) = link.path.strip_prefix(all[0].dir.path.as_str()) else { return };
    let mut segments: Vec<&str> = rest.split('/').collect();
    let last = segments.pop().unwrap_or_default();
    for segment in segments {
        match below(all, by_path, at, segment) {
            Some(next) => at = next,
            None => return,
        }
    }
    if last.is_empty() && link.query.is_none() {
        return;
    }
    let Some(name) = name_of(last, link.query.as_deref()) else { return };
    let held = all[at].by_name.get(&name).copied();
    match held.map(|held| all[at].entries[held].attributes.kind) {
        // A name that is both a page and a prefix of links: the page lies inside.
        Some(FileKind::Directory) => {
            if let Some(inside) = by_path.get(&format!("{}/", link.path)) {
                all[*inside].put(entry(page_name(), link.file_id(), FileKind::Unknown));
            }
        }
        Some(_) => {}
        None => all[at].put(entry(name, link.file_id(), guessed_kind(last, link))),
    }
}

/// The index in `all` of the directory `segment` of the directory at `at`.
fn below(all: &mut Vec<Names>, by_path: &mut HashMap<String, usize>, at: usize, segment: &str) -> Option<usize> {
    let name = name_of(segment, None)?;
    let page = all[at].dir.join(&Part { segment: segment.to_owned(), query: None });
    let dir = page.slashed();
    if let Some(known) = by_path.get(&dir.path) {
        return Some(*known);
    }
    let mut names = Names::new(dir.clone());
    match all[at].by_name.get(&name).copied() {
        Some(held) => {
            let held = &mut all[at].entries[held];
            if held.id == page.file_id() {
                names.put(entry(page_name(), held.id.clone(), FileKind::Unknown));
            }
            *held = entry(name, dir.dir_id(), FileKind::Directory);
        }
        None => all[at].put(entry(name, dir.dir_id(), FileKind::Directory)),
    }
    by_path.insert(dir.path, all.len());
    all.push(names);
    Some(all.len() - 1)
}

impl Names {
    fn new(dir: Place) -> Names {
        Names { dir, entries: Vec::new(), by_name: HashMap::new() }
    }

    /// Adds an entry; the first of a name stays.
    fn put(&mut self, entry: Entry) {
        if let std::collections::hash_map::Entry::Vacant(vacant) = self.by_name.entry(entry.name.clone()) {
            vacant.insert(self.entries.len());
            self.entries.push(entry);
        }
    }
}

fn entry(name: Name, id: FileId, kind: FileKind) -> Entry {
    Entry { name, id, attributes: Attributes::of_kind(kind), version: Version::None }
}

/// A link with the ending of a file is taken for one; the rest may be directories.
fn guessed_kind(segment: &str, link: &Place) -> FileKind {
    match link.query.is_none() && ends_as_a_file(segment) {
        true => FileKind::File,
        false => FileKind::Unknown,
    }
}

/// Whether a name ends as names of files do.
pub(crate) fn ends_as_a_file(segment: &str) -> bool {
    let ending = segment.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending.as_str()))
}

/// Room of so many items is given back at a time.
const ITEMS_AT_ONCE: usize = 4096;

const FILE_ENDINGS: &[&str] = &[
    "html", "htm", "xhtml", "txt", "md", "rst", "css", "js", "mjs", "json", "xml", "rss", "atom", "csv", "pdf", "ps",
    "png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "ico", "woff", "woff2", "ttf", "otf", "mp3", "ogg", "wav",
    "flac", "mp4", "webm", "mkv", "zip", "gz", "tgz", "xz", "bz2", "zst", "tar", "7z", "iso", "img", "deb", "rpm",
    "whl", "jar", "exe", "msi", "asc", "sig", "sha256", "c", "h", "rs", "py", "diff", "patch", "yaml", "yml", "toml",
    "jsonl", "tsv", "log", "pom", "md5", "sha1", "sha512", "crate", "gem", "apk", "java", "go", "map",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        Place { authority: "h".into(), path: path.into(), query: None }
    }

    fn shown(names: &Names) -> Vec<String> {
        let show = |e: &Entry| format!("{} {} {:?}", e.name, e.id.as_bytes().escape_ascii(), e.attributes.kind);
        names.entries.iter().map(show).collect()
    }

    #[test]
    fn deeper_links_make_directories_and_pages_may_lie_in_them() {
        let links = ["/a/b/c/d.html", "/a/e", "/a/e/f", "/a/g/h", "/a/g", "/a/i/", "/a/index.html"].map(place);
        let page = entry(page_name(), place("/a/").file_id(), FileKind::File);
        let all = from_links(&place("/a/"), Some(page), &links);
        let by_path: HashMap<_, _> = all.iter().map(|names| (names.dir.path.as_str(), shown(names))).collect();
        assert_eq!(
            by_path["/a/"],
            [
                "index.html F h/a/ File",
                "b D h/a/b/ Directory",
                "e D h/a/e/ Directory",
                "g D h/a/g/ Directory",
                "i D h/a/i/ Directory"
            ]
        );
        assert_eq!(by_path["/a/b/"], ["c D h/a/b/c/ Directory"]);
        assert_eq!(by_path["/a/b/c/"], ["d.html F h/a/b/c/d.html File"]);
        assert_eq!(by_path["/a/e/"], ["index.html F h/a/e Unknown", "f F h/a/e/f Unknown"]);
        assert_eq!(by_path["/a/g/"], ["h F h/a/g/h Unknown", "index.html F h/a/g Unknown"]);
        assert_eq!(by_path["/a/i/"], Vec::<String>::new());
    }

    #[test]
    fn a_size_without_a_time_is_asked_for() {
        let (size, time) = (Figure::Exact(7), Figure::Exact(std::time::SystemTime::UNIX_EPOCH));
        let told = |size, modified| {
            let items = vec![crate::index::Item { segment: "f".into(), is_dir: false, size, modified }];
            from_index(&place("/a/"), Index { server: "any", items }).entries[0].attributes.size
        };
        assert_eq!(told(size, time), size);
        assert_eq!(told(size, Figure::Unknown), Figure::Rounded(7));
        assert_eq!(told(Figure::Unknown, Figure::Unknown), Figure::Unknown);
    }

    #[test]
    fn empty_segments_and_queries_have_names() {
        let mut query = place("/a/");
        query.query = Some("p=1".into());
        let all = from_links(&place("/a/"), None, &[place("/a//x"), query]);
        assert_eq!(shown(&all[0]), ["%~ D h/a// Directory", "?p=1 F h/a/?p=1 Unknown"]);
        assert_eq!(shown(&all[1]), ["x F h/a//x Unknown"]);
    }
}
