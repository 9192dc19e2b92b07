//! Python: http.server and aiohttp, which tell names only.

use weft_remote::Figure;

use super::{Index, Item, markup};

/// Reads the list that http.server prints.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let after = after.trim_start().strip_prefix("<hr>")?.trim_start();
    // Python's uploadserver says before the list where files can be sent to.
    let after = match after.strip_prefix("<!-- Injected by uploadserver -->") {
        Some(injected) => injected.split_once("<!-- End injection by uploadserver -->")?.1.trim_start(),
        None => after,
    };
    let (list, end) = after.strip_prefix("<ul>")?.split_once("</ul>")?;
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

/// Reads the list of aiohttp (`show_index`, as of version 3.14). Its links have no slash; the names of directories have.
pub(super) fn read_aiohttp(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let (list, end) = after.trim_start().strip_prefix("<ul>")?.split_once("</ul>")?;
    if !title.starts_with("Index of /") || !end.trim_start().starts_with("</body>") {
        return None;
    }
    let mut siblings = markup::Siblings::default();
    let mut items = Vec::new();
    let mut rows = list.split("<li>");
    if !rows.next()?.trim().is_empty() {
        return None;
    }
    for row in rows {
        let (href, row) = row.strip_prefix("<a href=\"")?.split_once("\">")?;
        let (name, end) = row.split_once("</a>")?;
        if end.trim_end() != "</li>" {
            return None;
        }
        let (segment, _) = siblings.own_segment(href, name)?;
        items.push(Item { segment, is_dir: name.ends_with('/'), size: Figure::Unknown, modified: Figure::Unknown });
    }
    Some(Index { server: "aiohttp", items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_uploadserver_says_before_the_list_is_no_part_of_it() {
        let page = "<!DOCTYPE HTML>\n<title>Directory listing for /</title>\n<!-- Injected by uploadserver -->\n</head>\n\
            <h1>Directory listing for /</h1>\n<hr>\n<!-- Injected by uploadserver -->\n<a href=\"/upload\">File Upload</a>\n\
            (provided by uploadserver, all files go to server root)\n<hr>\n<!-- End injection by uploadserver -->\n<ul>\n\
            <li><a href=\"a.txt\">a.txt</a></li>\n<li><a href=\"sub/\">sub/</a></li>\n</ul>\n<hr>\n</body>";
        let items = read(page).unwrap().items;
        let names: Vec<_> = items.iter().map(|item| (item.segment.as_str(), item.is_dir)).collect();
        assert_eq!(names, [("a.txt", false), ("sub", true)]);
    }

    #[test]
    fn aiohttp_tells_directories_by_their_names() {
        let page = "<html>\n<head>\n<title>Index of /.</title>\n</head>\n<body>\n<h1>Index of /.</h1>\n<ul>\n\
            <li><a href=\"/f/amp&%3Clt%3E.txt\">amp&amp;&lt;lt&gt;.txt</a></li>\n<li><a href=\"/f/a:b\">a:b</a></li>\n\
            <li><a href=\"/f/sub%20dir\">sub dir/</a></li>\n</ul>\n</body>\n</html>";
        let items = read_aiohttp(page).unwrap().items;
        let names: Vec<_> = items.iter().map(|item| (item.segment.as_str(), item.is_dir)).collect();
        assert_eq!(names, [("amp&%3Clt%3E.txt", false), ("a:b", false), ("sub%20dir", true)]);
        for (from, to) in [("/f/a:b", "/g/a:b"), (">a:b<", ">b<"), ("</ul>", "<li>more</ul>")] {
            assert_eq!(read_aiohttp(&page.replacen(from, to, 1)), None, "{from}");
        }
    }
}
