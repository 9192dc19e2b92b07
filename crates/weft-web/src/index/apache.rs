//! Apache httpd: mod_autoindex as a table, as preformatted text, and as a plain list.

use std::time::SystemTime;

use weft_remote::Figure;

use super::{Index, Item, markup, moment};

/// Reads any of the three forms. What the administrator puts before and after the list is not looked at.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<title>")?;
    let (title, after) = after.split_once("</title>")?;
    if !title.starts_with("Index of ") || !page.trim_start().starts_with("<!DOCTYPE") {
        return None;
    }
    // The heading of a column is a link unless sorting is switched off.
    let is_headed = |list: &str| list.contains(">Name</a>") || list.contains(">Name</th>");
    let sorted = ["?C=N", "?C=M", "?C=S"].iter().any(|link| after.contains(link));
    let after = begin(title, after)?;
    let items = if let Some((_, list)) = after.split_once("<table").filter(|(_, list)| is_headed(list)) {
        table(list.split_once("</table>")?.0)?
    } else if let Some((_, list)) = after.split_once("<pre>").filter(|(_, list)| sorted || is_heading(list)) {
        preformatted(list.split_once("</pre>")?.0)?
    } else {
        let (_, list) = after.split_once("<ul>")?;
        plain(list.split_once("</ul>")?.0)?
    };
    Some(Index { server: "Apache", items })
}

/// The page from its list on, or from its heading. A `HeaderName` in HTML comes in place of the heading and may have tables of
/// its own; then the first link that sorts shows where the list is.
fn begin<'a>(title: &str, after: &'a str) -> Option<&'a str> {
    if let Some(link) = after.find(SORTS_BY_NAME)
        && let Some(list) = after[..link].rfind("<table").max(after[..link].rfind("<pre>"))
    {
        return Some(&after[list..]);
    }
    // With `IndexStyleSheet` the heading has an id.
    let heading = |open: &str| after.split_once(&format!("{open}{title}</h1>"));
    heading("<h1>").or_else(|| heading("<h1 id=\"indextitle\">")).map(|(_, after)| after)
}

/// Reads a table, of which every column but that of the names can be switched off.
fn table(list: &str) -> Option<Vec<Item>> {
    let mut rows = list.split("<tr").skip(1);
    let heading = rows.next()?;
    let headings: Vec<&str> = heading.split("<th").skip(1).collect();
    let column = |title: &str| headings.iter().position(|cell| is_titled(cell, title));
    let (name_at, time_at, size_at) = (column("Name")?, column("Last modified"), column("Size"));
    let mut items = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split("<td").skip(1).collect();
        if cells.is_empty() {
            continue;
        }
        let anchor = markup::Anchor::first(cells.get(name_at)?)?;
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let cell = |at: Option<usize>| Some(markup::cell_text(cells.get(at?)?));
        let time = cell(time_at).and_then(|text| moment::parse(&text));
        items.push(item(segment, is_dir, time, cell(size_at).as_deref()));
    }
    Some(items)
}

/// Reads preformatted text. A rule stands before the list and after it, or neither.
fn preformatted(list: &str) -> Option<Vec<Item>> {
    let (heading, rest) = list.split_once('\n').unwrap_or((list, ""));
    let (heading, lines) = match heading.split_once("<hr") {
        Some((heading, _)) => (heading, list.split_once("<hr")?.1.split_once('>')?.1),
        None => (heading, rest),
    };
    let (has_time, has_size) = (heading.contains("Last modified"), heading.contains("Size"));
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
        let time = match has_time {
            true => Some(moment::parse(&format!("{} {}", words.next()?, words.next()?))?),
            false => None,
        };
        // What follows is a description.
        items.push(item(segment, is_dir, time, words.next().filter(|_| has_size)));
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
        items.push(item(segment, is_dir, None, None));
    }
    Some(items)
}

/// Whether preformatted text begins with the headings of columns of which none is a link.
fn is_heading(list: &str) -> bool {
    list.split_whitespace().next() == Some("Name") || list.starts_with("<img") && list.contains("> Name ")
}

/// Whether the heading of a column says this, as a link or as it is.
fn is_titled(cell: &str, title: &str) -> bool {
    cell.contains(&format!(">{title}</a>")) || cell.contains(&format!(">{title}</th>"))
}

fn item(segment: String, is_dir: bool, time: Option<SystemTime>, size: Option<&str>) -> Item {
    let size = match (size.and_then(markup::size).unwrap_or(Figure::Unknown), time) {
        // An exact size alone would do for whoever looks at the file, and show no time.
        (Figure::Exact(size), None) => Figure::Rounded(size),
        (size, _) => size,
    };
    Item { segment, is_dir, size, modified: time.map_or(Figure::Unknown, Figure::Rounded) }
}

/// How the link begins that the heading of the names is.
const SORTS_BY_NAME: &str = "<a href=\"?C=N;O=";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the options of mod_autoindex leave out or add moves nothing into the place of something else. Method: a row
    /// of each kind as Apache 2.4.71 prints it under these options; the description of `a.txt` begins with a number.
    #[test]
    fn columns_rules_icons_and_sorting_can_be_switched_off() {
        let head = "<!DOCTYPE HTML>\n<title>Index of /</title>\n<h1>Index of /</h1>\n";
        for (options, list, has_time, has_size) in [
            (
                "SuppressRules IconsAreLinks",
                "<pre>      <a href=\"?C=N;O=D\">Name</a>  <a href=\"?C=M;O=A\">Last modified</a>  \
                 <a href=\"?C=S;O=A\">Size</a>  <a href=\"?C=D;O=A\">Description</a>\n\
                 <a href=\"a.txt\">     </a> <a href=\"a.txt\">a.txt</a>    2024-02-03 04:05    6   100 words\n\
                 <a href=\"sub/\">     </a> <a href=\"sub/\">sub/</a>      2024-02-03 04:05    -   \n</pre>",
                true,
                true,
            ),
            (
                "SuppressLastModified",
                "<pre>      <a href=\"?C=N;O=D\">Name</a>       <a href=\"?C=S;O=A\">Size</a>  \
                 <a href=\"?C=D;O=A\">Description</a><hr>      <a href=\"a.txt\">a.txt</a>           6   100 words\n      \
                 <a href=\"sub/\">sub/</a>            -   \n<hr></pre>",
                false,
                true,
            ),
            (
                "SuppressSize SuppressColumnSorting",
                "<pre>      Name      Last modified      Description<hr><img src=\"/i.gif\" alt=\"[   ]\"> \
                 <a href=\"a.txt\">a.txt</a>   2024-02-03 04:05  100 words\n<img src=\"/i.gif\" alt=\"[DIR]\"> \
                 <a href=\"sub/\">sub/</a>    2024-02-03 04:05  \n<hr></pre>",
                true,
                false,
            ),
            (
                "HTMLTable XHTML SuppressColumnSorting IconsAreLinks",
                "<table>\n<tr><th valign=\"top\">&nbsp;</th><th>Name</th><th>Last modified</th><th>Size</th>\
                 <th>Description</th></tr>\n<tr><th colspan=\"5\"><hr /></th></tr>\n\
                 <tr><td valign=\"top\"><a href=\"a.txt\">&nbsp;</a></td><td><a href=\"a.txt\">a.txt</a>    </td>\
                 <td align=\"right\">2024-02-03 04:05  </td><td align=\"right\">  6 </td><td>100 words</td></tr>\n\
                 <tr><td valign=\"top\"><a href=\"sub/\">&nbsp;</a></td><td><a href=\"sub/\">sub/</a>     </td>\
                 <td align=\"right\">2024-02-03 04:05  </td><td align=\"right\">  - </td><td>&nbsp;</td></tr>\n</table>",
                true,
                true,
            ),
            (
                "HTMLTable SuppressLastModified SuppressSize SuppressIcon",
                "<table>\n<tr><th><a href=\"?C=N;O=D\">Name</a></th><th><a href=\"?C=D;O=A\">Description</a></th></tr>\n\
                 <tr><th colspan=\"3\"><hr></th></tr>\n<tr><td><a href=\"a.txt\">a.txt</a>  </td><td>100</td></tr>\n\
                 <tr><td><a href=\"sub/\">sub/</a>  </td><td>&nbsp;</td></tr>\n</table>",
                false,
                false,
            ),
        ] {
            let items = read(&format!("{head}{list}\n</body></html>")).expect(options).items;
            let names: Vec<_> = items.iter().map(|item| (item.segment.as_str(), item.is_dir)).collect();
            assert_eq!(names, [("a.txt", false), ("sub", true)], "{options}");
            let size = match (has_size, has_time) {
                (true, true) => Figure::Exact(6),
                (true, false) => Figure::Rounded(6),
                (false, _) => Figure::Unknown,
            };
            let time = moment::parse("2024-02-03 04:05").unwrap();
            let modified = if has_time { Figure::Rounded(time) } else { Figure::Unknown };
            assert_eq!((items[0].size, items[0].modified), (size, modified), "{options}");
            assert_eq!(items[1].size, Figure::Unknown, "{options}");
        }
    }

    /// Goal: a page with words and a style of the administrator's own is read. Method: what Apache 2.4.71 prints with a
    /// `HeaderName` in HTML, which has a table and a list itself, and with `IndexStyleSheet`.
    #[test]
    fn what_stands_before_the_list_may_replace_its_heading() {
        let own = "<h2>A mirror</h2><table><tr><td>Name</td></tr></table><pre>x</pre><ul><li>y</ul>\n";
        let text = "<pre>      <a href=\"?C=N;O=D\">Name</a>  <a href=\"?C=M;O=A\">Last modified</a>      \
            <a href=\"?C=S;O=A\">Size</a><hr>      <a href=\"/\">Parent Directory</a>     -   \n      \
            <a href=\"a.txt\">a.txt</a>    2024-02-03 04:05    6   \n      <a href=\"sub/\">sub/</a>  2024-02-03 04:05    -   \n\
            <hr></pre>\n<table><tr><td>after</td></tr></table>";
        let row = |name: &str, size: &str| {
            format!(
                "   <tr class=\"even\"><td class=\"indexcolname\"><a href=\"{name}\">{name}</a></td>\
                 <td class=\"indexcollastmod\">2024-02-03 04:05  </td><td class=\"indexcolsize\">  {size} </td></tr>\n"
            )
        };
        let rows = row("a.txt", "6") + &row("sub/", "-");
        let styled = |name: &str, time: &str, size: &str| {
            format!(
                "  <h1 id=\"indextitle\">Index of /d</h1>\n  <table id=\"indexlist\">\n   <tr class=\"indexhead\">\
                 <th class=\"indexcolname\">{name}</th><th class=\"indexcollastmod\">{time}</th>\
                 <th class=\"indexcolsize\">{size}</th></tr>\n{rows}</table>"
            )
        };
        let links = ["?C=N;O=D\">Name", "?C=M;O=A\">Last modified", "?C=S;O=A\">Size"]
            .map(|link| format!("<a href=\"{link}</a>"));
        for list in
            [format!("{own}{text}"), styled(&links[0], &links[1], &links[2]), styled("Name", "Last modified", "Size")]
        {
            let page =
                format!("<!DOCTYPE HTML>\n<html>\n<title>Index of /d</title>\n</head>\n<body>\n{list}\n</body></html>");
            let items = read(&page).expect(&list).items;
            let facts: Vec<_> = items.iter().map(|item| (item.segment.as_str(), item.is_dir, item.size)).collect();
            assert_eq!(facts, [("a.txt", false, Figure::Exact(6)), ("sub", true, Figure::Unknown)], "{list}");
        }
        assert_eq!(read(&format!("<!DOCTYPE HTML>\n<title>Index of /d</title>\n{own}")), None);
    }

    #[test]
    fn a_file_may_be_called_as_the_way_up_is() {
        let list = "<!DOCTYPE HTML>\n<title>Index of /d</title>\n<h1>Index of /d</h1>\n<ul>\
            <li><a href=\"/\"> Parent Directory</a></li>\n<li><a href=\"Parent%20Directory\"> Parent Directory</a></li>\n</ul>";
        let items = read(list).unwrap().items;
        assert_eq!(items.iter().map(|item| &item.segment[..]).collect::<Vec<_>>(), ["Parent%20Directory"]);
    }

    /// What Apache 2.4 prints with `NameWidth=12`.
    #[test]
    fn a_short_column_cuts_the_name_of_the_way_up() {
        let page = |up: &str| {
            format!(
                "<!DOCTYPE HTML>\n<title>Index of /d</title>\n<h1>Index of /d</h1>\n<pre>      <a href=\"?C=N;O=D\">Name</a>\
                 <a href=\"?C=M;O=A\">Last modified</a>      <a href=\"?C=S;O=A\">Size</a><hr>      <a href=\"/\">{up}</a>\
                 -   \n      <a href=\"a;jsessionid=1.txt\">a;jsessio..&gt;</a> 2023-11-14 22:13   26   \n<hr></pre>"
            )
        };
        let items = read(&page("Parent Di..&gt;")).unwrap().items;
        assert_eq!(items.iter().map(|item| &item.segment[..]).collect::<Vec<_>>(), ["a%3Bjsessionid=1.txt"]);
        for other in ["Other Dir..&gt;", "..&gt;"] {
            assert_eq!(read(&page(other)), None, "{other}");
        }
    }
}
