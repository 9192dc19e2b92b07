//! Jetty: the table of its ResourceHandler and DefaultServlet (of versions 9.4 to 12). Sizes are exact. Times are of the
//! server's own clock in the form of its own language, so that they tell no moment.

use weft_remote::Figure;

use super::markup::Siblings;
use super::{Index, Item, markup};

/// Reads the table: a row is a name, a time, and a size in bytes, also for a directory.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<title>Directory: ")?;
    let (_, table) = after.split_once("<h1 class=\"title\">Directory: ")?.1.split_once("<table class=\"listing\">")?;
    let (list, _) = table.split_once("<tbody>")?.1.split_once("</tbody>")?;
    let mut siblings = Siblings::default();
    let mut items = Vec::new();
    for row in list.split("<tr>").skip(1) {
        let (href, row) = row.strip_prefix("<td class=\"name\"><a href=\"")?.split_once("\">")?;
        let (name, row) = row.split_once("</a></td>")?;
        if href.ends_with("/../") && name == "Parent Directory" {
            continue;
        }
        let (segment, is_dir) = siblings.own_segment(href, name.strip_suffix("&nbsp;")?)?;
        let (_, size) = row.split_once("<td class=\"size\">")?;
        let size = in_bytes(size.split_once(" bytes")?.0)?;
        let size = if is_dir { Figure::Unknown } else { size };
        items.push(Item { segment, is_dir, size, modified: Figure::Unknown });
    }
    Some(Index { server: "Jetty", items })
}

/// `3,000,000`, with what stands between thousands in the language of the server.
fn in_bytes(text: &str) -> Option<Figure<u64>> {
    let is_between = |c: char| matches!(c, ',' | '.' | '\'' | '\u{2019}' | '\u{a0}' | '\u{202f}');
    let (digits, others): (String, String) = text.chars().partition(char::is_ascii_digit);
    if digits.is_empty() || !others.chars().all(is_between) {
        return None;
    }
    Some(digits.parse().map_or(Figure::Unknown, markup::exact_size))
}
