//! Undertow, and WildFly, which is made of it: the table of its ResourceHandler (of version 2.3). Times are of the server's own clock,
//! so that they tell no moment. So no size counts as exact, though those below 1024 bytes are: a file that is looked at is asked
//! for, and its time comes with that.

use weft_remote::Figure;

use super::{Index, Item, markup};
use crate::name::{encode_segment, name_of};

/// Reads the table: a row is a name, a time and a size.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("Directory Listing - ")?;
    let (_, list) = after.split_once("Powered by Undertow</th></tr>\n</tfoot>\n<tbody>\n")?;
    let (list, _) = list.rsplit_once("</tbody>\n</table>")?;
    let (mut dir, mut items) = (None, Vec::new());
    for row in list.split("<td><a class='icon ").skip(1) {
        let (kind, row) = row.split_once("' href='")?;
        let (link, facts) = row.split_once("</a></td><td>")?;
        let is_dir = match kind {
            "up" => continue,
            "dir" => true,
            "file" => false,
            _ => return None,
        };
        let (above, name) = name_in(link, is_dir)?;
        if *dir.get_or_insert(above) != above {
            return None;
        }
        let segment = encode_segment(name.as_bytes());
        name_of(&segment, None)?;
        let (_, size) = facts.split_once("</td><td>")?;
        let size = match size.split_once("</td>")?.0 {
            "--" if is_dir => Figure::Unknown,
            // A link that leads nowhere, perhaps.
            "???" => Figure::Unknown,
            size => in_bytes(size)?,
        };
        items.push(Item { segment, is_dir, size, modified: Figure::Unknown });
    }
    Some(Index { server: "Undertow", items })
}

/// The directory and the name in `/dir/name'>name`, with a slash behind the first name of a directory. Neither is escaped in any
/// way, so that only both together tell where a name ends.
fn name_in(link: &str, is_dir: bool) -> Option<(&str, &str)> {
    let ends = link.match_indices("'>");
    let pairs = ends.map(|(at, end)| (&link[..at], &link[at + end.len()..]));
    let mut named = pairs.filter_map(|(path, name)| {
        let path = if is_dir { path.strip_suffix('/')? } else { path };
        let dir = path.strip_suffix(name)?.strip_suffix('/')?;
        let is_name = !name.is_empty() && !name.contains(['/', char::REPLACEMENT_CHARACTER]);
        is_name.then_some((dir, name))
    });
    named.next()
}

/// `12`, `1.46 KB`. Neither counts as exact.
fn in_bytes(text: &str) -> Option<Figure<u64>> {
    let Some((number, unit)) = text.split_once(' ') else {
        return Some(Figure::Rounded(markup::size(text)?.exact()?));
    };
    let is_unit = matches!(unit, "KB" | "MB" | "GB" | "TB");
    is_unit.then(|| markup::size(&format!("{number}{}", &unit[..1])))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_it_is_said_twice() {
        assert_eq!(name_in("/a/b#1/'>b#1", true), Some(("/a", "b#1")));
        assert_eq!(name_in("/a'>b'>a'>b", false), Some(("", "a'>b")));
        assert_eq!(name_in("/a%20b'>a%20b", false), Some(("", "a%20b")));
        for (link, is_dir) in
            [("/a%20b'>a b", false), ("/a/'>a", false), ("/a'>a", true), ("a'>a", false), ("/'>", false)]
        {
            assert_eq!(name_in(link, is_dir), None, "{link}");
        }
    }
}
