//! Trees behind real servers read like trees on disk.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::support::{
    Hit, Mount, Program, Server, Setup, big_tree, compare, folders_in, names_in, odd_names, run, small_tree, write_aged,
};

/// nginx with the large tree, and a mount.
fn large() -> Option<(Server, Mount, PathBuf)> {
    let (server, mount) = (Server::nginx("")?, Mount::new()?);
    big_tree(&server.root());
    let site = mount.at(server.site());
    Some((server, mount, site))
}

#[test]
fn a_tree_behind_nginx_is_the_tree_on_disk() {
    let Some((mut server, _mount, site)) = large() else { return };
    odd_names(&server.root().join("odd"), false);
    compare(&server.root(), &site);
    let grep = |root: &Path| {
        let found = Program::new("grep").args(["-r", "-c", "file 7", "."]).dir(root).run();
        let mut lines: Vec<String> = found.out.lines().map(str::to_owned).collect();
        lines.sort();
        assert!(lines.len() > 2000, "{found:?}");
        lines
    };
    assert_eq!(grep(&site), grep(&server.root()));
    assert!(server.hits().iter().all(|hit| hit.method != "HEAD"), "each file is asked for by GET alone");
}

#[test]
fn tar_and_rsync_take_the_tree_whole() {
    let Some((server, mount, site)) = large() else { return };
    odd_names(&server.root().join("odd"), false);
    let (archive, unpacked, copy) = (mount.beside("site.tar"), mount.beside("unpacked"), mount.beside("copy"));
    Program::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&site).arg(".").good();
    std::fs::create_dir(&unpacked).expect("made");
    Program::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&unpacked).good();
    compare(&server.root(), &unpacked);

    let from = |path: &Path| format!("{}/", path.display());
    run("rsync", ["-a", &from(&site), &from(&copy)]);
    compare(&server.root(), &copy);
    // Names, sizes, bytes and times of what was copied are those on disk. Times can be compared because the tree's
    // are whole minutes: an index page tells no more. The top folder is in no index page and so has no time.
    let checked = ["-rtni", "--checksum", "--omit-dir-times", "--delete", &from(&server.root()), &from(&copy)];
    assert_eq!(run("rsync", checked), "");
    let again = run("rsync", ["-ai", "--omit-dir-times", &from(&site), &from(&copy)]);
    assert_eq!(again, "", "the second run finds nothing to do");
}

#[test]
fn a_time_that_comes_to_be_known_to_the_second_is_no_change() {
    let (Some(server), Some(mount)) = (Server::nginx(""), Mount::new()) else { return };
    let times = |nth: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + nth * 7);
    for nth in 0..100 {
        let path = server.root().join(format!("files/{nth:02}.txt"));
        write_aged(&path, format!("file {nth}\n").repeat(500).as_bytes(), 0);
        std::fs::File::open(&path).and_then(|file| file.set_modified(times(nth))).expect("its time set");
    }
    let folder = mount.at(server.site()).join("files");
    let look = |nth: u64| std::fs::symlink_metadata(folder.join(format!("{nth:02}.txt"))).expect("looked at");
    assert_eq!(names_in(&folder).len(), 100);
    let before: Vec<_> = (0..100).map(look).collect();
    let archive = mount.beside("cold.tar");
    let told = Program::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&folder).arg(".").run();
    assert!(told.code == Some(0) && told.err.is_empty(), "{told:?}");
    let mut known_better = 0;
    for (nth, before) in (0..).zip(before) {
        let after = look(nth);
        assert_eq!(before.mtime() % 60, 0, "{nth}: the list tells minutes");
        assert_eq!(after.ctime(), before.ctime(), "{nth}: nothing changed");
        known_better += u32::from(after.mtime() != before.mtime());
    }
    assert!(known_better > 0, "the files themselves tell seconds");
}

#[test]
fn requests_are_one_per_directory_and_one_per_file() {
    let Some((mut server, mount, site)) = large() else { return };
    let folders = folders_in(&server.root());
    assert_eq!(folders, 24);
    run("ls", ["-lR".as_ref(), site.as_os_str()]);
    let listed = server.asked_since(0);
    assert_eq!(listed.len(), folders, "{listed:?}");
    let probes: Vec<Hit> = server.hits().into_iter().filter(|hit| hit.method.is_empty()).collect();
    assert!(probes.len() <= 1 && probes.iter().all(|hit| hit.status == 400), "one greeting in TLS: {probes:?}");

    let before = server.hits().len();
    let files = |top: &Path| -> Vec<PathBuf> {
        (0..500).map(|nth| top.join(format!("folder{:02}/file{:02}.txt", nth / 25, nth % 25))).collect()
    };
    let read = |top: &Path| files(top).iter().map(|file| std::fs::read(file).expect("read")).collect::<Vec<_>>();
    let (here, there) = (read(&server.root()), read(&site));
    assert!(here == there, "the bytes are those on disk");
    let asked = server.asked_since(before);
    let distinct: BTreeSet<&String> = asked.iter().collect();
    assert_eq!(distinct.len(), asked.len(), "no file is asked for twice");
    let expected: Vec<String> = files(Path::new("/")).iter().map(|file| format!("GET {}", file.display())).collect();
    assert!(expected.iter().all(|file| distinct.contains(file)), "each file is asked for");
    // Each folder is left half way: what was fetched ahead of the reader by then is little.
    let surplus = asked.len() - expected.len();
    assert!(surplus <= 20 * 24, "{surplus} files were fetched that nobody read");

    mount.remount();
    let before = server.hits().len();
    assert!(read(&site) == here, "the bytes are the same after a remount");
    assert_eq!(server.asked_since(before), [""; 0], "no request after a remount");
}

#[test]
fn five_hundred_files_cold_cost_their_directories_more() {
    let Some((mut server, _mount, site)) = large() else { return };
    for nth in 0..500 {
        let name = format!("folder{:02}/file{:02}.txt", nth / 25, nth % 25);
        let read = run("cat", [site.join(&name)]);
        assert_eq!(read, std::fs::read_to_string(server.root().join(&name)).expect("read"), "{name}");
    }
    let asked = server.asked_since(0);
    let of_files = asked.iter().filter(|line| line.ends_with(".txt")).count();
    assert_eq!(of_files, 500);
    assert!(asked.len() <= 500 + folders_in(&server.root()), "{} requests", asked.len());
    assert!(asked.iter().all(|line| line.starts_with("GET ")), "no HEAD");
}

#[test]
fn a_tree_behind_apache_is_the_tree_on_disk() {
    behind(Server::apache());
}

#[test]
fn a_tree_behind_lighttpd_is_the_tree_on_disk() {
    behind(Server::lighttpd());
}

#[test]
fn a_tree_behind_python_is_the_tree_on_disk() {
    behind(Server::python());
}

#[test]
fn a_tree_behind_rclone_is_the_tree_on_disk() {
    behind(Server::rclone("http"));
}

#[test]
fn a_tree_behind_rclone_in_webdav_is_the_tree_on_disk() {
    behind(Server::rclone("webdav"));
}

/// Goal: a directory is found by its name although its server answers 405 to that without a slash. Method: one that was made
/// after its directory was listed.
#[test]
fn a_directory_to_which_get_is_refused_is_found() {
    let always = Setup::default().option("freshness=always");
    let (Some(server), Some(mount)) = (Server::rclone("webdav"), Mount::with(always)) else { return };
    let site = mount.at(server.site());
    assert_eq!(names_in(&site), [""; 0]);
    write_aged(&server.root().join("new/deep/file.txt"), b"found", 0);
    assert_eq!(std::fs::read(site.join("new/deep/file.txt")).expect("read"), b"found");
    assert_eq!(names_in(&site.join("new")), ["deep"]);
}

/// Sizes first: the pages of these servers round them or leave them out, and stat must be exact all the same.
fn behind(server: Option<Server>) {
    let (Some(server), Some(mount)) = (server, Mount::new()) else { return };
    small_tree(&server.root(), true);
    let site = mount.at(server.site());
    for name in ["large.bin", "empty", "f1/52.txt", "f2/59.txt", "odd/space in the middle"] {
        let size = |root: &Path| std::fs::metadata(root.join(name)).expect("there").len();
        assert_eq!(size(&site), size(&server.root()), "{name}");
    }
    compare(&server.root(), &site);
}

#[test]
fn sizes_and_times_of_a_whole_listing_are_exact_before_anything_is_read() {
    let (Some(server), Some(mount)) = (Server::apache(), Mount::new()) else { return };
    small_tree(&server.root(), true);
    let list = |root: &Path| {
        let printed = Program::new("find").arg(root).args(["-type", "f", "-printf", "%s %TY-%Tm-%Td %TH:%TM %P\\n"]);
        let mut lines: Vec<String> = printed.good().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list(&mount.at(server.site())), list(&server.root()));
}

#[test]
fn names_without_a_listing_are_found_by_asking_for_them() {
    let (Some(server), Some(mount)) = (Server::nginx(""), Mount::new()) else { return };
    let root = server.root();
    // nginx lists no name that begins with a dot; a question mark would begin the query, so it has a form of its own.
    write_aged(&root.join(".dotted"), b"dotted\n", 0);
    write_aged(&root.join("what?"), b"asked\n", 0);
    write_aged(&root.join("slash%2Fname"), b"escaped\n", 0);
    let site = mount.at(server.site());
    assert_eq!(run("cat", [site.join(".dotted")]), "dotted\n");
    let names = names_in(&site);
    assert_eq!(names[names.len() - 2..], ["slash%252Fname", "what%3F"]);
    assert_eq!(run("cat", [site.join("what%3F")]), "asked\n");
    assert_eq!(run("cat", [site.join("slash%252Fname")]), "escaped\n");
}

#[test]
fn one_tree_alone_and_the_web_alone_can_be_mounted() {
    let Some(server) = Server::nginx("") else { return };
    write_aged(&server.root().join("docs/one.txt"), b"one\n", 0);
    let source: &'static str = format!("web:{}/docs", server.host()).leak();
    let setup = |source| crate::support::Setup { source, ..Default::default() };
    let Some(tree) = Mount::with(setup(source)) else { return };
    assert_eq!(run("cat", [tree.at("one.txt")]), "one\n");
    assert_eq!(names_in(&tree.dir()), ["one.txt"]);
    let Some(web) = Mount::with(setup("web")) else { return };
    assert_eq!(run("cat", [web.at(server.host()).join("docs/one.txt")]), "one\n");
    assert_eq!(names_in(&web.dir()), [server.host(), "weft.example".to_owned()]);
}

#[test]
fn the_file_system_is_read_only_and_of_the_mounting_user() {
    use std::os::unix::fs::MetadataExt;
    let (Some(server), Some(mount)) = (Server::nginx(""), Mount::new()) else { return };
    write_aged(&server.root().join("dir/file.txt"), b"text\n", 7);
    let uid = rustix::process::geteuid().as_raw();
    for (path, mode) in [("dir", 0o40555), ("dir/file.txt", 0o100444)] {
        let found = std::fs::metadata(mount.at(server.site()).join(path)).expect("there");
        assert_eq!((found.mode(), found.uid()), (mode, uid), "{path}");
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
    let line = table.lines().find(|line| line.contains(mount.dir().to_str().expect("UTF-8"))).expect("our mount");
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
}
