//! Hostile names, each in every place where a name can come from.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::row::{Look, Reply, Row, See, Seen, truth};
use crate::support::{Asked, answer};

use super::corpus::{Shown, corpus, typed};

/// The corpus of links as a page, an nginx list and a Python list have them, and names that a user types.
pub fn rows() -> Vec<Row> {
    let places: [(&'static str, MakePage); 3] = [
        ("name, link", |href, _| [b"<p><a href=\"", href, b"\">x</a>"].concat()),
        ("name, nginx", nginx),
        ("name, Python", python),
    ];
    let listed = places.into_iter().flat_map(|(case, page)| {
        corpus().into_iter().map(move |(href, shown)| {
            let page = page(&href, &shown);
            listed(case, &href, &shown, page)
        })
    });
    listed.chain(typed_rows()).chain(twins()).collect()
}

/// Makes a page of one link.
type MakePage = fn(&[u8], &Shown) -> Vec<u8>;

fn listed(case: &'static str, href: &[u8], shown: &Shown, page: Vec<u8>) -> Row {
    let names = match shown {
        Shown::Not => BTreeMap::new(),
        Shown::Folder(name) => BTreeMap::from([(name.clone(), Seen::Folder)]),
        Shown::File(name, asked) => BTreeMap::from([(name.clone(), Seen::Bytes(truth(asked)))]),
    };
    Row::list(case, href.escape_ascii().to_string(), names, Box::new(move |_, rest, _| folder(rest, &page)))
}

/// The page at the folder's own URL, and at every other what belongs there.
fn folder(rest: &str, page: &[u8]) -> Reply {
    match rest {
        "" => Reply::keep(answer("200 OK", &["content-type: text/html", "cache-control: max-age=600"], page)),
        rest => Reply::keep(answer("200 OK", &["cache-control: max-age=600"], truth(rest))),
    }
}

/// What a browser shows for a link; a list says it beside the link.
fn text(shown: &Shown) -> Vec<u8> {
    let name: &[u8] = match shown {
        Shown::Not => b"x",
        Shown::Folder(name) | Shown::File(name, _) => name,
    };
    let text = String::from_utf8_lossy(name).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match shown {
        Shown::Folder(_) => format!("{text}/").into_bytes(),
        _ => text.into_bytes(),
    }
}

fn nginx(href: &[u8], shown: &Shown) -> Vec<u8> {
    let size = match shown {
        Shown::File(_, asked) => truth(asked).len().to_string(),
        _ => "-".to_owned(),
    };
    let title = "<html>\n<head><title>Index of /x/</title></head>\n<body>\n<h1>Index of /x/</h1><hr><pre><a href=\"../\">../</a>\n";
    let end = format!("</a>   03-Feb-2024 04:05   {size}\n</pre><hr></body>\n</html>\n");
    [title.as_bytes(), b"<a href=\"", href, b"\">", &text(shown), end.as_bytes()].concat()
}

fn python(href: &[u8], shown: &Shown) -> Vec<u8> {
    let title = "<!DOCTYPE HTML>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Directory listing for /x/</title>\n</head>\n\
        <body>\n<h1>Directory listing for /x/</h1>\n<hr>\n<ul>\n";
    let end = "</a></li>\n</ul>\n<hr>\n</body>\n</html>\n";
    [title.as_bytes(), b"<li><a href=\"", href, b"\">", &text(shown), end.as_bytes()].concat()
}

/// Names that nobody listed, asked for by hand.
fn typed_rows() -> impl Iterator<Item = Row> {
    typed().into_iter().map(|(name, asked)| {
        let see =
            asked.as_ref().map_or(See::Fails(&[Errno::NOENT, Errno::NAMETOOLONG]), |asked| See::bytes(truth(asked)));
        let lie = |_: &Asked, rest: &str, _: &str| folder(rest, b"<p>no links");
        let row = Row::new("name, typed", name.escape_ascii().to_string(), see.clone(), Box::new(lie));
        // What was right stays; what has no name never has one, whoever answers.
        let gone = match asked {
            Some(_) => row.gone.clone(),
            None => See::Fails(&[Errno::NOENT, Errno::NAMETOOLONG, Errno::HOSTUNREACH]),
        };
        row.look(Look::File(name)).gone(gone).healed(see)
    })
}

/// Several names in one folder that could be taken for one another.
fn twins() -> impl Iterator<Item = Row> {
    let sets: [(&str, &[&str]); 8] = [
        ("case", &["README", "readme", "ReadMe"]),
        ("composed and decomposed", &["%C3%A9", "e%CC%81"]),
        ("dots behind", &["a", "a.", "a.."]),
        ("spaces behind", &["a", "a%20", "a%20%20"]),
        ("escaped once and twice", &["a%20b", "a%2520b"]),
        ("slash and escaped slash", &["a%2Fb", "a%252Fb"]),
        ("look-alikes", &["a.txt", "%D0%B0.txt"]),
        ("widths", &["x", "%EF%BD%98", "x%E2%80%8B"]),
    ];
    sets.into_iter().map(|(what, hrefs)| {
        let links: String =
            hrefs.iter().map(|href| format!("<a href='{href}'>x</a><a href='{href}'>again</a>")).collect();
        let decode = |href: &str| -> Vec<u8> { super::corpus::decoded(href) };
        let names = hrefs.iter().map(|href| (decode(href), Seen::Bytes(truth(href)))).collect();
        Row::list("twins", what, names, Box::new(move |_, rest, _| folder(rest, links.as_bytes())))
    })
}
