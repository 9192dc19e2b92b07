//! `weft offline` and `weft online`.

use rustix::io::Errno;

use crate::support::{Liar, Mount, Server, Setup, answer, fails_with, page};

fn site() -> Liar {
    Liar::answering(|asked| match asked.path.as_str() {
        "/held.txt" => answer("200 OK", &["etag: \"1\"", "cache-control: no-cache"], b"held"),
        "/other.txt" => answer("200 OK", &["etag: \"2\""], b"other"),
        _ => page("<a href='held.txt'>x</a><a href='other.txt'>x</a>"),
    })
}

/// Goal: a host that was silent when it was first asked, and answers now, is asked at once after `weft online`.
#[test]
fn a_host_that_was_never_there_is_tried_again() {
    let Some(mut server) = Server::nginx("") else { return };
    std::fs::write(server.root().join("there.txt"), "there").expect("written");
    // A pause that no test outlasts: without the user's word nobody would be asked again.
    let Some(mount) = Mount::with(Setup::default().config("[web]\ndown_time = \"10m\"\n")) else { return };
    let file = mount.at(server.site()).join("there.txt");
    server.stop();
    fails_with(std::fs::read(&file), Errno::HOSTUNREACH);
    server.restart();
    fails_with(std::fs::read(&file), Errno::HOSTUNREACH);
    assert_eq!(mount.verb("online", [mount.at(server.site())]).code, Some(0));
    assert_eq!(std::fs::read(&file).expect("read"), b"there");
}

/// Goal: offline asks nobody, by the server's own count, serves what is held and names the rest, and lasts over a
/// remount.
#[test]
fn offline_is_quiet_and_serves_what_is_held() {
    let liar = site();
    let Some(mount) = Mount::new() else { return };
    let top = mount.at(liar.site());
    assert_eq!(std::fs::read(top.join("held.txt")).expect("read"), b"held");
    assert_eq!(mount.verb("offline", [&top]).code, Some(0));
    let asked = liar.times("/held.txt");
    mount.remount();
    assert_eq!(std::fs::read(top.join("held.txt")).expect("read"), b"held");
    assert_eq!(liar.times("/held.txt"), asked, "nobody was asked");
    let error = std::fs::read(top.join("other.txt")).expect_err("not held");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NETDOWN.raw_os_error()), "{error}");
    assert_eq!(mount.status()["offline"].as_array().map(Vec::len), Some(1));
    assert_eq!(mount.verb("online", [mount.dir()]).code, Some(0));
    assert_eq!(std::fs::read(top.join("other.txt")).expect("read"), b"other");
    assert_eq!(mount.verb("online", [mount.dir()]).code, Some(4), "nothing was offline");
}
