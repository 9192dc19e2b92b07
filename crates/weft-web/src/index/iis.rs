//! IIS: directory browsing. Sizes are exact. Times are of the server's own clock in the form of its own language, so that
//! they tell no moment.

use weft_remote::Figure;

use super::markup::Siblings;
use super::{Index, Item, markup};

/// Reads the list that IIS prints: a row is a time, a size or `<dir>`, and a link.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("</H1><hr>")?;
    let (list, end) = after.trim_start().strip_prefix("<pre>")?.split_once("</pre>")?;
    if !end.trim_start().starts_with("<hr>") || !page.contains("<H1>") {
        return None;
    }
    let mut siblings = Siblings::default();
    let mut items = Vec::new();
    for row in list.split("<br>").filter(|row| !row.trim().is_empty()) {
        let (facts, link) = row.split_once("<A HREF=\"")?;
        let (href, text) = link.strip_suffix("</A>")?.split_once("\">")?;
        if text == "[To Parent Directory]" {
            continue;
        }
        let (segment, is_dir) = siblings.own_segment(href, text)?;
        let figure = facts.split_whitespace().last()?;
        let size = match figure {
            "&lt;dir&gt;" if is_dir => Figure::Unknown,
            digits => Figure::Exact(markup::size(digits)?.exact()?),
        };
        items.push(Item { segment, is_dir, size, modified: Figure::Unknown });
    }
    Some(Index { server: "IIS", items })
}
