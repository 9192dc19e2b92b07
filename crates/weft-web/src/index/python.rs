//! Python: http.server, which tells names only.

use weft_remote::Figure;

use super::{Index, Item, markup};

/// Reads the list that http.server prints.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let (list, end) =
        after.trim_start().strip_prefix("<hr>")?.trim_start().strip_prefix("<ul>")?.split_once("</ul>")?;
    if !title.starts_with("Directory listing for ") || !end.trim_start().starts_with("<hr>") {
        return None;
    }
    let mut items = Vec::new();
    // Names may hold line ends, so lines are no help.
    let mut lines = list.split("<li>");
    if !lines.next()?.trim().is_empty() {
        return None;
    }
    for line in lines {
        let anchor = markup::Anchor::first(line).filter(|_| line.starts_with("<a href=\""))?;
        if anchor.rest.trim_end() != "</li>" {
            return None;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        items.push(Item { segment, is_dir, size: Figure::Unknown, modified: Figure::Unknown });
    }
    Some(Index { server: "Python", items })
}
