//! The verbs on a live mount: what they say, how they end, whom they refuse.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::support::{
    Liar, Mount, Outcome, Program, Server, Setup, answer, fails_with, is_root, names_in, page, weft_program, without,
    write_aged,
};

/// A site of three files, of which `a.txt` has been read.
fn scene(setup: Setup) -> Option<(Liar, Mount, std::path::PathBuf)> {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/" => page("<a href='a.txt'>a</a> <a href='b.txt'>b</a> <a href='deep/c.txt'>c</a>"),
        "/a.txt" | "/b.txt" | "/deep/c.txt" => {
            let headers = ["content-type: text/plain", "cache-control: max-age=3600", "etag: \"1\""];
            answer("200 OK", &headers, format!("text of {}", asked.path))
        }
        _ => answer("404 Not Found", &[], ""),
    });
    let mount = Mount::with(setup)?;
    let top = mount.at(liar.site());
    names_in(&top);
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"text of /a.txt");
    Some((liar, mount, top))
}

#[test]
fn status_tells_the_daemon_and_what_it_holds() {
    let Some((_liar, mount, top)) = scene(Setup::default()) else { return };
    let status = mount.status();
    assert_eq!(status["mountpoint"].as_str(), mount.dir().to_str());
    assert_eq!(status["cache_dir"].as_str(), mount.cache().to_str());
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["bindings"][0]["path"], "web");
    assert!(status["daemon_pid"].as_u64().is_some_and(|pid| pid > 1));
    for (figure, least) in [("names", 4), ("requests", 2), ("objects", 1), ("object_bytes", 14), ("misses", 2)] {
        assert!(mount.figure(figure) >= least, "{figure}: {status}");
    }
    assert_eq!(mount.json("status", [top.join("a.txt")])["daemon_pid"], status["daemon_pid"], "from anything inside");
    let all = mount.json("status", [""; 0]);
    let ours = all.as_array().expect("a list").iter().filter(|one| one["daemon_pid"] == status["daemon_pid"]);
    assert_eq!(ours.count(), 1);
    let words = mount.verb("status", [mount.dir()]).out;
    assert!(words.contains("everything on") && words.contains("holds"), "{words}");
}

#[test]
fn each_kind_tells_of_its_own_hosts() {
    let cells = tempfile::tempdir().expect("a folder");
    std::fs::write(cells.path().join("CellServDB"), ">weft.test #a cell\n127.0.0.1 #db\n").expect("written");
    let config = format!("[afs]\nconfig_dir = \"{}\"\ndns = false\n", cells.path().display());
    let Some((_liar, mount, _top)) = scene(Setup::default().config(&config)) else { return };
    let status = mount.status();
    let state = |path: &str| {
        let bindings = status["bindings"].as_array().expect("a list");
        let binding = bindings.iter().find(|binding| binding["path"] == path);
        binding.and_then(|binding| binding["state"].as_str()).unwrap_or_default().to_owned()
    };
    assert_eq!(state("web"), "1 host used, connected", "{status}");
    assert!(state("afs").starts_with("no host used yet;"), "{status}");
}

#[test]
fn ls_lists_what_is_known_and_not_cached() {
    let Some((liar, mount, top)) = scene(Setup::default()) else { return };
    let before = liar.asked().len();
    let named = |words: &str| -> Vec<(String, String, String)> {
        let lists = mount.json(words, [&top]);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let names = lists[0]["names"].as_array().expect("a list").iter();
        names.map(|name| (text(&name["name"]), text(&name["kind"]), text(&name["cached"]))).collect()
    };
    let row = |name: &str, kind: &str, cached: &str| (name.to_owned(), kind.to_owned(), cached.to_owned());
    let all = [
        row("a.txt", "file", "whole"),
        row("b.txt", "file", "no"),
        row("deep", "directory", "no"),
        row("index.html", "file", "whole"),
    ];
    assert_eq!(named("ls -w --all"), all);
    assert_eq!(named("ls -w"), [all[1].clone(), all[2].clone()]);
    let lsw = mount.beside("lsw");
    std::os::unix::fs::symlink(weft_program(), &lsw).expect("linked");
    let said = Program::new(&lsw).arg(&top).good();
    assert!(said.contains("b.txt") && said.contains("deep/") && !said.contains("a.txt"), "{said}");
    assert!(said.lines().all(|line| line.starts_with("[web]")), "{said}");
    assert_eq!(liar.asked().len(), before, "nobody is asked");
}

#[test]
fn rm_drops_from_the_cache_and_keeps_the_name() {
    let Some((liar, mount, top)) = scene(Setup::default()) else { return };
    let removed = mount.json("rm -w", [top.join("a.txt")]);
    assert!(removed["files"] == 1 && removed["bytes"].as_u64() >= Some(14), "{removed}");
    assert!(mount.why(&top.join("a.txt"), "cached").starts_with("no"));
    assert!(names_in(&top).contains(&"a.txt".to_owned()));
    let refused = mount.verb("rm -w", [&top]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("is a directory; -r"), "{refused:?}");
    std::fs::read(top.join("a.txt")).expect("fetched again");
    assert_eq!(liar.times("/a.txt"), 2);
    let rmw = mount.beside("rmw");
    std::os::unix::fs::symlink(weft_program(), &rmw).expect("linked");
    let said = Program::new(&rmw).arg("-r").arg(&top).good();
    assert!(said.contains("files"), "{said}");
    assert_eq!(mount.figure("objects"), 0);
}

#[test]
fn reload_counts_and_why_explains() {
    let Some((liar, mount, top)) = scene(Setup::default()) else { return };
    let reloaded = mount.json("reload -r", [&top]);
    assert!(reloaded["checked"].as_u64() >= Some(2), "{reloaded}");
    assert_eq!(reloaded["failed"], 0, "{reloaded}");
    assert!(liar.times("/a.txt") >= 2 && liar.times("/b.txt") == 0, "what is not cached is not asked for");
    let file = top.join("a.txt");
    for (fact, wanted) in [
        ("tree", "web"),
        ("kind", "file"),
        ("scheme", "http"),
        ("size", "14"),
        ("policy", "http"),
        ("version", "1"),
        ("next", "served from the cache"),
    ] {
        let value = mount.why(&file, fact);
        assert!(value.contains(wanted), "{fact}: {value}");
    }
    assert!(mount.why(&file, "scheme because").contains("does not speak TLS"));
    let host = liar.host();
    drop(liar);
    let outcome = mount.verb("reload", [&file]);
    assert_eq!(outcome.code, Some(6), "{host} is gone: {outcome:?}");
    assert!(!mount.why(&file, "last error").is_empty());
}

/// Goal: a list that is refused keeps nothing below it from being asked about. Method: a directory that is listed and then refused,
/// while a file in it is changed, which nothing but `reload` would show.
#[test]
fn reload_goes_on_below_a_list_that_is_refused() {
    let later = Arc::new(AtomicBool::new(false));
    let is_later = later.clone();
    let lasting = "cache-control: max-age=3600";
    let liar = Liar::answering(move |asked| match (asked.path.as_str(), is_later.load(Ordering::SeqCst)) {
        ("/d", _) => answer("301 Moved Permanently", &["location: /d/"], ""),
        ("/d/", false) => answer("200 OK", &["content-type: text/html", lasting], "<a href=\"a.txt\">a</a>"),
        ("/d/", true) => answer("403 Forbidden", &[], "no"),
        ("/d/a.txt", false) => answer("200 OK", &["etag: \"1\"", lasting], "before"),
        ("/d/a.txt", true) => answer("200 OK", &["etag: \"2\"", lasting], "after"),
        _ => answer("404 Not Found", &[], "no"),
    });
    let Some(mount) = Mount::with(Setup::default()) else { return };
    let top = mount.at(liar.site()).join("d");
    assert_eq!(names_in(&top), ["a.txt", "index.html"]);
    let read = || std::fs::read_to_string(top.join("a.txt")).expect("read");
    assert_eq!(read(), "before");
    later.store(true, Ordering::SeqCst);
    assert_eq!(mount.verb("reload", [&top]).code, Some(5), "nothing else was asked for");
    assert_eq!(read(), "before");
    let outcome = mount.verb("reload -r", [&top]);
    assert_eq!(read(), "after", "{outcome:?}");
    assert_eq!(outcome.code, Some(6), "{outcome:?}");
    assert!(outcome.err.contains("told nothing of 2 of 3"), "its page as well: {outcome:?}");
    assert!(mount.why(&top, "last error").contains("403"));
}

#[test]
fn extended_attributes_tell_the_state() {
    let Some((_liar, _mount, top)) = scene(Setup::default()) else { return };
    let get = |name: &str, key: &str| {
        let mut value = vec![0; 256];
        let length = rustix::fs::getxattr(top.join(name), key, value.as_mut_slice()).expect("an attribute");
        String::from_utf8(value[..length].to_vec()).expect("UTF-8")
    };
    // A reader has the last byte a moment before the store has it all.
    crate::interrupts::wait_until("it is all here", || get("a.txt", "user.weft.cached") == "whole");
    assert_eq!(get("a.txt", "user.weft.freshness"), "http");
}

#[test]
fn exit_codes_are_as_documented() {
    let Some((_liar, mount, top)) = scene(Setup::default()) else { return };
    for (words, path, code) in [
        ("why", top.join("never-seen"), 4),
        ("ls -w", top.join("never-seen"), 4),
        ("rm -w", top.join("never-seen"), 4),
        ("reload", top.join("never-seen"), 4),
        ("why", mount.beside("home"), 3),
        ("status", mount.beside("home"), 3),
        ("umount", top.join("a.txt"), 2),
        ("umount", mount.beside("home"), 3),
    ] {
        let outcome = mount.verb(words, [&path]);
        assert_eq!(outcome.code, Some(code), "{words} {}: {outcome:?}", path.display());
        assert!(outcome.err.starts_with("weft: "), "{outcome:?}");
        let json = mount.verb(&format!("{words} --json"), [&path]);
        let error: serde_json::Value = serde_json::from_str(&json.out).unwrap_or_else(|e| panic!("{e}: {json:?}"));
        assert!(error["error"]["sentence"].as_str().is_some_and(|sentence| sentence.len() > 10), "{error}");
    }
}

/// Goal: `weft reload` of what is not there says so, whatever said that it is not, or that it was: a list that is complete, its
/// source itself, or nobody yet.
#[test]
fn a_reload_of_what_is_not_there_fails() {
    let Some(nginx) = Server::nginx("") else { return };
    for name in ["gone.txt", "removed.txt"] {
        write_aged(&nginx.root().join(name), b"text", 10);
    }
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(nginx.site());
    let reload = |name: &str| mount.verb("reload", [top.join(name)]);
    let not_there = |name: &str| {
        let outcome = reload(name);
        assert_eq!(outcome.code, Some(4), "{name}: {outcome:?}");
        assert!(outcome.err.contains(name), "{outcome:?}");
    };
    not_there("unknown.txt");
    assert_eq!(names_in(&top), ["gone.txt", "removed.txt"]);
    not_there("unlisted.txt");
    std::fs::read(top.join("gone.txt")).expect("read");
    for name in ["gone.txt", "removed.txt"] {
        std::fs::remove_file(nginx.root().join(name)).expect("removed");
        not_there(name);
        not_there(name);
    }
    write_aged(&nginx.root().join("gone.txt"), b"text", 10);
    assert_eq!(reload("gone.txt").code, Some(0));
    assert_eq!(std::fs::read(top.join("gone.txt")).expect("read"), b"text");
}

/// Goal: a path that leads to no tree of the mount, as a mistyped one does, is refused by every verb, with what there is; one
/// that is not known, or known to be absent, may be there later: it is done as told, and said.
#[test]
fn a_path_that_is_not_there_is_told() {
    let Some((liar, mount, top)) = scene(Setup::default()) else { return };
    for words in ["pin", "offline", "reload", "why", "ls -w", "rm -w", "watch"] {
        let outcome = mount.verb(words, [mount.at("wbe/example.org/a.txt")]);
        assert_eq!(outcome.code, Some(4), "{words}: {outcome:?}");
        let told = "wbe/example.org/a.txt: there is no wbe in the mount's root, only: ";
        assert!(outcome.err.contains(told) && outcome.err.contains("web"), "{words}: {outcome:?}");
    }
    let status = mount.status();
    assert_eq!((&status["offline"], &status["pinned"]), (&serde_json::json!([]), &serde_json::json!([])));

    let (later, absent) = (top.join("later"), top.join("absent.txt"));
    fails_with(std::fs::metadata(&absent), Errno::NOENT);
    for words in ["pin", "offline", "offline --fetch-only"] {
        for (path, cause) in [(&later, "not known here"), (&absent, "is not there, said its source")] {
            let outcome = mount.verb(words, [path]);
            assert_eq!(outcome.code, Some(0), "{words}: {outcome:?}");
            assert!(outcome.err.contains(cause), "{words}: {outcome:?}");
            assert_eq!(outcome.err.lines().count(), 1, "{words}: {outcome:?}");
        }
        let known = mount.verb(words, [top.join("a.txt"), top.clone()]);
        assert_eq!((known.code, known.err.as_str()), (Some(0), ""), "{words}: {known:?}");
    }
    assert_eq!(mount.status()["pinned"].as_array().map(Vec::len), Some(4));
    assert_eq!(liar.times("/later"), 0, "nobody was asked");
}

/// The program as another user, who reaches it by a copy in an open folder.
fn as_other(mount: &Mount) -> impl Fn(&str, &Path) -> Outcome {
    let copy = mount.beside("weft");
    std::fs::copy(weft_program(), &copy).expect("copied");
    std::fs::set_permissions(mount.beside(""), PermissionsExt::from_mode(0o755)).expect("set");
    move |words: &str, path: &Path| other_user(&copy).args(words.split(' ')).arg(path).dir(Path::new("/")).run()
}

fn other_user(program: impl AsRef<std::ffi::OsStr>) -> Program {
    Program::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program)
}

#[test]
fn another_user_is_refused() {
    if !is_root() {
        return without("only root can become another user");
    }
    let Some((_liar, mount, top)) = scene(Setup::default()) else { return };
    let other = as_other(&mount);
    for words in ["status", "ls -w", "why", "rm -w", "reload"] {
        let outcome = other(words, &top.join("a.txt"));
        assert!(matches!(outcome.code, Some(3 | 5)), "{words}: {outcome:?}");
    }
    let outcome = other("umount", &mount.dir());
    assert!(matches!(outcome.code, Some(1 | 3 | 5)) && mount.is_mounted(), "{outcome:?}");
    let seen = other_user("ls").arg(&top).run();
    assert_ne!(seen.code, Some(0), "the kernel keeps others out: {seen:?}");
    assert!(mount.why(&top.join("a.txt"), "next").contains("from the cache"), "nothing was dropped");
}

#[test]
fn in_an_open_mount_others_may_look_and_not_touch() {
    if !is_root() {
        return without("only root can become another user");
    }
    let Some((_liar, mount, top)) =
        scene(Setup::default().option("allow_other").config("[web]\nallow_hosts = [\"127.0.0.1\"]\n"))
    else {
        return;
    };
    let other = as_other(&mount);
    let file = top.join("a.txt");
    assert_eq!(other_user("cat").arg(&file).good(), "text of /a.txt");
    for words in ["status", "ls -w", "why"] {
        let outcome = other(words, &file);
        assert_eq!(outcome.code, Some(0), "{words}: {outcome:?}");
    }
    for (words, path) in [("rm -w", &file), ("reload", &file), ("umount", &mount.dir())] {
        let outcome = other(words, path);
        assert_eq!(outcome.code, Some(5), "{words}: {outcome:?}");
    }
    assert!(mount.why(&file, "next").contains("from the cache"), "nothing was dropped");
}

/// Goal: who may use an open mount does not reach what only its machine reaches. Method: a real server on loopback,
/// which an open mount refuses by default, and `deny` in a mount of one's own.
#[test]
fn a_mount_that_others_may_use_reaches_no_private_address() {
    for (option, config) in [(Some("allow_other"), ""), (None, "[web]\nprivate_addresses = \"deny\"\n")] {
        if option.is_some() && !is_root() {
            without("only root may open a mount to others everywhere");
            continue;
        }
        let mut setup = Setup::default().config(config);
        setup.options.extend(option.map(str::to_owned));
        let liar = Liar::answering(|_| page("secret"));
        let Some(mount) = Mount::with(setup) else { return };
        let host = mount.at(liar.site());
        fails_with(std::fs::metadata(&host), Errno::ACCESS);
        fails_with(std::fs::read(host.join("a.txt")), Errno::ACCESS);
        assert_eq!(liar.asked().len(), 0, "nothing was sent");
        let why = mount.verb("why", [&host]);
        assert!(why.err.contains("allow_hosts = [\"127.0.0.1\"]"), "{why:?}");
        let sample = std::fs::read_to_string(mount.at("web/weft.example/index.html")).expect("served by weft itself");
        assert!(sample.contains("<html"), "{sample}");
    }
}

#[test]
fn a_configuration_with_mistakes_mounts_nothing() {
    let Some(mount) = Mount::prepare(Setup::default().config("[mount]\ndeadlin = \"1s\"\n[web]\nuser_agent = 5\n"))
    else {
        return;
    };
    let outcome = mount.try_mount();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("did you mean `deadline`?") && outcome.err.contains("user_agent"), "{outcome:?}");
    assert!(!mount.is_mounted());
    let checked = mount.verb("config check", [mount.beside("weft.toml")]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.err.contains("weft.toml:2:") && checked.err.contains("weft.toml:4:"), "{checked:?}");
}

#[test]
fn the_demo_goes_through() {
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    let outcome = mount.verb("demo", [""; 0]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.lines().count() > 5, "{outcome:?}");
}

#[test]
fn the_sample_site_needs_no_network() {
    let Some(mount) = Mount::new() else { return };
    let top = mount.at("web/weft.example");
    assert!(names_in(&top).contains(&"docs".to_owned()));
    let page = std::fs::read_to_string(top.join("index.html")).expect("read");
    assert!(page.contains("<html"), "{page}");
    assert!(!names_in(&top.join("pub")).is_empty());
}
