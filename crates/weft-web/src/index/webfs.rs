//! webfs: the list of webfsd (of version 1.21). Times are of the server's own clock, and to the day for what is older than half a year,
//! so that they tell no moment. So no size counts as exact, though those in bytes are: a file that is looked at is asked for, and
//! its time comes with that.

use percent_encoding::percent_decode_str;
use weft_remote::Figure;

use super::{Index, Item, markup};
use crate::name::{encode_segment, name_of};

/// Reads the list: a row is like one of `ls -l`, whose name is a link where the file can be read.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<h1>listing: ")?;
    let (_, list) = after.split_once("<b>access      user      group     date             size  name</b>\n")?;
    let (list, end) = list.rsplit_once("</pre><hr noshade")?;
    if !end.contains(">webfs/") {
        return None;
    }
    // A name may hold the end of a line.
    let rows = list.split("</a>\n").filter(|row| !row.trim().is_empty());
    let items = rows.filter(|row| !row.ends_with("<a href=\"../\">..")).map(item).collect::<Option<_>>()?;
    Some(Index { server: "webfs", items })
}

/// In the link a name is escaped as far as it must be, but for HTML; after it, it stands as it is.
fn item(row: &str) -> Option<Item> {
    let (facts, link) = row.split_once("<a href=\"")?;
    let (href, text) = link.split_once("\">")?;
    let (escaped, is_dir) = href.strip_suffix('/').map_or((href, false), |escaped| (escaped, true));
    let name: Vec<u8> = percent_decode_str(escaped).collect();
    let is_said = text == String::from_utf8_lossy(&name) || text.contains(char::REPLACEMENT_CHARACTER);
    if escaped.contains('/') || !is_said {
        return None;
    }
    let segment = encode_segment(&name);
    name_of(&segment, None)?;
    let mut words = facts.split_whitespace().rev();
    let size = match (words.next()?, is_dir) {
        ("&lt;DIR&gt;", true) => Figure::Unknown,
        ("B", false) => Figure::Rounded(markup::size(words.next()?)?.exact()?),
        (unit @ ("kB" | "MB" | "GB"), false) => {
            let unit = unit.to_ascii_uppercase();
            markup::size(&format!("{}{}", words.next()?, &unit[..1]))?
        }
        _ => return None,
    };
    Some(Item { segment, is_dir, size, modified: Figure::Unknown })
}
