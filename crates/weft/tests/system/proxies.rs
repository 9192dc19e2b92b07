//! Proxies on a live mount.

use crate::support::{Liar, Mount, Setup, answer};

/// A proxy that passes plain http alone, and answers it itself.
fn proxy() -> Liar {
    Liar::answering(|asked| match asked.path.strip_prefix("http://far.invalid/") {
        Some("") => answer("200 OK", &["content-type: text/html"], "<a href=\"a.txt\">a</a>"),
        Some("a.txt") => answer("200 OK", &["etag: \"1\""], "by proxy"),
        None if asked.path == "http://far.invalid:8080/a.txt" => answer("200 OK", &["etag: \"1\""], "by proxy"),
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

/// A mount with these variables in its environment.
fn mounted_with(variables: &[(&str, &str)]) -> Option<Mount> {
    let mount = Mount::prepare(Setup::default())?;
    let mounted = variables.iter().fold(mount.weft(), |program, (name, value)| program.env(name, value));
    let mounted = mounted
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
    Some(mount)
}

#[test]
fn the_environment_names_a_proxy_too() {
    let liar = proxy();
    let all = format!("http://{}", liar.host());
    let Some(mount) = mounted_with(&[("all_proxy", &all), ("no_proxy", ""), ("NO_PROXY", "near.invalid")]) else {
        return;
    };
    assert_eq!(std::fs::read(mount.at("web/far.invalid/a.txt")).expect("read"), b"by proxy");
    let near = std::fs::read(mount.at("web/near.invalid/a.txt")).expect_err("there is no such host");
    assert_eq!(near.kind(), std::io::ErrorKind::NotFound, "{near}");
    assert!(liar.asked().iter().all(|asked| !asked.path.contains("near")));
}

/// Goal: where plain http alone goes through a proxy, a host that is not reached by https from here is reached by that, with a
/// port in its name or without.
#[test]
fn a_proxy_for_plain_http_alone_is_enough() {
    let liar = proxy();
    let Some(mount) = mounted_with(&[("http_proxy", &format!("http://{}", liar.host()))]) else { return };
    for host in ["far.invalid", "far.invalid:8080"] {
        let file = mount.at(format!("web/{host}/a.txt"));
        assert_eq!(std::fs::read(&file).expect(host), b"by proxy");
        assert!(mount.why(&file, "url").starts_with("http://"), "{}", mount.why(&file, "url"));
    }
}
