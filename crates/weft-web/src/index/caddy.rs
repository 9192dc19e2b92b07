//! Caddy: `file_server browse`, the table of its default template.

use weft_remote::Figure;

use super::markup::{decode_entities, own_segment};
use super::{Index, Item, moment};

/// Reads the table; sizes stand in `data-order` (2.6) or `data-size` (later).
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<table aria-describedby=\"summary\">")?;
    let (list, end) = after.split_once("</table>")?;
    if !end.contains(">Caddy</a>") {
        return None;
    }
    let mut items = Vec::new();
    for row in list.split("<tr class=\"file\">").skip(1) {
        let row = row.split("</tr>").next()?;
        let (segment, is_dir) = own_segment(&decode_entities(&attribute(row, "href")?))?;
        if !row.contains("<span class=\"name\">") {
            return None;
        }
        let size = attribute(row, "data-order").or_else(|| attribute(row, "data-size"))?;
        let size = if is_dir { Figure::Unknown } else { Figure::Exact(size.parse().ok()?) };
        let modified = Figure::Exact(moment::parse_rfc3339(&attribute(row, "datetime")?)?);
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "Caddy", items })
}

fn attribute(row: &str, name: &str) -> Option<String> {
    let (_, after) = row.split_once(&format!("{name}=\""))?;
    Some(after.split_once('"')?.0.to_owned())
}
