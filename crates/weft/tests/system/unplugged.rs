//! Without a network: from a cold start, and when it goes in the middle.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;

use crate::support::{Confirming, Liar, Mount, Network, Setup, answer, fails_with, names_in, noise, page, run};

pub fn attribute(file: &Path, name: &str) -> String {
    let mut value = [0; 512];
    let length = rustix::fs::getxattr(file, name, value.as_mut_slice())
        .unwrap_or_else(|error| panic!("{} of {}: {error}", name, file.display()));
    String::from_utf8_lossy(&value[..length]).into_owned()
}

/// Goal: mounted where no interface is up, a filled cache is a file system: names, sizes, content under every policy
/// but `always`, and one specific error, at once, for what is not there.
#[test]
fn a_cold_start_without_any_network() {
    let liar = Liar::answering(|asked| {
        let text = ["content-type: text/plain", "cache-control: max-age=0", "etag: \"1\""];
        match asked.path.rsplit('/').next().unwrap_or_default() {
            "" => page("<a href='held.txt'>x</a><a href='other.txt'>x</a>"),
            "held.txt" => answer("200 OK", &text, format!("of {}", asked.path)),
            "other.txt" => answer("200 OK", &text, "other"),
            _ => answer("301 Moved", &[&format!("location: {}/", asked.path)], ""),
        }
    });
    let site = liar.site();
    let policies = [("http", "http"), ("manual", "manual"), ("ttl", "ttl=1s"), ("always", "always")];
    let rules = policies.map(|(dir, policy)| format!("[[tree]]\npath = \"{site}/{dir}\"\nfreshness = \"{policy}\"\n"));
    let Some(network) = Network::new() else { return };
    let Some(mut mount) = Mount::with(Setup::default().config(&rules.concat())) else { return };
    for (dir, _) in policies {
        assert_eq!(names_in(&mount.at(&site).join(dir)), ["held.txt", "index.html", "other.txt"]);
        let held = std::fs::read_to_string(mount.at(&site).join(dir).join("held.txt")).expect("read");
        assert_eq!(held, format!("of /{dir}/held.txt"));
    }
    mount.umount();
    mount.move_to(network.words());
    mount.mount();
    for (dir, _) in policies {
        let dir_there = mount.at(&site).join(dir);
        let held = std::fs::read_to_string(dir_there.join("held.txt"));
        if dir == "always" {
            fails_with(held, Errno::HOSTUNREACH);
            continue;
        }
        assert_eq!(names_in(&dir_there), ["held.txt", "index.html", "other.txt"], "{dir}");
        assert_eq!(held.unwrap_or_else(|error| panic!("{dir}: {error}")), format!("of /{dir}/held.txt"));
        assert_eq!(attribute(&dir_there.join("held.txt"), "user.weft.cached"), "whole");
        fails_with(std::fs::read(dir_there.join("other.txt")), Errno::HOSTUNREACH);
        let uncached = mount.verb("ls -w", [&dir_there]).out;
        assert!(uncached.contains("other.txt") && !uncached.contains("held.txt"), "{uncached}");
    }
    let held = mount.at(&site).join("http/held.txt");
    assert_eq!(attribute(&held, "user.weft.state"), "offline");
    assert!(mount.why(&held, "next").contains("weft online"), "{}", mount.why(&held, "next"));
    let status = mount.status();
    assert_eq!(status["sources"][0]["state"], "disconnected", "{status}");
    assert!(mount.verb("status", [mount.dir()]).out.contains("disconnected"));
    assert_eq!(mount.verb("offline", [mount.dir()]).code, Some(0));
    fails_with(std::fs::read(mount.at(&site).join("manual/other.txt")), Errno::NETDOWN);
    assert_eq!(std::fs::read_to_string(&held).expect("held"), "of /http/held.txt");
}

const FILES: usize = 40;
const FILE_BYTES: usize = 20_000;

/// A tree of files, each of which a `tar` of it must have confirmed.
fn tree(root: &Path) {
    for number in 0..FILES {
        let dir = root.join(format!("d{}", number % 4));
        std::fs::create_dir_all(&dir).expect("made");
        let bytes: Vec<u8> = noise(FILE_BYTES).into_iter().map(|byte| byte.wrapping_add(number as u8)).collect();
        std::fs::write(dir.join(format!("f{number}.bin")), bytes).expect("written");
    }
}

/// Runs tar over a mounted site that is cached and must be confirmed, has `cut` happen when the first bytes have come,
/// and holds what comes against the tree. Not time is measured but what the host was asked after the cut.
#[track_caller]
fn tar_survives(mount: &Mount, server: &Confirming, disk: &Path, cut: impl FnOnce()) {
    let top = mount.at(server.site());
    let work = tempfile::tempdir().expect("a folder");
    let first = work.path().join("first.tar");
    run("tar", ["-C", top.to_str().expect("text"), "-cf", first.to_str().expect("text"), "."]);
    let sent = |mount: &Mount| mount.status()["sources"][0]["requests"].as_u64().expect("a number");

    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100", "tar", "-cf", "-", "-C"]).arg(&top).arg(".");
    let mut tar = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("tar runs");
    let mut pipe = tar.stdout.take().expect("piped");
    let mut bytes = vec![0; FILE_BYTES * 3];
    pipe.read_exact(&mut bytes).expect("the first files");
    cut();
    let (asked, before) = (server.requests(), sent(mount));
    assert!(asked > 0);
    pipe.read_to_end(&mut bytes).expect("the others");
    assert!(tar.wait().expect("ended").success());

    let (archive, out) = (work.path().join("second.tar"), work.path().join("out"));
    std::fs::write(&archive, &bytes).expect("written");
    std::fs::create_dir(&out).expect("made");
    run("tar", ["-C", out.to_str().expect("text"), "-xf", archive.to_str().expect("text")]);
    for number in 0..FILES {
        let name = format!("d{}/f{number}.bin", number % 4);
        let (got, wanted) = (std::fs::read(out.join(&name)), std::fs::read(disk.join(&name)).expect("read"));
        assert!(got.expect("extracted") == wanted, "{name}");
    }
    let tried = sent(mount) - before;
    assert!(tried <= 2, "{tried} requests were made of a host that is gone");
    assert_eq!(mount.status()["sources"][0]["state"], "disconnected");
}

/// A short deadline makes the test short; that no probe runs makes its count exact.
fn patience() -> Setup {
    Setup::default().option("deadline=2s").config("[web]\ndown_time = \"1h\"\n")
}

#[test]
fn a_link_that_goes_down_is_not_noticed_by_tar() {
    let (Some(of_server), Some(of_mount)) = (Network::new(), Network::new()) else { return };
    of_server.join(&of_mount);
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    tree(&root);
    let log = folder.path().join("log");
    let Some(server) = Confirming::start(&root, "10.77.0.1", Some(&of_server), &log) else { return };
    let Some(mut mount) = Mount::prepare(patience()) else { return };
    mount.move_to(of_mount.words());
    mount.mount();
    tar_survives(&mount, &server, &root, || of_mount.ip("link set cable down"));
}

#[test]
fn a_server_that_stops_is_not_noticed_by_tar() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    tree(&root);
    let log = folder.path().join("log");
    let Some(server) = Confirming::start(&root, "127.0.0.1", None, &log) else { return };
    let Some(mount) = Mount::with(patience()) else { return };
    tar_survives(&mount, &server, &root, || server.freeze());
}
