//! Caddy: `file_server browse`, the table of its default template.

use weft_remote::Figure;

use super::markup::{decode_entities, own_segment};
use super::{Index, Item, moment};

/// Reads the table; sizes of files stand in `data-order` (2.6) or `data-size` (later). What says below that it is Caddy's is a
/// word (2.6) or a picture (later).
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<table aria-describedby=\"summary\">")?;
    let (list, end) = after.split_once("</table>")?;
    if ![">Caddy</a>", "<svg class=\"caddy-logo\""].iter().any(|sign| end.contains(sign)) {
        return None;
    }
    let mut items = Vec::new();
    for row in list.split("<tr class=\"file\">").skip(1) {
        let row = row.split("</tr>").next()?;
        let (segment, is_dir) = own_segment(&decode_entities(&attribute(row, "href")?))?;
        if !row.contains("<span class=\"name\">") {
            return None;
        }
        let size = match is_dir {
            true => Figure::Unknown,
            false => {
                let size = attribute(row, "data-order").or_else(|| attribute(row, "data-size"))?;
                Figure::Exact(size.parse().ok()?)
            }
        };
        let modified = moment::parse_rfc3339(&attribute(row, "datetime")?)?;
        // Of a symbolic link it is the time of the link, not of what is read through it. An exact size alone would do for
        // whoever looks at the file, and show no time.
        // Since version 2.7 links whose names end as those of files of a known kind do not show.
        let is_link = ["<use xlink:href=\"#file-shortcut\">", " icon-tabler-file-symlink\""]
            .iter()
            .any(|icon| row.contains(icon));
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
        let icon = "<svg class=\"icon icon-tabler icon-tabler-file-symlink\" width=\"24\">";
        let later = row("later", "").replace("<svg><use xlink:href=\"#\"></use>", icon);
        assert!(later.contains("symlink"));
        let page = format!("<table aria-describedby=\"summary\">{link}{later}{file}</table><a>Caddy</a>");
        let items = read(&page).unwrap().items;
        for link in &items[..2] {
            assert_eq!((link.size, link.modified), (Figure::Rounded(6), Figure::Unknown));
        }
        assert!(matches!(items[2].modified, Figure::Exact(_)), "{:?}", items[2]);
    }

    #[test]
    fn later_versions_tell_no_size_of_a_directory_and_show_a_picture_below() {
        let row = |href: &str, size: &str| {
            format!(
                "<tr class=\"file\"><td></td><td><a href=\"./{href}\"><svg class=\"icon\"></svg>\
                 <span class=\"name\">{href}</span></a></td>{size}<td class=\"timestamp hideable\">\
                 <time datetime=\"2024-02-03T04:05:06Z\">02/03/2024 04:05:06 AM +00:00</time></td></tr>\n"
            )
        };
        let file = row("a.txt", "<td class=\"size\" data-size=\"6\"><div class=\"sizebar-text\">6 B</div></td>");
        let dir = row("sub/", "<td>&mdash;</td>");
        let page = format!(
            "<table aria-describedby=\"summary\"><tr><td><a href=\"..\">Up</a></td></tr>{dir}{file}</table>\
             <footer>Served with <a href=\"https://caddyserver.com\"><svg class=\"caddy-logo\"></svg></a></footer>"
        );
        let items = read(&page).unwrap().items;
        let facts: Vec<_> = items.iter().map(|item| (&item.segment[..], item.is_dir, item.size)).collect();
        assert_eq!(facts, [("sub", true, Figure::Unknown), ("a.txt", false, Figure::Exact(6))]);
        assert_eq!(read(&page.replace("caddy-logo", "logo")), None);
        assert_eq!(read(&page.replace("data-size", "data-x")), None);
    }
}
