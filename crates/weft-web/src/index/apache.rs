//! Apache httpd: mod_autoindex as a table, as preformatted text, and as a plain list.

use weft_remote::Figure;

use super::{Index, Item, markup, moment};

/// Reads any of the three forms. What the administrator puts before and after the list is not looked at.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    if !title.starts_with("Index of ") || !page.trim_start().starts_with("<!DOCTYPE") {
        return None;
    }
    let sorted = ["?C=N", "?C=M", "?C=S"].iter().any(|link| after.contains(link));
    let items = if let Some((_, list)) = after.split_once("<table").filter(|_| sorted) {
        table(list.split_once("</table>")?.0)?
    } else if let Some((_, list)) = after.split_once("<pre>").filter(|_| sorted) {
        preformatted(list.split_once("</pre>")?.0)?
    } else {
        let (_, list) = after.split_once("<ul>")?;
        plain(list.split_once("</ul>")?.0)?
    };
    Some(Index { server: "Apache", items })
}

fn table(list: &str) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    for row in list.split("<tr").skip(1) {
        let cells: Vec<&str> = row.split("<td").skip(1).collect();
        if cells.is_empty() {
            continue;
        }
        let at = cells.iter().position(|cell| markup::Anchor::first(cell).is_some())?;
        let anchor = markup::Anchor::first(cells[at])?;
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        // Columns can be switched off.
        let time = cells.get(at + 1).and_then(|cell| moment::parse(&markup::cell_text(cell)));
        let size = cells.get(at + 2).and_then(|cell| markup::size(&markup::cell_text(cell)));
        items.push(Item {
            segment,
            is_dir,
            size: size.unwrap_or(Figure::Unknown),
            modified: time.map_or(Figure::Unknown, Figure::Rounded),
        });
    }
    Some(items)
}

fn preformatted(list: &str) -> Option<Vec<Item>> {
    let (_, lines) = list.split_once("<hr")?;
    let lines = lines.split_once('>')?.1;
    let mut items = Vec::new();
    // Names may hold line ends: an entry ends at the first one behind its link.
    let mut rest = lines.trim_start();
    while !rest.is_empty() && !rest.starts_with("<hr") {
        let icon_or_link = rest.starts_with("<img") || rest.starts_with("<a href=\"");
        let anchor = markup::Anchor::first(rest).filter(|_| icon_or_link)?;
        let (facts, next) = anchor.rest.split_once('\n').unwrap_or((anchor.rest, ""));
        rest = next.trim_start();
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let mut words = facts.split_whitespace();
        let time = moment::parse(&format!("{} {}", words.next()?, words.next()?))?;
        let size = words.next().and_then(markup::size).unwrap_or(Figure::Unknown);
        items.push(Item { segment, is_dir, size, modified: Figure::Rounded(time) });
    }
    Some(items)
}

fn plain(list: &str) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    for line in list.split("<li>").skip(1) {
        let anchor = markup::Anchor::first(line).filter(|_| line.starts_with("<a href=\""))?;
        if anchor.rest.trim() != "</li>" {
            return None;
        }
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        items.push(Item { segment, is_dir, size: Figure::Unknown, modified: Figure::Unknown });
    }
    Some(items)
}
