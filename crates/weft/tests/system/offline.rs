//! `weft offline` and `weft online`.

use crate::support::{Liar, Mount, answer, page};

fn site() -> Liar {
    Liar::answering(|asked| match asked.path.as_str() {
        "/held.txt" => answer("200 OK", &["etag: \"1\"", "cache-control: no-cache"], b"held".to_vec()),
        "/other.txt" => answer("200 OK", &["etag: \"2\""], b"other".to_vec()),
        _ => page("<a href='held.txt'>x</a><a href='other.txt'>x</a>"),
    })
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
