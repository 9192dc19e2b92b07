//! miniserve: the table of its page (as of version 0.35).

use weft_remote::Figure;

use super::markup::Siblings;
use super::{Index, Item, markup, moment};

/// Reads the table; sizes are exact with `--show-exact-bytes`, else above 1023 bytes rounded.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<table><thead><th class=\"name\">")?;
    let (list, _) = after.split_once("<tbody>")?.1.split_once("</tbody>")?;
    let mut siblings = Siblings::default();
    let mut items = Vec::new();
    for row in list.split("<tr").skip(1) {
        if row.contains("<a class=\"root\" href=\"") {
            continue;
        }
        let is_dir = match row.strip_prefix(" class=\"entry-type-")?.split_once('"')?.0 {
            "directory" => true,
            "file" => false,
            _ => return None,
        };
        let link = row.split_once("<td><p><a class=\"")?.1.split_once(" href=\"")?.1;
        let (href, text) = link.split_once("\">")?;
        // A symbolic link says behind its name where it leads.
        let (segment, _) = siblings.own_segment(href, text.split('<').next()?)?;
        let cell = |class: &str| {
            let (_, cell) = row.split_once(&format!("<td class=\"{class}\">"))?;
            cell.split("</td>").next()
        };
        let size = match cell("size-cell")? {
            "" => Figure::Unknown,
            text => size(text)?,
        };
        let time = cell("date-cell")?.strip_prefix("<span>").and_then(|cell| cell.split("</span>").next());
        let modified = time.map_or(Some(Figure::Unknown), |time| moment_of(time).map(Figure::Exact))?;
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "miniserve", items })
}

/// `6 B` is exact, `1.5 KiB` is rounded.
fn size(text: &str) -> Option<Figure<u64>> {
    let (number, unit) = text.trim().split_once(' ')?;
    match unit {
        "B" => Some(Figure::Exact(markup::size(number)?.exact()?)),
        unit => match markup::size(&format!("{number}{}", unit.strip_suffix("iB")?))? {
            Figure::Rounded(size) => Some(Figure::Rounded(size)),
            Figure::Exact(_) | Figure::Unknown => None,
        },
    }
}

/// `2024-02-03 05:05:06 +01:00`.
fn moment_of(text: &str) -> Option<std::time::SystemTime> {
    let mut words = text.split_whitespace();
    moment::parse_rfc3339(&format!("{}T{}{}", words.next()?, words.next()?, words.next()?))
}
