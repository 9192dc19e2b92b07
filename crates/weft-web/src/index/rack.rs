//! Rack: the table of its `Rack::Directory` (of version 2.2). Sizes are rounded, times are exact.

use percent_encoding::percent_decode_str;
use weft_remote::Figure;

use super::markup::{decode_entities, size};
use super::{Index, Item, plack};
use crate::name::{encode_segment, name_of};

/// Reads the table: a row is a name, a size, a media type or `directory`, and a time.
pub(super) fn read(page: &str) -> Option<Index> {
    let rows = plack::rows(page)?.filter(|row| !row.contains("..&#x2F;'>Parent Directory</a>"));
    Some(Index { server: "Rack", items: rows.map(item).collect::<Option<_>>()? })
}

/// Where a link leads depends on the version, and is the wrong place in some (`.//a/b` in the directory `/a/`, as of 2.2.22), but
/// its end is the name, in which a `?` is not escaped.
fn item(row: &str) -> Option<Item> {
    let (href, row) = row.strip_prefix("<a href='")?.split_once("'>")?;
    let (text, row) = row.split_once("</a></td><td class='size'>")?;
    let (bytes, row) = row.split_once("</td><td class='type'>")?;
    let (kind, row) = row.split_once("</td><td class='mtime'>")?;
    let is_dir = kind == "directory";
    let (href, text) = (decode_entities(href), decode_entities(text));
    let bare = |text: &str| if is_dir { text.strip_suffix('/').map(str::to_owned) } else { Some(text.to_owned()) };
    let (href, name) = (bare(&href)?, bare(&text)?);
    let end = percent_decode_str(href.rsplit('/').next()?);
    if name.is_empty() || !href.starts_with("./") || !end.eq(name.bytes()) || name.contains(char::REPLACEMENT_CHARACTER)
    {
        return None;
    }
    let segment = encode_segment(name.as_bytes());
    name_of(&segment, None)?;
    let bytes = match is_dir {
        true => Figure::Unknown,
        false => size(bytes.strip_suffix('B').unwrap_or(bytes))?,
    };
    let modified = Figure::Exact(httpdate::parse_http_date(row.split_once("</td>")?.0).ok()?);
    Some(Item { segment, is_dir, size: bytes, modified })
}
