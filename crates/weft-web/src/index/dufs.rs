//! dufs: the page carries its list as JSON, in base64 (as of version 0.47) or as it is (before 0.40).

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use weft_remote::Figure;

use super::{Index, Item, markup};
use crate::name::{encode_segment, name_of};

/// Reads the list out of the page.
pub(super) fn read(page: &str) -> Option<Index> {
    if !page.contains("/__dufs_v") {
        return None;
    }
    match page.split_once("<template id=\"index-data\">") {
        Some((_, data)) => read_json(&decoded(data.split("</template>").next()?)?),
        None => read_json(page.split_once("DATA = ")?.1.lines().next()?.trim_end_matches(';').as_bytes()),
    }
}

fn read_json(data: &[u8]) -> Option<Index> {
    #[derive(Deserialize)]
    struct Data {
        kind: String,
        paths: Vec<Line>,
    }
    #[derive(Deserialize)]
    struct Line {
        path_type: Kind,
        name: String,
        /// In milliseconds since 1970.
        mtime: u64,
        /// In bytes; of a directory, how much is in it.
        size: Option<u64>,
    }
    #[derive(Deserialize)]
    enum Kind {
        Dir,
        SymlinkDir,
        File,
        SymlinkFile,
    }
    let data: Data = serde_json::from_slice(data).ok()?;
    if data.kind != "Index" {
        return None;
    }
    let mut items = Vec::with_capacity(data.paths.len());
    for line in data.paths {
        if line.name.is_empty() {
            // A name that is not UTF-8, by which dufs serves nothing.
            continue;
        }
        let segment = encode_segment(line.name.as_bytes());
        name_of(&segment, None)?;
        if line.name.contains('/') {
            return None;
        }
        let is_dir = match line.path_type {
            Kind::Dir | Kind::SymlinkDir => true,
            Kind::File | Kind::SymlinkFile => false,
        };
        let size = line.size.filter(|_| !is_dir).map_or(Figure::Unknown, markup::exact_size);
        // Whole seconds, as the file's own answer has them.
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(line.mtime / 1000));
        items.push(Item { segment, is_dir, size, modified: modified.map_or(Figure::Unknown, Figure::Exact) });
    }
    Some(Index { server: "dufs", items })
}

/// Base64 with its usual letters (RFC 4648 section 4).
fn decoded(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF).ok()?);
        }
    }
    Some(bytes)
}
