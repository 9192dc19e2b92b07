//! Bad input: each fault of a server or of the disk gets its error, and spoils nothing else.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use rustix::io::Errno;

use crate::support::{Liar, Mount, Setup, answer, fails_with, free_port, noise, page, run};

#[test]
fn no_such_host_is_no_such_file() {
    let Some(mount) = Mount::new() else { return };
    fails_with(std::fs::read(mount.at("web/no-such-host.invalid/index.html")), Errno::NOENT);
    fails_with(std::fs::metadata(mount.at("web/no-such-host.invalid")), Errno::NOENT);
}

#[test]
fn a_refused_port_is_unreachable() {
    let Some(mount) = Mount::new() else { return };
    let host = format!("web/127.0.0.1:{}", free_port());
    fails_with(std::fs::read(mount.at(&host).join("a.txt")), Errno::HOSTUNREACH);
    run("ls", [mount.at("web")]);
}

#[test]
fn a_server_that_never_answers_times_out_and_nobody_else_waits() {
    let (told, asked) = mpsc::channel();
    let silent = Liar::talking(move |_, stream| {
        // The test may have its answer already.
        let _ = told.send(());
        // Until the client gives up.
        let _ = stream.read(&mut [0]);
    });
    let other = Liar::answering(|asked| page(&asked.path));
    let Some(mount) = Mount::with(Setup::default().option("deadline=2s")) else { return };
    let file = mount.at(silent.site()).join("a.txt");
    let waiting = std::thread::spawn(move || std::fs::read(file));
    asked.recv().expect("the silent server is asked");
    for nth in 0..20 {
        let read = std::fs::read_to_string(mount.at(other.site()).join(format!("{nth}.txt"))).expect("read");
        assert_eq!(read, format!("/{nth}.txt"));
    }
    run("df", [mount.dir()]);
    fails_with(waiting.join().expect("no panic"), Errno::TIMEDOUT);
}

#[test]
fn statuses_are_errors_and_never_content() {
    let liar = Liar::answering(|asked| {
        let status = asked.path.trim_start_matches("/s").trim_end_matches(".html");
        match status.parse::<u16>() {
            Ok(status) => answer(&format!("{status} Some Reason"), &["content-type: text/html"], "<a href='x'>no</a>"),
            Err(_) => page("top"),
        }
    });
    let Some(mount) = Mount::with(Setup::default().option("deadline=3s")) else { return };
    for (status, errno) in [
        (404, Errno::NOENT),
        (410, Errno::NOENT),
        (401, Errno::ACCESS),
        (403, Errno::ACCESS),
        (500, Errno::IO),
        (502, Errno::IO),
        (504, Errno::IO),
        (400, Errno::IO),
        (418, Errno::IO),
    ] {
        let file = mount.at(liar.site()).join(format!("s{status}.html"));
        let error = std::fs::read(&file).expect_err("no content");
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{status}: {error}");
    }
    assert_eq!(std::fs::read_to_string(mount.at(liar.site()).join("index.html")).expect("read"), "top");
}

#[test]
fn a_listed_file_that_has_an_error_page_never_has_its_content() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/" => page("<a href='broken.html'>b</a> <a href='gone.html'>g</a> <a href='closed.html'>c</a>"),
        "/broken.html" => answer("500 Internal Server Error", &["content-type: text/html"], "an error page"),
        "/closed.html" => answer("403 Forbidden", &["content-type: text/html"], "an error page"),
        _ => answer("404 Not Found", &["content-type: text/html"], "an error page"),
    });
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    run("ls", [&top]);
    for (name, errno) in [("broken.html", Errno::IO), ("closed.html", Errno::ACCESS), ("gone.html", Errno::NOENT)] {
        let error = std::fs::read(top.join(name)).expect_err("no content");
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{name}: {error}");
    }
}

#[test]
fn a_busy_server_is_waited_for_within_the_deadline() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = refusals.clone();
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/soon.txt" if counted.fetch_add(1, Ordering::SeqCst) == 0 => {
            answer("503 Service Unavailable", &["retry-after: 1"], "busy")
        }
        "/soon.txt" => answer("200 OK", &[], "at last"),
        "/late.txt" => answer("503 Service Unavailable", &["retry-after: 3600"], "busy"),
        "/many.txt" => answer("429 Too Many Requests", &["retry-after: 3600"], "busy"),
        _ => page("top"),
    });
    let Some(mount) = Mount::with(Setup::default().option("deadline=10s")) else { return };
    let top = mount.at(liar.site());
    assert_eq!(std::fs::read(top.join("soon.txt")).expect("read"), b"at last");
    fails_with(std::fs::read(top.join("late.txt")), Errno::AGAIN);
    fails_with(std::fs::read(top.join("many.txt")), Errno::AGAIN);
    assert_eq!(liar.times("/late.txt"), 1, "who says `in an hour` is not asked again at once");
}

/// Answers whose body ends before it should, one path each, and the same in good once `good` is set.
fn cutter(good: Arc<AtomicUsize>) -> Liar {
    Liar::talking(move |asked, stream| {
        let body = noise(300_000);
        let whole = good.load(Ordering::SeqCst) > 0;
        let bytes = match asked.path.as_str() {
            "/length.bin" if whole => answer("200 OK", &[], &body),
            "/length.bin" => [b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n", &body[..270_000]].concat(),
            "/chunked.bin" if whole => answer("200 OK", &[], &body),
            "/chunked.bin" => {
                [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n493E0\r\n", &body[..270_000]].concat()
            }
            _ => page("<a href='length.bin'>l</a> <a href='chunked.bin'>c</a>"),
        };
        // The client may have hung up.
        let _ = stream.write_all(&bytes);
        if !whole && asked.path != "/" {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    })
}

#[test]
fn a_body_that_ends_early_is_an_error_and_is_not_kept() {
    let good = Arc::new(AtomicUsize::new(0));
    let liar = cutter(good.clone());
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    run("ls", [&top]);
    for name in ["length.bin", "chunked.bin"] {
        let file = top.join(name);
        fails_with(std::fs::read(&file), Errno::IO);
        let cached = mount.why(&file, "cached");
        assert!(!cached.starts_with("all") && !cached.contains("whole"), "{name}: {cached}");
    }
    good.store(1, Ordering::SeqCst);
    let whole = noise(300_000);
    for name in ["length.bin", "chunked.bin"] {
        assert!(std::fs::read(top.join(name)).expect("read") == whole, "{name} is whole when the server is");
    }
}

#[test]
fn every_kind_of_write_is_refused_as_read_only() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/" => page("<a href='a.txt'>a</a> <a href='d/b.txt'>b</a>"),
        "/a.txt" | "/d/b.txt" => answer("200 OK", &[], "text"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    let (file, new, dir) = (top.join("a.txt"), top.join("new"), top.join("d"));
    assert_eq!(std::fs::read(&file).expect("read"), b"text");
    let rofs = Errno::ROFS;
    fails_with(std::fs::write(&new, "x"), rofs);
    fails_with(std::fs::write(&file, "x"), rofs);
    fails_with(std::fs::OpenOptions::new().append(true).open(&file).map(drop), rofs);
    fails_with(std::fs::OpenOptions::new().read(true).write(true).open(&file).map(drop), rofs);
    fails_with(std::fs::create_dir(&new), rofs);
    fails_with(std::fs::remove_file(&file), rofs);
    fails_with(std::fs::remove_dir(&dir), rofs);
    fails_with(std::fs::rename(&file, &new), rofs);
    fails_with(std::fs::hard_link(&file, &new), rofs);
    fails_with(symlink(&file, &new), rofs);
    fails_with(std::fs::set_permissions(&file, PermissionsExt::from_mode(0o777)), rofs);
    fails_with(std::os::unix::fs::chown(&file, Some(1), Some(1)), rofs);
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let set = rustix::fs::utimensat(rustix::fs::CWD, &file, &times, rustix::fs::AtFlags::empty());
    fails_with(set.map_err(std::io::Error::from), rofs);
    let set = rustix::fs::setxattr(&file, "user.mine", b"x", rustix::fs::XattrFlags::empty());
    fails_with(set.map_err(std::io::Error::from), rofs);
    fails_with(std::fs::write(mount.at("new"), "x"), rofs);
    fails_with(std::fs::create_dir(mount.at("web/new.invalid")), rofs);
    assert_eq!(std::fs::read(&file).expect("read"), b"text");
    assert!(liar.asked().iter().all(|asked| asked.method == "GET"), "nothing of it reaches the server");
}

#[test]
fn an_answer_that_is_no_http_is_an_input_error() {
    let liar = Liar::talking(|asked, stream| {
        let bytes: &[u8] = match asked.path.as_str() {
            "/garbage.txt" => b"this is no HTTP at all\r\n\r\n",
            "/closed.txt" => b"",
            "/lengths.txt" => b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
            _ => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        };
        let _ = stream.write_all(bytes);
        if asked.path != "/ok.txt" {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
    let Some(mount) = Mount::with(Setup::default().option("deadline=3s")) else { return };
    let top = mount.at(liar.site());
    assert_eq!(std::fs::read(top.join("ok.txt")).expect("read"), b"ok");
    // Who hangs up without a word counts as a host that is down.
    for (name, errno) in [("garbage.txt", Errno::IO), ("lengths.txt", Errno::IO), ("closed.txt", Errno::HOSTUNREACH)] {
        let error = std::fs::read(top.join(name)).expect_err("no content");
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{name}: {error}");
    }
    assert_eq!(std::fs::read(top.join("ok.txt")).expect("read"), b"ok");
}

/// Goal: archives on servers that call them encoded (Apache's `AddEncoding`) are read as they are; what a server encodes on the
/// way is not. Method: the same answer under two names, and one that depends on what was asked for.
#[test]
fn an_encoding_that_is_in_the_name_is_the_files_own() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/a.tar.gz" | "/a.tar" => {
            answer("200 OK", &["content-encoding: x-gzip", "content-type: application/x-tar"], "zip")
        }
        "/b.gz" => answer("200 OK", &["content-encoding: gzip", "vary: accept-encoding"], "zip"),
        _ => answer("404 Not Found", &[], ""),
    });
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    assert_eq!(std::fs::read(top.join("a.tar.gz")).expect("read"), b"zip");
    for name in ["a.tar", "b.gz"] {
        fails_with(std::fs::read(top.join(name)), Errno::IO);
    }
}

/// Goal: a file is read to its end also from servers that refuse a range which ends behind it (webfs gives 400). Method: a
/// server that does so; the end of a file of which the beginning alone was brought is read, and then pieces of it all.
#[test]
fn no_range_is_asked_for_behind_the_end_of_a_file() {
    use std::os::unix::fs::FileExt;
    const LENGTH: usize = (3 << 20) + 45_056;
    let whole = noise(LENGTH);
    let served = whole.clone();
    let is_range_given = (Mutex::new(false), Condvar::new());
    let liar = Liar::talking(move |asked, stream| {
        let validator = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let reply = match range {
            _ if asked.path != "/f.bin" => page("<a href='f.bin'>f</a>"),
            None => {
                // The rest is held back until the end has come.
                let reply = answer("200 OK", &[validator, "accept-ranges: bytes"], &served);
                let (beginning, rest) = reply.split_at(600_000);
                let _ = stream.write_all(beginning);
                let (is_given, told) = &is_range_given;
                let waiting = is_given.lock().expect("nobody panicked");
                let _ = told.wait_timeout_while(waiting, Duration::from_secs(20), |is_given| !*is_given);
                rest.to_vec()
            }
            Some((first, last)) => {
                let first: usize = first.parse().expect("a number");
                match if last.is_empty() { LENGTH - 1 } else { last.parse().expect("a number") } {
                    last if last < LENGTH => {
                        *is_range_given.0.lock().expect("nobody panicked") = true;
                        is_range_given.1.notify_all();
                        let range = format!("content-range: bytes {first}-{last}/{LENGTH}");
                        answer("206 Partial Content", &[validator, &range], &served[first..=last])
                    }
                    _ => answer("400 Bad Request", &[], "the range ends behind the file"),
                }
            }
        };
        let _ = stream.write_all(&reply);
    });
    let Some(mount) = Mount::new() else { return };
    let path = mount.at(liar.site()).join("f.bin");
    let file = std::fs::File::open(&path).expect("open");
    let mut piece = vec![0; 1000];
    file.read_exact_at(&mut piece, (LENGTH - 1000) as u64).expect("the end");
    assert!(piece == whole[LENGTH - 1000..]);
    for at in [2_500_000, 1_200_000, LENGTH - 45_000, 3 << 20] {
        file.read_exact_at(&mut piece, at as u64).expect("a piece");
        assert!(piece == whole[at..at + 1000], "at {at}");
    }
    assert!(std::fs::read(&path).expect("read") == whole);
    assert!(liar.asked().iter().any(|asked| asked.header("range").is_some()), "ranges were asked for");
}
