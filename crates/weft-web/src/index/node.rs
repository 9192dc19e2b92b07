//! Servers in Node.js: http-server (as of version 14.1), ecstatic (as of version 2.2), which http-server listed directories with
//! before version 13, serve (as of version 14.2) and serve-index (as of version 1.9), which Express and others list them with.

use weft_remote::Figure;

use super::markup::decode_entities;
use super::{Index, Item, markup, moment};
use crate::name::{encode_segment, name_of};

/// Reads http-server's table. Times are of the server's own clock, to the minute; sizes are rounded from 1 KiB on.
pub(super) fn read_http_server(page: &str) -> Option<Index> {
    let mut items = Vec::new();
    for row in rows_of(page, "http-server")? {
        let cell = |class| cell(row, class);
        let anchor = markup::Anchor::first(cell("display-name")?)?;
        if anchor.href == "./../" {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        if cell("perms")? == "<code>(???!!!???)</code>" {
            // A symbolic link to nothing, or a name that Node.js cannot read: nothing is served by it.
            continue;
        }
        let size = cell("file-size")?.strip_prefix("<code>")?.strip_suffix("</code>")?;
        let size = if is_dir { Figure::Unknown } else { size_of(size)? };
        let modified = Figure::Rounded(moment::parse(cell("last-modified")?)?);
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "http-server", items })
}

/// Reads ecstatic's table, which tells no times: exact sizes alone would do for whoever looks at a file, and show none. Links are
/// whole paths.
pub(super) fn read_ecstatic(page: &str) -> Option<Index> {
    let mut siblings = markup::Siblings::default();
    let mut items = Vec::new();
    for row in rows_of(page, "ecstatic")? {
        let link = cell(row, "display-name")?.strip_prefix("<a href=\"")?.strip_suffix("</a>")?;
        let (href, text) = link.split_once("\">")?;
        let size = cell(row, "file-size")?.strip_prefix("<code>")?.strip_suffix("</code>")?;
        // The directory above; a symbolic link to nothing, or a name that Node.js cannot read: nothing is served by it.
        if text == "../" || matches!(size, "??k" | "undefinedB") {
            continue;
        }
        let (segment, is_dir) = siblings.own_segment(href, text)?;
        let size = if is_dir { Figure::Unknown } else { Figure::Rounded(size_of(size)?.known()?) };
        items.push(Item { segment, is_dir, size, modified: Figure::Unknown });
    }
    Some(Index { server: "ecstatic", items })
}

/// The rows of the table that http-server and ecstatic print, each signed by its name.
fn rows_of<'a>(page: &'a str, server: &str) -> Option<impl Iterator<Item = &'a str>> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let (list, end) = after.trim_start().strip_prefix("<table>")?.split_once("</table>")?;
    let signed = end.contains(&format!(">{server}</a> server running @"));
    (title.starts_with("Index of ") && signed).then(|| list.split("<tr>").skip(1))
}

fn cell<'a>(row: &'a str, class: &str) -> Option<&'a str> {
    Some(row.split_once(&format!("<td class=\"{class}\">"))?.1.split_once("</td>")?.0)
}

/// Reads the list of `serve`, which tells names only. Its links are not escaped: the name stands beside them.
pub(super) fn read_serve(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<title>Files within ")?;
    let (list, end) = after.split_once("<ul id=\"files\">")?.1.split_once("</ul>")?;
    if !end.starts_with("</main>") {
        return None;
    }
    let mut items = Vec::new();
    for row in list.split("<li>").skip(1) {
        let link = row.trim_start().strip_prefix("<a href=\"")?;
        let (href, link) = link.split_once("\" title=\"")?;
        let (name, link) = link.split_once("\" class=\"")?;
        let is_dir = match link.split_once('"')?.0.split(' ').next()? {
            "directory" => continue,
            "folder" => true,
            "file" => false,
            _ => return None,
        };
        let (href, name) = (decode_entities(href), decode_entities(name));
        if !href.strip_suffix(&name)?.ends_with('/') {
            return None;
        }
        let name = if is_dir { name.strip_suffix('/')? } else { &name };
        let segment = encode_segment(name.as_bytes());
        name_of(&segment, None)?;
        if name.is_empty() || name.contains('/') {
            return None;
        }
        items.push(Item { segment, is_dir, size: Figure::Unknown, modified: Figure::Unknown });
    }
    Some(Index { server: "serve", items })
}

/// Reads the list of serve-index. Its links to directories have no slash: what has a time and no size is one. Times are in the
/// server's own zone and as its country writes them, so that they tell nothing; exact sizes alone would do for whoever looks
/// at a file, and show no time.
pub(super) fn read_serve_index(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<title>listing directory ")?;
    let (list, _) = after.split_once("<ul id=\"files\" class=\"view-")?.1.split_once("</ul>")?;
    let mut siblings = markup::Siblings::default();
    let mut items = Vec::new();
    for row in list.split("<li><a href=\"").skip(1) {
        let (href, row) = row.split_once("\" class=\"")?;
        let (title, row) = row.split_once("\" title=\"")?.1.split_once("\"><span class=\"name\">")?;
        let (name, row) = row.split_once("</span><span class=\"size\">")?;
        let (size, row) = row.split_once("</span><span class=\"date\">")?;
        let (time, end) = row.split_once("</span>")?;
        if title != name || !end.starts_with("</a></li>") {
            return None;
        }
        let is_dir = match (size, time) {
            // The directory above, and a symbolic link to nothing, which nothing is served by.
            ("", "") => continue,
            (size, _) => size.is_empty(),
        };
        let (segment, _) = siblings.own_segment(href, name)?;
        let size = if is_dir { Figure::Unknown } else { Figure::Rounded(markup::size(size)?.exact()?) };
        items.push(Item { segment, is_dir, size, modified: Figure::Unknown });
    }
    Some(Index { server: "serve-index", items })
}

/// `23B` is exact, `300.0k` is rounded, in steps of 1024.
fn size_of(text: &str) -> Option<Figure<u64>> {
    match text.strip_suffix('B') {
        Some(bytes) => Some(Figure::Exact(bytes.parse().ok()?)),
        None => markup::size(&text.replace('k', "K")).filter(|size| size.exact().is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{may_be_html, read_html};
    use super::*;

    fn facts(page: &str) -> Vec<(String, bool, Figure<u64>)> {
        assert!(may_be_html(page.as_bytes(), None));
        let index = read_html(page.as_bytes()).unwrap();
        index.items.into_iter().map(|item| (item.segment, item.is_dir, item.size)).collect()
    }

    #[test]
    fn http_server_tells_sizes_and_times() {
        let row = |perms: &str, time: &str, size: &str, href: &str, text: &str| {
            format!(
                "<tr><td><i class=\"icon icon-_page\"></i></td><td class=\"perms\"><code>({perms})</code></td>\
                 <td class=\"last-modified\">{time}</td><td class=\"file-size\"><code>{size}</code></td>\
                 <td class=\"display-name\"><a href=\"{href}\">{text}</a></td></tr>\n"
            )
        };
        let rows = [
            row("drwxr-xr-x", "14-Sep-2020 06:30", "", "./../", "../"),
            row("drwxr-xr-x", "14-Sep-2020 06:30", "", "./sub/", "sub/"),
            row("-rw-r--r--", "13-Sep-2020 21:37", "20B", "./quo%22te", "quo&#x22;te"),
            row("-rw-r--r--", "14-Sep-2020 03:44", "300.0k", "./big", "big"),
            row("???!!!???", "aN-Invalid Date-NaN aN:aN", "??k", "./dangling", "dangling"),
        ];
        let page = format!(
            "<!doctype html>\n<title>Index of /d/</title>\n<h1>Index of /d/</h1>\n<table>{}</table>\n<br><address>Node.js \
             <a href=\"https://github.com/http-party/http-server\">http-server</a> server running @ h</address>",
            rows.concat()
        );
        assert_eq!(
            facts(&page),
            [
                ("sub".to_owned(), true, Figure::Unknown),
                ("quo%22te".to_owned(), false, Figure::Exact(20)),
                ("big".to_owned(), false, Figure::Rounded(300 << 10)),
            ]
        );
        assert_eq!(read_http_server(&page.replace("20B", "20")), None);
        assert_eq!(read_http_server(&page.replace("\"./big\"", "\"./other\"")), None);
    }

    /// Goal: old lists of http-server are read. Method: rows as ecstatic 2.2, 3.3 and 4.1 print them, one of each kind.
    #[test]
    fn ecstatic_tells_sizes() {
        let row = |perms: &str, size: &str, href: &str, text: &str| {
            format!(
                "<tr><td><i class=\"icon icon-_page\"></i></td><td class=\"perms\"><code>({perms})</code></td>\
                 <td class=\"file-size\"><code>{size}</code></td>\
                 <td class=\"display-name\"><a href=\"{href}\">{text}</a></td></tr>\n"
            )
        };
        let rows = [
            row("drwxr-xr-x", "", "/d/../", "../"),
            row("drwxr-xr-x", "", "/d/sub/", "sub/"),
            row("-rw-r--r--", "20B", "/d/q%22uo'%3Cte%3E%26%3B.txt", "q&#x22;uo&#x27;&#x3C;te&#x3E;&#x26;;.txt"),
            row("-rw-r--r--", "300.0k", "/d/a%3Ab", "a:b"),
            row("???!!!???", "??k", "/d/dangling", "dangling"),
        ];
        let page = format!(
            "<!doctype html>\n<title>Index of /d/</title>\n<h1>Index of /d/</h1>\n<table>{}</table>\n<br><address>Node.js \
             v20.20.2/ <a href=\"https://github.com/jfhbrook/node-ecstatic\">ecstatic</a> server running @ h</address>",
            rows.concat()
        );
        assert_eq!(
            facts(&page),
            [
                ("sub".to_owned(), true, Figure::Unknown),
                ("q%22uo'%3Cte%3E&%3B.txt".to_owned(), false, Figure::Rounded(20)),
                ("a:b".to_owned(), false, Figure::Rounded(300 << 10)),
            ]
        );
        for (from, to) in [("20B", "20"), ("/d/a%3Ab", "/e/a%3Ab"), ("/d/sub/", "//sub/"), (">ecstatic<", ">other<")] {
            assert!(page.contains(from));
            assert_eq!(read_ecstatic(&page.replace(from, to)), None, "{from}");
        }
    }

    #[test]
    fn serve_tells_names_that_its_links_do_not_escape() {
        let page = "<!DOCTYPE html> <html> <head> <title>Files within tree&#47;d&#47;</title></head><body> <main> \
            <ul id=\"files\">  <li> <a href=\"&#47;\" title=\"&#47;\" class=\"directory \">..</a> </li>  \
            <li> <a href=\"&#47;d&#47;%41 b?c.txt\" title=\"%41 b?c.txt\" class=\"file txt\">%41 b?c.txt</a> </li>  \
            <li> <a href=\"&#47;d&#47;sub&#47;\" title=\"sub&#47;\" class=\"folder \">sub&#47;</a> </li>  \
            </ul></main> </body></html>";
        let names = [("%2541%20b%3Fc.txt".to_owned(), false), ("sub".to_owned(), true)];
        assert_eq!(facts(page), names.map(|(name, is_dir)| (name, is_dir, Figure::Unknown)));
        for (from, to) in [("title=\"sub&#47;\"", "title=\"other&#47;\""), ("</main>", ""), ("\"file txt\"", "\"x\"")] {
            assert_eq!(read_serve(&page.replacen(from, to, 1)), None, "{from}");
        }
    }

    /// Goal: what the links leave open, the sizes tell. Method: rows as serve-index prints them, one of each kind.
    #[test]
    fn serve_index_tells_directories_by_their_having_no_size() {
        let row = |href: &str, name: &str, size: &str, time: &str| {
            format!(
                "<li><a href=\"{href}\" class=\"icon\" title=\"{name}\"><span class=\"name\">{name}</span>\
                 <span class=\"size\">{size}</span><span class=\"date\">{time}</span></a></li>\n"
            )
        };
        let time = "2/3/2024 4:05:06 AM";
        let rows = [
            row("/", "..", "", ""),
            row("/d/sub%20dir", "sub dir", "", time),
            row("/d/apos&#39;s%3A.txt", "apos&#39;s:.txt", "0", time),
            row("/d/big", "big", "3000000", time),
            row("/d/dangling", "dangling", "", ""),
        ];
        let header = "<li class=\"header\"><span class=\"name\">Name</span><span class=\"size\">Size</span></li>";
        let page = format!(
            "<!DOCTYPE html>\n<html>\n  <head>\n    <title>listing directory /d/</title></head>\n<body class=\"directory\">\
             <h1><a href=\"/\">~</a> / <a href=\"/d\">d</a> / </h1>\n<ul id=\"files\" class=\"view-details\">{header}{}</ul>",
            rows.concat()
        );
        assert_eq!(
            facts(&page),
            [
                ("sub%20dir".to_owned(), true, Figure::Unknown),
                ("apos's:.txt".to_owned(), false, Figure::Rounded(0)),
                ("big".to_owned(), false, Figure::Rounded(3_000_000)),
            ]
        );
        for (from, to) in [("3000000", "3 MB"), ("\"/d/big\"", "\"/e/big\""), ("title=\"big\"", "title=\"bag\"")] {
            assert_eq!(read_serve_index(&page.replacen(from, to, 1)), None, "{from}");
        }
    }
}
