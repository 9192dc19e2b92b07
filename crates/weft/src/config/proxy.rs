//! `[[web.proxy]]`, and what the environment says of proxies.

use serde_json::{Value as Json, json};
use weft_web::{HostPattern, NoProxy, UsualProxies, Via};

use super::file::{Reader, Value};

/// One such table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyTable {
    /// For which hosts.
    pub hosts: Vec<String>,
    /// What is tried, in order.
    pub via: Vec<Via>,
}

impl ProxyTable {
    /// As `weft config show` has it: without logins.
    pub fn to_json(&self) -> Json {
        json!({ "hosts": self.hosts, "via": self.via.iter().map(Via::to_string).collect::<Vec<_>>() })
    }
}

/// Reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in lower case before upper case. An empty one is none, as to
/// curl.
///
/// # Errors
/// Which of them cannot be used, and what is allowed: to go without it would show a host what it should not see.
pub fn usual_proxies(variable: impl Fn(&str) -> Option<String>) -> Result<UsualProxies, String> {
    let said = |name: &str| {
        let said = |name: &str| variable(name).filter(|text| !text.is_empty());
        said(name).or_else(|| said(&name.to_ascii_uppercase()))
    };
    let proxy = |name: &str| {
        let Some(text) = said(name) else { return Ok(None) };
        // Many write only HOST:PORT.
        let url = if text.contains("://") { text } else { format!("http://{text}") };
        Via::parse(&url).map(Some).map_err(|why| format!("{name}: {why}"))
    };
    let all = proxy("all_proxy")?;
    let except = said("no_proxy").map(|text| NoProxy::parse(&text)).unwrap_or_default();
    Ok(UsualProxies { http: proxy("http_proxy")?.or(all.clone()), https: proxy("https_proxy")?.or(all), except })
}

impl Reader<'_> {
    /// Reads all such tables.
    pub(super) fn proxies(&mut self, value: &Value<'_>) -> Vec<ProxyTable> {
        let mut proxies = Vec::new();
        for table in self.tables("web.proxy", value) {
            let before = self.mistakes_count();
            let (mut hosts, mut via) = (None, None);
            self.each(table, "web.proxy", PROXY_KEYS, |reader, key, value| match key {
                "hosts" => hosts = reader.hosts(key, value),
                _ => via = reader.ways(key, value),
            });
            match (hosts, via) {
                _ if self.mistakes_count() > before => {}
                (Some(hosts), Some(via)) if !hosts.is_empty() && !via.is_empty() => {
                    proxies.push(ProxyTable { hosts, via });
                }
                _ => self.mistake(table.span(), "a [[web.proxy]] needs `hosts` and `via`".to_owned()),
            }
        }
        proxies
    }

    fn ways(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<Via>> {
        let texts = self.texts(key, value)?;
        let mut ways = Vec::new();
        for text in texts {
            match Via::parse(&text) {
                Ok(via) => ways.push(via),
                Err(sentence) => self.mistake(value.span(), format!("`{key}`: {sentence}")),
            }
        }
        Some(ways)
    }
}

/// A table's hosts as patterns.
pub fn patterns(hosts: &[String]) -> anyhow::Result<Vec<HostPattern>> {
    hosts.iter().map(|text| HostPattern::parse(text).map_err(anyhow::Error::msg)).collect()
}

const PROXY_KEYS: &[&str] = &["hosts", "via"];

#[cfg(test)]
mod tests {
    use super::super::file::parse;
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<ProxyTable>, String> {
        let settings = parse(Path::new("/etc/weft/weft.toml"), &format!("[[web.proxy]]\n{text}"));
        settings.map(|settings| settings.web.proxies).map_err(|error| error.to_string())
    }

    #[test]
    fn proxies_are_read_in_their_order_and_shown_without_logins() {
        let text =
            "hosts = [\"*.org\"]\nvia = [\"http://me:word@proxy:3128\", \"socks5://127.0.0.1:1080\", \"direct\"]\n";
        let proxies = read(text).expect("good");
        let shown = proxies[0].to_json().to_string();
        assert_eq!(proxies[0].via.len(), 3);
        assert!(shown.contains("http://proxy:3128") && !shown.contains("word"), "{shown}");
        for (text, wanted) in [
            ("hosts = [\"a.org\"]", "needs `hosts` and `via`"),
            ("hosts = [\"a.org\"]\nvia = []", "needs `hosts` and `via`"),
            ("hosts = [\"a..org\"]\nvia = [\"direct\"]", "`hosts`: \"a..org\""),
            (
                "hosts = [\"a.org\"]\nvia = [\"https://me:word@proxy\"]",
                "`via`: \"proxy\" is no proxy that weft can use",
            ),
            ("hosts = [\"a.org\"]\nvai = [\"direct\"]", "did you mean `via`?"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(wanted) && !error.contains("word"), "{text}: {error}");
        }
    }

    #[test]
    fn the_environment_is_read_as_other_programs_do() {
        let read = |variables: &[(&str, &str)]| {
            let owned: Vec<(String, String)> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            usual_proxies(move |name| owned.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        let shown = |via: Option<Via>| via.map(|via| via.to_string());
        let proxies =
            read(&[("http_proxy", "lower:1"), ("HTTP_PROXY", "http://upper:2"), ("ALL_PROXY", "socks5://all:3")]);
        let proxies = proxies.expect("good");
        assert_eq!(shown(proxies.http).as_deref(), Some("http://lower:1"));
        assert_eq!(shown(proxies.https).as_deref(), Some("socks5://all:3"));
        let proxies = read(&[("https_proxy", ""), ("HTTPS_PROXY", "http://upper:2")]).expect("good");
        assert_eq!(shown(proxies.https).as_deref(), Some("http://upper:2"));
        let proxies = read(&[("no_proxy", ""), ("NO_PROXY", "a.org")]).expect("good");
        assert_eq!(proxies.except, NoProxy::parse("a.org"));
        assert_eq!(read(&[]).expect("good"), UsualProxies::default());
        let why = read(&[("https_proxy", "https://me:word@proxy")]).expect_err("no TLS to proxies");
        assert!(why.contains("https_proxy") && !why.contains("word"), "{why}");
    }
}
