//! A site of pages: what its directories hold, and where links and redirects lead.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use crate::support::{Liar, Mount, Server, Setup, answer, fails_with, names_in, page, run};

/// A site whose pages link to each other, as WFS had it.
fn site() -> Liar {
    let elsewhere = Liar::answering(|_| page("from elsewhere"));
    let away = format!("location: http://{}/there.html", elsewhere.host());
    Liar::answering(move |asked| {
        let _elsewhere = &elsewhere;
        match asked.path.as_str() {
            "/" => page(TOP),
            "/about.html" => page("<a href='/'>home</a> about"),
            "/docs/intro.html" => page("<a href='chapter.html'>next</a>"),
            "/docs/chapter.html" => page("chapter"),
            "/docs/deep/er/page.html" => page("deep"),
            "/guide" => page("the guide"),
            "/guide/part1.html" => page("part 1"),
            "/moved" => answer("301 Moved Permanently", &["location: /moved/"], ""),
            "/moved/" => page("<a href='inside.html'>inside</a>"),
            "/moved/inside.html" => page("inside"),
            "/away.html" => answer("302 Found", &[&away], ""),
            "/near.html" => answer("302 Found", &["location: /about.html"], ""),
            "/ring-a.html" => answer("302 Found", &["location: /ring-b.html"], ""),
            "/ring-b.html" => answer("302 Found", &["location: /ring-a.html"], ""),
            "/self.html" => answer("302 Found", &["location: /self.html"], ""),
            "/list?page=2&sort=a/b" => page("page 2"),
            _ => answer("404 Not Found", &["content-type: text/html"], "<a href='trap.html'>no such page</a>"),
        }
    })
}

const TOP: &str = "<html><body>
    <a href='about.html'>about</a> <a href='about.html#part'>the same</a> <a href='docs/intro.html'>intro</a>
    <a href='/docs/deep/er/page.html'>deep</a> <a href='guide'>guide</a> <a href='guide/part1.html'>part 1</a>
    <a href='moved'>moved</a> <a href='away.html'>away</a> <a href='near.html'>near</a>
    <a href='ring-a.html'>ring</a> <a href='self.html'>self</a> <a href='list?page=2&amp;sort=a/b'>list</a>
    <a href='http://elsewhere.invalid/x.html'>outside</a> <a href='mailto:someone@elsewhere.invalid'>mail</a>
    <a href='javascript:void(0)'>script</a> </body></html>";

#[test]
fn a_directory_holds_its_page_and_what_the_page_links_to() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let top = mount.at(site.site());
    let names = [
        "about.html",
        "away.html",
        "docs",
        "guide",
        "index.html",
        "list?page=2&sort=a%2Fb",
        "moved",
        "near.html",
        "ring-a.html",
        "self.html",
    ];
    assert_eq!(names_in(&top), names);
    assert_eq!(run("cat", [top.join("index.html")]), TOP);
    assert_eq!(site.times("/"), 1, "page and listing are one request");
    assert_eq!(run("cat", [top.join("about.html")]), "<a href='/'>home</a> about");
    assert_eq!(run("cat", [top.join("list?page=2&sort=a%2Fb")]), "page 2");
}

/// Goal: the time that a list tells stays where the file's own answer tells none and is of the length that was told. Method: it
/// is asked for at each use.
#[test]
fn the_time_of_a_list_stays() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/" => page(LIST),
        "/same.bin" => answer("200 OK", &[], "12345"),
        "/longer.bin" => answer("200 OK", &[], "1234567"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::with(Setup::default().option("freshness=always")) else { return };
    let top = mount.at(liar.site());
    let time = |name: &str| run("stat", ["-c".into(), "%Y".into(), top.join(name)]).trim_end().to_owned();
    assert_eq!(names_in(&top), ["longer.bin", "same.bin"]);
    for _ in 0..2 {
        assert_eq!(run("cat", [top.join("same.bin")]), "12345");
        assert_eq!(time("same.bin"), "1706933100");
    }
    assert_eq!(run("cat", [top.join("longer.bin")]), "1234567");
    assert_ne!(time("longer.bin"), "1706933100", "that is another content");
}

/// As nginx writes it.
const LIST: &str = "<html>\r\n<head><title>Index of /</title></head>\r\n<body>\r\n<h1>Index of /</h1><hr><pre><a href=\"../\">../</a>\r\n\
    <a href=\"longer.bin\">longer.bin</a>                       03-Feb-2024 04:05                   5\r\n\
    <a href=\"same.bin\">same.bin</a>                           03-Feb-2024 04:05                   5\r\n\
    </pre><hr></body>\r\n</html>\r\n";

#[test]
fn deeper_links_are_directories() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let top = mount.at(site.site());
    names_in(&top);
    assert!(top.join("docs").is_dir() && top.join("docs/deep/er").is_dir());
    assert!(names_in(&top.join("docs")).starts_with(&["deep".to_owned()]));
    assert_eq!(names_in(&top.join("docs/deep/er")), ["page.html"]);
    assert_eq!(run("cat", [top.join("docs/deep/er/page.html")]), "deep");
    assert_eq!(run("cat", [top.join("docs/chapter.html")]), "chapter", "a page that is not listed yet");
    assert!(names_in(&top.join("docs")).contains(&"chapter.html".to_owned()), "and is listed once it was seen");
}

#[test]
fn a_page_that_is_a_prefix_of_links_is_a_directory_with_the_page_inside() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let top = mount.at(site.site());
    names_in(&top);
    assert_eq!(names_in(&top.join("guide")), ["index.html", "part1.html"]);
    assert_eq!(run("cat", [top.join("guide/index.html")]), "the guide");
    assert_eq!(run("cat", [top.join("guide/part1.html")]), "part 1");
}

#[test]
fn a_redirect_to_the_same_name_with_a_slash_means_a_directory() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let moved = mount.at(site.site()).join("moved");
    assert!(moved.is_dir(), "found by name alone");
    assert_eq!(names_in(&moved), ["index.html", "inside.html"]);
    assert_eq!(run("cat", [moved.join("inside.html")]), "inside");
}

/// Goal: names that a server does not escape are there. Method: a list with a name in another encoding than UTF-8, as weborf writes
/// it, and directories to which the server sends by their names as they are, as mini_httpd does.
#[test]
fn names_that_are_not_escaped_are_there() {
    let plain = ["content-type: text/plain"];
    let sending = |name: &[u8]| [b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: ", name, b"\r\n\r\n"].concat();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => answer(
            "200 OK",
            &["content-type: text/html"],
            b"<a href='latin\xe9.txt'>a</a><a href='d%231'>b</a><a href='d%e9'>c</a>",
        ),
        "/latin%E9.txt" => answer("200 OK", &plain, "latin"),
        "/d%231" => sending(b"/d#1/"),
        "/d%E9" => sending(b"/d\xe9/"),
        "/d%231/" | "/d%E9/" => page("<a href='in.txt'>in</a>"),
        "/d%231/in.txt" | "/d%E9/in.txt" => answer("200 OK", &plain, "inside"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    let read = |name: &[u8]| std::fs::read_to_string(top.join(OsStr::from_bytes(name))).expect("read");
    assert_eq!(read(b"latin\xe9.txt"), "latin");
    assert_eq!(std::fs::read_dir(&top).expect("a directory").count(), 4, "the page as well");
    for name in [&b"d#1"[..], b"d\xe9"] {
        assert!(std::fs::metadata(top.join(OsStr::from_bytes(name))).expect("there").is_dir());
        assert_eq!(read(&[name, b"/in.txt"].concat()), "inside");
    }
}

#[test]
fn redirects_are_followed_and_told() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let top = mount.at(site.site());
    assert_eq!(run("cat", [top.join("away.html")]), "from elsewhere");
    assert!(mount.why(&top.join("away.html"), "redirected to").ends_with("/there.html"));
    assert_eq!(run("cat", [top.join("near.html")]), "<a href='/'>home</a> about");
}

#[test]
fn redirects_in_circles_are_loops() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let top = mount.at(site.site());
    for name in ["ring-a.html", "self.html"] {
        fails_with(std::fs::read(top.join(name)), Errno::LOOP);
    }
    assert!(site.asked().len() < 30, "circles are cut");
    assert_eq!(run("cat", [top.join("about.html")]), "<a href='/'>home</a> about", "the rest does not notice");
}

#[test]
fn find_shows_everything_that_is_linked() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let found = crate::support::Program::new("find").arg(".").dir(&mount.at(site.site())).run();
    for name in ["./about.html", "./docs/deep/er/page.html", "./guide/part1.html", "./moved"] {
        assert!(found.out.lines().any(|line| line == name), "{name}: {found:?}");
    }
    assert!(!found.out.contains("trap.html"), "an error page has no links: {found:?}");
}

#[test]
fn find_goes_into_directories_that_only_a_redirect_tells() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    let found = crate::support::Program::new("find").arg(".").dir(&mount.at(site.site())).run();
    assert!(found.out.lines().any(|line| line == "./moved/inside.html"), "{found:?}");
}

#[test]
fn hosts_that_were_visited_are_listed_from_this_machine() {
    let (site, Some(mount)) = (site(), Mount::new()) else { return };
    assert_eq!(names_in(&mount.dir()), ["web"]);
    assert_eq!(names_in(&mount.at("web")), ["weft.example"]);
    names_in(&mount.at(site.site()));
    let before = site.asked().len();
    assert_eq!(names_in(&mount.at("web")), [site.host(), "weft.example".to_owned()]);
    mount.remount();
    assert_eq!(names_in(&mount.at("web")), [site.host(), "weft.example".to_owned()]);
    assert_eq!(site.asked().len(), before);
}

#[test]
fn what_programs_look_for_everywhere_costs_no_request() {
    let site = Liar::answering(|asked| match asked.path.as_str() {
        "/linked" => answer("301 Moved Permanently", &["location: /linked/"], ""),
        "/linked/" => page("<a href='.git'>a link</a>"),
        "/linked/.git" => page("linked"),
        path if path.ends_with('/') => page("<a href='a.html'>a</a>"),
        _ => answer("404 Not Found", &[], ""),
    });
    let setup = crate::support::Setup::default().config("[web]\nprobe_names_extra = [\".my-tool\"]\n");
    let Some(mount) = Mount::with(setup) else { return };
    let top = mount.at(site.site());
    names_in(&top);
    let before = site.asked().len();
    for name in [".git", ".hidden", ".Trash-1000", "autorun.inf", ".DS_Store", ".my-tool", "._a.html"] {
        fails_with(std::fs::metadata(top.join(name)), Errno::NOENT);
    }
    for name in ["README", ".git", "a..b", ".hidden", "no spaces", "127.1"] {
        fails_with(std::fs::metadata(mount.at("web").join(name)), Errno::NOENT);
    }
    assert_eq!(site.asked().len(), before, "nobody is asked");
    assert_eq!(names_in(&top.join("linked")), [".git", "index.html"]);
    assert_eq!(run("cat", [top.join("linked/.git")]), "linked", "a page that links to it makes it a name");
}

/// Goal: what the list of a directory tells of a name counts for more than a page that links to it. Method: a page beside a
/// file links to that as to a directory, to what is not there, and to what these lists leave out; the list, which tells sizes
/// (nginx) or names alone (Apache), is looked at before and after the page is read.
#[test]
fn a_link_changes_nothing_that_is_listed() {
    for server in [Server::nginx(""), Server::apache_plain()] {
        let (Some(server), Some(mount)) = (server, Mount::new()) else { return };
        links_change_nothing(&server, &mount);
    }
}

fn links_change_nothing(server: &Server, mount: &Mount) {
    let (root, site) = (server.root(), mount.at(server.site()));
    let page = "<a href='file/'>wrong</a> <a href='gone'>dead</a> <a href='.hidden'>right</a>";
    for (name, content) in [("page.html", page), ("file", "a file"), (".hidden", "left out")] {
        std::fs::write(root.join(name), content).expect("written");
    }
    let is_file = || {
        let mut entries = std::fs::read_dir(&site).expect("listed").map(|entry| entry.expect("an entry"));
        let entry = entries.find(|entry| entry.file_name() == "file").expect("it is listed");
        entry.file_type().expect("a kind").is_file()
    };
    assert!(is_file());
    std::fs::read(site.join("page.html")).expect("read");
    // What the page links to is known when this name is.
    let begun = std::time::Instant::now();
    while !names_in(&site).contains(&".hidden".to_owned()) {
        assert!(begun.elapsed() < PATIENCE, "the page makes a name");
        std::thread::yield_now();
    }
    assert_eq!(names_in(&site), [".hidden", "file", "page.html"]);
    assert!(is_file());
    assert_eq!(std::fs::read(site.join("file")).expect("read"), b"a file");
    fails_with(std::fs::read(site.join("gone")), Errno::NOENT);
    assert_eq!(names_in(&site), [".hidden", "file", "page.html"], "that it is dead is no news");
}

/// Longest wait for what a page tells.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Goal: a `;` is a letter of a name also for servers of Java, to which a bare one begins parameters: the file of the name before
/// it would be another, also where it is called as if it had a session, which their links have. Method: a server that reads paths
/// as Tomcat 10 does; names that are listed, and looked up by whoever has no list.
#[test]
fn a_semicolon_begins_no_parameters() {
    let liar = Liar::answering(|asked| {
        let segments = asked.path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
        let plain = segments.collect::<Vec<_>>().join("/").replace("%3B", ";");
        match plain.as_str() {
            "/" => page(
                "<a href='a'>a</a> <a href='a;b'>a;b</a> <a href='in.html;jsessionid=1F'>in</a>\
                 <a href='a%3Bjsessionid=2'>2</a>",
            ),
            "/a" => answer("200 OK", &[], "of a"),
            "/a;b" => answer("200 OK", &[], "of a;b"),
            "/a;jsessionid=2" => answer("200 OK", &[], "of 2"),
            "/in.html" if asked.path.ends_with(";jsessionid=1F") => page("of the session"),
            _ => answer("404 Not Found", &[], ""),
        }
    });
    for is_listed in [true, false] {
        let Some(mount) = Mount::new() else { return };
        let top = mount.at(liar.site());
        if is_listed {
            assert_eq!(names_in(&top), ["a", "a;b", "a;jsessionid=2", "in.html;jsessionid=1F", "index.html"]);
        }
        for (name, content) in
            [("a", "of a"), ("a;b", "of a;b"), ("a;jsessionid=2", "of 2"), ("in.html;jsessionid=1F", "of the session")]
        {
            assert_eq!(std::fs::read_to_string(top.join(name)).expect(name), content, "{is_listed}");
        }
    }
}

/// Goal: what a generated list leaves out is there: without a word what servers leave out as they are set up, and what only this
/// one leaves out once it was asked for by `weft reload`, also when the list comes again, and after a remount.
#[test]
fn a_generated_list_leaves_out_what_is_there() {
    let Some(mut apache) = Server::apache_plain() else { return };
    apache.stop();
    apache.configure("IndexIgnore .??*", "IndexIgnore .??* README* *~");
    apache.restart();
    let Some(nginx) = Server::nginx("location = /one { return 200 one; } location /beside/ { return 200 deep; }")
    else {
        return;
    };
    let Some(mount) = Mount::new() else { return };
    for (server, names) in [(&apache, &["a.txt", "a.txt~", "README.txt"][..]), (&nginx, &["a.txt"])] {
        names.iter().for_each(|name| std::fs::write(server.root().join(name), name).expect("written"));
        assert_eq!(names_in(&mount.at(server.site())), ["a.txt"]);
    }
    let hidden = ["README.txt", "a.txt~"].map(|name| std::fs::read_to_string(mount.at(apache.site()).join(name)));
    assert_eq!(hidden.map(|content| content.expect("there")), ["README.txt", "a.txt~"]);

    let top = mount.at(nginx.site());
    fails_with(std::fs::metadata(top.join("one")), Errno::NOENT);
    for path in ["one", "beside/x/y.txt"] {
        let reloaded = mount.verb("reload", [top.join(path)]);
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    }
    let are_there = || {
        let read = |path: &str| std::fs::read_to_string(top.join(path)).expect(path);
        assert_eq!((read("one"), read("beside/x/y.txt")), ("one".to_owned(), "deep".to_owned()));
    };
    are_there();
    assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    names_in(&top);
    are_there();
    mount.remount();
    are_there();
    let none = mount.verb("reload", [top.join("none")]);
    assert_eq!(none.code, Some(4), "{none:?}");
}
