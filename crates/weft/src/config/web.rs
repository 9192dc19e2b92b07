//! The table `[web]` of a configuration file.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;
use weft_web::HostPattern;

use super::file::{Reader, SHORTEST_DEADLINE, Value};
use super::{PrivateAddresses, Settings, show_size};

impl Reader<'_> {
    pub(super) fn web(&mut self, settings: &mut Settings, key: &str, value: &Value<'_>) {
        let web = &mut settings.web;
        match key {
            "probe_names" => web.probe_names = self.texts(key, value),
            "probe_names_extra" => web.probe_names_extra = self.texts(key, value).unwrap_or_default(),
            "ca_file" => web.ca_file = self.path(key, value),
            "user_agent" => web.user_agent = self.user_agent(value),
            "memory_max" => web.memory_max = self.memory(key, value),
            "connections_per_host" => web.connections_per_host = self.number(key, value, 1..=256),
            "redirects_max" => web.redirects_max = self.number(key, value, 0..=100),
            "heuristic_min" => web.heuristic_min = self.time(key, value, Duration::ZERO),
            "heuristic_max" => web.heuristic_max = self.time(key, value, Duration::ZERO),
            "absence_time" => web.absence_time = self.time(key, value, Duration::ZERO),
            "connect_timeout" => web.connect_timeout = self.time(key, value, SHORTEST_DEADLINE),
            "stall_timeout" => web.stall_timeout = self.time(key, value, SHORTEST_DEADLINE),
            "private_addresses" => web.private_addresses = self.private_addresses(value),
            "allow_hosts" => web.allow_hosts = self.hosts(key, value),
            "deny_hosts" => web.deny_hosts = self.hosts(key, value),
            "dav_hosts" => web.dav_hosts = self.hosts(key, value),
            "unlisted_hosts" => web.unlisted_hosts = self.hosts(key, value),
            "warm_per_host" => web.warm_per_host = self.number(key, value, 1..=64),
            "warm_pause" => web.warm_pause = self.time(key, value, Duration::ZERO),
            "netrc" => web.netrc = self.netrc(value),
            "insecure_credentials" => web.insecure_credentials = self.boolean(key, value),
            "netrc_of_users" => web.netrc_of_users = self.boolean(key, value),
            "proxy" => web.proxies = self.proxies(value),
            "login" => web.logins = self.logins(value),
            _ => web.down_time = self.time(key, value, Duration::ZERO),
        }
    }

    fn memory(&mut self, key: &str, value: &Value<'_>) -> Option<u64> {
        let size = self.size(key, value)?;
        if size < MEMORY_BYTES_MIN {
            return self.refuse(value, format!("`{key}` is less than \"{}\"", show_size(MEMORY_BYTES_MIN)));
        }
        Some(size)
    }

    fn user_agent(&mut self, value: &Value<'_>) -> Option<String> {
        let text = self.text_of("user_agent", value, "a text in quotes")?;
        if text.is_empty() || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self
                .refuse(value, format!("`user_agent` = \"{text}\": printable ASCII is allowed, and not nothing"));
        }
        Some(text)
    }

    fn private_addresses(&mut self, value: &Value<'_>) -> Option<PrivateAddresses> {
        const WANTED: &str = "\"allow\", \"deny\" or \"auto\"";
        let text = self.text_of("private_addresses", value, WANTED)?;
        match PrivateAddresses::WORDS.into_iter().find(|(word, _)| *word == text) {
            Some((_, addresses)) => Some(addresses),
            None => self.refuse(value, format!("`private_addresses` = \"{text}\": {WANTED} is allowed")),
        }
    }

    pub(super) fn hosts(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let texts = self.texts(key, value)?;
        for text in &texts {
            if let Err(sentence) = HostPattern::parse(text) {
                self.mistake(value.span(), format!("`{key}`: {sentence}"));
            }
        }
        Some(texts)
    }

    /// A path, or nothing for no file at all.
    fn netrc(&mut self, value: &Value<'_>) -> Option<PathBuf> {
        match value.get_ref() {
            DeValue::String(text) if text.is_empty() => Some(PathBuf::new()),
            _ => self.path("netrc", value),
        }
    }
}

/// What the table may hold.
pub(super) const WEB_KEYS: &[&str] = &[
    "probe_names",
    "probe_names_extra",
    "ca_file",
    "user_agent",
    "memory_max",
    "connections_per_host",
    "redirects_max",
    "heuristic_min",
    "heuristic_max",
    "absence_time",
    "connect_timeout",
    "stall_timeout",
    "down_time",
    "private_addresses",
    "allow_hosts",
    "deny_hosts",
    "dav_hosts",
    "unlisted_hosts",
    "warm_per_host",
    "warm_pause",
    "netrc",
    "insecure_credentials",
    "netrc_of_users",
    "login",
    "proxy",
];
/// Less is no use: one page may take that much.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
