//! nginx: autoindex in HTML (with exact and rounded sizes) and in JSON, and the table of the module fancyindex.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use weft_remote::Figure;

use super::{Index, Item, markup, moment};
use crate::name::{encode_segment, name_of};

/// Reads `autoindex on`.
pub(super) fn read(page: &str) -> Option<Index> {
    let (title, after) = markup::title_and_heading(page, "h1")?;
    let (list, _) = after.strip_prefix("<hr><pre>")?.split_once("</pre><hr></body>")?;
    if !title.starts_with("Index of ") {
        return None;
    }
    let mut items = Vec::new();
    // Names may hold line ends, so lines are no help: each entry ends at the first line end behind its link.
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let anchor = markup::Anchor::first(rest).filter(|_| rest.starts_with("<a href=\""))?;
        let (facts, next) = anchor.rest.split_once('\n').unwrap_or((anchor.rest, ""));
        rest = next;
        if anchor.is_parent() {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let (time, size) = facts.trim().rsplit_once(' ')?;
        // The page does not say which zone its clock is in.
        let modified = Figure::Rounded(moment::parse(time)?);
        items.push(Item { segment, is_dir, size: markup::size(size)?, modified });
    }
    Some(Index { server: "nginx", items })
}

/// Reads `fancyindex on`, without a header of the administrator's own.
pub(super) fn read_fancy(page: &str) -> Option<Index> {
    let (title, after) = page.split_once("<title>")?.1.split_once("</title>")?;
    let (heading, after) = after.split_once("<h1>")?.1.split_once("</h1>")?;
    let (_, list) = after.trim_start().strip_prefix("<table id=\"list\">")?.split_once("<tbody>")?;
    let (list, _) = list.split_once("</tbody></table>")?;
    // Not both are escaped.
    if !title.starts_with("Index of ") || markup::decode_entities(title) != markup::decode_entities(heading) {
        return None;
    }
    let mut items = Vec::new();
    for row in list.split("<tr>").skip(1) {
        let (link, facts) = row.strip_prefix("<td class=\"link\">")?.split_once("</td><td class=\"size\">")?;
        let (size, date) = facts.split_once("</td><td class=\"date\">")?;
        let mut anchor = markup::Anchor::first(link)?;
        // The name stands beside the address as well.
        anchor.href = anchor.href.split('"').next()?.to_owned();
        // With `fancyindex_show_dotfiles` the directory itself is one of its rows.
        if anchor.is_parent() || anchor.href == "./" {
            continue;
        }
        let (segment, is_dir) = anchor.own_segment()?;
        let modified = Figure::Rounded(moment::parse(date.split_once("</td>")?.0)?);
        let size = markup::size(size).or_else(|| fancy_size(size))?;
        items.push(Item { segment, is_dir, size, modified });
    }
    Some(Index { server: "nginx fancyindex", items })
}

/// `22 B` is exact, `300.0 KiB` is rounded.
fn fancy_size(text: &str) -> Option<Figure<u64>> {
    let (number, unit) = text.trim().split_once(' ')?;
    match unit {
        "B" => Some(Figure::Exact(number.parse().ok()?)),
        _ => markup::size(&format!("{number}{}", unit.strip_suffix("iB")?)).filter(|size| size.exact().is_none()),
    }
}

/// Reads `autoindex_format json`.
pub(super) fn read_json(body: &[u8]) -> Option<Index> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        name: RawName,
        #[serde(rename = "type")]
        kind: Kind,
        mtime: String,
        size: Option<u64>,
    }
    #[derive(Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Directory,
        File,
        Other,
    }
    let lines: Vec<Line> = serde_json::from_slice(body).ok()?;
    let mut items = Vec::new();
    for line in lines {
        let RawName(name) = line.name;
        let segment = encode_segment(&name);
        name_of(&segment, None)?;
        if name.is_empty() || name.contains(&b'/') {
            return None;
        }
        let modified = Figure::Exact(httpdate::parse_http_date(&line.mtime).ok()?);
        let size = line.size.map_or(Figure::Unknown, markup::exact_size);
        items.push(Item { segment, is_dir: line.kind == Kind::Directory, size, modified });
    }
    Some(Index { server: "nginx JSON", items })
}

/// A name as nginx writes it: the bytes that it has on the disk, be they UTF-8 or not (`ngx_escape_json`).
struct RawName(Vec<u8>);

impl<'de> Deserialize<'de> for RawName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawName, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = RawName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<RawName, E> {
                Ok(RawName(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fancyindex_tells_sizes_exactly_or_rounded() {
        let page = |small: &str, large: &str| {
            format!(
                "<!DOCTYPE html><html><head>\n<title>Index of /a&b/</title>\n</head><body><h1>Index of /a&amp;b/</h1>\n\
                 <table id=\"list\"><thead><tr><th><a href=\"?C=N&amp;O=A\">File Name</a></th></tr></thead>\n<tbody>\
                 <tr><td class=\"link\"><a href=\"../\">Parent directory/</a></td><td class=\"size\">-</td>\
                 <td class=\"date\">-</td></tr>\n<tr><td class=\"link\"><a href=\"./\" title=\".\">./</a></td>\
                 <td class=\"size\">-</td><td class=\"date\">2020-Oct-19 06:30</td></tr>\n\
                 <tr><td class=\"link\"><a href=\"../\" title=\"..\">../</a></td>\
                 <td class=\"size\">-</td><td class=\"date\">2020-Oct-19 06:30</td></tr>\n\
                 <tr><td class=\"link\"><a href=\"er/\" title=\"er\">er/</a></td>\
                 <td class=\"size\">-</td><td class=\"date\">2020-Oct-19 06:30</td></tr>\n\
                 <tr><td class=\"link\"><a href=\"quo%22te\" title=\"quo&quot;te\">quo&quot;te</a></td>\
                 <td class=\"size\">{small}</td><td class=\"date\">2020-Sep-13 21:37</td></tr>\n\
                 <tr><td class=\"link\"><a href=\"big\" title=\"big\">big</a></td>\
                 <td class=\"size\">{large}</td><td class=\"date\">2020-Sep-14 03:44</td></tr>\n\
                 </tbody></table></body></html>"
            )
        };
        for (small, large, size) in [
            ("20 B", "300.0 KiB", Figure::Rounded(300 << 10)),
            ("                 20", "             307200", Figure::Exact(300 << 10)),
        ] {
            let index = super::super::read_html(page(small, large).as_bytes()).unwrap();
            assert_eq!(index.server, "nginx fancyindex");
            let facts: Vec<_> = index.items.iter().map(|item| (&item.segment[..], item.is_dir, item.size)).collect();
            assert_eq!(
                facts,
                [("er", true, Figure::Unknown), ("quo%22te", false, Figure::Exact(20)), ("big", false, size)]
            );
            assert_eq!(index.items[2].modified, Figure::Rounded(moment::parse("14-Sep-2020 03:44").unwrap()));
        }
        assert_eq!(read_fancy(&page("twenty", "300.0 KiB")), None);
        assert_eq!(read_fancy(&page("20 B", "300.0 KiB").replace("a&amp;b", "c")), None);
    }
}
