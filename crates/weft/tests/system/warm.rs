//! `weft warm` over real servers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{
    Liar, Mount, Outcome, Program, Running, Server, Setup, answer, is_root, noise, page, without, write_aged,
};

/// The lines of `weft warm --json` with these words, and its end.
fn warm<A: AsRef<std::ffi::OsStr>>(
    mount: &Mount,
    words: &str,
    paths: impl IntoIterator<Item = A>,
) -> (Outcome, Vec<Value>) {
    let words = format!("warm --json {words}");
    let outcome = mount.verb(words.trim_end(), paths);
    let lines = outcome.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    let lines = lines.collect();
    (outcome, lines)
}

/// The one line of this event.
#[track_caller]
fn line<'a>(lines: &'a [Value], event: &str) -> &'a Value {
    let mut of_event = lines.iter().filter(|line| line["event"] == event);
    let line = of_event.next().unwrap_or_else(|| panic!("no {event} in {lines:?}"));
    assert!(of_event.next().is_none(), "one {event}: {lines:?}");
    line
}

/// The ends of the paths of all lines of this event, sorted.
fn paths(lines: &[Value], event: &str, above: &str) -> Vec<String> {
    let of_event = lines.iter().filter(|line| line["event"] == event);
    let below = of_event.map(|line| {
        let path = line["path"].as_str().expect("a path");
        path.strip_prefix(above).unwrap_or(path).trim_start_matches('/').to_owned()
    });
    let mut below: Vec<String> = below.collect();
    below.sort();
    below
}

/// A tree of three levels.
fn tree(root: &Path) {
    for (name, length) in
        [("a.txt", 100), ("b.pdf", 5000), ("d/c.txt", 300_000), ("d/e/f.pdf", 10), ("d/e/g.txt", 0), ("x/y.txt", 7)]
    {
        write_aged(&root.join(name), &noise(length), 10);
    }
}

fn nginx(extra: &str) -> Option<Server> {
    let server = Server::nginx(extra)?;
    tree(&server.root());
    Some(server)
}

/// Goal: the forecast tells what comes, all of it comes, and then nobody is asked while it is read; run again, what is
/// fresh costs no request, and what is not one question each.
#[test]
fn what_was_warmed_is_here() {
    let Some(mut server) = nginx("") else { return };
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(server.site());
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let forecast = line(&lines, "forecast");
    assert_eq!((&forecast["files"], &forecast["directories"]), (&6.into(), &4.into()), "{forecast}");
    let done = line(&lines, "done");
    assert_eq!((&done["files_done"], &done["failed"]), (&6.into(), &0.into()), "{done}");
    assert_eq!(done["bytes_done"], 305_117, "{done}");
    let asked = server.hits().len();
    for (name, length) in [("a.txt", 100), ("d/c.txt", 300_000), ("d/e/g.txt", 0), ("x/y.txt", 7)] {
        assert!(std::fs::read(top.join(name)).expect("read") == noise(length), "{name}");
    }
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!((outcome.code, &line(&lines, "forecast")["fresh"]), (Some(0), &6.into()), "{lines:?}");
    assert_eq!(server.asked_since(asked), Vec::<String>::new(), "all is here");
    let told = mount.verb("warm", [&top]);
    assert!(told.out.contains("6 of 6 files are here: 0 fetched"), "{told:?}");
    assert_eq!(mount.verb("reload", [&top]).code, Some(0));
}

#[test]
fn what_is_not_fresh_costs_a_question() {
    let Some(mut server) = nginx("add_header cache-control no-cache;") else { return };
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(server.site());
    assert_eq!(warm(&mount, "", [&top]).0.code, Some(0));
    let before = server.hits().len();
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(line(&lines, "done")["fetched"], 0);
    let hits = server.hits().split_off(before);
    let files = hits.iter().filter(|hit| !hit.target.ends_with('/') && hit.target != "/robots.txt");
    let statuses: Vec<u16> = files.map(|hit| hit.status).collect();
    assert_eq!(statuses, [304; 6], "{hits:?}");
}

/// Goal: depth, globs and lists choose, a dry run fetches no file, and what is bad is told and stops nothing.
#[test]
fn depth_globs_and_lists_choose() {
    let Some(mut server) = nginx("") else { return };
    let Some(mount) = Mount::new() else { return };
    let (site, top) = (server.site(), mount.at(server.site()));
    let (outcome, lines) = warm(&mount, "--dry-run", [&top]);
    assert_eq!((outcome.code, &line(&lines, "forecast")["to_fetch"]), (Some(0), &6.into()), "{outcome:?}");
    assert!(
        server
            .hits()
            .iter()
            .all(|hit| hit.target.ends_with('/') || hit.target == "/robots.txt" || hit.method.is_empty())
    );
    for (words, wanted) in [
        ("--depth 0", vec!["a.txt", "b.pdf"]),
        ("--depth 1 --match *.txt", vec!["a.txt", "d/c.txt", "x/y.txt"]),
        ("--match d/** --exclude *.pdf", vec!["d/c.txt", "d/e/g.txt"]),
        ("--exclude d --exclude /a.txt", vec!["b.pdf", "x/y.txt"]),
    ] {
        let (outcome, lines) = warm(&mount, words, [&top]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(paths(&lines, "file", &site), wanted, "{words}");
    }
    let list = mount.beside("list");
    let absolute = top.join("d/e/f.pdf");
    let text = format!(
        "# a list\n{site}/a.txt\n{}\nhttp://{}/x/y.txt\n/etc/passwd\nhttp://[\n{site}/missing.txt\n",
        absolute.display(),
        server.host()
    );
    std::fs::write(&list, text).expect("written");
    let (outcome, lines) = warm(&mount, &format!("--list {}", list.display()), [] as [&Path; 0]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert_eq!(paths(&lines, "file", &site), ["a.txt", "d/e/f.pdf", "x/y.txt"], "{lines:?}");
    assert_eq!(paths(&lines, "failed", &site), ["missing.txt"], "{lines:?}");
    let bad: Vec<u64> = lines.iter().filter_map(|line| line["line"].as_u64()).collect();
    assert_eq!(bad, [5, 6]);
    std::fs::write(&list, format!("http://{}/x/y.txt\n", server.host())).expect("written");
    let (outcome, lines) = warm(&mount, &format!("--list {}", list.display()), [mount.dir()]);
    assert_eq!(outcome.code, Some(0), "the mount only says which one it is: {outcome:?}");
    assert_eq!(paths(&lines, "file", &site), ["x/y.txt"], "{lines:?}");
    let refused = mount.verb("warm --match [a", [&top]);
    assert!(refused.code == Some(2) && refused.err.contains("--match"), "{refused:?}");
    let none = mount.verb("warm", [top.join("missing.txt")]);
    assert_eq!(none.code, Some(4), "{none:?}");
    let everything = mount.verb("warm", [mount.at("web")]);
    assert!(everything.code == Some(5) && everything.err.contains("name one host"), "{everything:?}");
}

/// Goal: robots.txt is asked for once, kept by `warm` and by nobody else, and told.
#[test]
fn robots_are_kept_by_warm_alone() {
    let Some(mut server) = nginx("") else { return };
    let rules = "User-agent: *\nDisallow: /\n\nUser-agent: weft\nDisallow: /d/\nAllow: /d/e/\nDisallow: /*.pdf$\nCrawl-delay: 0.01\n";
    std::fs::write(server.root().join("robots.txt"), rules).expect("written");
    let Some(mount) = Mount::new() else { return };
    let (site, top) = (server.site(), mount.at(server.site()));
    let (outcome, lines) = warm(&mount, "", [&top, &top.join("d/e")]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert_eq!(paths(&lines, "file", &site), ["a.txt", "d/e/g.txt", "robots.txt", "x/y.txt"]);
    assert_eq!(paths(&lines, "forbidden", &site), ["b.pdf", "d", "d/e/f.pdf"]);
    assert!(line(&lines, "note")["text"].as_str().is_some_and(|text| text.contains("0.01 s")), "{lines:?}");
    let hits = server.hits();
    assert!(!hits.iter().any(|hit| hit.target.ends_with(".pdf")), "{hits:?}");
    // Once for its rules, once as a file among others.
    assert_eq!(hits.iter().filter(|hit| hit.target == "/robots.txt").count(), 2, "{hits:?}");
    assert_eq!(std::fs::read(top.join("b.pdf")).expect("a user's own read"), noise(5000));
    let (outcome, lines) = warm(&mount, "--ignore-robots", [&top]);
    assert_eq!((outcome.code, &line(&lines, "done")["files_done"]), (Some(0), &7.into()), "{outcome:?}");
}

/// Goal: a host whose robots.txt fails gives nothing; one without it everything.
#[test]
fn a_host_that_cannot_give_its_rules_gives_nothing() {
    for (status, code) in [("500 Oops", Some(5)), ("404 Not Found", Some(0)), ("403 Forbidden", Some(0))] {
        let liar = Liar::answering(move |asked| match asked.path.as_str() {
            "/robots.txt" => answer(status, &[], ""),
            "/a.txt" => answer("200 OK", &["etag: \"1\""], "text"),
            _ => page("<a href='a.txt'>a</a>"),
        });
        let Some(mount) = Mount::new() else { return };
        let outcome = mount.verb("warm", [mount.at(liar.site()).join("a.txt")]);
        assert_eq!(outcome.code, code, "{status}: {outcome:?}");
        assert_eq!(liar.times("/a.txt"), usize::from(code == Some(0)), "{status}");
        assert_eq!(outcome.err.contains("RFC 9309"), code == Some(5), "{outcome:?}");
    }
}

/// Goal: what does not fit is said before the first byte; with `--force` it goes as far as it does, and says so.
#[test]
fn what_does_not_fit_is_said_first() {
    let Some(mut server) = Server::nginx("") else { return };
    for nth in 0..8 {
        write_aged(&server.root().join(format!("d/{nth}.bin")), &noise(64 << 10), 1);
    }
    let Some(mount) = Mount::with(Setup::default().config("[cache]\nmax = \"300K\"\n")) else { return };
    let top = mount.at(server.site()).join("d");
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let misfits = line(&lines, "forecast")["misfits"].to_string();
    assert!(misfits.contains("[cache] max"), "{misfits}");
    assert!(!server.hits().iter().any(|hit| hit.target.ends_with(".bin")));
    let (outcome, lines) = warm(&mount, "--force", [&top]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    let came = line(&lines, "done")["files_done"].as_u64().expect("a number");
    assert!((1..=4).contains(&came), "{lines:?}");
    let failed = lines.iter().find(|line| line["event"] == "failed").expect("one did not fit");
    assert!(failed["why"].as_str().is_some_and(|why| why.contains("no space left")), "{failed}");
    let others: u64 = lines.iter().filter_map(|line| line["others"].as_u64().map(|others| others + 1)).sum();
    assert_eq!(others + came, 8, "{lines:?}");
    let (outcome, lines) = warm(&mount, "--max 1K", [&top]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(line(&lines, "forecast")["misfits"].to_string().contains("--max"), "{lines:?}");
}

/// A file of many pieces.
const LONG: usize = 40 << 20;

/// A server of one long file that holds its bytes back after `held_after` of them until it may go on, and of short ones.
fn slow(held_after: usize, go_on: Arc<AtomicBool>) -> (Liar, Arc<AtomicUsize>) {
    let served = Arc::new(AtomicUsize::new(0));
    let of_liar = served.clone();
    let content = noise(LONG);
    let liar = Liar::talking(move |asked, stream| {
        use std::io::Write;
        let fresh = ["etag: \"1\"", "cache-control: max-age=3600", "accept-ranges: bytes"];
        let reply = match asked.path.as_str() {
            "/a.txt" => answer("200 OK", &fresh, "text"),
            "/long.bin" => {
                let from = asked
                    .header("range")
                    .and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
                let from: usize = from.unwrap_or(0);
                let span = format!("content-range: bytes {from}-{}/{LONG}", LONG - 1);
                let headers = [
                    &fresh[..],
                    if from > 0 { std::slice::from_ref(&span) } else { &[] }
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .as_slice(),
                ]
                .concat();
                let whole = answer(if from > 0 { "206 Partial Content" } else { "200 OK" }, &headers, &content[from..]);
                let head = whole.len() - (LONG - from);
                let mut sent = 0;
                while sent < whole.len() {
                    let end = (sent + (64 << 10)).min(whole.len());
                    if stream.write_all(&whole[sent..end]).is_err() {
                        return;
                    }
                    of_liar.fetch_max(from + end.saturating_sub(head), Ordering::SeqCst);
                    sent = end;
                    while sent > held_after && !go_on.load(Ordering::SeqCst) {
                        std::thread::park_timeout(std::time::Duration::from_millis(5));
                    }
                }
                return;
            }
            "/" => page("<a href='a.txt'>a</a> <a href='long.bin'>l</a>"),
            _ => answer("404 Not Found", &[], ""),
        };
        // Whoever hangs up early does not want the answer.
        let _ = stream.write_all(&reply);
    });
    (liar, served)
}

/// A warming that has come to the middle of the long file, at which the server waits.
struct Halfway {
    warming: Running,
    mount: Mount,
    liar: Liar,
    served: Arc<AtomicUsize>,
    go_on: Arc<AtomicBool>,
}

impl Halfway {
    /// The server waits after so many bytes, of which so many have come.
    fn at(held_after: usize, came: u64) -> Option<Halfway> {
        let go_on = Arc::new(AtomicBool::new(false));
        let (liar, served) = slow(held_after, go_on.clone());
        let mount = Mount::new()?;
        let warming = mount.weft().args(["warm", "--json"]).arg(mount.at(liar.site())).start();
        let mut halfway = Halfway { warming, mount, liar, served, go_on };
        halfway.wait_for("progress", |line| line["bytes_done"].as_u64().is_some_and(|done| done >= came));
        Some(halfway)
    }

    /// The next line of this event that is so.
    fn wait_for(&mut self, event: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line: Value = serde_json::from_str(&self.warming.line()).expect("JSON");
            if line["event"] == event && is_so(&line) {
                return line;
            }
        }
    }
}

/// Goal: after the daemon was killed in the middle of a file, the same command goes on from the middle, and what is
/// read then is right.
#[test]
fn a_killed_daemon_is_gone_on_with() {
    let Some(halfway) = Halfway::at(20 << 20, 18 << 20) else { return };
    let Halfway { go_on, liar, mount, warming, .. } = halfway;
    let top = mount.at(liar.site());
    let status = mount.status();
    assert_eq!(status["warms"][0]["path"], liar.site(), "{status}");
    // What was noted of a part is durable within the interval of flushes, or when a verb asks.
    mount.kill9();
    assert_eq!(warming.end(), Some(1), "a daemon that dies is no good end");
    go_on.store(true, Ordering::SeqCst);
    assert_eq!(mount.verb("umount --lazy", [mount.dir()]).code, Some(0));
    mount.mount();
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let came = line(&lines, "done")["bytes_done"].as_u64().expect("a number");
    assert!(came <= (LONG - (15 << 20)) as u64, "{came} bytes were fetched again");
    let asked = liar.asked();
    let ranges: Vec<_> =
        asked.iter().filter(|asked| asked.path == "/long.bin").map(|asked| asked.header("range")).collect();
    assert!(ranges.last().is_some_and(Option::is_some), "{ranges:?}");
    assert!(std::fs::read(top.join("long.bin")).expect("read") == noise(LONG));
    assert_eq!(liar.times("/a.txt"), 1, "a whole file is not fetched again");
}

/// Goal: who has a tree fetched ahead does not notice that the daemon is killed, or replaced by another: that one goes on from the
/// middle.
#[test]
fn the_next_daemon_goes_on() {
    for killed in [true, false] {
        let Some(mut halfway) = Halfway::at(20 << 20, 18 << 20) else { return };
        halfway.mount.status();
        if killed {
            halfway.mount.kill_daemon();
        } else {
            assert_eq!(halfway.mount.verb("upgrade", [halfway.mount.dir()]).code, Some(0));
        }
        halfway.go_on.store(true, Ordering::SeqCst);
        let done = halfway.wait_for("done", |_| true);
        let Halfway { liar, mount, warming, .. } = halfway;
        let top = mount.at(liar.site());
        assert_eq!(warming.end(), Some(0), "{done}");
        assert!(done["bytes_done"].as_u64().is_some_and(|bytes| bytes < LONG as u64), "{done}");
        assert!(std::fs::read(top.join("long.bin")).expect("read") == noise(LONG));
        assert_eq!(liar.times("/a.txt"), 1, "a whole file is not fetched again");
    }
}

/// Goal: Ctrl-C ends the work in the daemon, and what is complete stays.
#[test]
fn an_interrupt_ends_the_work() {
    let Some(halfway) = Halfway::at(12 << 20, 10 << 20) else { return };
    let Halfway { go_on, served, liar, mount, warming } = halfway;
    let top = mount.at(liar.site());
    let group = warming.id();
    kill_process(Pid::from_raw(group as i32).expect("a process"), Signal::INT).expect("sent");
    assert_ne!(warming.end(), Some(0));
    while mount.status()["warms"].as_array().is_some_and(|warms| !warms.is_empty()) {}
    go_on.store(true, Ordering::SeqCst);
    // The body that was on its way ends soon; a question about it comes after.
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"text");
    while mount.why(&top.join("long.bin"), "cached").starts_with("arriving") {}
    assert!(served.load(Ordering::SeqCst) < LONG, "the rest was not fetched");
    let (outcome, _) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(std::fs::read(top.join("long.bin")).expect("read") == noise(LONG));
}

/// Goal: what one user's login brought is not warmed for another, and no login is lent. Method: an open mount of root's,
/// where another user has a login and reads with it; then root, who has none, warms all.
#[test]
fn another_users_login_is_not_used() {
    if !is_root() {
        return without("only root can become another user");
    }
    let liar = Liar::answering(|asked| {
        let known = asked.header("authorization").is_some();
        let fresh = ["etag: \"1\"", "cache-control: max-age=3600"];
        match asked.path.as_str() {
            "/open.txt" => answer("200 OK", &fresh, "open"),
            "/private.txt" | "/unread.txt" if known => answer("200 OK", &fresh, "secret"),
            "/private.txt" | "/unread.txt" => answer("401 Unauthorized", &["www-authenticate: Basic realm=\"x\""], ""),
            "/robots.txt" => answer("404 Not Found", &[], ""),
            _ => page("<a href='open.txt'>o</a> <a href='private.txt'>p</a> <a href='unread.txt'>u</a>"),
        }
    });
    let config = "[web]\nnetrc = \"\"\nallow_hosts = [\"127.0.0.1\"]\ninsecure_credentials = true\n\
        [[web.login]]\nhosts = [\"127.0.0.1\"]\nuser = \"65534\"\nbearer_file = \"token\"\n";
    let Some(mount) = Mount::prepare(Setup::default().option("allow_other").config(config)) else { return };
    let token = mount.beside("token");
    std::fs::write(&token, "word\n").expect("written");
    std::os::unix::fs::chown(&token, Some(65534), Some(65534)).expect("root may");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    mount.mount();
    let top = mount.at(liar.site());
    let become_other = ["--reuid=65534", "--regid=65534", "--clear-groups", "cat"];
    let private = top.join("private.txt");
    assert_eq!(Program::new("setpriv").args(become_other).arg(private).dir(Path::new("/")).good(), "secret");
    let before = liar.asked().len();
    let (outcome, lines) = warm(&mount, "", [&top]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    let came = paths(&lines, "file", &liar.site());
    assert_eq!(came.iter().filter(|path| *path != "index.html").collect::<Vec<_>>(), ["open.txt"], "{lines:?}");
    assert!(!paths(&lines, "failed", &liar.site()).is_empty(), "{lines:?}");
    assert!(lines.iter().filter(|line| line["event"] == "failed").all(|line| line["code"] == "denied"), "{lines:?}");
    let since = liar.asked().split_off(before);
    assert!(since.iter().all(|asked| asked.header("authorization").is_none()), "{since:?}");
}

/// Goal: a host has no more requests at a time than it is to have, whatever the number of jobs, and as many where it may.
/// Method: the server answers no file before so many are asked for at a time.
#[test]
fn a_host_is_asked_politely() {
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of_liar, most_of_liar) = (under_way, most.clone());
    let liar = Liar::talking(move |asked, stream| {
        use std::io::Write;
        let reply = match asked.path.as_str() {
            "/robots.txt" => answer("404 Not Found", &[], ""),
            "/" => page(&(0..30).map(|nth| format!("<a href='{nth}.txt'>x</a>")).collect::<String>()),
            _ => {
                most_of_liar.fetch_max(of_liar.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                while most_of_liar.load(Ordering::SeqCst) < 3 {
                    std::thread::park_timeout(std::time::Duration::from_millis(5));
                }
                of_liar.fetch_sub(1, Ordering::SeqCst);
                answer("200 OK", &["etag: \"1\""], "text")
            }
        };
        // Whoever hangs up early does not want the answer.
        let _ = stream.write_all(&reply);
    });
    let Some(mount) = Mount::with(Setup::default().config("[web]\nwarm_per_host = 3\n")) else { return };
    let (outcome, lines) = warm(&mount, "--jobs 16", [&mount.at(liar.site())]);
    assert_eq!((outcome.code, &line(&lines, "done")["failed"]), (Some(0), &0.into()), "{outcome:?}");
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// Goal: a page may name what turns out to be a directory; what is below it comes as well, globs or not.
#[test]
fn names_that_turn_out_to_be_directories_are_entered() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/robots.txt" => answer("404 Not Found", &[], ""),
        "/" => page("<a href='part'>part</a> <a href='other'>other</a>"),
        "/part" => answer("301 Moved", &["location: /part/"], ""),
        "/part/" => page("<a href='deep.txt'>deep</a> <a href='deep.bin'>deep</a>"),
        "/part/deep.txt" | "/part/deep.bin" | "/other" => answer("200 OK", &["etag: \"1\""], "text"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::new() else { return };
    let (outcome, lines) = warm(&mount, "--match *.txt", [&mount.at(liar.site())]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(paths(&lines, "file", &liar.site()), ["part/deep.txt"], "{lines:?}");
    let (outcome, lines) = warm(&mount, "--pin", [&mount.at(liar.site())]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let came = paths(&lines, "file", &liar.site());
    for name in ["other", "part/deep.bin", "part/deep.txt"] {
        assert!(came.contains(&name.to_owned()), "{name}: {came:?}");
        assert!(mount.why(&mount.at(liar.site()).join(name), "class").starts_with("pinned"), "{name}");
    }
}

/// Goal: a host that asks for rest has it, and then all comes.
#[test]
fn a_busy_host_is_waited_for() {
    let refused = AtomicUsize::new(0);
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/robots.txt" => answer("404 Not Found", &[], ""),
        "/a.txt" if refused.fetch_add(1, Ordering::SeqCst) < 2 => {
            answer("503 Service Unavailable", &["retry-after: 1"], "")
        }
        "/a.txt" => answer("200 OK", &["etag: \"1\""], "text"),
        _ => page("<a href='a.txt'>a</a>"),
    });
    let Some(mount) = Mount::new() else { return };
    let outcome = mount.verb("warm", [mount.at(liar.site())]);
    assert_eq!((outcome.code, liar.times("/a.txt")), (Some(0), 3), "{outcome:?}");
}
