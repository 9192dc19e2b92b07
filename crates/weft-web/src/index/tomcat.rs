//! Tomcat: the table of its DefaultServlet and WebdavServlet (of versions 7 to 11). Sizes are rounded, times are exact.

use weft_remote::Figure;

use super::markup::Siblings;
use super::{Index, Item, markup};

/// Reads the table: a row is a name, a size in KiB (`kb` before version 10; nothing for a directory), and a time.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<title>Directory Listing For ")?;
    let (_, table) = after.split_once("<h1>Directory Listing For ")?.1.split_once("<table width=\"100%\"")?;
    let (table, _) = table.split_once("</table>")?;
    let mut siblings = Siblings::default();
    let mut items = Vec::new();
    // The first row has the headings.
    for row in table.split("<tr").skip(2) {
        let cells: Vec<&str> = row.split("<td").skip(1).collect();
        let [name, size, time] = cells.as_slice() else { return None };
        let (href, name) = name.split_once("<a href=\"")?.1.split_once("\"><tt>")?;
        let (segment, is_dir) = siblings.own_segment(href, name.split_once("</tt></a>")?.0)?;
        let size = match typed(size)?.trim_start_matches("&nbsp;") {
            "" if is_dir => Figure::Unknown,
            size => in_kib(size)?,
        };
        let modified = Figure::Exact(httpdate::parse_http_date(typed(time)?).ok()?);
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "Tomcat", items })
}

fn typed(cell: &str) -> Option<&str> {
    Some(cell.split_once("<tt>")?.1.split_once("</tt>")?.0)
}

fn in_kib(text: &str) -> Option<Figure<u64>> {
    let number = text.strip_suffix(" KiB").or_else(|| text.strip_suffix(" kb"))?;
    match markup::size(&format!("{number}K"))? {
        Figure::Rounded(size) => Some(Figure::Rounded(size)),
        Figure::Exact(_) | Figure::Unknown => None,
    }
}
