//! Logins on a live mount: who sends them, and who sees what they brought.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::support::{Liar, Mount, Program, Setup, answer, fails_with, is_root, without};

/// `me:word` in Basic.
const HEADER: &str = "Basic bWU6d29yZA==";
const INDEX: &str = "<html>\r\n<head><title>Index of /</title></head>\r\n<body>\r\n<h1>Index of /</h1><hr><pre>\
    <a href=\"../\">../</a>\r\n\
    <a href=\"open.txt\">open.txt</a>                                           21-Nov-2025 09:00       4\r\n\
    <a href=\"private.txt\">private.txt</a>                                        21-Nov-2025 09:00       SIZE\r\n\
    </pre><hr></body>\r\n</html>\r\n";

/// Lists before one contradicts what is held.
const LISTS_THAT_FIT: usize = 20;

/// A server whose list is open to anyone, and one of its files to those alone who log in.
fn guarded() -> Liar {
    let lists = AtomicUsize::new(0);
    Liar::answering(move |asked| {
        let known = asked.header("authorization") == Some(HEADER);
        let fresh = ["content-type: text/plain", "cache-control: max-age=3600", "etag: \"1\""];
        match asked.path.as_str() {
            "/" => {
                // Later lists tell another size, so that what is held of the file counts as doubtful.
                let size = if lists.fetch_add(1, Ordering::SeqCst) < LISTS_THAT_FIT { "6" } else { "7" };
                let index = INDEX.replace("SIZE", size);
                answer("200 OK", &["content-type: text/html", "cache-control: no-cache", "server: nginx"], index)
            }
            "/open.txt" => answer("200 OK", &fresh, "open"),
            "/private.txt" if known => answer("200 OK", &fresh, "secret"),
            "/private.txt" => answer("401 Unauthorized", &["www-authenticate: Basic realm=\"x\""], "who are you?"),
            _ => answer("404 Not Found", &[], ""),
        }
    })
}

/// A mount whose owner has a netrc file of this mode.
fn mount_with_netrc(mode: u32, setup: Setup) -> Option<Mount> {
    let mount = Mount::prepare(setup)?;
    let netrc = mount.beside("netrc");
    std::fs::write(&netrc, "machine 127.0.0.1 login me password word\n").expect("written");
    std::fs::set_permissions(&netrc, PermissionsExt::from_mode(mode)).expect("set");
    mount.mount();
    Some(mount)
}

fn setup(words: &str) -> Setup {
    Setup::default().config(&format!("[web]\nnetrc = \"netrc\"\nallow_hosts = [\"127.0.0.1\"]\n{words}"))
}

#[test]
fn a_login_is_sent_where_it_may_be_and_only_there() {
    for (mode, words, works) in [
        (0o600, "insecure_credentials = true\n", true),
        (0o600, "", false),
        (0o644, "insecure_credentials = true\n", false),
    ] {
        let liar = guarded();
        let Some(mount) = mount_with_netrc(mode, setup(words)) else { return };
        let read = std::fs::read(mount.at(liar.site()).join("private.txt"));
        if works {
            assert_eq!(read.expect("read"), b"secret");
        } else {
            fails_with(read, Errno::ACCESS);
        }
        let sent = liar.asked().iter().any(|asked| asked.header("authorization").is_some());
        assert_eq!(sent, works, "{mode:o} {words}");
        let log = std::fs::read_to_string(mount.cache().join("weft.log")).unwrap_or_default();
        assert_eq!(log.contains("chmod 600"), mode == 0o644, "{log}");
        assert!(!log.contains("word "), "{log}");
    }
}

/// Goal: what the owner's login brought into the cache is not shown to others. Method: an open mount; the other user
/// lists first, so that the directory is everyone's, then the owner reads, then the other lists again and tries.
#[test]
fn others_do_not_see_what_a_login_brought() {
    if !is_root() {
        return without("only root can become another user");
    }
    let other = |program: &str, path: &Path| {
        let become_other = ["--reuid=65534", "--regid=65534", "--clear-groups", program];
        Program::new("setpriv").args(become_other).arg(path).dir(Path::new("/")).run()
    };
    let liar = guarded();
    let setup = setup("insecure_credentials = true\n").option("allow_other");
    let Some(mount) = mount_with_netrc(0o600, setup) else { return };
    let top = mount.at(liar.site());
    let private = top.join("private.txt");
    assert_eq!(other("ls", &top).code, Some(0));
    assert_ne!(other("cat", &private).code, Some(0), "nothing is cached and the server denies");
    assert_eq!(std::fs::read(&private).expect("the owner reads"), b"secret");
    for round in 0..3 {
        let listed = other("ls", &top);
        let seen = other("cat", &private);
        assert!(seen.code != Some(0) && !seen.out.contains("secret"), "{round}: {listed:?} {seen:?}");
        assert_eq!(std::fs::read(&private).expect("the owner reads on"), b"secret", "{round}");
    } // The source is gone, and the last list cast doubt on what is held: still nobody else gets it.
    while liar.times("/") <= LISTS_THAT_FIT {
        assert_eq!(other("ls", &top).code, Some(0));
    }
    drop(liar);
    let seen = other("cat", &private);
    assert!(seen.code != Some(0) && !seen.out.contains("secret"), "{seen:?}");
}
