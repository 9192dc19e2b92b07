//! Proxies on a live mount.

use crate::support::{Liar, Mount, Setup, answer};

/// A proxy that passes plain http alone, and answers it itself.
fn proxy() -> Liar {
    Liar::answering(|asked| match asked.path.strip_prefix("http://far.invalid/") {
        Some("") => answer("200 OK", &["content-type: text/html"], "<a href=\"a.txt\">a</a>"),
        Some("a.txt") => answer("200 OK", &["etag: \"1\""], "by proxy"),
        _ => answer("502 Bad Gateway", &[], "not here"),
    })
}

#[test]
fn a_rule_of_the_configuration_leads_through_its_proxy() {
    let liar = proxy();
    let url = format!("http://me:word@{}", liar.host());
    let dead = format!("socks5://127.0.0.1:{}", crate::support::free_port());
    let config = format!("[[web.proxy]]\nhosts = [\"*.invalid\"]\nvia = [\"{dead}\", \"{url}\"]\n");
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    let file = mount.at("web/far.invalid/a.txt");
    assert_eq!(std::fs::read(&file).expect("read"), b"by proxy");
    let shown = format!("http://{}", liar.host());
    assert_eq!(mount.why(&file, "served through"), shown);
    assert!(mount.why(&file, "proxies").contains(&dead), "{}", mount.why(&file, "proxies"));
    let asked = liar.asked();
    assert!(asked.iter().any(|asked| asked.header("proxy-authorization") == Some("Basic bWU6d29yZA==")));
    let log = std::fs::read_to_string(mount.cache().join("weft.log")).unwrap_or_default();
    assert!(!log.contains("word"), "{log}");
}

#[test]
fn the_environment_names_a_proxy_too() {
    let liar = proxy();
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    let mounted = mount
        .weft()
        .env("all_proxy", format!("http://{}", liar.host()))
        .env("no_proxy", "near.invalid")
        .arg("mount")
        .arg("--cache")
        .arg(mount.cache())
        .arg("--config")
        .arg(mount.beside("weft.toml"))
        .arg("--")
        .arg("")
        .arg(mount.dir())
        .run();
    assert_eq!(mounted.code, Some(0), "{mounted:?}");
    assert_eq!(std::fs::read(mount.at("web/far.invalid/a.txt")).expect("read"), b"by proxy");
    let near = std::fs::read(mount.at("web/near.invalid/a.txt")).expect_err("there is no such host");
    assert_eq!(near.kind(), std::io::ErrorKind::NotFound, "{near}");
    assert!(liar.asked().iter().all(|asked| !asked.path.contains("near")));
}
