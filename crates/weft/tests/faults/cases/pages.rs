//! Pages made to mislead or exhaust whoever reads their links.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::row::{Reply, Row, See, Seen, truth};
use crate::support::{answer, page};

/// Pages, and the names that must come of them.
pub fn rows() -> Vec<Row> {
    bases().chain(markup()).chain(clashes()).chain(lists()).chain(refused()).collect()
}

fn files(names: &[&str]) -> BTreeMap<Vec<u8>, Seen> {
    names.iter().map(|name| (name.as_bytes().to_vec(), Seen::Bytes(truth(name)))).collect()
}

/// A page with these names; `{base}` in it stands for the folder.
fn row(case: &'static str, input: impl Into<String>, html: String, names: BTreeMap<Vec<u8>, Seen>) -> Row {
    Row::list(
        case,
        input,
        names,
        Box::new(move |_, rest, base| match rest {
            "" => Reply::keep(page(&html.replace("{base}", base))),
            rest => Reply::keep(answer("200 OK", &["cache-control: max-age=600"], truth(rest))),
        }),
    )
}

fn bases() -> impl Iterator<Item = Row> {
    let nowhere = [
        "/",
        "..",
        "../",
        "//x.invalid/",
        "http://x.invalid/",
        "file:///",
        "data:text/html,",
        "javascript:",
        "/etc/",
        "https://127.0.0.1:1/",
    ];
    let nowhere = nowhere
        .into_iter()
        .map(|base| row("base", base, format!("<base href=\"{base}\"><a href=\"a\">x</a>"), files(&[])));
    let here = ["", ".", "./", "{base}", "x", "http:", "http://[", "//"].into_iter().map(|base| {
        // A base that cannot be read is none.
        row(
            "base",
            format!("{base:?}, which is here"),
            format!("<base href=\"{base}\"><a href=\"a\">x</a>"),
            files(&["a"]),
        )
    });
    let second = row(
        "base",
        "the second does not count",
        "<base href=\"./\"><base href=\"/etc/\"><a href=\"a\">x</a>".to_owned(),
        files(&["a"]),
    );
    nowhere.chain(here).chain([second])
}

fn markup() -> impl Iterator<Item = Row> {
    let link = "<a href=\"a\">x</a>";
    let seen = [
        ("10,000 open tags", "<div>".repeat(10_000) + link),
        ("20,000 closed tags", "</div>".repeat(20_000) + link),
        ("10,000 attributes", format!("<p {}>{link}", "x ".repeat(10_000))),
        ("1 MiB of text", "x".repeat(1 << 20) + link),
        ("1 MiB of character names", "&amp;&#0;&#xffffffffff;".repeat(45_000) + link),
        ("NUL bytes", "\0".repeat(5000) + link),
        ("a link twice in one tag", "<a href=\"a\" href=\"/etc/passwd\">".to_owned()),
        ("no end", "<a href=\"a\">x".to_owned()),
        ("upper case", "<A HREF=\"a\">x</A>".to_owned()),
        ("no quotes", "<a href=a>x</a>".to_owned()),
        ("lines between", "<a\n\thref\n=\n'a'\n>x</a>".to_owned()),
        ("the same link 5000 times", link.repeat(5000)),
    ];
    let seen = seen.into_iter().map(|(what, html)| row("markup", what, html, files(&["a"])));
    let unseen = [
        ("in a comment", "<!-- <a href=\"a\"> -->"),
        ("in a script", "<script>'<a href=\"a\">'</script>"),
        ("in a style", "<style><a href=\"a\"></style>"),
        ("in a title", "<title><a href=\"a\"></title>"),
        ("in an attribute", "<p title='<a href=\"a\">'>"),
        ("in a text area", "<textarea><a href=\"a\"></textarea>"),
        ("a tag that never ends", "<a href=\"a\""),
        ("a value that never ends", "<a href=\"a"),
    ];
    // What nobody writes by hand is beyond the bound on memory: its links are not read, and nothing else happens.
    let deep = row("markup", "100,000 open tags", "<b><i>".repeat(50_000) + link, files(&[]));
    let seen = seen.chain([deep]);
    seen.chain(unseen.into_iter().map(|(what, html)| row("markup", what, html.to_owned(), files(&[]))))
}

/// Names that are two things at once.
fn clashes() -> impl Iterator<Item = Row> {
    let folder = |names: &[&str]| names.iter().map(|name| (name.as_bytes().to_vec(), Seen::Folder)).collect();
    [
        ("file and folder", "<a href='a'>x</a><a href='a/'>x</a>", folder(&["a"])),
        ("folder and file", "<a href='a/'>x</a><a href='a'>x</a>", folder(&["a"])),
        ("file and what is below", "<a href='a'>x</a><a href='a/b'>x</a>", folder(&["a"])),
        ("itself", "<a href='{base}'>x</a><a href='./'>x</a><a href=''>x</a>", folder(&[])),
        ("index.html", "<a href='index.html'>x</a>", folder(&[])),
    ]
    .into_iter()
    .map(|(what, html, names)| row("clash", what, html.to_owned(), names))
}

/// Generated lists that are broken, and so are ordinary pages.
fn lists() -> impl Iterator<Item = Row> {
    let head = "<html>\n<head><title>Index of /x/</title></head>\n<body>\n<h1>Index of /x/</h1><hr><pre><a href=\"../\">../</a>\n";
    let line = |size: &str| format!("<a href=\"a\">a</a>   03-Feb-2024 04:05   {size}\n");
    let end = "</pre><hr></body>\n</html>\n";
    let sizes = ["-1", "1e9", "99999999999999999999999", "0x10", "NaN", "1.5.5K", "999999999P", "-", "K"];
    let sizes = sizes
        .into_iter()
        .map(move |size| row("list", format!("size {size}"), [head, &line(size), end].concat(), files(&["a"])));
    let right = truth("a").len().to_string();
    let whole = [head, &line(&right), end].concat();
    let cuts = [head.len() + 5, head.len() + 12, whole.len() - end.len() - 2, whole.len() - 12].into_iter().enumerate();
    let whole_of_cuts = whole.clone();
    let cuts = cuts.map(move |(nth, at)| {
        let names = if nth < 1 { files(&[]) } else { files(&["a"]) };
        row("list", format!("cut, number {nth}"), whole_of_cuts[..at].to_owned(), names)
    });
    let twice = row("list", "a name twice", [head, &line(&right), &line(&right), end].concat(), files(&["a"]));
    let times =
        ["99-Feb-2024 04:05", "03-Foo-2024 04:05", "03-Feb-9999 99:99", "", "\0"].into_iter().map(move |time| {
            row("list", format!("time {time:?}"), whole.replace("03-Feb-2024 04:05", time), files(&["a"]))
        });
    // A list that lies about a length: what came is not what was listed, and the source has the last word.
    let lied = ["0", "1", "18", "20", "4096", "9223372036854775807", "18446744073709551615"]
        .into_iter()
        .map(move |size| row("list", format!("size {size}, a lie"), [head, &line(size), end].concat(), files(&["a"])));
    sizes.chain(cuts).chain(times).chain(lied).chain([twice])
}

/// Pages that are not there, by every status that matters for a folder: listing it is an error, and nothing shows.
fn refused() -> impl Iterator<Item = Row> {
    let statuses: [(u16, &[Errno]); 7] = [
        (500, &[Errno::IO]),
        (502, &[Errno::IO]),
        (400, &[Errno::IO]),
        (206, &[Errno::IO]),
        (429, &[Errno::AGAIN]),
        (503, &[Errno::AGAIN]),
        (401, &[Errno::ACCESS]),
    ];
    statuses.into_iter().map(|(status, errnos)| {
        let lie = move |_: &_, _: &str, _: &str| {
            Reply::keep(answer(
                &format!("{status} No"),
                &["content-type: text/html", "retry-after: 3600"],
                "<a href='a'>x</a>",
            ))
        };
        let row = Row::list("folder status", status.to_string(), BTreeMap::new(), Box::new(lie));
        let see = See::Fails(errnos);
        let gone = See::Fails(&[Errno::HOSTUNREACH]);
        Row { cold: see.clone(), warm: see.clone(), gone, healed: see, ..row }.requests(6)
    })
}
