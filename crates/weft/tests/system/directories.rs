//! Directories of this machine, mounted.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::interrupts::wait_until;
use crate::support::{Mount, Outcome, Pair, Program, Setup, is_root, names_in, noise, run, without};

/// A directory with some of everything.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::Builder::new().prefix("wt-dir-").tempdir().expect("a temporary folder"));
        for name in ["docs", "docs/deep", "empty"] {
            std::fs::create_dir(tree.at(name)).expect("made");
        }
        for (name, length) in [("a.txt", 12), ("docs/b.bin", 700_000), ("docs/deep/c.txt", 5000), ("nothing", 0)] {
            std::fs::write(tree.at(name), noise(length)).expect("written");
        }
        symlink("docs/deep/c.txt", tree.at("link")).expect("made");
        symlink("/etc/hostname", tree.at("docs/out")).expect("made");
        std::fs::set_permissions(tree.at("a.txt"), std::fs::Permissions::from_mode(0o640)).expect("set");
        tree
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    fn source(&self) -> &'static str {
        format!("dir:{}", self.0.path().display()).leak()
    }

    /// Mounted alone, and not read past the daemon: so it is seen what the daemon does.
    fn mounted(&self) -> Option<Mount> {
        Mount::with(Setup { source: self.source(), ..Setup::default() })
    }
}

/// What `find` says of everything below a folder.
fn listing(top: &Path) -> Vec<String> {
    let outcome = find(top);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    lines_of(&outcome)
}

fn find(top: &Path) -> Outcome {
    Program::new("find").arg(top).args(["-mindepth", "1", "-printf", "%P %y %m %s %T@ %l %U %G\n"]).run()
}

fn lines_of(found: &Outcome) -> Vec<String> {
    // A directory's length means nothing.
    let mut lines: Vec<String> = found
        .out
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let of_directory = words[1] == "d";
            words
                .iter()
                .enumerate()
                .filter(|(at, _)| !of_directory || *at != 3)
                .map(|(_, word)| *word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    lines.sort();
    lines
}

/// Goal: a mounted directory is the directory: names, kinds, modes, sizes, times, links, owners and bytes, with real
/// programs as readers; and what is written is there as well.
#[test]
fn a_mounted_directory_is_the_directory() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    assert_eq!(listing(&mount.dir()), listing(tree.0.path()));
    run("diff", ["-r".as_ref(), "--no-dereference".as_ref(), tree.0.path().as_os_str(), mount.dir().as_os_str()]);
    assert!(std::fs::read(mount.at("link")).expect("followed in the mount") == noise(5000));
    assert_eq!(std::fs::read_link(mount.at("docs/out")).expect("a link"), Path::new("/etc/hostname"));
    std::fs::write(mount.at("new"), "x").expect("written");
    assert_eq!(std::fs::read(tree.at("new")).expect("there too"), b"x");
    assert!(mount.why(&mount.at("a.txt"), "tree").starts_with("dir:/"));
}

/// Goal: what was read is read from the store until it changes, also after a remount; and a remount copies nothing again.
#[test]
fn what_was_read_comes_from_the_store() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    for _ in 0..2 {
        assert!(std::fs::read(mount.at("docs/b.bin")).expect("read") == noise(700_000));
        assert!(std::fs::read(mount.at("docs/deep/c.txt")).expect("read") == noise(5000));
    }
    assert_eq!(mount.figure("received_bytes"), 705_000);
    mount.remount();
    assert!(std::fs::read(mount.at("docs/b.bin")).expect("read") == noise(700_000));
    assert!(std::fs::read(mount.at("docs/deep/c.txt")).expect("read") == noise(5000));
    assert_eq!(mount.figure("received_bytes"), 0, "nothing has changed");
}

/// Goal: a file of holes stays one for who copies it out of the mount, without the holes being read, and in the cache.
#[test]
fn holes_stay_holes() {
    const LENGTH: u64 = 256 << 20;
    let tree = Tree::new();
    let file = std::fs::File::create(tree.at("sparse")).expect("made");
    file.set_len(LENGTH).expect("made longer");
    file.write_all_at(&noise(4096), LENGTH / 2).expect("written");
    let room = |path: &Path| std::fs::metadata(path).expect("there").blocks() * 512;
    let taken = room(&tree.at("sparse"));
    let Some(mount) = tree.mounted() else { return };
    let copy = tempfile::Builder::new().prefix("wt-copy-").tempdir().expect("a temporary folder");
    let copied = |name: &str| {
        let copy = copy.path().join(name);
        run("cp", [mount.at("sparse").as_os_str(), copy.as_os_str()]);
        run("cmp", [tree.at("sparse").as_os_str(), copy.as_os_str()]);
        assert!(room(&copy) < LENGTH / 8, "{} bytes", room(&copy));
    };
    assert_eq!(room(&mount.at("sparse")), taken);
    copied("before");
    assert!(mount.figure("received_bytes") < LENGTH / 4, "{} bytes came", mount.figure("received_bytes"));
    run("cmp", [tree.at("sparse").as_os_str(), mount.at("sparse").as_os_str()]);
    let kept = run("du", ["-sk".as_ref(), mount.cache().as_os_str()]);
    let kept_kib: u64 = kept.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(kept_kib * 1024 < LENGTH / 2, "{kept_kib} KiB");
    copied("after");
    // Of what is written here, all that is written counts, and what lies beyond the end of before does not.
    let written = std::fs::File::options().write(true).open(mount.at("sparse")).expect("opened");
    written.write_all_at(&noise(4096), 2 * LENGTH).expect("written");
    written.sync_all().expect("sent");
    assert!(room(&mount.at("sparse")) < LENGTH / 8, "{} bytes", room(&mount.at("sparse")));
    run("cmp", [tree.at("sparse").as_os_str(), mount.at("sparse").as_os_str()]);
}

/// Goal: each kind of change is seen through the mount although everything is known there.
#[test]
fn changes_are_seen() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    let seen = |what: &str, is_so: &dyn Fn() -> bool| wait_until(what, is_so);
    // A name that is listed may be gone when it is opened, until that is heard of.
    let agrees = || {
        let found = find(&mount.dir());
        found.code == Some(0) && lines_of(&found) == listing(tree.0.path())
    };
    let agree = |what: &str| seen(what, &agrees);
    agree("the beginning");
    assert!(std::fs::read(mount.at("a.txt")).expect("read") == noise(12));
    std::fs::write(tree.at("a.txt"), "other").expect("written");
    seen("other bytes", &|| std::fs::read(mount.at("a.txt")).is_ok_and(|bytes| bytes == b"other"));
    agree("after a write");
    // The same length, at once again.
    std::fs::write(tree.at("a.txt"), "OTHER").expect("written");
    seen("bytes of the same length", &|| std::fs::read(mount.at("a.txt")).is_ok_and(|bytes| bytes == b"OTHER"));
    assert!(!mount.at("docs/new").exists() && !mount.at("docs/new").exists());
    std::fs::write(tree.at("docs/new"), "new").expect("written");
    seen("a name that was not there", &|| std::fs::read(mount.at("docs/new")).is_ok_and(|bytes| bytes == b"new"));
    std::fs::rename(tree.at("docs/new"), tree.at("docs/renamed")).expect("renamed");
    agree("after a rename");
    std::fs::rename(tree.at("docs/deep"), tree.at("empty/deep")).expect("renamed");
    agree("after a rename of a directory");
    assert!(std::fs::read(mount.at("empty/deep/c.txt")).expect("read") == noise(5000));
    std::fs::set_permissions(tree.at("empty"), std::fs::Permissions::from_mode(0o700)).expect("set");
    seen("a mode", &|| std::fs::metadata(mount.at("empty")).is_ok_and(|found| found.mode() & 0o777 == 0o700));
    std::fs::remove_file(tree.at("link")).expect("removed");
    symlink("a.txt", tree.at("link")).expect("made");
    seen("another link", &|| std::fs::read_link(mount.at("link")).is_ok_and(|link| link == Path::new("a.txt")));
    std::fs::remove_dir_all(tree.at("docs")).expect("removed");
    seen("a removal", &|| !mount.at("docs").exists());
    std::fs::write(tree.at("docs"), "now a file").expect("written");
    seen("a file for a directory", &|| std::fs::read(mount.at("docs")).is_ok_and(|bytes| bytes == b"now a file"));
    agree("the end");
}

/// Goal: the time of a directory that was seen in the list of the one above, and never looked into, moves with what is made
/// in it.
#[test]
fn the_time_of_a_directory_is_that_of_what_is_in_it() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    for round in 0..3 {
        run("ls", ["-l".as_ref(), mount.at("docs").as_os_str()]);
        let told = |path: PathBuf| std::fs::metadata(path).expect("it is there").modified().expect("a time");
        let before = told(mount.at("docs/deep"));
        assert_eq!(before, told(tree.at("docs/deep")));
        std::fs::create_dir(tree.at(format!("docs/deep/{round}"))).expect("made");
        wait_until("another time", || told(mount.at("docs/deep")) != before);
        assert_eq!(listing(&mount.dir()), listing(tree.0.path()));
    }
}

/// Goal: what is written to a file through a name that it got somewhere else is seen under all of them, though a file
/// with one name was promised to be told of by way of that.
#[test]
fn what_is_written_through_another_name_is_seen() {
    let Some(pair) = Pair::new() else { return };
    for dir in ["seen", "unseen"] {
        std::fs::create_dir(pair.there(dir)).expect("made");
    }
    // Of the one directory changes are told, for its names were listed; the other is looked at when it has changed.
    for dir in ["seen", "unseen"] {
        let (file, linked) = (format!("in-{dir}"), format!("{dir}/linked"));
        std::fs::write(pair.at(&file), "before").expect("written");
        assert_eq!(std::fs::read_to_string(pair.at(&file)).expect("read"), "before");
        if dir == "seen" {
            assert_eq!(std::fs::read_dir(pair.at(dir)).expect("listed").count(), 0);
        }
        std::fs::hard_link(pair.there(&file), pair.there(&linked)).expect("linked");
        std::fs::write(pair.there(&linked), "what came after it").expect("written");
        if dir == "unseen" {
            assert_eq!(std::fs::read_dir(pair.at(dir)).expect("listed").count(), 1);
        }
        for name in [&file, &linked] {
            let is_new = || std::fs::read_to_string(pair.at(name)).is_ok_and(|text| text == "what came after it");
            wait_until(&format!("{name} as it is"), is_new);
        }
    }
}

/// Goal: what was written in the directory is what whoever opens it through the mount right after that reads, be it written in
/// place, replaced or new, and it is listed.
#[test]
fn what_is_written_beside_the_mount_is_read_right_after() {
    const ROUNDS: usize = 200;
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    let (dir, shown) = (tree.at("docs/deep"), mount.at("docs/deep"));
    let read = |name: &str| std::fs::read_to_string(shown.join(name)).expect("read");
    for round in 0..ROUNDS {
        let text = format!("round {round}");
        std::fs::write(dir.join("written"), &text).expect("written");
        assert_eq!(read("written"), text);
        std::fs::write(dir.join(".saved"), &text).expect("written");
        std::fs::rename(dir.join(".saved"), dir.join("replaced")).expect("renamed");
        assert_eq!(read("replaced"), text);
        std::fs::write(dir.join(&text), &text).expect("written");
        assert!(names_in(&shown).contains(&text), "{text}");
        assert_eq!(read(&text), text);
        std::fs::remove_file(dir.join(&text)).expect("removed");
        assert!(!names_in(&shown).contains(&text), "{text}");
        // What was made by the one is taken away by the other: what is left is what was listed before.
        for (made, removed) in [(&shown, &dir), (&dir, &shown)] {
            std::fs::create_dir(made.join("made")).expect("made");
            std::fs::remove_dir(removed.join("made")).expect("removed");
            assert!(!names_in(&shown).contains(&"made".to_owned()), "{text}");
        }
    }
}

/// Goal: a file that is replaced beside the mount (written anew and renamed, as editors save) is there at every moment,
/// and is one of the two. Method: it is replaced again as soon as each reading has ended, so while the next one begins.
#[test]
fn a_file_that_is_replaced_is_never_absent() {
    const ROUNDS: u64 = 100;
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    let content = |version: u64| version.to_string().repeat(400);
    let replace = |version: u64| {
        std::fs::write(tree.at("docs/.saved"), content(version)).expect("written");
        std::fs::rename(tree.at("docs/.saved"), tree.at("docs/page")).expect("renamed");
    };
    replace(1000);
    std::thread::scope(|scope| {
        // Handed over when the former replacement is done: there is one at most while a path is followed, besides what the
        // kernel has not been told of yet.
        let (ended, next) = std::sync::mpsc::sync_channel(0);
        scope.spawn(move || next.into_iter().for_each(|round: u64| replace(1001 + round)));
        let mut last = 0;
        for round in 0..ROUNDS {
            let length = std::fs::metadata(mount.at("docs/page")).expect("it is there").len();
            assert_eq!(length, 1600, "round {round}");
            let bytes = std::fs::read_to_string(mount.at("docs/page")).expect("read");
            let version = bytes[..4].parse().expect("a version");
            assert!(bytes == content(version) && version >= last, "{version} after {last}");
            last = version;
            ended.send(round).expect("the writer goes on");
        }
    });
    wait_until("the last", || {
        std::fs::read_to_string(mount.at("docs/page")).is_ok_and(|it| it == content(1000 + ROUNDS))
    });
}

/// Goal: where two directories change places again and again, as whoever switches between two versions of a tree does, what
/// has a name in both is there at every moment. Method: they change places again as soon as the last change has been seen, so
/// while the next path is followed.
#[test]
fn what_is_in_directories_that_are_exchanged_is_never_absent() {
    const CHANGES: usize = 100;
    let tree = Tree::new();
    let names = ["docs/now", "docs/next"];
    for name in names {
        std::fs::create_dir_all(tree.at(name)).expect("made");
        std::fs::write(tree.at(name).join("page"), name).expect("written");
    }
    let Some(mount) = tree.mounted() else { return };
    let [now, next] = names.map(|name| tree.at(name));
    let page = mount.at(names[0]).join("page");
    std::thread::scope(|scope| {
        let (seen, begins) = std::sync::mpsc::sync_channel(0);
        scope.spawn(move || {
            for () in begins {
                rustix::fs::renameat_with(CWD, &now, CWD, &next, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        for change in 0..=CHANGES {
            wait_until("the last change", || {
                std::fs::metadata(&page).unwrap_or_else(|error| panic!("change {change}: {error}"));
                let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("change {change}: {error}"));
                assert_eq!(std::fs::read_dir(mount.at(names[0])).expect("listed").count(), 1, "change {change}");
                assert!(names.contains(&text.as_str()), "change {change}: {text}");
                text == names[change % 2]
            });
            seen.send(()).expect("the writer goes on");
        }
    });
}

/// Goal: who has a file open reads the version that was opened, neither cut off nor filled up to the length of the next
/// one, while others see and read that; of three versions at once, the oldest may end with an error.
#[test]
fn what_is_open_is_neither_cut_off_nor_filled_up() {
    let Some(pair) = Pair::new() else { return };
    let file = pair.at("file");
    let all_of = |open: &std::fs::File| {
        let mut bytes = vec![0; 20_000];
        open.read_at(&mut bytes, 0).map(|count| bytes[..count].to_vec())
    };
    let mut open: Vec<(std::fs::File, Vec<u8>)> = Vec::new();
    for (byte, length) in [(b'a', 3000), (b'b', 9000), (b'c', 100), (b'd', 5000), (b'e', 5001)] {
        let bytes = vec![byte; length];
        std::fs::write(pair.there("file"), &bytes).expect("written");
        let is_seen = || std::fs::metadata(&file).is_ok_and(|told| told.len() == length as u64);
        wait_until("the new length", is_seen);
        wait_until("the new bytes", || std::fs::read(&file).is_ok_and(|read| read == bytes));
        let now = std::fs::File::open(&file).expect("opened");
        for (nth, (former, was)) in open.iter().rev().enumerate() {
            for _ in 0..10 {
                match all_of(former) {
                    Ok(read) => assert!(read == *was, "{} bytes of {} at {nth} before {length}", read.len(), was.len()),
                    Err(error) if nth > 0 => assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error())),
                    Err(error) => panic!("{error}: {nth} before {length}"),
                }
                assert_eq!(std::fs::metadata(&file).expect("there").len(), length as u64);
                assert!(all_of(&now).expect("read") == bytes);
            }
            if nth == 0 {
                assert_eq!(former.metadata().expect("open").len(), was.len() as u64);
            }
        }
        open.push((now, bytes));
    }
}

/// Goal: an open file stays the version that it was, and the next open has the new one.
#[test]
fn an_open_file_is_one_version() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    assert!(std::fs::read(mount.at("docs/b.bin")).expect("read") == noise(700_000));
    let mut open = std::fs::File::open(mount.at("docs/b.bin")).expect("opened");
    std::fs::write(tree.at("docs/b.bin"), vec![7; 300_000]).expect("written");
    wait_until("the new version", || {
        std::fs::read(mount.at("docs/b.bin")).is_ok_and(|bytes| bytes == vec![7; 300_000])
    });
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut bytes).expect("read");
    assert!(bytes == noise(700_000), "the old version to its end");
}

/// Goal: what changes while no daemon listens is seen by the next one, in the same mount.
#[test]
fn a_change_between_two_daemons_is_seen() {
    let tree = Tree::new();
    let Some(mount) = tree.mounted() else { return };
    for name in ["a.txt", "docs/deep/c.txt"] {
        std::fs::read(mount.at(name)).expect("read");
    }
    assert!(!mount.at("later").exists());
    let daemon = mount.daemon();
    let gone = crate::support::Exit::of(daemon);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("killed");
    assert!(gone.wait());
    std::fs::write(tree.at("a.txt"), "since").expect("written");
    std::fs::write(tree.at("later"), "since").expect("written");
    for name in ["a.txt", "later"] {
        wait_until(name, || std::fs::read(mount.at(name)).is_ok_and(|bytes| bytes == b"since"));
    }
}

/// Goal: the configuration's directories have names in the mount of everything, one that is missing is waited for, and
/// verbs know their paths. The same directory mounted alone has the same cache.
#[test]
fn configured_directories_have_names() {
    let tree = Tree::new();
    let table = |name: &str, path: &Path| format!("[[dir]]\nname = \"{name}\"\npath = \"{}\"\n", path.display());
    let config = table("www", tree.0.path()) + &table("gone", &tree.at("gone")) + &table("docs", &tree.at("docs"));
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    assert_eq!(names_in(&mount.dir()), ["dir", "web"]);
    // That one is waited for.
    assert_eq!(names_in(&mount.at("dir")), ["docs", "gone", "www"]);
    run(
        "diff",
        ["-r".as_ref(), "--no-dereference".as_ref(), tree.0.path().as_os_str(), mount.at("dir/www").as_os_str()],
    );
    assert_eq!(listing(&mount.at("dir/docs")), listing(&tree.at("docs")));
    let known = mount.verb("ls -w --all", [mount.at("dir/www")]);
    assert!(known.out.contains("a.txt") && known.out.contains("docs"), "{known:?}");
    let known = mount.verb("ls -w --all", [mount.at("dir")]);
    assert!(known.out.contains("www"), "{known:?}");
    assert_eq!(mount.verb("pin", [mount.at("dir/www/docs")]).code, Some(0));
    assert!(mount.json("cache", [mount.at("dir/www")])["total"]["bytes"].as_u64() > Some(700_000));
    assert_eq!(mount.verb("reload -r", [mount.at("dir")]).code, Some(0));
    assert_eq!(mount.verb("rm -w -r --pinned", [mount.at("dir/www")]).code, Some(0));
    assert!(std::fs::read(mount.at("dir/www/docs/b.bin")).expect("read") == noise(700_000));
    let log = std::fs::read_to_string(mount.cache().join("weft.log")).expect("a log");
    assert!(log.contains(tree.at("gone").to_str().expect("text")) && log.contains("it is waited for"), "{log}");
    mount.umount();

    let alone = Setup { source: tree.source(), cache: Some(mount.cache()), ..Setup::default() };
    let Some(alone) = Mount::with(alone) else { return };
    assert!(std::fs::read(alone.at("docs/b.bin")).expect("read") == noise(700_000));
    assert_eq!(alone.figure("received_bytes"), 0, "it is held");
    alone.umount();

    let all = Setup { source: "dir", config: table("one", tree.0.path()), ..Setup::default() };
    let Some(all) = Mount::with(all) else { return };
    assert_eq!(names_in(&all.dir()), ["one"]);
    assert!(std::fs::read(all.at("one/a.txt")).expect("read") == noise(12));
}

/// Goal: what cannot be is refused with what to do.
#[test]
fn what_cannot_be_mounted_is_refused() {
    let tree = Tree::new();
    let refused = |setup: Setup, wanted: &str| {
        let Some(mount) = Mount::prepare(setup) else { return };
        let outcome = mount.try_mount();
        assert!(outcome.code != Some(0) && outcome.err.contains(wanted), "{wanted}: {outcome:?}");
        assert!(!mount.is_mounted());
    };
    let of = |source: String| Setup { source: source.leak(), ..Setup::default() };
    refused(of("dir:relative".to_owned()), "the whole path");
    refused(of(format!("dir:{}", tree.at("missing").display())), "cannot be reached");
    refused(of(format!("dir:{}", tree.at("a.txt").display())), "a.txt");
    refused(of("dir".to_owned()), "no [[dir]]");
    refused(of("dir:/".to_owned()), "lies inside of it");
    let (inside, link) =
        (tempfile::tempdir().expect("a temporary folder"), tempfile::tempdir().expect("a temporary folder"));
    std::os::unix::fs::symlink(inside.path(), link.path().join("cache")).expect("made");
    let cache = Some(link.path().join("cache"));
    refused(Setup { cache, ..of(format!("dir:{}", inside.path().display())) }, "lies inside of it");
    refused(Setup { source: "web", ..Setup::default() }.option("no_open"), "no_open is for `dir`");
    refused(Setup { cache: Some(tree.at("cache")), ..of(tree.source().to_owned()) }, "the cache (");
}

/// Goal: a file that tells no length is not shown as an empty one.
#[test]
fn what_tells_no_length_is_not_empty() {
    let Some(mount) = Mount::with(Setup { source: "dir:/proc/sys/kernel", ..Setup::default() }) else { return };
    let error = std::fs::read(mount.at("ostype")).expect_err("its length is told as 0");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    let why = mount.weft().args(["why".as_ref(), mount.at("ostype").as_os_str()]).run();
    assert!(why.out.contains("it can only be read where it is"), "{why:?}");
}

/// Goal: what is mounted in the directory is not shown, so that a mount of weft in it never asks itself.
#[test]
fn what_is_mounted_below_is_not_shown() {
    if !is_root() {
        return without("only root can mount in the directory");
    }
    let tree = Tree::new();
    run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), tree.at("empty").as_os_str()]);
    let shown = tree.mounted().map(|mount| names_in(&mount.dir()));
    run("umount", [tree.at("empty")]);
    let Some(shown) = shown else { return };
    assert_eq!(shown, ["a.txt", "docs", "link", "nothing"]);
}

/// Goal: where files are read without being opened, weft hears nothing of files that were read, and they are never old:
/// not after a change, and not after a change between two daemons.
#[test]
fn files_are_read_without_being_opened() {
    let tree = Tree::new();
    let Some(mount) = Mount::with(Setup { source: tree.source(), ..Setup::default() }.option("no_open")) else {
        return;
    };
    let asked = || {
        let text = mount.verb("stats --prometheus", [mount.dir()]).out;
        let count = |operation: &str| {
            let row = format!("weft_kernel_request_duration_seconds_count{{operation=\"{operation}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&row)?.parse::<u64>().ok()).unwrap_or(0)
        };
        ["open", "release", "read", "lookup"].map(count)
    };
    run("diff", ["-r".as_ref(), "--no-dereference".as_ref(), tree.0.path().as_os_str(), mount.dir().as_os_str()]);
    // What the kernel was to forget from before, it may be told late.
    wait_until("nothing is asked", || {
        let before = asked();
        assert_eq!(before[..2], [0, 0], "nothing is opened");
        for _ in 0..100 {
            assert!(std::fs::read(mount.at("docs/deep/c.txt")).expect("read") == noise(5000));
            assert!(std::fs::read(mount.at("docs/b.bin")).expect("read") == noise(700_000));
        }
        asked() == before
    });
    for round in 0..5u8 {
        // The same length, so that the bytes alone tell.
        std::fs::write(tree.at("docs/deep/c.txt"), vec![round; 5000]).expect("written");
        wait_until("other bytes", || {
            std::fs::read(mount.at("docs/deep/c.txt")).is_ok_and(|bytes| bytes == vec![round; 5000])
        });
    }
    let daemon = mount.daemon();
    let gone = crate::support::Exit::of(daemon);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("killed");
    assert!(gone.wait());
    std::fs::write(tree.at("docs/deep/c.txt"), vec![77; 5000]).expect("written");
    wait_until("bytes of the next daemon", || {
        std::fs::read(mount.at("docs/deep/c.txt")).is_ok_and(|bytes| bytes == vec![77; 5000])
    });
}

/// Goal: the log of a server says which files are read together: pages with their parts, by who referred to them, and what a
/// client opened one after the other. What is no line, no log or not what is mounted there is told.
#[test]
fn a_log_says_what_is_read_together() {
    let tree = Tree::new();
    let pages = 12;
    let mut log = String::new();
    for page in 0..pages {
        let folder = tree.at(format!("page {page}"));
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(folder.join("index.html"), noise(4000)).expect("written");
        let line = |path: &str, referer: &str| {
            let agent = "\"an agent\"";
            format!(
                "10.0.0.{page} - - [17/May/2015:10:05:03 +0000] \"GET {path} HTTP/1.1\" 200 4000 \"{referer}\" {agent}\n"
            )
        };
        log += &line(&format!("/page%20{page}/"), "-");
        for part in 0..4 {
            std::fs::write(tree.at(format!("part-{page}-{part}.png")), noise(20_000)).expect("written");
            log += &line(&format!("/part-{page}-{part}.png?v=1"), &format!("http://site/page%20{page}/"));
        }
    }
    log += "not a line\n";
    let Some(mount) = tree.mounted() else { return };
    let file = mount.beside("access.log");
    std::fs::write(&file, &log).expect("written");
    let told = mount.json("group", ["--from".as_ref(), file.as_os_str(), mount.dir().as_os_str()]);
    assert_eq!((&told["bad_lines"], &told["requests"]), (&1.into(), &(pages * 5).into()));
    assert_eq!((&told["unknown"], &told["groups"]), (&0.into(), &(2 * pages).into()), "{told}");
    let piped = mount.verb("group --from /dev/null", [mount.dir()]);
    assert_eq!(piped.code, Some(1), "{piped:?}");
    assert!(piped.err.contains("no request for a file"), "{piped:?}");
    let wrong = mount.verb("group --from", [file.as_os_str(), mount.at("docs").as_os_str()]);
    assert_eq!(wrong.code, Some(4), "{wrong:?}");
    for part in 0..4 {
        for page in 0..pages {
            let name = format!("part-{page}-{part}.png");
            assert!(std::fs::read(mount.at(name)).expect("read") == noise(20_000));
        }
    }
}

/// Goal: a directory that is replaced as a whole, as when a site is deployed, is shown as it is then; while there is none
/// nothing wrong is shown.
#[test]
fn a_directory_that_is_replaced_as_a_whole_is_shown() {
    let tree = Tree::new();
    let site = tree.at("site");
    std::fs::create_dir(&site).expect("made");
    std::fs::write(site.join("page"), "one").expect("written");
    let source = format!("dir:{}", site.display()).leak();
    let Some(mount) = Mount::with(Setup { source, ..Setup::default() }) else { return };
    assert_eq!(std::fs::read(mount.at("page")).expect("read"), b"one");
    std::fs::rename(&site, tree.at("old")).expect("renamed");
    wait_until("nothing there", || std::fs::read(mount.at("page")).is_err());
    std::fs::create_dir(&site).expect("made");
    std::fs::write(site.join("page"), "two").expect("written");
    std::fs::write(site.join("more"), "new").expect("written");
    wait_until("the other", || std::fs::read(mount.at("page")).is_ok_and(|bytes| bytes == b"two"));
    wait_until("its names", || names_in(&mount.dir()) == ["more", "page"]);
    std::fs::write(site.join("page"), "three").expect("written");
    wait_until("its changes", || std::fs::read(mount.at("page")).is_ok_and(|bytes| bytes == b"three"));
}
