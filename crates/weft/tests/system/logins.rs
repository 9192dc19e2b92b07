//! Logins on a live mount: who sends them, and who sees what they brought.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::support::{Certificate, Liar, Mount, Program, Server, Setup, answer, fails_with, is_root, without};

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

/// The name of the user that tests become.
const OTHER: &str = "65534";

fn as_other(program: &str, args: &[&Path]) -> crate::support::Outcome {
    let (reuid, regid) = (format!("--reuid={OTHER}"), format!("--regid={OTHER}"));
    let become_other = [reuid.as_str(), regid.as_str(), "--clear-groups", program];
    Program::new("setpriv").args(become_other).args(args).dir(Path::new("/")).run()
}

/// Goal: the kernel, which remembers names, sizes and pages for whoever asks next, has nothing of one user's to show to
/// another. Method: the owner looks at a file that nothing but the login leads to, in every way, and holds it open
/// while the other one tries each way in turn.
#[test]
fn the_kernels_memory_shows_nothing_to_others() {
    if !is_root() {
        return without("only root can become another user");
    }
    let liar = Liar::answering(|asked| {
        let known = asked.header("authorization") == Some(HEADER);
        let fresh = ["content-type: text/html", "cache-control: max-age=3600", "etag: \"1\""];
        match asked.path.as_str() {
            _ if !known => answer("401 Unauthorized", &["www-authenticate: Basic realm=\"x\""], "who are you?"),
            "/" => answer("200 OK", &fresh, "<a href=\"hidden-name/plan.txt\">plan</a>"),
            "/hidden-name/" => answer("200 OK", &fresh, "<a href=\"plan.txt\">plan</a>"),
            "/hidden-name/plan.txt" => answer("200 OK", &["cache-control: max-age=3600", "etag: \"2\""], "secret"),
            _ => answer("404 Not Found", &[], ""),
        }
    });
    let setup = setup("insecure_credentials = true\n").option("allow_other");
    let Some(mount) = mount_with_netrc(0o600, setup) else { return };
    let top = mount.at(liar.site());
    let dir = top.join("hidden-name");
    let plan = dir.join("plan.txt");
    for _ in 0..2 {
        assert_eq!(std::fs::read(&plan).expect("the owner reads"), b"secret");
        assert_eq!(std::fs::metadata(&plan).expect("the owner looks").len(), 6);
        assert_eq!(crate::support::names_in(&dir), ["index.html", "plan.txt"]);
        assert!(crate::support::names_in(&top).contains(&"hidden-name".to_owned()));
    }
    let held = std::fs::File::open(&plan).expect("held open");
    for (program, path) in [
        ("cat", &plan),
        ("stat", &plan),
        ("ls", &plan),
        ("ls", &dir),
        ("ls", &top),
        ("find", &top),
        ("cat", &top.join("index.html")),
    ] {
        let seen = as_other(program, &[path]);
        let told = seen.out.contains("plan") || seen.out.contains("hidden-name/") || seen.out.contains("secret");
        assert!(!told, "{program} {}: {seen:?}", path.display());
        if program != "ls" && program != "find" {
            assert_ne!(seen.code, Some(0), "{program} {}: {seen:?}", path.display());
        }
    }
    let listed = as_other("ls", &[&top]);
    assert!(!listed.out.contains("hidden"), "{listed:?}");
    let size = as_other("getfattr", &[Path::new("-n"), Path::new("user.weft.version"), &plan]);
    assert!(!size.out.contains("user.weft.version="), "{size:?}");
    // Nor do the verbs tell.
    let (program, config) = (crate::support::weft_program(), mount.beside("run"));
    let verb = |words: &[&str], path: &Path| {
        let (reuid, regid) = (format!("--reuid={OTHER}"), format!("--regid={OTHER}"));
        Program::new("setpriv")
            .args([reuid.as_str(), regid.as_str(), "--clear-groups"])
            .arg(program)
            .args(words)
            .arg(path)
            .dir(Path::new("/"))
            .env("XDG_RUNTIME_DIR", config.clone())
            .run()
    };
    assert_eq!(mount.verb("pin", [&plan]).code, Some(0));
    assert_eq!(mount.verb("offline --fetch-only", [&dir]).code, Some(0));
    assert!(mount.verb("status", [&top]).out.contains("hidden-name"), "the owner is told");
    for (words, path) in [
        (&["ls", "-w", "--all"][..], &top),
        (&["ls", "-w", "--all"], &dir),
        (&["why"], &plan),
        (&["status"], &top),
        (&["status", "--json"], &top),
    ] {
        let seen = verb(words, path);
        assert!(!seen.out.contains("plan") && !seen.out.contains("hidden"), "{words:?}: {seen:?}");
    }
    assert_eq!(std::fs::read(&plan).expect("the owner reads on"), b"secret");
    drop(held);
}

/// Goal: two users with logins of their own read one path, and each is asked about. Method: a root daemon runs a
/// program as the other user for a token; the server takes both logins, and gives the same to both.
#[test]
fn a_second_user_logs_in_with_a_token_of_their_own() {
    if !is_root() {
        return without("only root can become another user");
    }
    let liar = Liar::answering(|asked| {
        let fresh = ["content-type: text/plain", "cache-control: max-age=3600", "etag: \"1\""];
        let known = match asked.header("authorization") {
            Some(HEADER) => true,
            Some(token) => token == format!("Bearer id-{OTHER}"),
            None => false,
        };
        match asked.path.as_str() {
            _ if !known => answer("401 Unauthorized", &[], "who are you?"),
            "/shared.txt" if asked.header("if-none-match") == Some("\"1\"") => answer("304 Not Modified", &fresh, ""),
            "/shared.txt" => answer("200 OK", &fresh, "for those who log in"),
            _ => answer("404 Not Found", &[], ""),
        }
    });
    let words = format!(
        "insecure_credentials = true\n[[web.login]]\nhosts = [\"127.0.0.1\"]\nuser = \"{OTHER}\"\n\
        bearer_command = [\"sh\", \"-c\", \"echo id-$(id -u)\"]\n"
    );
    let Some(mount) = mount_with_netrc(0o600, setup(&words).option("allow_other")) else { return };
    let shared = mount.at(liar.site()).join("shared.txt");
    assert_eq!(std::fs::read(&shared).expect("the owner reads"), b"for those who log in");
    for _ in 0..3 {
        let seen = as_other("cat", &[&shared]);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), "for those who log in"), "{seen:?}");
        assert_eq!(std::fs::read(&shared).expect("the owner reads on"), b"for those who log in");
    }
    let asked = liar.asked();
    let tokens = asked.iter().filter(|asked| asked.header("authorization") != Some(HEADER)).count();
    assert!(tokens > 0 && tokens <= 4, "a grant lasts: {tokens} requests of the second user");
    assert_eq!(liar.times("/shared.txt"), 2, "one body, one confirmation");
}

/// Goal: a certificate opens what nginx shows to those alone who have it, to its user alone. Method: nginx asks for one
/// and refuses whoever shows none.
#[test]
fn a_certificate_opens_what_a_real_server_guards() {
    let (certificate, mine) = (Certificate::of("127.0.0.1"), Certificate::of("me"));
    std::fs::set_permissions(&mine.key, PermissionsExt::from_mode(0o600)).expect("set");
    let guard = format!(
        "ssl_client_certificate {}; ssl_verify_client optional; if ($ssl_client_verify != SUCCESS) {{ return 403; }}",
        mine.chain.display()
    );
    let Some(server) = Server::nginx_tls(&certificate, &guard) else { return };
    std::fs::write(server.root().join("a.txt"), "for those who are known").expect("written");
    let login = format!(
        "[[web.login]]\nhosts = [\"127.0.0.1\"]\ncertificate = \"{}\"\nkey = \"{}\"\n",
        mine.chain.display(),
        mine.key.display()
    );
    let trusted = certificate.trusted();
    let config = format!("{trusted}allow_hosts = [\"127.0.0.1\"]\n");
    let Some(stranger) = Mount::with(Setup::default().config(&config)) else { return };
    fails_with(std::fs::read(stranger.at(server.site()).join("a.txt")), Errno::ACCESS);
    let mut setup = Setup::default().config(&format!("{config}{login}"));
    if is_root() {
        setup = setup.option("allow_other");
    }
    let Some(mount) = Mount::with(setup) else { return };
    let file = mount.at(server.site()).join("a.txt");
    assert_eq!(std::fs::read(&file).expect("read"), b"for those who are known");
    assert!(mount.why(&file, "login").contains("the certificate in"), "{}", mount.why(&file, "login"));
    if is_root() {
        let seen = as_other("cat", &[&file]);
        assert!(seen.code != Some(0) && seen.out.is_empty(), "{seen:?}");
        assert_eq!(std::fs::read(&file).expect("read on"), b"for those who are known");
    }
}
