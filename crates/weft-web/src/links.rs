//! The links of a page that stay inside one directory, read while the page streams by.

use std::collections::HashSet;
use std::sync::Arc;

use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{MemorySettings, element};
use parking_lot::Mutex;
use url::Url;

use crate::id::Place;
use crate::index::decode_entities;
use crate::name::any_bytes;
use crate::target::{place_of, same_host};

/// Which links count.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The directory that they must lie in.
    pub dir: Place,
    /// Another host that stands for the directory's own (`www.`), when the page came from there.
    pub alias: Option<String>,
    /// Most links kept.
    pub links_max: usize,
}

/// Reads a page in pieces of any size, in bounded memory.
pub(crate) struct LinkScanner {
    /// `None` once the page could not be read on.
    rewriter: Option<Rewriter>,
    /// Shared with the rewriter's handler, which runs only inside `feed` and `finish`.
    found: Arc<Mutex<Found>>,
}

type Rewriter = HtmlRewriter<'static, fn(&[u8])>;

struct Found {
    scope: Scope,
    base: Url,
    /// Only the first `<base>` counts (HTML section 4.2.3).
    base_set: bool,
    seen: HashSet<Place>,
    places: Vec<Place>,
}

impl LinkScanner {
    /// For a page at `base`.
    pub fn new(base: Url, scope: Scope) -> LinkScanner {
        let found =
            Arc::new(Mutex::new(Found { scope, base, base_set: false, seen: HashSet::new(), places: Vec::new() }));
        let handler_found = found.clone();
        let handler = element!("[href], [src], object[data]", move |element: &mut lol_html::send::Element<'_, '_>| {
            let mut found = handler_found.lock();
            let is_base = element.tag_name() == "base";
            for attribute in ["href", "src", "data"] {
                if let Some(link) = element.get_attribute(attribute) {
                    let link = decode_entities(&link);
                    if is_base { found.set_base(&link) } else { found.add(&link) }
                }
            }
            Ok(())
        });
        let memory = MemorySettings::new().with_max_allowed_memory_usage(TAG_BYTES_MAX);
        let settings = Settings::new_send()
            .append_element_content_handler(handler)
            .with_memory_settings(memory)
            .with_strict(false);
        LinkScanner { rewriter: Some(HtmlRewriter::new(settings, discard as fn(&[u8]))), found }
    }

    /// Reads on. A page that cannot be read gives the links so far.
    pub fn feed(&mut self, bytes: &[u8]) {
        // Some servers (weborf) write names into links as they are, in whatever encoding. A letter that a piece breaks off in is
        // escaped like them, which is the same link.
        match std::str::from_utf8(bytes) {
            Ok(_) => self.write(bytes),
            Err(_) => self.write(any_bytes(bytes).as_bytes()),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // After an error the rewriter must not be used again.
        if let Some(mut rewriter) = self.rewriter.take()
            && rewriter.write(bytes).is_ok()
        {
            self.rewriter = Some(rewriter);
        }
    }

    /// The places linked to, each once, in the page's order.
    pub fn finish(self) -> Vec<Place> {
        if let Some(rewriter) = self.rewriter {
            // Whatever is wrong with the end of the page, the links before it stand.
            let _ = rewriter.end();
        }
        std::mem::take(&mut self.found.lock().places)
    }
}

impl Found {
    fn set_base(&mut self, link: &str) {
        if !self.base_set
            && let Ok(base) = self.base.join(link)
        {
            self.base = base;
            self.base_set = true;
        }
    }

    fn add(&mut self, link: &str) {
        if self.places.len() >= self.scope.links_max || link.starts_with('#') {
            return;
        }
        let Some(mut place) = self.base.join(link).ok().as_ref().and_then(place_of) else { return };
        let dir = &self.scope.dir;
        let on_host = same_host(&place.authority, &dir.authority)
            || self.scope.alias.as_ref().is_some_and(|alias| same_host(alias, &place.authority));
        let inside = place.path.len() > dir.path.len() || (place.path == dir.path && place.query.is_some());
        if !on_host || !inside || !place.path.starts_with(&dir.path) || is_order(&place) {
            return;
        }
        place.authority.clone_from(&dir.authority);
        if !place.fits() {
            tracing::debug!("a link of {} bytes is too long for a name", place.path.len());
            return;
        }
        if self.seen.insert(place.clone()) {
            self.places.push(place);
        }
    }
}

/// Whether this is a list once more, in another order: what the headings of generated lists lead to (`?C=N;O=D` of Apache, Tomcat,
/// Jetty, nginx's fancyindex; `?N=D` of Apache 1.3 and WEBrick; `?nd` of civetweb), also in those that are not read as lists.
fn is_order(place: &Place) -> bool {
    let query = place.query.as_deref().filter(|_| place.path.ends_with('/')).unwrap_or_default();
    let (column, way) = match query.strip_prefix("C=") {
        Some(order) => match order.split_once([';', '&']) {
            Some((column, way)) => (column, way.strip_prefix("O=").unwrap_or_default()),
            None => return false,
        },
        None if query.len() == 2 => return matches!(query, "na" | "nd" | "da" | "dd" | "sa" | "sd"),
        None => query.split_once('=').unwrap_or_default(),
    };
    matches!(column, "N" | "M" | "S" | "D") && matches!(way, "A" | "D")
}

fn discard(_: &[u8]) {}

/// Most memory for the longest tag of a page and for the tags that are open; a page that needs more ends the search
/// for links. Old pages leave every paragraph open, at some hundred bytes each.
const TAG_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(html: &[u8], step: usize) -> Vec<String> {
        let dir = Place { authority: "h".into(), path: "/a/".into(), query: None };
        let scope = Scope { dir, alias: Some("www.h".into()), links_max: 12 };
        let mut scanner = LinkScanner::new(Url::parse("https://h/a/").unwrap(), scope);
        html.chunks(step).for_each(|chunk| scanner.feed(chunk));
        scanner.finish().into_iter().map(|place| place.path_and_query()).collect()
    }

    const PAGE: &[u8] = b"<html><head><link href=style.css><script src='js/x.js'></script></head>
        <a href=\"b.html#part\">b</a> <A HREF='b.html'>again</A> <a href='/a/c/d.html'>d</a> <a href='../up'>up</a>
        <a href='https://elsewhere/a/x'>x</a> <a href='http://h:80/a/e'>e</a> <a href='//www.h/a/w'>w</a>
        <a href='?p=1&amp;q=2'>q</a> <img src='sp ace.png'> <a href='mailto:x@h'>m</a> <a href='javascript:x()'>j</a>
        <a href='%2e%2e/%2e%2e/etc'>dots</a> <a href='..%2fx'>slash</a> <a href=''>self</a><a href='/ab'>not inside</a>
        <object data=o.swf></object><a href='b.html";

    #[test]
    fn links_inside_the_directory_are_found_whatever_the_pieces() {
        let expected = [
            "/a/style.css",
            "/a/js/x.js",
            "/a/b.html",
            "/a/c/d.html",
            "/a/e",
            "/a/w",
            "/a/?p=1&q=2",
            "/a/sp%20ace.png",
            "/a/..%2Fx",
            "/a/o.swf",
        ];
        for step in [1, 7, PAGE.len()] {
            assert_eq!(scan(PAGE, step), expected, "{step}");
        }
    }

    #[test]
    fn the_first_base_counts() {
        assert_eq!(scan(b"<base href='/a/sub/'><base href='/'><a href=x>", 9), ["/a/sub/x"]);
    }

    /// Goal: a link that holds a name in whatever encoding leads to that name. Method: bytes that are no UTF-8, beside letters
    /// that are, in pieces of any size.
    #[test]
    fn bytes_of_a_link_are_a_name_as_they_are() {
        let page = b"<a href=\"latin\xe9.txt\">latin\xe9</a><a href='\xc3\xa9\xff/x'>x</a><a href='\xe6\x97\xa5'>y</a>";
        for step in 1..=page.len() {
            assert_eq!(scan(page, step), ["/a/latin%E9.txt", "/a/%C3%A9%FF/x", "/a/%E6%97%A5"], "{step}");
        }
    }

    #[test]
    fn lists_in_another_order_are_no_files() {
        let page = b"<a href='?C=N;O=D'>Name</a><a href='/a/?C=M&amp;O=A'>M</a><a href='sub/?C=S;O=A'>S</a><a href='?C=N'>n</a>
            <a href='f?C=N;O=D'>f</a><a href='?C=NN;O=D'>x</a>";
        assert_eq!(scan(page, 9), ["/a/?C=N", "/a/f?C=N;O=D", "/a/?C=NN;O=D"]);
        let page = b"<a href='?N=D'>Name</a><a href='?M=A'>M</a><a href='?nd'>N</a><a href='/a/?sa'>S</a><a href='?N'>n</a>
            <a href='?N=X'>x</a><a href='?n=a'>y</a><a href='f?N=D'>f</a><a href='f?nd'>f</a><a href='?md'>m</a><a href='?C=N;D'>c</a>";
        let files = ["/a/?N", "/a/?N=X", "/a/?n=a", "/a/f?N=D", "/a/f?nd", "/a/?md", "/a/?C=N;D"];
        assert_eq!(scan(page, 9), files);
    }

    #[test]
    fn links_and_memory_are_bounded() {
        let many: String = (0..50).map(|n| format!("<a href={n}>")).collect();
        assert_eq!(scan(many.as_bytes(), 100).len(), 12);
        let endless = [b"<a href=x><a href='".to_vec(), vec![b'y'; 1 << 20]].concat();
        assert_eq!(scan(&endless, 4096), ["/a/x"]);
    }
}
