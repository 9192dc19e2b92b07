//! nginx: autoindex in HTML (with exact and rounded sizes) and in JSON.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use weft_remote::Figure;

use super::{Index, Item, markup, moment};
use crate::name::{encode_segment, name_of};

/// Reads `autoindex on`.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let (list, _) = after.strip_prefix("<hr><pre>")?.split_once("</pre><hr></body>")?;
    if !title.starts_with("Index of ") {
        return None;
    }
    let mut items = Vec::new();
    // Names may hold line ends, so lines are no help: each entry ends at the first line end behind its link.
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let anchor = markup::Anchor::first(rest).filter(|_| rest.starts_with("<a href=\""))?;
        let (facts, next) = anchor.rest.split_once('\n').unwrap_or((anchor.rest, ""));
        rest = next;
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let (time, size) = facts.trim().rsplit_once(' ')?;
        // The page does not say which zone its clock is in.
        let modified = Figure::Rounded(moment::parse(time)?);
        items.push(Item { segment, is_dir, size: markup::size(size)?, modified });
    }
    Some(Index { server: "nginx", items })
}

/// Reads `autoindex_format json`.
pub(super) fn read_json(body: &[u8]) -> Option<Index> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        name: RawName,
        #[serde(rename = "type")]
        kind: Kind,
        mtime: String,
        size: Option<u64>,
    }
    #[derive(Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Directory,
        File,
        Other,
    }
    let lines: Vec<Line> = serde_json::from_slice(body).ok()?;
    let mut items = Vec::new();
    for line in lines {
        let RawName(name) = line.name;
        let segment = encode_segment(&name);
        name_of(&segment, None)?;
        if name.is_empty() || name.contains(&b'/') {
            return None;
        }
        let modified = Figure::Exact(httpdate::parse_http_date(&line.mtime).ok()?);
        let size = line.size.map_or(Figure::Unknown, markup::exact_size);
        items.push(Item { segment, is_dir: line.kind == Kind::Directory, size, modified });
    }
    Some(Index { server: "nginx JSON", items })
}

/// A name as nginx writes it: the bytes that it has on the disk, be they UTF-8 or not (`ngx_escape_json`).
struct RawName(Vec<u8>);

impl<'de> Deserialize<'de> for RawName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawName, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = RawName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<RawName, E> {
                Ok(RawName(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
