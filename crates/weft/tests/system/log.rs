//! What the daemon's log tells of a kernel request when it is asked to talk.

use crate::support::{Liar, Mount, Setup, answer, page};

/// Goal: with `WEFT_LOG=debug` the log shows for a request of the kernel who asked for what, what a remote was asked on
/// its behalf, with status and bytes, and how long it took; and no query of a URL, which may be a secret.
#[test]
fn a_request_shows_what_was_asked_of_remotes() {
    let liar = Liar::answering(|asked| match asked.path.as_str() {
        "/a.txt" => answer("302 Found", &["location: /b.txt?signature=hunter2"], ""),
        "/b.txt?signature=hunter2" => answer("200 OK", &["etag: \"1\""], "text"),
        _ => page("<a href='a.txt'>a</a>"),
    });
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    let program = mount.weft().env("WEFT_LOG", "debug").arg("mount").arg("--cache").arg(mount.cache());
    program.arg("--config").arg(mount.beside("weft.toml")).arg("--").arg("").arg(mount.dir()).good();
    let file = mount.at(liar.site()).join("a.txt");
    assert_eq!(std::fs::read(&file).expect("read"), b"text");
    // A daemon that has ended has written all it had to say.
    mount.umount();
    let log = std::fs::read_to_string(mount.cache().join("weft.log")).expect("a log");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("op=\"lookup\"")).collect();
    let asked = |url: &str, status: u16| {
        let (url, status) = (format!("url=\"http://{}{url}\"", liar.host()), format!("status={status}"));
        lines.iter().find(|line| line.contains(&url) && line.contains(&status) && line.contains("took_ms="))
    };
    let first = asked("/a.txt", 302).unwrap_or_else(|| panic!("the first hop: {log}"));
    let request = first.split("unique=").nth(1).and_then(|rest| rest.split('}').next()).expect("the kernel's number");
    let of_request = |words: &str| {
        let unique = format!("unique={request}}}");
        lines.iter().any(|line| line.contains(&unique) && line.contains(words))
    };
    let uid = rustix::process::geteuid().as_raw();
    assert!(of_request(&format!("uid={uid} pid=")), "who asked: {first}");
    assert!(of_request("status=200"), "the second hop is on behalf of the same request: {log}");
    assert!(of_request("answered after a wait") && of_request("took_us="), "{log}");
    assert!(of_request("bytes=4"), "the body, which comes in a task of its own: {log}");
    for line in log.lines().filter(|line| line.contains("method=") || line.contains("bytes=")) {
        assert!(!line.contains("hunter2"), "{line}");
    }
}
