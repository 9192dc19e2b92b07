//! `weft watch` over a real server.

use serde_json::Value;

use crate::support::{Liar, Mount, Running, Server, Setup, answer, damage_small, page, write_aged};

/// Starts to watch, and returns when nothing more is missed.
fn watch(mount: &Mount, words: &str, path: &std::path::Path) -> Running {
    let mut watching = mount.weft().args(words.split(' ')).arg(path).start();
    let begun = watching.error_line();
    assert!(begun.contains("watching"), "{begun}");
    watching
}

/// Has a server give this file from now on, all of it at once: whoever asks in between must not find it empty.
fn put(server: &Server, name: &str, text: &str) {
    let (fresh, place) = (server.root().join("fresh"), server.root().join(name));
    std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, place)).expect("written");
}

/// The next line about a name that ends so, with its kind of change.
#[track_caller]
fn line(watching: &mut Running, name: &str, change: &str) -> Value {
    loop {
        let line = watching.line();
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if line["path"].as_str().is_some_and(|path| path.ends_with(name)) && line["change"] == change {
            return line;
        }
    }
}

/// Goal: what changes at a server is told without any other reader, with versions and sizes, and only below the path.
#[test]
fn changes_at_a_server_are_told() {
    let Some(server) = Server::nginx("") else { return };
    for name in ["d/changes.txt", "d/goes.txt", "other/changes.txt"] {
        write_aged(&server.root().join(name), b"first", 10);
    }
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let top = mount.at(server.site());
    for name in ["d/changes.txt", "d/goes.txt", "other/changes.txt"] {
        assert_eq!(std::fs::read(top.join(name)).expect("read"), b"first");
    }
    std::fs::read_dir(top.join("d")).expect("listed").for_each(drop);
    let mut watching = watch(&mount, "watch --json --validate 1s", &top.join("d"));
    put(&server, "other/changes.txt", "second");
    put(&server, "d/changes.txt", "second");
    let changed = line(&mut watching, "/d/changes.txt", "changed");
    assert_eq!(changed["size"], 6, "{changed}");
    assert!(changed["from"] != changed["to"] && changed["at"].as_f64() > Some(1e9), "{changed}");
    std::fs::remove_file(server.root().join("d/goes.txt")).expect("removed");
    line(&mut watching, "/d/goes.txt", "gone");
    put(&server, "d/comes.txt", "third");
    let new = line(&mut watching, "/d/comes.txt", "new");
    assert_eq!(new["size"], 5, "{new}");
    assert!(!watching.seen().contains("other"), "{}", watching.seen());
    assert_eq!(std::fs::read(top.join("d/changes.txt")).expect("read"), b"second");
    mount.umount();
    assert_eq!(watching.end(), Some(0), "the mount's end is the stream's");
}

/// Goal: a file that is not there yet is looked out for, which is said, and told of when it comes.
#[test]
fn a_file_that_comes_later_is_told() {
    let Some(server) = Server::nginx("") else { return };
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(server.site()).join("later.txt");
    let mut watching = watch(&mount, "watch --json --validate 1s", &file);
    let hint = watching.error_line();
    assert!(hint.contains("/later.txt: ") && hint.contains("it is asked for"), "{hint}");
    std::fs::metadata(&file).expect_err("it is not there");
    put(&server, "later.txt", "there");
    let new = line(&mut watching, "/later.txt", "new");
    assert_eq!(new["size"], 5, "{new}");
    assert_eq!(std::fs::read(&file).expect("read"), b"there");
}

/// Goal: without `--validate` nobody is asked, what another reader finds is told in plain words, and a pace that
/// would annoy servers is refused.
#[test]
fn what_other_readers_find_is_told_in_words() {
    let changed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let of_liar = changed.clone();
    let liar =
        Liar::answering(move |asked| match (asked.path.as_str(), of_liar.load(std::sync::atomic::Ordering::SeqCst)) {
            ("/a.txt", false) => answer("200 OK", &["etag: \"one\"", "cache-control: no-cache"], "text"),
            ("/a.txt", true) => answer("200 OK", &["etag: \"two\"", "cache-control: no-cache"], "longer"),
            _ => page("<a href='a.txt'>a</a>"),
        });
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("a.txt");
    assert_eq!(std::fs::read(&file).expect("read"), b"text");
    let mut watching = watch(&mount, "watch", &mount.dir());
    let asked = liar.asked().len();
    changed.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(liar.asked().len(), asked, "watching alone asks nobody");
    assert_eq!(std::fs::read(&file).expect("read"), b"longer");
    let told = watching.line();
    assert!(told.contains("changed") && told.contains("/a.txt  6 bytes  \"one\" -> \"two\""), "{told}");
    let refused = mount.verb("watch --validate 10ms", [mount.dir()]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("at least 1 s"), "{refused:?}");
    mount.kill9();
    let told = watching.error_line();
    assert!(told.contains("the daemon ended before"), "{told}");
    assert_eq!(watching.end(), Some(1), "a daemon that dies is no good end");
}

/// Goal: who watches goes on with the next daemon, is told that there is another, and of what has changed in between. Method: the
/// daemon is killed, and the one after it upgraded; each time a file changes that the former had told of.
#[test]
fn the_next_daemon_tells_on() {
    let Some(server) = Server::nginx("") else { return };
    write_aged(&server.root().join("d/a.txt"), b"1", 10);
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let top = mount.at(server.site());
    assert_eq!(std::fs::read(top.join("d/a.txt")).expect("read"), b"1");
    let mut watching = watch(&mount, "watch --json --validate 1s", &top.join("d"));
    for (killed, text) in [(true, "of the second"), (false, "of the third daemon")] {
        match killed {
            true => mount.kill_daemon(),
            false => assert_eq!(mount.verb("upgrade", [mount.dir()]).code, Some(0)),
        }
        put(&server, "d/a.txt", text);
        let changed = line(&mut watching, "/d/a.txt", "changed");
        assert_eq!(changed["size"], text.len(), "{changed}");
    }
    let replaced = watching.seen().lines().filter(|line| *line == "{\"replaced\":true}").count();
    assert_eq!(replaced, 2, "{}", watching.seen());
    mount.umount();
    assert_eq!(watching.end(), Some(0), "the mount's end is the stream's");
}

/// Goal: stored bytes that do not match their checksum are told as damage, when they are found and fetched again.
#[test]
fn damage_on_this_machine_is_told() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/a.txt" => answer("200 OK", &["etag: \"1\"", "cache-control: max-age=3600"], "t".repeat(5000)),
        _ => page("<a href='a.txt'>a</a>"),
    });
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("a.txt");
    assert_eq!(std::fs::read(&file).expect("read").len(), 5000);
    mount.umount();
    damage_small(&mount.cache(), &[b't'; 5000]);
    mount.mount();
    let mut watching = watch(&mount, "watch --json", &mount.dir());
    assert_eq!(std::fs::read(&file).expect("read"), "t".repeat(5000).into_bytes());
    let damaged = line(&mut watching, "/a.txt", "damaged");
    assert!(damaged["from"] == "\"1\"" && damaged["from"] == damaged["to"], "{damaged}");
}
