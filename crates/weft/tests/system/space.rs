//! Classes, quotas, pins and evictions, over real mounts of a real server.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::support::{Liar, Mount, Server, Setup, noise, page, write_aged};

/// Bytes of the files of these tests: whole blocks, so that what they take on disk is their length.
const FILE: usize = 64 << 10;
const FILE_BYTES: u64 = FILE as u64;

/// A server of `files` files `0.bin`, `1.bin`, ... in the folder `d`, and a mount with this configuration.
fn site(config: &str, files: usize) -> Option<(Server, Mount)> {
    let server = Server::nginx("")?;
    for nth in 0..files {
        write_aged(&server.root().join(format!("d/{nth}.bin")), &content(nth), 1);
    }
    let mount = Mount::with(Setup::default().config(config))?;
    Some((server, mount))
}

fn content(nth: usize) -> Vec<u8> {
    let mut bytes = noise(FILE);
    bytes[0] = nth as u8;
    bytes
}

fn reads(top: &Path, nth: usize) {
    assert!(std::fs::read(top.join(format!("{nth}.bin"))).expect("read") == content(nth), "{nth}");
}

/// The numbers of the files below `top` that are cached whole.
fn held(mount: &Mount, top: &Path) -> Vec<usize> {
    let lists = mount.json("ls -w --all", [top]);
    let names = lists[0]["names"].as_array().expect("names").clone();
    let whole = names.iter().filter(|name| name["cached"] == "whole");
    let numbers = whole.filter_map(|name| name["name"].as_str()?.strip_suffix(".bin")?.parse().ok());
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// What `weft cache` says when all is counted.
fn usage(mount: &Mount) -> serde_json::Value {
    loop {
        let usage = mount.json("cache", [mount.dir()]);
        if usage["counted"] == true {
            return usage;
        }
    }
}

/// Bytes of the files of objects in a cache.
fn on_disk(cache: &Path) -> u64 {
    let folders = std::fs::read_dir(cache.join("objects")).expect("a folder").map(|entry| entry.expect("one").path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder").collect::<Vec<_>>());
    files.map(|file| file.expect("one").metadata().map_or(0, |metadata| metadata.len())).sum()
}

fn listed(top: &Path) -> usize {
    std::fs::read_dir(top)
        .expect("a listing")
        .filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name() != "index.html"))
        .count()
}

/// Goal: a bound on scratch is kept, in the order of use, over a remount; what went stays listed and is told.
#[test]
fn scratch_is_bounded_and_the_order_of_use_survives_a_remount() {
    let config = format!("[cache]\nclass = \"scratch\"\nscratch_max = \"{}K\"\n", 5 * FILE / 1024);
    let Some((server, mount)) = site(&config, 12) else { return };
    let top = mount.at(server.site()).join("d");
    let all = listed(&top);
    for nth in [3, 1, 0, 2] {
        reads(&top, nth);
    }
    usage(&mount);
    mount.remount();
    assert_eq!(usage(&mount)["total"]["files"].as_u64(), Some(4 + pages(&mount, &top)));
    for nth in [4, 5, 6] {
        reads(&top, nth);
    }
    let told = usage(&mount);
    assert!(told["total"]["bytes"].as_u64().expect("a number") <= 5 * FILE_BYTES, "{told}");
    let held = held(&mount, &top);
    assert!(!held.contains(&3) && !held.contains(&1), "the first that were used: {held:?}");
    assert!([4, 5, 6].iter().all(|nth| held.contains(nth)), "{held:?}");
    assert_eq!(listed(&top), all, "what was evicted stays listed");
    let journal = mount.json("cache --journal", [mount.dir()]);
    let told: Vec<&str> = journal.as_array().expect("lines").iter().filter_map(|line| line["path"].as_str()).collect();
    let files: Vec<&&str> = told.iter().filter(|path| path.ends_with(".bin")).collect();
    assert!(files[0].ends_with("d/3.bin") && files[1].ends_with("d/1.bin"), "{told:?}");
    reads(&top, 3);
}

/// How many pages that list directories are cached: they are files as well.
fn pages(mount: &Mount, top: &Path) -> u64 {
    let directories = [top.to_owned(), top.parent().expect("a host").to_owned()];
    let cached = |dir: &PathBuf| mount.why(&dir.join("index.html"), "cached").starts_with("whole");
    let known = |dir: &PathBuf| mount.verb("why", [dir.join("index.html")]).code == Some(0);
    directories.iter().filter(|dir| known(dir) && cached(dir)).count() as u64
}

/// Goal: pinned and kept content is not evicted, whatever comes; what does not fit is served and told once.
#[test]
fn pins_and_kept_files_stay() {
    let config = format!(
        "[cache]\nmax_per_host = \"{}K\"\nclass = \"scratch\"\n[[tree]]\npath = \"web/SITE/d/0.bin\"\nclass = \"kept\"\n",
        6 * FILE / 1024
    );
    let Some(server) = Server::nginx("") else { return };
    for nth in 0..20 {
        write_aged(&server.root().join(format!("d/{nth}.bin")), &content(nth), 1);
    }
    let config = config.replace("SITE", &server.host());
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    let top = mount.at(server.site()).join("d");
    reads(&top, 0);
    reads(&top, 1);
    let pinned = mount.json("pin", [top.join("1.bin"), top.join("2.bin")]);
    assert_eq!(pinned["pinned"][0]["covers"]["bytes"].as_u64(), Some(FILE_BYTES), "{pinned}");
    reads(&top, 2);
    assert_eq!(mount.status()["pinned"].as_array().map(Vec::len), Some(2));
    mount.remount();
    for nth in 3..20 {
        reads(&top, nth);
    }
    let held = held(&mount, &top);
    assert!([0, 1, 2, 19].iter().all(|nth| held.contains(nth)), "{held:?}");
    assert!(usage(&mount)["total"]["bytes"].as_u64().expect("a number") <= 6 * FILE_BYTES);
    assert_eq!(mount.why(&top.join("1.bin"), "class"), "pinned: never evicted");
    assert_eq!(mount.why(&top.join("0.bin"), "class").split(':').next(), Some("kept"));
    let mut class = [0; 16];
    let length = rustix::fs::getxattr(top.join("2.bin"), "user.weft.class", class.as_mut_slice()).expect("there");
    assert_eq!(&class[..length], b"pinned");
    // Everything that may go is pinned away: what is new is served, right, and not stored.
    assert_eq!(mount.verb("pin", [mount.at(server.site())]).code, Some(0));
    for nth in 3..9 {
        reads(&top, nth);
    }
    let troubles = mount.status()["troubles"].to_string();
    assert_eq!(troubles.matches("max_per_host").count(), 1, "{troubles}");
    let refused = mount.verb("rm -w -r", [&top]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.err.contains("--pinned"), "{refused:?}");
    let removed = mount.json("rm -w -r --pinned", [&top]);
    assert!(removed["files"].as_u64().expect("a number") >= 4, "{removed}");
    assert_eq!(mount.verb("unpin", [mount.dir()]).code, Some(0));
    assert_eq!(mount.verb("unpin", [mount.dir()]).code, Some(4));
    assert_eq!(mount.verb("pin", [mount.at("web/never.invalid/x")]).code, Some(4));
}

/// Goal: a file that is open is not evicted while it is read.
#[test]
fn an_open_file_stays() {
    let config = format!("[cache]\nclass = \"scratch\"\nscratch_max = \"{}K\"\n", 4 * FILE / 1024);
    let Some((server, mount)) = site(&config, 12) else { return };
    let top = mount.at(server.site()).join("d");
    let mut open = std::fs::File::open(top.join("0.bin")).expect("opened");
    let mut half = vec![0; FILE / 2];
    open.read_exact(&mut half).expect("read");
    for nth in 1..12 {
        reads(&top, nth);
    }
    assert!(held(&mount, &top).contains(&0));
    let mut whole = Vec::new();
    open.seek(SeekFrom::Start(0)).expect("sought");
    open.read_to_end(&mut whole).expect("read");
    assert!(whole == content(0));
    drop(open);
    for nth in 1..12 {
        reads(&top, nth);
    }
    assert!(!held(&mount, &top).contains(&0), "closed, and the longest unused");
}

/// Goal: who has a file open that there is no room for is told how long that is, and reads it, when its source has a longer or
/// shorter one that others are told of; the same under the next daemon.
#[test]
fn what_is_open_past_the_store_is_as_long_as_it_was() {
    let config = "[mount]\nfreshness = \"manual\"\n[cache]\nclass = \"scratch\"\nscratch_max = \"16K\"\n";
    let Some((server, mount)) = site(config, 1) else { return };
    let path = mount.at(server.site()).join("d/0.bin");
    let put = |length: usize, minutes| {
        let new = server.root().join("new");
        write_aged(&new, &content(0)[..length], minutes);
        std::fs::rename(&new, server.root().join("d/0.bin")).expect("renamed");
    };
    let open = || std::fs::File::open(&path).expect("opened");
    let length = |file: &std::fs::File| file.metadata().expect("open").len();
    for (nth, (before, after)) in [(FILE, FILE / 2), (FILE / 2, FILE)].into_iter().enumerate() {
        put(before, 10 - 2 * nth as u64);
        assert_eq!(mount.verb("reload", [&path]).code, Some(0));
        let mut file = open();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        put(after, 9 - 2 * nth as u64);
        assert_eq!(mount.verb("reload", [&path]).code, Some(0));
        for _ in 0..2 {
            assert_eq!(std::fs::metadata(&path).expect("there").len(), after as u64);
            assert_eq!(length(&open()), after as u64);
            assert_eq!(length(&file), before as u64);
            mount.kill_daemon();
        }
        assert!(bytes == content(0)[..before]);
        assert!(mount.why(&path, "cached").starts_with("no"));
    }
}

/// Goal: a kill in the middle of evictions leaves sound sums and nothing wrong. Method: readers go round in files of
/// which few fit, the daemon is killed at a place that differs from round to round, and what the new daemon counts is
/// compared with the files on its disk.
#[test]
fn a_kill_among_evictions_leaves_sound_sums() {
    let config = format!("[cache]\nclass = \"scratch\"\nmax = \"{}K\"\n", 6 * FILE / 1024);
    let Some((server, mount)) = site(&config, 40) else { return };
    let top = mount.at(server.site()).join("d");
    for round in 0..5 {
        std::thread::scope(|scope| {
            let (told, done) = std::sync::mpsc::channel();
            for reader in 0..3 {
                let (told, top) = (told.clone(), &top);
                scope.spawn(move || {
                    for nth in (reader..120).map(|nth| nth % 40) {
                        match std::fs::read(top.join(format!("{nth}.bin"))) {
                            Ok(bytes) => assert!(bytes == content(nth), "{nth}"),
                            // Expected once the daemon is dead.
                            Err(_) => return,
                        }
                        if told.send(()).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(told);
            done.iter().take(20 + round * 13).for_each(drop);
            mount.kill9();
        });
        assert_eq!(mount.verb("umount --lazy", [mount.dir()]).code, Some(0));
        mount.mount();
        let told = usage(&mount);
        let bytes = told["total"]["bytes"].as_u64().expect("a number");
        assert!(bytes <= 6 * FILE_BYTES, "{told}");
        assert_eq!(mount.figure("object_bytes"), bytes, "the store's own total is the sum of the accounts");
        for nth in held(&mount, &top) {
            reads(&top, nth);
        }
        mount.umount();
        // Files that no record names are swept after a start; then the disk holds what is accounted for.
        mount.mount();
        let bytes = usage(&mount)["total"]["bytes"].as_u64().expect("a number");
        while on_disk(&mount.cache()).next_multiple_of(4096) > bytes.next_multiple_of(4096) {
            std::thread::yield_now();
        }
    }
}

/// Goal: a body whose length nobody tells meets the bound on its way: it is served right or fails, and is not kept.
#[test]
fn a_body_without_a_length_keeps_the_bound() {
    let liar = Liar::talking(|asked, stream| {
        use std::io::Write;
        if asked.path != "/long.bin" {
            let _ = stream.write_all(&page("<a href='long.bin'>x</a><a href='small.bin'>x</a>"));
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\netag: \"1\"\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(&noise(8 << 20));
    });
    let Some(mount) = Mount::with(Setup::default().config("[cache]\nmax = \"2M\"\n")) else { return };
    let top = mount.at(liar.site());
    if let Ok(bytes) = std::fs::read(top.join("long.bin")) {
        assert!(bytes == noise(8 << 20));
    }
    assert!(usage(&mount)["total"]["bytes"].as_u64().expect("a number") <= 2 << 20);
    mount.remount();
    assert!(usage(&mount)["total"]["bytes"].as_u64().expect("a number") <= 2 << 20);
}
