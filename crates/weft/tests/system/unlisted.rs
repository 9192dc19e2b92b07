//! Hosts that give a file to whoever knows its whole path, and refuse the directories on the way to it.

use std::path::Path;

use rustix::io::Errno;

use crate::support::{Liar, Mount, Setup, answer, fails_with, names_in};

/// A host of three files that tells of no directory: it answers all else with `refusal`.
fn host(refusal: &'static str) -> Liar {
    Liar::answering(move |asked| match asked.path.as_str() {
        "/" => answer("200 OK", &["content-type: text/plain", LASTING], "a host of files"),
        "/pkg" => answer("200 OK", &["content-type: application/json", LASTING], "{\"name\": \"pkg\"}"),
        "/a/1.0/c.txt" | "/pkg/-/pkg-1.0.tgz" => answer("200 OK", &[LASTING], format!("content of {}", asked.path)),
        _ => answer(refusal, &[], "no"),
    })
}

const LASTING: &str = "cache-control: max-age=3600";

#[track_caller]
fn reads(top: &Path, path: &str) {
    let content = std::fs::read(top.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(String::from_utf8_lossy(&content), format!("content of /{path}"));
}

/// Goal: a path that is there can be reached although nothing on the way to it is. Method: refused by `stat`, asked for by
/// `weft reload`, read, listed; the same after a remount.
#[test]
fn what_is_asked_for_by_its_whole_path_is_there_from_then_on() {
    for (refusal, errno, code) in [
        ("404 Not Found", Errno::NOENT, 4),
        ("403 Forbidden", Errno::ACCESS, 5),
        ("401 Unauthorized", Errno::ACCESS, 5),
        ("400 Bad", Errno::IO, 1),
    ] {
        let liar = host(refusal);
        let Some(mount) = Mount::with(Setup::default()) else { return };
        let top = mount.at(liar.site());
        fails_with(std::fs::metadata(top.join("a/1.0/c.txt")), errno);
        let absent = mount.verb("reload", [top.join("a/1.0/d.txt")]);
        assert_eq!(absent.code, Some(code), "{refusal}: nothing is there: {absent:?}");
        fails_with(std::fs::metadata(top.join("a")), errno);

        let reloaded = mount.json("reload", [top.join("a/1.0/c.txt")]);
        assert_eq!((&reloaded["checked"], &reloaded["failed"]), (&1.into(), &0.into()), "{refusal}: {reloaded}");
        let as_found = || {
            reads(&top, "a/1.0/c.txt");
            assert_eq!(names_in(&top.join("a")), ["1.0"], "{refusal}");
            assert_eq!(names_in(&top.join("a/1.0")), ["c.txt"], "{refusal}");
            fails_with(std::fs::metadata(top.join("a/2.0")), errno);
        };
        as_found();
        assert_eq!(mount.why(&top.join("a"), "kind"), "directory");
        mount.remount();
        as_found();
        // What is found so is found by its lease, and by a look whatever the leases say.
        assert_eq!(mount.json("reload", [top.join("a")])["failed"], 0, "{refusal}");
        reads(&top, "a/1.0/c.txt");
    }
}

#[test]
fn a_page_with_longer_names_below_it_lies_in_their_directory() {
    let liar = host("404 Not Found");
    let Some(mount) = Mount::with(Setup::default()) else { return };
    let top = mount.at(liar.site());
    let page = b"{\"name\": \"pkg\"}";
    assert_eq!(std::fs::read(top.join("pkg")).expect("a file"), page);
    fails_with(std::fs::metadata(top.join("pkg/-/pkg-1.0.tgz")), Errno::NOTDIR);
    assert_eq!(mount.verb("reload", [top.join("pkg/-/pkg-1.0.tgz")]).code, Some(0));
    reads(&top, "pkg/-/pkg-1.0.tgz");
    assert_eq!(std::fs::read(top.join("pkg/index.html")).expect("it lies inside"), page);
    assert_eq!(names_in(&top.join("pkg")), ["-", "index.html"]);
}

/// Goal: `weft warm` brings what it is told of, and asks for nothing that the host does not allow. Method: three paths, of
/// which robots.txt forbids one.
#[test]
fn whole_paths_are_fetched_ahead_where_robots_txt_allows_it() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/" => answer("200 OK", &["content-type: text/plain", LASTING], "a host of files"),
        "/robots.txt" => answer("200 OK", &[LASTING], "User-agent: *\nDisallow: /a/secret/\n"),
        "/pkg" => answer("200 OK", &["content-type: application/json", LASTING], "{}"),
        "/a/1.0/c.txt" | "/a/secret/d.txt" | "/pkg/-/e.tgz" => {
            answer("200 OK", &[LASTING], format!("content of {}", asked.path))
        }
        _ => answer("404 Not Found", &[], "no"),
    });
    let Some(mount) = Mount::with(Setup::default()) else { return };
    let top = mount.at(liar.site());
    std::fs::read(top.join("pkg")).expect("a file");
    let outcome =
        mount.verb("warm", ["a/1.0/c.txt", "a/secret/d.txt", "pkg/-/e.tgz", "b/none.txt"].map(|path| top.join(path)));
    assert_eq!(outcome.code, Some(7), "some came and some did not: {outcome:?}");
    let forbidden = outcome.err.clone() + &outcome.out;
    assert!(forbidden.contains("robots.txt does not allow /a/secret/d.txt"), "{outcome:?}");
    let asked = ["/a/1.0/c.txt", "/a/secret/d.txt", "/pkg/-/e.tgz"].map(|path| liar.times(path));
    assert!(asked[0] >= 1 && asked[1] == 0 && asked[2] >= 1, "{:?}", liar.asked());
    let before = liar.asked().len();
    reads(&top, "a/1.0/c.txt");
    reads(&top, "pkg/-/e.tgz");
    assert_eq!(liar.asked().len(), before, "they are here");
}

#[test]
fn a_host_that_is_named_tells_of_no_directory() {
    let liar = host("404 Not Found");
    let setup = Setup::default().config("[web]\nunlisted_hosts = [\"127.0.0.1\"]\n");
    let Some(mount) = Mount::with(setup) else { return };
    let top = mount.at(liar.site());
    reads(&top, "a/1.0/c.txt");
    reads(&top, "a/1.0/c.txt");
    let asked = ["/a", "/a/1.0", "/a/1.0/c.txt"].map(|path| liar.times(path));
    assert_eq!(asked, [1, 1, 1], "{:?}", liar.asked());
    fails_with(std::fs::metadata(top.join("a/1.0/d.txt")), Errno::NOENT);
    assert_eq!(names_in(&top.join("a/1.0")), ["c.txt"]);
    assert_eq!(names_in(&top.join("none")), [""; 0], "nobody can tell that it is not one");
    assert!(mount.why(&top.join("a"), "answered by").contains("404"), "what the host said is told");
}
