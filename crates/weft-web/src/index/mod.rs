//! Index pages that servers generate for directories.
//!
//! Each reader knows one server's page by its own structure and reads all of it or nothing: a page that only looks
//! alike is an ordinary page.

mod apache;
mod caddy;
mod dufs;
mod iis;
mod jetty;
mod lighttpd;
mod markup;
mod miniserve;
mod moment;
mod nginx;
mod node;
mod plack;
mod python;
mod rack;
mod rclone;
mod tomcat;
mod undertow;
mod webfs;

use std::time::SystemTime;

use weft_remote::{Completeness, Figure};

pub(crate) use markup::{decode_entities, exact_size};
pub(crate) use moment::parse_rfc3339;

/// A directory as its server listed it.
#[derive(Debug, PartialEq)]
pub(crate) struct Index {
    /// Whose page it is, for people.
    pub server: &'static str,
    pub items: Vec<Item>,
}

impl Index {
    /// Whether the page has all names: nginx, Apache and lighttpd leave some out unless they are told otherwise, which the page
    /// does not show.
    pub(crate) fn completeness(&self) -> Completeness {
        match self.server {
            "Python" | "aiohttp" | "Caddy" | "rclone" => Completeness::Complete,
            _ => Completeness::CompleteButHidden,
        }
    }
}

/// One entry of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    /// The canonical segment.
    pub segment: String,
    pub is_dir: bool,
    pub size: Figure<u64>,
    pub modified: Figure<SystemTime>,
}

/// Whether the start of a page may be that of an index in HTML. Caddy's begins like any page; what gives it away is
/// the `Server` header.
pub(crate) fn may_be_html(head: &[u8], server: Option<&[u8]>) -> bool {
    let head = &head[..head.len().min(HEAD_BYTES)];
    let has = |needle: &[u8]| head.windows(needle.len()).any(|window| window == needle);
    SIGNS.iter().any(|sign| has(sign)) || server == Some(b"Caddy")
}

/// Reads a complete page in HTML.
pub(crate) fn read_html(page: &[u8]) -> Option<Index> {
    // Links are ASCII; what servers do to names in other encodings only touches the text beside them.
    let page = String::from_utf8_lossy(page);
    let readers: [fn(&str) -> Option<Index>; 21] = [
        nginx::read,
        nginx::read_fancy,
        apache::read,
        lighttpd::read,
        python::read,
        python::read_aiohttp,
        caddy::read,
        rclone::read,
        iis::read,
        tomcat::read,
        jetty::read,
        miniserve::read,
        dufs::read,
        node::read_http_server,
        node::read_ecstatic,
        node::read_serve,
        node::read_serve_index,
        plack::read,
        rack::read,
        undertow::read,
        webfs::read,
    ];
    readers.iter().find_map(|read| read(&page))
}

/// Reads a complete listing in JSON.
pub(crate) fn read_json(body: &[u8]) -> Option<Index> {
    nginx::read_json(body)
}

/// What stands in the beginning of an index: titles, the heading of IIS, what rclone tells a translator, the style sheets of
/// miniserve and dufs, the script of Undertow, the heading of webfs, the style sheet of Rack.
const SIGNS: &[&[u8]] = &[
    b"<title>Index of ",
    b"<title>Directory listing for ",
    b"<title>Files within ",
    b"<title>listing directory ",
    b"<title>Directory Listing For ",
    b"<title>Directory: ",
    b"</H1><hr>",
    b"<meta name=\"google\" content=\"notranslate\">",
    b"/__miniserve_internal/favicon",
    b"/__dufs_v",
    b"?js'></script>",
    b"<h1>listing: ",
    b"table { width:100%; }\n.name { text-align:left; }",
];

/// The start of a page in which the title of an index stands.
pub(crate) const HEAD_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// 2024-02-03 04:05:06 UTC, the time of every file behind the pages in `fixtures`.
    const SECOND: u64 = 1_706_933_106;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn find<'a>(index: &'a Index, segment: &str) -> &'a Item {
        index.items.iter().find(|item| item.segment == segment).unwrap_or_else(|| panic!("{segment} in {index:?}"))
    }

    /// Goal: every name of the fixture directory is read from what the real server printed. Method: the pages in
    /// `fixtures` were captured (without styles, scripts and pictures) from nginx 1.22.1, Apache 2.4, lighttpd 1.4.69,
    /// Python 3.11, Caddy 2.6.2, rclone 1.60.1, Tomcat 10.1, Jetty 9.4 and 12.0, Undertow 2.3.18, Plack 1.0050, Rack 2.2.22
    /// and webfs 1.21, all on one directory. Of Rack's style sheet there is what the page is known by.
    /// Those of IIS, miniserve and dufs were written by hand after what these servers print.
    fn check_names(index: &Index) {
        assert_eq!(index.items.len(), 12, "{index:?}");
        for (segment, is_dir) in [
            ("space%20dir", true),
            ("sub", true),
            ("_under", false),
            ("a.txt", false),
            ("amp&%3Clt%3E%22q.txt", false),
            ("b.bin", false),
            ("big.iso", false),
            ("empty", false),
            (&("n".repeat(120) + ".txt"), false),
            ("per%25cent%23q%3F.txt", false),
            ("sp%20ace.txt", false),
            ("%C3%BCn%C3%AF.txt", false),
        ] {
            assert_eq!(find(index, segment).is_dir, is_dir, "{segment}");
        }
    }

    fn check_sub(index: &Index) {
        let mut names: Vec<_> = index.items.iter().map(|item| (item.segment.as_str(), item.is_dir)).collect();
        // Undertow and Rack have them in no order.
        names.sort();
        assert_eq!(names, [("deep", true), ("inner.txt", false)]);
    }

    macro_rules! page {
        ($name:literal) => {
            include_bytes!(concat!("fixtures/", $name))
        };
    }

    #[test]
    fn nginx_tells_sizes_exactly_and_times_to_the_minute() {
        let index = read_html(page!("nginx.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Exact(3_000_000));
        assert_eq!(find(&index, "big.iso").modified, Figure::Rounded(at(SECOND - 6)));
        assert_eq!(find(&index, "sub").size, Figure::Unknown);
        check_sub(&read_html(page!("nginx-sub.html")).unwrap());
    }

    #[test]
    fn nginx_with_rounded_sizes_says_so() {
        let index = read_html(page!("nginx-rounded.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Rounded(3 << 20));
        assert_eq!(find(&index, "b.bin").size, Figure::Exact(1500));
        check_sub(&read_html(page!("nginx-rounded-sub.html")).unwrap());
    }

    #[test]
    fn nginx_in_json_tells_all_exactly() {
        let index = read_json(page!("nginx.json")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Exact(1500));
        assert_eq!(find(&index, "b.bin").modified, Figure::Exact(at(SECOND)));
        check_sub(&read_json(page!("nginx-sub.json")).unwrap());
        assert_eq!(read_json(br#"[{"name":"../x","type":"file","mtime":"x"}]"#), None);
        assert_eq!(read_json(br#"[{"name":"x","type":"file","mtime":"x","more":1}]"#), None);
        assert_eq!(read_json(b"{}"), None);
    }

    #[test]
    fn nginx_in_json_has_names_of_any_bytes() {
        let page = b"[\n{ \"name\":\"latin\xe9\", \"type\":\"file\", \"mtime\":\"Sat, 03 Feb 2024 04:05:06 GMT\", \"size\":2 },\n\
            { \"name\":\"a \\\"b\\\"\", \"type\":\"file\", \"mtime\":\"Sat, 03 Feb 2024 04:05:06 GMT\", \"size\":2 }\n]";
        let items = read_json(page).unwrap().items;
        assert_eq!(items.iter().map(|item| &item.segment[..]).collect::<Vec<_>>(), ["latin%E9", "a%20%22b%22"]);
    }

    #[test]
    fn apache_is_read_in_its_three_forms() {
        for page in [&page!("apache-fancy.html")[..], page!("apache-table.html")] {
            let index = read_html(page).unwrap();
            check_names(&index);
            assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1536));
            assert_eq!(find(&index, "a.txt").size, Figure::Exact(6));
            assert_eq!(find(&index, "a.txt").modified, Figure::Rounded(at(SECOND - 6)));
        }
        let plain = read_html(page!("apache-plain.html")).unwrap();
        check_names(&plain);
        assert_eq!(find(&plain, "a.txt").size, Figure::Unknown);
        for page in
            [&page!("apache-fancy-sub.html")[..], page!("apache-table-sub.html"), page!("apache-plain-sub.html")]
        {
            check_sub(&read_html(page).unwrap());
        }
    }

    #[test]
    fn lighttpd_rounds_sizes() {
        let index = read_html(page!("lighttpd.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Rounded(2_936_012));
        assert_eq!(find(&index, "big.iso").modified, Figure::Rounded(at(SECOND)));
        check_sub(&read_html(page!("lighttpd-sub.html")).unwrap());
    }

    #[test]
    fn python_tells_names_only() {
        let index = read_html(page!("python.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "a.txt").size, Figure::Unknown);
        check_sub(&read_html(page!("python-sub.html")).unwrap());
    }

    #[test]
    fn caddy_tells_all_exactly() {
        let index = read_html(page!("caddy.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Exact(1500));
        assert_eq!(find(&index, "b.bin").modified, Figure::Exact(at(SECOND)));
        check_sub(&read_html(page!("caddy-sub.html")).unwrap());
    }

    #[test]
    fn rclone_tells_all_exactly() {
        let index = read_html(page!("rclone.html")).unwrap();
        check_names(&index);
        assert_eq!((index.server, index.completeness()), ("rclone", Completeness::Complete));
        assert_eq!(find(&index, "b.bin").size, Figure::Exact(1500));
        assert_eq!(find(&index, "b.bin").modified, Figure::Exact(at(SECOND)));
        assert_eq!(find(&index, "sub").size, Figure::Unknown);
        check_sub(&read_html(page!("rclone-sub.html")).unwrap());
    }

    #[test]
    fn iis_tells_sizes_exactly_and_times_in_nobodys_zone() {
        let index = read_html(page!("iis.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Exact(3_000_000));
        assert_eq!(find(&index, "big.iso").modified, Figure::Unknown);
        check_sub(&read_html(page!("iis-sub.html")).unwrap());
    }

    #[test]
    fn tomcat_rounds_sizes_and_tells_times_exactly() {
        let index = read_html(page!("tomcat.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1433));
        assert_eq!(find(&index, "b.bin").modified, Figure::Exact(at(SECOND)));
        assert_eq!(find(&index, "sub").size, Figure::Unknown);
        check_sub(&read_html(page!("tomcat-sub.html")).unwrap());
        let older = String::from_utf8_lossy(page!("tomcat.html")).replace(" KiB", " kb").replace("[&#47;]", "[/]");
        check_names(&read_html(older.as_bytes()).unwrap());
    }

    #[test]
    fn jetty_tells_sizes_exactly_and_times_in_nobodys_zone() {
        for page in [&page!("jetty-9.html")[..], page!("jetty.html")] {
            let index = read_html(page).unwrap();
            check_names(&index);
            assert_eq!(find(&index, "big.iso").size, Figure::Exact(3_000_000));
            assert_eq!(find(&index, "big.iso").modified, Figure::Unknown);
            assert_eq!(find(&index, "sub").size, Figure::Unknown, "that is the directory's own");
        }
        check_sub(&read_html(page!("jetty-9-sub.html")).unwrap());
        check_sub(&read_html(page!("jetty-sub.html")).unwrap());
        let german = String::from_utf8_lossy(page!("jetty.html")).replace("3,000,000", "3.000.000");
        assert_eq!(find(&read_html(german.as_bytes()).unwrap(), "big.iso").size, Figure::Exact(3_000_000));
    }

    #[test]
    fn miniserve_rounds_large_sizes_and_tells_times_exactly() {
        let index = read_html(page!("miniserve.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "a.txt").size, Figure::Exact(6));
        assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1536));
        assert_eq!(find(&index, "b.bin").modified, Figure::Exact(at(SECOND)));
        check_sub(&read_html(page!("miniserve-sub.html")).unwrap());
    }

    #[test]
    fn dufs_tells_all_exactly() {
        let index = read_html(page!("dufs.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Exact(3_000_000));
        assert_eq!(find(&index, "big.iso").modified, Figure::Exact(at(SECOND)));
        assert_eq!(find(&index, "sub").size, Figure::Unknown, "that is a number of names");
        check_sub(&read_html(page!("dufs-sub.html")).unwrap());
        let older = "<script src=\"/__dufs_v0.30.0_index.js\"></script><script>\n  DATA = {\"kind\":\"Index\",\"paths\":[\
            {\"path_type\":\"File\",\"name\":\"\",\"mtime\":1000,\"size\":5},\
            {\"path_type\":\"File\",\"name\":\"x\",\"mtime\":1000,\"size\":7}]}\n</script>";
        let items = read_html(older.as_bytes()).unwrap().items;
        assert_eq!(items.len(), 1, "the other's name is not UTF-8: {items:?}");
        assert_eq!(items[0].size, Figure::Exact(7));
    }

    #[test]
    fn undertow_rounds_sizes_and_names_stand_as_they_are() {
        let index = read_html(page!("undertow.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1495));
        assert_eq!(find(&index, "a.txt").size, Figure::Rounded(6));
        assert_eq!(find(&index, "a.txt").modified, Figure::Unknown);
        check_sub(&read_html(page!("undertow-sub.html")).unwrap());
    }

    #[test]
    fn webfs_rounds_sizes() {
        let index = read_html(page!("webfs.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1500));
        assert_eq!(find(&index, "big.iso").size, Figure::Rounded(2929 << 10));
        assert_eq!(find(&index, "big.iso").modified, Figure::Unknown);
        check_sub(&read_html(page!("webfs-sub.html")).unwrap());
    }

    #[test]
    fn plack_tells_all_exactly() {
        let index = read_html(page!("plack.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "big.iso").size, Figure::Exact(3_000_000));
        assert_eq!(find(&index, "big.iso").modified, Figure::Exact(at(SECOND)));
        assert_eq!(find(&index, "sub").size, Figure::Unknown, "that is the directory's own");
        check_sub(&read_html(page!("plack-sub.html")).unwrap());
    }

    #[test]
    fn rack_rounds_sizes_and_tells_names_where_its_links_lead_elsewhere() {
        let index = read_html(page!("rack.html")).unwrap();
        check_names(&index);
        assert_eq!(find(&index, "b.bin").size, Figure::Rounded(1536));
        assert_eq!(find(&index, "a.txt").size, Figure::Exact(6));
        assert_eq!(find(&index, "a.txt").modified, Figure::Exact(at(SECOND)));
        check_sub(&read_html(page!("rack-sub.html")).unwrap());
    }

    #[test]
    fn every_index_shows_itself_in_its_beginning() {
        for page in [
            &page!("iis.html")[..],
            page!("miniserve.html"),
            page!("dufs.html"),
            page!("tomcat.html"),
            page!("jetty.html"),
            page!("nginx.html"),
            page!("rclone.html"),
            page!("undertow.html"),
            page!("webfs.html"),
            page!("plack.html"),
            page!("rack.html"),
        ] {
            assert!(may_be_html(page, None));
        }
        assert!(!may_be_html(b"<html><h1>Index of</h1><hr><pre>", None));
    }

    #[test]
    fn pages_that_only_look_alike_are_ordinary() {
        let hand_made = b"<html><head><title>Index of /</title></head><body><h1>Index of /</h1>
            <p>Read <a href=\"a.html\">the first part</a>.</p><ul><li><a href=\"b.html\">Part two</a></li></ul></body>";
        assert_eq!(read_html(hand_made), None);
        for (page, from, to) in [
            (&page!("iis.html")[..], "\"/a.txt\"", "\"/other/a.txt\""),
            (page!("iis.html"), "\"/a.txt\"", "\"//elsewhere/a.txt\""),
            (page!("iis.html"), "3000000", "3 MB"),
            (page!("miniserve.html"), "\"/a.txt\"", "\"/b.txt\""),
            (page!("miniserve.html"), ">6 B</td>", ">six</td>"),
            (page!("tomcat.html"), "\"/a.txt\"", "\"/other/a.txt\""),
            (page!("tomcat.html"), "<tt>1.4 KiB", "<tt>some KiB"),
            (page!("tomcat.html"), "04:05:06 GMT", "04:05:06"),
            (page!("jetty.html"), "\"/a.txt\"", "\"/b.txt\""),
            (page!("jetty.html"), ">6 bytes", ">-6 bytes"),
            (page!("undertow.html"), "'/a.txt'", "'/other/a.txt'"),
            (page!("undertow.html"), ">a.txt<", ">b.txt<"),
            (page!("webfs.html"), "\"a.txt\"", "\"b.txt\""),
            (page!("webfs.html"), "     6  B", "     6  b"),
            (page!("plack.html"), "'/a.txt'", "'/other/a.txt'"),
            (page!("plack.html"), ">1500<", ">many<"),
            (page!("rack.html"), "'./a.txt'", "'./b.txt'"),
            (page!("rack.html"), ">6B<", ">six<"),
        ] {
            let text = String::from_utf8_lossy(page);
            assert!(text.contains(from));
            assert_eq!(read_html(text.replace(from, to).as_bytes()), None, "{to}");
        }
        let text = String::from_utf8_lossy(page!("nginx.html")).into_owned();
        for (from, to) in [
            ("<h1>Index of /</h1>", "<h1>Index of /other</h1>"),
            ("\"sub/\"", "\"https://elsewhere.example/sub/\""),
            ("\"a.txt\"", "\"../a.txt\""),
            ("03-Feb-2024 04:05                   6", "yesterday"),
            ("</pre><hr>", ""),
        ] {
            assert!(text.contains(from));
            assert_eq!(read_html(text.replace(from, to).as_bytes()), None, "{to}");
        }
    }

    #[test]
    fn no_cut_or_changed_page_makes_a_reader_panic() {
        for page in [
            &page!("nginx.html")[..],
            page!("apache-fancy.html"),
            page!("apache-table.html"),
            page!("apache-plain.html"),
            page!("lighttpd-sub.html"),
            page!("python.html"),
            page!("iis-sub.html"),
            page!("miniserve-sub.html"),
            page!("dufs-sub.html"),
            page!("tomcat-sub.html"),
            page!("jetty-sub.html"),
            page!("rclone-sub.html"),
            page!("undertow-sub.html"),
            page!("webfs-sub.html"),
            page!("plack-sub.html"),
            page!("rack-sub.html"),
        ] {
            for end in 0..page.len() {
                assert_eq!(read_html(&page[..end]).filter(|index| index.items.len() > 12), None);
            }
            for at in 0..page.len() {
                let mut changed = page.to_vec();
                changed[at] = 0xC3;
                let _ = read_html(&changed);
            }
        }
    }
}
