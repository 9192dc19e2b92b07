//! How long what is cached is used without asking.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::interrupts::wait_until;
use crate::support::{Asked, Clock, Liar, Mount, Server, Setup, answer, fails_with, names_in, noise, page, write_aged};

/// What a server serves right now under every path: it can be changed.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u32,
    cache_control: String,
    answered_304: usize,
}

impl Served {
    fn change(&self) {
        self.0.lock().expect("no panic").version += 1;
    }

    fn not_modified(&self) -> usize {
        self.0.lock().expect("no panic").answered_304
    }

    fn answer(&self, asked: &Asked) -> Vec<u8> {
        if !asked.path.ends_with('/') && !asked.path.contains('.') {
            return answer("301 Moved Permanently", &[&format!("location: {}/", asked.path)], "");
        }
        let mut state = self.0.lock().expect("no panic");
        let tag = format!("\"v{}\"", state.version);
        let headers = [format!("etag: {tag}"), state.cache_control.clone(), "content-type: text/plain".to_owned()];
        let headers: Vec<&str> = headers.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        if asked.header("if-none-match") == Some(&tag) {
            state.answered_304 += 1;
            let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            return format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n").into_bytes();
        }
        answer("200 OK", &headers, format!("version {} of {}", state.version, asked.path))
    }
}

/// A server of changing files with this `Cache-Control`, and a mount.
fn scene(cache_control: &str, setup: Setup) -> Option<(Served, Liar, Mount)> {
    let served = Served::default();
    served.0.lock().expect("no panic").cache_control = format!("cache-control: {cache_control}");
    let of_liar = served.clone();
    let liar = Liar::answering(move |asked| of_liar.answer(asked));
    let mount = Mount::with(setup)?;
    Some((served, liar, mount))
}

#[track_caller]
fn reads(file: &Path, version: u32) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(text.starts_with(&format!("version {version} of ")), "{text}");
}

#[test]
fn http_trusts_for_max_age() {
    let Some((served, liar, mount)) = scene("max-age=3600", Setup::default()) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    served.change();
    reads(&file, 0);
    mount.remount();
    reads(&file, 0);
    assert_eq!(liar.times("/a.txt"), 1);
    assert!(mount.why(&file, "next").contains("served from the cache"), "{}", mount.why(&file, "next"));
}

/// Goal: a wall clock that is set back makes no lease longer. Method: a file is read, and the clock goes on to a second before the
/// end of its lease, and an hour back.
#[test]
fn a_clock_that_is_set_back_makes_no_lease_longer() {
    for freshness in ["http", "ttl=7201s"] {
        let Some(clock) = Clock::new() else { return };
        let served = Served::default();
        served.0.lock().expect("no panic").cache_control = "cache-control: max-age=7201".to_owned();
        let of_liar = served.clone();
        let liar = Liar::answering(move |asked| of_liar.answer(asked));
        let Some(mut mount) = Mount::prepare(Setup::default().option(&format!("freshness={freshness}"))) else {
            return;
        };
        mount.move_to(clock.words());
        mount.mount();
        let file = mount.at(liar.site()).join("a.txt");
        reads(&file, 0);
        served.change();
        clock.set(7200);
        mount.why(&file, "state");
        clock.set(3600);
        wait_until("the end of the lease", || mount.why(&file, "state") != "fresh");
        reads(&file, 1);
    }
}

/// Goal: a name that was absent and has come is there after `weft reload` of its directory, or of itself, for programs
/// that had looked for it before too; whatever the list says of lengths.
#[test]
fn what_has_come_is_there_after_a_reload() {
    // The second is served as its page, whose links are no list.
    for page in ["page.html", "index.html"] {
        let Some(server) = Server::nginx("autoindex_exact_size off;") else { return };
        std::fs::write(server.root().join(page), "<a href='there.txt'>x</a>").expect("written");
        let Some(mount) = Mount::new() else { return };
        let site = mount.at(server.site());
        names_in(&site);
        for (name, reloaded) in [("one.txt", site.clone()), ("two.txt", site.join("two.txt"))] {
            fails_with(std::fs::metadata(site.join(name)), Errno::NOENT);
            std::fs::write(server.root().join(name), noise(17_000)).expect("written");
            let outcome = mount.verb("reload", [&reloaded]);
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let told = std::fs::metadata(site.join(name)).unwrap_or_else(|error| panic!("{page} {name}: {error}"));
            assert_eq!(told.len(), 17_000);
        }
    }
}

#[test]
fn http_asks_by_etag_when_the_time_is_over() {
    let Some((served, liar, mount)) = scene("max-age=0", Setup::default()) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    reads(&file, 0);
    assert!(served.not_modified() > 0, "asked with the validator");
    let received = mount.figure("received_bytes");
    reads(&file, 0);
    assert_eq!(mount.figure("received_bytes"), received, "and nothing came again");
    served.change();
    reads(&file, 1);
    mount.remount();
    reads(&file, 1);
    assert_eq!(mount.figure("received_bytes"), 0, "the validator survives a remount");
}

/// Goal: a time is compared with what the headers alone tell; where a server tells none of them, it is asked whether the file has
/// been modified since.
#[test]
fn http_asks_by_last_modified() {
    for (has_head, last) in [(true, "HEAD"), (false, "GET")] {
        let liar = Liar::answering(move |asked| match (asked.method.as_str(), asked.header("if-modified-since")) {
            ("HEAD", None) if !has_head => answer("405 Method Not Allowed", &[], ""),
            ("HEAD", None) => {
                let lines = ["last-modified: Sat, 03 Feb 2024 04:05:06 GMT", "cache-control: no-cache"].join("\r\n");
                format!("HTTP/1.1 200 OK\r\n{lines}\r\ncontent-length: 4\r\n\r\n").into_bytes()
            }
            (_, Some("Sat, 03 Feb 2024 04:05:06 GMT")) => {
                b"HTTP/1.1 304 Not Modified\r\ncache-control: no-cache\r\n\r\n".to_vec()
            }
            (_, Some(other)) => panic!("{other}"),
            (_, None) => {
                let lines = ["last-modified: Sat, 03 Feb 2024 04:05:06 GMT", "cache-control: no-cache"];
                answer("200 OK", &lines, "text")
            }
        });
        let Some(mount) = Mount::new() else { return };
        let file = mount.at(liar.site()).join("a.txt");
        for _ in 0..3 {
            assert_eq!(std::fs::read(&file).expect("read"), b"text");
        }
        let asked = liar.asked();
        let asked: Vec<_> = asked.iter().filter(|asked| asked.path == "/a.txt").collect();
        let is_plain = |asked: &Asked| ["if-modified-since", "range"].iter().all(|name| asked.header(name).is_none());
        let fetches = asked.iter().filter(|asked| asked.method == "GET" && is_plain(asked)).count();
        assert_eq!(fetches, 1, "{asked:?}");
        let confirmed = asked.iter().filter(|asked| asked.method == last).count() - usize::from(!has_head);
        assert!(confirmed >= 2, "{asked:?}");
    }
}

/// Goal: a file that is put back to what it was is seen, also where its server says that it has not been modified since.
#[test]
fn what_is_older_than_what_is_held_is_another_file() {
    let Some(python) = Server::python() else { return };
    let file = python.root().join("a.txt");
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let shown = mount.at(python.site()).join("a.txt");
    let read = || std::fs::read_to_string(&shown).expect("read");
    write_aged(&file, b"the new one", 5000);
    assert_eq!(read(), "the new one");
    write_aged(&file, b"the old one", 10);
    assert_eq!(mount.verb("reload", [&shown]).code, Some(0));
    assert_eq!(read(), "the old one");
    assert_eq!(mount.verb("reload", [&shown]).code, Some(0));
    assert_eq!(read(), "the old one");
    // The page of a directory in its place, of the same time and length, is not that file.
    std::fs::remove_file(&file).expect("removed");
    write_aged(&file.join("index.html"), b"the old one", 10);
    assert_eq!(mount.verb("reload", [&shown]).code, Some(0));
    assert!(std::fs::metadata(&shown).expect("there").is_dir());
}

#[test]
fn a_time_of_ones_own_is_kept_and_ends() {
    let Some((served, liar, mount)) = scene("no-cache", Setup::default().option("freshness=ttl=1h")) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    served.change();
    reads(&file, 0);
    assert_eq!(liar.times("/a.txt"), 1);
    drop(mount);

    let Some((served, liar, mount)) = scene("max-age=3600", Setup::default().option("freshness=ttl=1s")) else {
        return;
    };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    served.change();
    // The new version is seen when the time is over, however long this machine takes for the reads until then.
    while std::fs::read_to_string(&file).expect("read").starts_with("version 0") {
        std::thread::yield_now();
    }
    reads(&file, 1);
}

/// Goal: a list, whose times are told to the minute, does not vouch for a file that was fetched in the minute of its change and
/// has changed again since, to as many bytes: it is asked about when its time is over, however often it is listed.
#[test]
fn a_list_does_not_vouch_for_what_has_just_changed() {
    let Some(server) = Server::nginx("") else { return };
    let file = server.root().join("a.txt");
    std::fs::write(&file, "version 0 of it").expect("write");
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1s")) else { return };
    let shown = mount.at(server.site());
    let read = || std::fs::read_to_string(shown.join("a.txt")).expect("read");
    let listed = || assert_eq!(names_in(&shown).len(), 1);
    listed();
    assert_eq!(read(), "version 0 of it");
    let changed = std::fs::metadata(&file).expect("stat").modified().expect("a time");
    std::fs::write(&file, "version 1 of it").expect("write");
    File::options().write(true).open(&file).expect("open").set_modified(changed + A_SECOND).expect("set the time");
    let since = Instant::now();
    while since.elapsed() <= A_SECOND {
        std::thread::yield_now();
    }
    listed();
    assert_eq!(read(), "version 1 of it");
}

/// Goal: of a file that was gone, by a list, and has come again nothing is shown that was held of it before, although that would
/// be trusted still; the list of this server tells names alone.
#[test]
fn what_has_come_back_is_not_what_it_was() {
    let Some(python) = Server::python() else { return };
    let file = python.root().join("a.txt");
    write_aged(&file, b"before", 5000);
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(python.site());
    let reload = |path: &Path| assert_eq!(mount.verb("reload", [path]).code, Some(0));
    assert_eq!(names_in(&top), ["a.txt"]);
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"before");
    std::fs::remove_file(&file).expect("removed");
    reload(&top);
    fails_with(std::fs::metadata(top.join("a.txt")), Errno::NOENT);
    write_aged(&file, b"after it", 6000);
    reload(&top);
    assert_eq!(std::fs::metadata(top.join("a.txt")).expect("there").len(), 8);
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"after it");
}

/// Goal: the same of a file in whose place a directory was for a while, as told by `weft reload` of itself.
#[test]
fn what_was_a_directory_is_not_the_file_from_before() {
    let Some(nginx) = Server::nginx("") else { return };
    let place = nginx.root().join("a.txt");
    write_aged(&place, b"before", 5000);
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let path = mount.at(nginx.site()).join("a.txt");
    let reload = || {
        let outcome = mount.verb("reload", [&path]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    };
    assert_eq!(std::fs::read(&path).expect("read"), b"before");
    std::fs::remove_file(&place).expect("removed");
    write_aged(&place.join("below"), b"below", 5000);
    reload();
    assert_eq!(names_in(&path), ["below"]);
    std::fs::remove_dir_all(&place).expect("removed");
    write_aged(&place, b"after!", 6000);
    reload();
    assert_eq!(std::fs::read(&path).expect("read"), b"after!");
}

/// Goal: who opens a file where the kernel has seen a directory gets the file as soon as the directory's lease has ended, and no
/// error on the way.
#[test]
fn a_file_is_opened_where_a_directory_was() {
    let Some(nginx) = Server::nginx("") else { return };
    let place = nginx.root().join("a.txt");
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1s")) else { return };
    let path = mount.at(nginx.site()).join("a.txt");
    write_aged(&place, &noise(1000), 5000);
    assert_eq!(std::fs::read(&path).expect("read").len(), 1000);
    std::fs::remove_file(&place).expect("removed");
    write_aged(&place.join("below"), b"below", 5000);
    wait_until("it is a directory", || std::fs::metadata(&path).expect("there").is_dir());
    assert_eq!(names_in(&path), ["below"]);
    std::fs::remove_dir_all(&place).expect("removed");
    write_aged(&place, &noise(2000), 5000);
    let read = || match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => None,
        read => Some(read.expect("read")),
    };
    wait_until("it is a file", || read().is_some_and(|bytes| bytes == noise(2000)));
}

/// Goal: the same of servers to which the file's URL with a slash is no other (miniserve, http-server of Node.js), or a failure
/// (serve-index), where the directory above has a list.
#[test]
fn a_file_is_opened_where_a_directory_was_whatever_its_url_with_a_slash_gives() {
    for status in ["200 OK", "500 Internal Server Error"] {
        let is_file = Arc::new(AtomicBool::new(false));
        let of_server = is_file.clone();
        let list = |title: &str, name: &str| {
            let title = format!("Directory listing for {title}");
            page(&format!(
                "<html><head><title>{title}</title></head><body><h1>{title}</h1>\n<hr>\n<ul>\n\
                 <li><a href=\"{name}\">{name}</a></li>\n</ul>\n<hr>\n</body></html>"
            ))
        };
        let liar = Liar::answering(move |asked| {
            let headers = ["content-type: application/octet-stream"];
            match (asked.path.as_str(), of_server.load(Ordering::SeqCst)) {
                ("/", false) => list("/", "a/"),
                ("/", true) => list("/", "a"),
                ("/a", false) => answer("301 Moved Permanently", &["location: /a/"], ""),
                ("/a/", false) => list("/a/", "below"),
                ("/a/below", false) => answer("200 OK", &headers, "below"),
                ("/a", true) => answer("200 OK", &headers, "a file"),
                ("/a/", true) => answer(status, &headers, "a file"),
                _ => answer("404 Not Found", &[], ""),
            }
        });
        let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1s")) else { return };
        let path = mount.at(liar.site()).join("a");
        assert_eq!(std::fs::read(path.join("below")).expect("read"), b"below");
        assert_eq!(names_in(&path), ["below"]);
        is_file.store(true, Ordering::SeqCst);
        wait_until("it is a file", || std::fs::read(&path).is_ok_and(|bytes| bytes == b"a file"));
        assert!(std::fs::metadata(&path).expect("there").is_file());
    }
}

#[test]
fn manual_waits_for_reload() {
    let Some((served, liar, mount)) = scene("no-store", Setup::default().option("freshness=manual")) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    served.change();
    reads(&file, 0);
    mount.remount();
    reads(&file, 0);
    assert_eq!(liar.times("/a.txt"), 1);
    let reloaded = mount.json("reload", [&file]);
    assert_eq!((reloaded["checked"].as_u64(), reloaded["changed"].as_u64()), (Some(1), Some(1)), "{reloaded}");
    reads(&file, 1);
    let reloaded = mount.json("reload", [&file]);
    assert_eq!((reloaded["checked"].as_u64(), reloaded["changed"].as_u64()), (Some(1), Some(0)), "{reloaded}");
}

#[test]
fn always_asks_at_each_open() {
    let Some((served, liar, mount)) = scene("max-age=3600", Setup::default().option("freshness=always")) else {
        return;
    };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    for version in 1..5 {
        served.change();
        reads(&file, version);
    }
    assert!(liar.times("/a.txt") >= 5);
}

/// Goal: what must be confirmed at each use is asked about once in a use, and changes are seen by the next.
#[test]
fn one_use_of_what_must_be_confirmed_is_one_question() {
    let Some((served, liar, mount)) = scene("no-cache", Setup::default()) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    for version in 1..=5 {
        served.change();
        reads(&file, version);
    }
    // The kernel's look before the open, the open, and std's look at the length after it: no more than one of them asks, but
    // where the thread does not run for a quarter of a second between two of them.
    let asked = liar.times("/a.txt");
    assert!((6..12).contains(&asked), "{asked} questions for 6 uses");
}

#[test]
fn a_policy_is_that_of_its_tree() {
    let served = Served::default();
    let of_liar = served.clone();
    let liar = Liar::answering(move |asked| of_liar.answer(asked));
    let site = liar.site();
    let config = format!(
        "[mount]\nfreshness = \"always\"\n[[tree]]\npath = \"{site}/kept\"\nfreshness = \"manual\"\n\
        [[tree]]\npath = \"{site}/kept/live\"\nfreshness = \"always\"\n"
    );
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    let file = |path: &str| mount.at(&site).join(path);
    let all = ["a.txt", "kept/a.txt", "kept/live/a.txt"].map(file);
    all.iter().for_each(|file| reads(file, 0));
    served.change();
    reads(&all[0], 1);
    reads(&all[1], 0);
    reads(&all[2], 1);
    assert!(mount.why(&all[1], "policy").contains("manual"));
    assert!(mount.why(&all[2], "policy").contains("always"));
}

#[test]
fn what_was_dropped_is_fetched_again() {
    let Some((served, liar, mount)) = scene("max-age=3600", Setup::default()) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    served.change();
    let removed = mount.json("rm -w", [&file]);
    assert_eq!(removed["files"], 1, "{removed}");
    reads(&file, 1);
    assert_eq!(liar.times("/a.txt"), 2);
}

#[test]
fn a_silent_source_leaves_what_is_cached() {
    let Some((_, liar, mount)) = scene("max-age=0", Setup::default()) else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file, 0);
    drop(liar);
    reads(&file, 0);
    mount.remount();
    reads(&file, 0);
    let error = mount.why(&file, "last error");
    assert!(!error.is_empty(), "why tells that the source could not be asked");
}

/// Apart so far, two changes have other times for HTTP; and what is trusted for a second is not any more.
const A_SECOND: Duration = Duration::from_secs(1);
