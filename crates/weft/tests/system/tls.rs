//! https first, and never back.

use rustix::io::Errno;

use crate::support::{Certificate, Mount, Server, Setup, fails_with, run, write_aged};

#[test]
fn https_comes_first_and_speaks_http2() {
    let certificate = Certificate::of("127.0.0.1");
    let Some(mut server) = Server::nginx_tls(&certificate, "") else { return };
    for nth in 0..50 {
        write_aged(&server.root().join(format!("{nth}.txt")), format!("file {nth}\n").as_bytes(), nth);
    }
    let Some(mount) = Mount::with(Setup::default().config(&certificate.trusted())) else { return };
    let site = mount.at(server.site());
    crate::support::compare(&server.root(), &site);
    assert_eq!(mount.why(&site.join("1.txt"), "scheme"), "https");
    mount.umount();
    server.stop();
    let hits = server.logged();
    let answered: Vec<_> = hits.iter().filter(|hit| hit.status == 200).collect();
    assert_eq!(answered.len(), 51, "one per file and one listing: {hits:?}");
    assert!(answered.iter().all(|hit| hit.protocol == "HTTP/2.0"), "{hits:?}");
}

/// Goal: a server that takes few requests on each connection serves as many readers as there are. Method: nginx with
/// `keepalive_requests`, which by default is 1,000, and 40 readers at once.
#[test]
fn a_server_that_ends_its_connections_after_a_few_requests_serves_all_readers() {
    let certificate = Certificate::of("127.0.0.1");
    for each in [1, 3] {
        let Some(server) = Server::nginx_tls(&certificate, &format!("keepalive_requests {each};")) else { return };
        for nth in 0..200 {
            write_aged(&server.root().join(format!("{nth}.txt")), format!("file {nth}\n").as_bytes(), nth);
        }
        let Some(mount) = Mount::with(Setup::default().config(&certificate.trusted())) else { return };
        let site = mount.at(server.site());
        std::thread::scope(|scope| {
            for reader in 0..40 {
                let site = &site;
                scope.spawn(move || {
                    for nth in (reader * 5..reader * 5 + 5).rev() {
                        let read = std::fs::read_to_string(site.join(format!("{nth}.txt")));
                        assert_eq!(read.expect("read"), format!("file {nth}\n"), "{each} requests on each connection");
                    }
                });
            }
        });
    }
}

#[test]
fn a_host_that_spoke_https_is_never_asked_in_plain_text_again() {
    let certificate = Certificate::of("127.0.0.1");
    let Some(mut server) = Server::nginx_tls(&certificate, "") else { return };
    write_aged(&server.root().join("a.txt"), b"first\n", 0);
    write_aged(&server.root().join("b.txt"), b"second\n", 0);
    let Some(mount) = Mount::with(Setup::default().config(&certificate.trusted())) else { return };
    let site = mount.at(server.site());
    assert_eq!(run("cat", [site.join("a.txt")]), "first\n");
    server.stop();
    server.configure("ssl http2", "");
    server.restart();
    for _ in 0..2 {
        let error = std::fs::read(site.join("b.txt")).expect_err("no fallback");
        assert!(
            [Errno::IO, Errno::HOSTUNREACH].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error()),
            "{error}"
        );
        assert_eq!(run("cat", [site.join("a.txt")]), "first\n", "what is cached stays");
        mount.remount();
    }
    let plain: Vec<_> =
        server.hits().into_iter().filter(|hit| hit.protocol == "HTTP/1.1" && hit.status == 200).collect();
    assert_eq!(plain, [], "nothing was asked in plain text");
}

#[test]
fn a_certificate_that_nobody_trusts_is_an_error_without_fallback() {
    let certificate = Certificate::of("127.0.0.1");
    let Some(mut server) = Server::nginx_tls(&certificate, "") else { return };
    write_aged(&server.root().join("a.txt"), b"first\n", 0);
    let wrong = Certificate::of("other.example");
    let Some(other) = Server::nginx_tls(&wrong, "") else { return };
    write_aged(&other.root().join("a.txt"), b"first\n", 0);
    // The first server's certificate is unknown; the second's is known and is for another name.
    let Some(mount) = Mount::with(Setup::default().config(&wrong.trusted())) else { return };
    for site in [server.site(), other.site()] {
        fails_with(std::fs::read(mount.at(&site).join("a.txt")), Errno::ACCESS);
    }
    server.stop();
    assert_eq!(server.logged(), [], "no request at all");
}

/// Goal: a certificate that is trusted but out of its time is no certificate; before and after a remount, and until
/// the server has a good one.
#[test]
fn a_certificate_out_of_its_time_is_an_error_without_fallback() {
    for years in [2001..2002, 2095..2096] {
        let certificate = Certificate::between("127.0.0.1", years.clone());
        let Some(mut server) = Server::nginx_tls(&certificate, "") else { return };
        write_aged(&server.root().join("a.txt"), b"first\n", 0);
        let Some(mount) = Mount::with(Setup::default().config(&certificate.trusted())) else { return };
        for _ in 0..2 {
            fails_with(std::fs::read(mount.at(server.site()).join("a.txt")), Errno::ACCESS);
            mount.remount();
        }
        server.stop();
        assert_eq!(server.logged(), [], "no request at all: {years:?}");
    }
}

/// Goal: authorities that are replaced while a mount lives count, and nothing has to be mounted anew. Method: the server gets its
/// next certificate, and the file that `ca_file` names is written anew; while that cannot be read, what it held before counts.
#[test]
fn authorities_are_read_again() {
    let (first, next) = (Certificate::of("127.0.0.1"), Certificate::of("127.0.0.1"));
    let Some(mut server) = Server::nginx_tls(&first, "") else { return };
    for name in ["a.txt", "b.txt"] {
        write_aged(&server.root().join(name), name.as_bytes(), 0);
    }
    let Some(mount) = Mount::with(Setup::default().config(&first.trusted())) else { return };
    let site = mount.at(server.site());
    std::fs::write(&first.chain, "half").expect("written");
    assert_eq!(run("cat", [site.join("a.txt")]), "a.txt", "what it held at the mount counts");
    server.stop();
    for (old, new) in [(&first.chain, &next.chain), (&first.key, &next.key)] {
        server.configure(&old.display().to_string(), &new.display().to_string());
    }
    server.restart();
    fails_with(std::fs::read(site.join("b.txt")), Errno::ACCESS);
    std::fs::copy(&next.chain, &first.chain).expect("written");
    assert_eq!(run("cat", [site.join("b.txt")]), "b.txt");
}
