//! Names that come to lead to something again, and names that go.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;

use crate::support::{Liar, Mount, Server, Setup, answer, fails_with, names_in, page, write_aged};

/// Goal: of all that is in a directory that was gone, at any depth, or was a file for a while, nothing is shown that was held of
/// it before, although that would be trusted still.
#[test]
fn what_is_in_a_directory_that_has_come_back_is_not_what_it_was() {
    let Some(python) = Server::python() else { return };
    let at_source = |path: &str| python.root().join(path);
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(python.site());
    let read = |path: &str| String::from_utf8(std::fs::read(top.join(path)).expect("read")).expect("text");
    let reload = || assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    let remove = || std::fs::remove_dir_all(at_source("d")).expect("removed");
    for (round, file, minutes) in [("first", "e/a.txt", 5000), ("second", "e/b.txt", 6000), ("third", "e/c.txt", 7000)]
    {
        for file in ["a.txt", "e/a.txt", file] {
            write_aged(&at_source("d").join(file), round.as_bytes(), minutes);
        }
        reload();
        assert_eq!([read("d/a.txt"), read("d/e/a.txt"), read(&format!("d/{file}"))], [round; 3]);
        assert!(names_in(&top.join("d/e")).contains(&file[2..].to_owned()), "{file}");
        remove();
        if round == "first" {
            reload();
            fails_with(std::fs::metadata(top.join("d")), Errno::NOENT);
        } else {
            write_aged(&at_source("d"), b"a file", 5000);
            reload();
            assert_eq!(read("d"), "a file");
            std::fs::remove_file(at_source("d")).expect("removed");
        }
    }
}

/// Goal: the same of a file in whose place lists have told a directory.
#[test]
fn what_was_listed_as_a_directory_is_not_the_file_from_before() {
    let Some(python) = Server::python() else { return };
    let place = python.root().join("a.txt");
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(python.site());
    let reload = || assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    write_aged(&place, b"before", 5000);
    reload();
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"before");
    std::fs::remove_file(&place).expect("removed");
    write_aged(&place.join("below"), b"below", 5000);
    reload();
    assert!(std::fs::metadata(top.join("a.txt")).expect("there").is_dir());
    std::fs::remove_dir_all(&place).expect("removed");
    write_aged(&place, b"after!", 6000);
    reload();
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"after!");
}

/// Goal: a name of which it is known that it is absent, by itself and by the list of before, is asked about all the same.
#[test]
fn what_was_absent_is_asked_about_when_one_says_so() {
    let Some(nginx) = Server::nginx("autoindex_format json;") else { return };
    let place = nginx.root().join("a.txt");
    write_aged(&nginx.root().join("b.txt"), b"another", 5000);
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let path = mount.at(nginx.site()).join("a.txt");
    assert_eq!(names_in(&mount.at(nginx.site())), ["b.txt"]);
    for round in ["first", "second"] {
        assert_eq!(mount.verb("reload", [&path]).code, Some(4));
        fails_with(std::fs::read(&path), Errno::NOENT);
        write_aged(&place, round.as_bytes(), 5000);
        let reloaded = mount.verb("reload", [&path]);
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
        assert_eq!(std::fs::read(&path).expect("there"), round.as_bytes());
        std::fs::remove_file(&place).expect("removed");
    }
}

/// Goal: a name that is new is found also where its directory has told all its names before, and refuses to now.
#[test]
fn what_is_new_is_asked_about_where_the_list_is_refused() {
    let later = Arc::new(AtomicBool::new(false));
    let of_server = later.clone();
    let liar = Liar::answering(move |asked| match (asked.path.as_str(), of_server.load(Ordering::SeqCst)) {
        ("/", false) => list_of_nginx("b.txt", "5"),
        ("/", true) => answer("403 Forbidden", &[], ""),
        ("/a.txt", true) => answer("200 OK", &["etag: \"1\""], "there"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(liar.site());
    assert_eq!(names_in(&top), ["b.txt"]);
    fails_with(std::fs::read(top.join("a.txt")), Errno::NOENT);
    later.store(true, Ordering::SeqCst);
    let reloaded = mount.verb("reload", [top.join("a.txt")]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    assert_eq!(std::fs::read(top.join("a.txt")).expect("there"), b"there");
    assert_eq!(mount.verb("reload", [top.join("c.txt")]).code, Some(4));
}

/// Goal: a directory that is gone has no name any more once that was found, also where a list was to be trusted that has it, and
/// whatever is known of what was in it.
#[test]
fn a_directory_that_is_gone_has_no_name() {
    let Some(nginx) = Server::nginx("autoindex_format json;") else { return };
    for dir in ["listed", "read"] {
        write_aged(&nginx.root().join(dir).join("a.txt"), b"in it", 5000);
    }
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let top = mount.at(nginx.site());
    assert_eq!(names_in(&top), ["listed", "read"]);
    assert_eq!(names_in(&top.join("listed")), ["a.txt"]);
    assert_eq!(std::fs::read(top.join("read/a.txt")).expect("read"), b"in it");
    for dir in ["listed", "read"] {
        std::fs::remove_dir_all(nginx.root().join(dir)).expect("removed");
        assert_eq!(mount.verb("reload", [top.join(dir)]).code, Some(4), "{dir}");
        fails_with(std::fs::metadata(top.join(dir)), Errno::NOENT);
        assert!(!names_in(&top).contains(&dir.to_owned()));
    }
}

/// Goal: a file that is open stays as long as it is when another that had its name, and is gone as well, was about as long as a
/// list said: there are no zeros behind its end.
#[test]
fn what_is_open_is_as_long_as_it_was_when_a_list_tells_of_another() {
    let there = Arc::new(AtomicBool::new(true));
    let of_server = there.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => list_of_nginx("a.txt", "5K"),
        "/a.txt" if of_server.load(Ordering::SeqCst) => answer("200 OK", &["etag: \"1\""], "short"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(liar.site());
    let file = File::open(top.join("a.txt")).expect("there");
    let read = || {
        let mut bytes = vec![0; 4096];
        let length = file.read_at(&mut bytes, 0).expect("read");
        String::from_utf8(bytes[..length].to_vec()).expect("text")
    };
    assert_eq!(read(), "short");
    there.store(false, Ordering::SeqCst);
    assert_eq!(mount.verb("reload", [top.join("a.txt")]).code, Some(4));
    assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    fails_with(std::fs::read(top.join("a.txt")), Errno::NOENT);
    assert_eq!(file.metadata().expect("open").len(), 5);
    assert_eq!(read(), "short");
}

/// A list of nginx with one file, that tells about how long that is.
fn list_of_nginx(name: &str, size: &str) -> Vec<u8> {
    let row = format!("<a href=\"{name}\">{name}</a>               13-Sep-2020 15:26      {size}\r\n");
    let head = "<html>\r\n<head><title>Index of /</title></head>\r\n<body>\r\n<h1>Index of /</h1><hr><pre>";
    page(&format!("{head}<a href=\"../\">../</a>\r\n{row}</pre><hr></body>\r\n</html>\r\n"))
}

/// Goal: a file that has come again is asked for where a list, which tells times to the minute, says the same of it as before.
#[test]
fn what_has_come_back_in_the_same_minute_is_not_what_it_was() {
    let Some(nginx) = Server::nginx("autoindex_format html;") else { return };
    let place = nginx.root().join("a.txt");
    let put = |bytes: &[u8], second: u64| {
        std::fs::write(&place, bytes).expect("written");
        let modified = UNIX_EPOCH + Duration::from_secs(1_599_999_960 + second);
        File::open(&place).expect("there").set_times(FileTimes::new().set_modified(modified)).expect("set");
    };
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(nginx.site());
    let reload = || assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    put(b"before", 5);
    reload();
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"before");
    std::fs::remove_file(&place).expect("removed");
    reload();
    fails_with(std::fs::metadata(top.join("a.txt")), Errno::NOENT);
    put(b"after!", 25);
    reload();
    assert_eq!(std::fs::read(top.join("a.txt")).expect("read"), b"after!");
}

/// Goal: what was looked at is asked about when all below a directory is, also where nothing of it is held and no list tells
/// more than its name.
#[test]
fn what_was_looked_at_is_asked_about_with_all_below() {
    let Some(python) = Server::python() else { return };
    let place = python.root().join("d/a.bin");
    write_aged(&place, &[1; 1_000_000], 5000);
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let top = mount.at(python.site());
    let length = || std::fs::metadata(top.join("d/a.bin")).expect("there").len();
    assert_eq!(names_in(&top.join("d")), ["a.bin"]);
    assert_eq!(length(), 1_000_000);
    write_aged(&place, b"shorter", 6000);
    assert_eq!(mount.verb("reload -r", [&top]).code, Some(0));
    assert_eq!(length(), 7);
}

/// Goal: what has come again is shown as long as it is, also while what had its name before is open, where a list tells no more
/// than the name.
#[test]
fn what_has_come_back_is_as_long_as_it_is_while_the_former_is_open() {
    let Some(python) = Server::python() else { return };
    let place = python.root().join("a.txt");
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(python.site());
    let reload = || assert_eq!(mount.verb("reload", [&top]).code, Some(0));
    write_aged(&place, b"before", 5000);
    reload();
    let file = File::open(top.join("a.txt")).expect("there");
    std::fs::remove_file(&place).expect("removed");
    reload();
    fails_with(std::fs::metadata(top.join("a.txt")), Errno::NOENT);
    write_aged(&place, b"afterwards", 6000);
    reload();
    assert_eq!(std::fs::metadata(top.join("a.txt")).expect("there").len(), 10);
    assert_eq!(file.metadata().expect("open").len(), 6);
}

/// Goal: what was removed is absent to the first who looks, and what has become a directory is one, while somebody reads it on.
#[test]
fn what_is_gone_while_it_is_open_is_gone_at_once() {
    let Some(nginx) = Server::nginx("") else { return };
    let Some(mount) = Mount::with(Setup::default().option("freshness=always")) else { return };
    let top = mount.at(nginx.site());
    for (name, becomes_directory) in [("gone.txt", false), ("changed.txt", true)] {
        let place = nginx.root().join(name);
        write_aged(&place, b"before", 5000);
        let file = File::open(top.join(name)).expect("there");
        assert_eq!(std::fs::metadata(top.join(name)).expect("there").len(), 6);
        std::fs::remove_file(&place).expect("removed");
        if becomes_directory {
            std::fs::create_dir(&place).expect("made");
        }
        match std::fs::metadata(top.join(name)) {
            Ok(told) => assert!(becomes_directory && told.is_dir(), "{name}: {told:?}"),
            gone => fails_with(gone, Errno::NOENT),
        }
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).expect("as it was opened");
        assert_eq!((&bytes, file.metadata().expect("open").len()), (b"before", 6));
    }
}

/// Goal: a directory that was found by its name, and that no list denies, has none when it is gone.
#[test]
fn a_directory_that_was_looked_up_and_is_gone_has_no_name() {
    let there = Arc::new(AtomicBool::new(true));
    let of_server = there.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => page("a page without links"),
        "/d" if of_server.load(Ordering::SeqCst) => answer("301 Moved", &["location: /d/"], ""),
        "/d/" if of_server.load(Ordering::SeqCst) => page("<a href='a.txt'>a file</a>"),
        _ => answer("404 Not Found", &[], ""),
    });
    for verb in ["reload", "reload -r", "rm -w -r"] {
        there.store(true, Ordering::SeqCst);
        let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
        let top = mount.at(liar.site());
        assert_eq!(names_in(&top.join("d")), ["a.txt", "index.html"]);
        assert_eq!(names_in(&top), ["d", "index.html"]);
        there.store(false, Ordering::SeqCst);
        match verb {
            "reload" => assert_eq!(mount.verb(verb, [top.join("d")]).code, Some(4)),
            "reload -r" => assert_eq!(mount.verb(verb, [&top]).code, Some(0)),
            _ => assert_eq!(mount.verb(verb, [top.join("d")]).code, Some(0)),
        }
        fails_with(std::fs::read_dir(top.join("d")), Errno::NOENT);
        fails_with(std::fs::metadata(top.join("d")), Errno::NOENT);
        assert_eq!(names_in(&top), ["index.html"], "{verb}");
    }
}

/// Goal: the same of one that has never been listed; as long as it is there, that it gives no list is no failure.
#[test]
fn a_directory_that_gives_no_list_is_asked_about_with_all_below() {
    let there = Arc::new(AtomicBool::new(true));
    let of_server = there.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => page("a page without links"),
        "/d" if of_server.load(Ordering::SeqCst) => answer("301 Moved", &["location: /d/"], ""),
        "/d/" if of_server.load(Ordering::SeqCst) => answer("403 Forbidden", &[], ""),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
    let top = mount.at(liar.site());
    fails_with(std::fs::read_dir(top.join("d")), Errno::ACCESS);
    assert_eq!(mount.verb("reload -r", [&top]).code, Some(0));
    assert_eq!(names_in(&top), ["d", "index.html"]);
    there.store(false, Ordering::SeqCst);
    assert_eq!(mount.verb("reload -r", [&top]).code, Some(0));
    assert_eq!(names_in(&top), ["index.html"]);
    fails_with(std::fs::metadata(top.join("d")), Errno::NOENT);
}

/// Goal: a directory that has come since the one above was listed, and was asked for by way of what is in it, goes as others do.
#[test]
fn a_directory_that_was_reached_by_its_whole_path_goes_where_lists_tell_of_it() {
    let Some(python) = Server::python() else { return };
    write_aged(&python.root().join("b.txt"), b"another", 5000);
    let Some(mount) = Mount::with(Setup::default().option("freshness=manual")) else { return };
    let top = mount.at(python.site());
    assert_eq!(names_in(&top), ["b.txt"]);
    write_aged(&python.root().join("d/a.txt"), b"in it", 5000);
    assert_eq!(mount.verb("reload", [top.join("d/a.txt")]).code, Some(0));
    assert_eq!(std::fs::read(top.join("d/a.txt")).expect("there"), b"in it");
    std::fs::remove_dir_all(python.root().join("d")).expect("removed");
    assert_eq!(mount.verb("reload -r", [&top]).code, Some(0));
    assert_eq!(names_in(&top), ["b.txt"]);
    fails_with(std::fs::metadata(top.join("d")), Errno::NOENT);
}

/// Goal: who has a file open in whose place there is a directory, or that lies below what is a file now, is told that it cannot
/// be read on, and not that a directory was read.
#[test]
fn what_is_open_ends_where_a_directory_has_its_name() {
    for (change, above) in [("/a/b.bin", false), ("/a", true)] {
        let there = Arc::new(AtomicBool::new(true));
        let of_server = there.clone();
        let liar = Liar::talking(move |asked, stream| {
            let is_there = of_server.load(Ordering::SeqCst);
            let said = match asked.path.as_str() {
                "/" | "/a/" if is_there => page("<a href='a/'>a</a><a href='/a/b.bin'>b</a>"),
                "/a/b.bin" if is_there => {
                    let head =
                        "HTTP/1.1 200 OK\r\netag: \"1\"\r\naccept-ranges: bytes\r\ncontent-length: 1000000\r\n\r\n";
                    let _ = stream.write_all(&[head.as_bytes(), &[7; 500_000]].concat());
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                "/a/" if above => answer("404 Not Found", &[], ""),
                path if path == change && above => answer("200 OK", &[], "a file"),
                path if path == change => answer("301 Moved", &[&format!("location: {path}/")], ""),
                _ if above => answer("404 Not Found", &[], ""),
                _ => page("a directory"),
            };
            let _ = stream.write_all(&said);
        });
        let Some(mount) = Mount::with(Setup::default().option("freshness=ttl=1h")) else { return };
        let file = File::open(mount.at(liar.site()).join("a/b.bin")).expect("there");
        there.store(false, Ordering::SeqCst);
        let mut bytes = vec![0; 4096];
        let error = loop {
            match file.read_at(&mut bytes, 900_000) {
                Ok(read) => panic!("{read} bytes of {change}"),
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{change}");
    }
}
