//! Plack: the table of its `App::Directory` (of version 1.0050). Sizes and times are exact.

use weft_remote::Figure;

use super::markup::Siblings;
use super::{Index, Item, markup};

/// Reads the table: a row is a name, a size in bytes, also of a directory, a media type, and a time.
pub(super) fn read(page: &str) -> Option<Index> {
    let mut siblings = Siblings::default();
    let mut items = Vec::new();
    for row in rows(page)? {
        let (href, row) = row.strip_prefix("<a href='")?.split_once("'>")?;
        let (text, row) = row.split_once("</a></td><td class='size'>")?;
        if href == "../" && text == "Parent Directory" {
            continue;
        }
        let (segment, is_dir) = siblings.own_segment(href, text)?;
        let (size, row) = row.split_once("</td><td class='type'>")?;
        let size = markup::size(size)?.exact()?;
        let size = if is_dir { Figure::Unknown } else { Figure::Exact(size) };
        let (_, time) = row.split_once("</td><td class='mtime'>")?;
        let modified = Figure::Exact(httpdate::parse_http_date(time.split_once("</td>")?.0).ok()?);
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "Plack", items })
}

/// The rows of a table that has a column of types, from the names on: Rack's has the same.
pub(super) fn rows(page: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, after) = markup::title_and_heading(page, "h1")?;
    let (head, list) = after.split_once(ROW)?;
    let (list, _) = list.split_once("</table>").filter(|_| head.contains("<th class='type'>Type</th>"))?;
    Some(list.split(ROW))
}

/// Before a name.
const ROW: &str = "<tr><td class='name'>";
