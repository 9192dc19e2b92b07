//! lighttpd: mod_dirlisting.

use weft_remote::Figure;

use super::{Index, Item, markup, moment};

/// Reads the table that mod_dirlisting prints.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h2")?;
    let (_, table) = after.split_once("<div class=\"list\">")?;
    let (list, _) = table.split_once("<tbody>")?.1.split_once("</tbody>")?;
    if !title.starts_with("Index of ") || !table.trim_start().starts_with("<table summary=\"Directory Listing\"") {
        return None;
    }
    let mut items = Vec::new();
    for row in list.split("<tr").skip(1) {
        let cells: Vec<&str> = row.split("<td").skip(1).collect();
        let [name, time, size, _kind] = cells.as_slice() else { return None };
        let anchor = markup::Anchor::first(name)?;
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let modified = Figure::Rounded(moment::parse(&markup::cell_text(time))?);
        items.push(Item { segment, is_dir, size: markup::size(&markup::cell_text(size))?, modified });
    }
    Some(Index { server: "lighttpd", items })
}
