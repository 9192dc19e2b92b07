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
        let modified = moment::parse_rfc3339(&attribute(row, "datetime")?)?;
        // Of a symbolic link it is the time of the link, not of what is read through it. An exact size alone would do for
        // whoever looks at the file, and show no time.
        let is_link = row.contains("<use xlink:href=\"#file-shortcut\">");
        let (size, modified) = match (is_link, size) {
            (true, Figure::Exact(size)) => (Figure::Rounded(size), Figure::Unknown),
            (true, size) => (size, Figure::Unknown),
            (false, size) => (size, Figure::Exact(modified)),
        };
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "Caddy", items })
}

fn attribute(row: &str, name: &str) -> Option<String> {
    let (_, after) = row.split_once(&format!("{name}=\""))?;
    Some(after.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbolic_link_is_as_old_as_what_it_leads_to() {
        let row = |name: &str, icon: &str| {
            format!(
                "<tr class=\"file\"><a href=\"./{name}\"><svg><use xlink:href=\"#{icon}\"></use></svg>\
                 <span class=\"name\">{name}</span></a><td data-order=\"6\">6 B</td>\
                 <time datetime=\"2024-02-03T04:05:06Z\"></time></tr>"
            )
        };
        let (link, file) = (row("link", "file-shortcut"), row("a-shortcut", "file"));
        let page = format!("<table aria-describedby=\"summary\">{link}{file}</table><a>Caddy</a>");
        let items = read(&page).unwrap().items;
        assert_eq!((items[0].size, items[0].modified), (Figure::Rounded(6), Figure::Unknown));
        assert!(matches!(items[1].modified, Figure::Exact(_)), "{:?}", items[1]);
    }
}
