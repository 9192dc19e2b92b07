//! `[[web.login]]`: how a local user logs in to some hosts.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use weft_web::LoginHost;

use super::file::{Reader, Value};
use super::show_duration;

/// One such table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginTable {
    /// To whom.
    pub hosts: Vec<String>,
    /// Whose calls: a name or an id; `None` for the user who mounts.
    pub user: Option<String>,
    /// With what.
    pub by: LoginBy,
}

/// What a login is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginBy {
    /// `bearer_command`: a program that prints a token.
    BearerCommand {
        /// The program and its arguments.
        command: Vec<String>,
        /// `bearer_lifetime`: for how long its token is used.
        lifetime: Option<Duration>,
    },
    /// `bearer_file`: a file with a token.
    BearerFile(PathBuf),
    /// `certificate` and `key`: of TLS.
    Certificate {
        /// The certificate with its chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// `cookie_file`: cookies in Netscape's format.
    CookieFile(PathBuf),
    /// `netrc`: a netrc file.
    Netrc(PathBuf),
}

impl LoginTable {
    /// As `weft config show` has it.
    pub fn to_json(&self) -> Json {
        let mut table = json!({ "hosts": self.hosts });
        let mut put = |key: &str, value: Json| table[key] = value;
        if let Some(user) = &self.user {
            put("user", json!(user));
        }
        match &self.by {
            LoginBy::BearerCommand { command, lifetime } => {
                put("bearer_command", json!(command));
                if let Some(lifetime) = lifetime {
                    put("bearer_lifetime", json!(show_duration(*lifetime)));
                }
            }
            LoginBy::BearerFile(path) => put("bearer_file", json!(path)),
            LoginBy::Certificate { certificate, key } => {
                put("certificate", json!(certificate));
                put("key", json!(key));
            }
            LoginBy::CookieFile(path) => put("cookie_file", json!(path)),
            LoginBy::Netrc(path) => put("netrc", json!(path)),
        }
        table
    }
}

/// What a table says, before it is known whether it makes sense.
#[derive(Default)]
struct Said {
    hosts: Option<Vec<String>>,
    user: Option<String>,
    command: Option<Vec<String>>,
    lifetime: Option<Duration>,
    token: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    cookies: Option<PathBuf>,
    netrc: Option<PathBuf>,
}

impl Reader<'_> {
    /// Reads all such tables.
    pub(super) fn logins(&mut self, value: &Value<'_>) -> Vec<LoginTable> {
        let mut logins = Vec::new();
        for table in self.tables("web.login", value) {
            let before = self.mistakes_count();
            let mut said = Said::default();
            self.each(table, "web.login", LOGIN_KEYS, |reader, key, value| match key {
                "hosts" => said.hosts = reader.login_hosts(key, value),
                "user" => said.user = reader.user(key, value),
                "bearer_command" => said.command = reader.command(key, value),
                "bearer_lifetime" => said.lifetime = reader.time(key, value, Duration::ZERO),
                "bearer_file" => said.token = reader.path(key, value),
                "certificate" => said.certificate = reader.path(key, value),
                "key" => said.key = reader.path(key, value),
                "cookie_file" => said.cookies = reader.path(key, value),
                _ => said.netrc = reader.path(key, value),
            });
            match said.login() {
                _ if self.mistakes_count() > before => {}
                Ok(login) => logins.push(login),
                Err(sentence) => self.mistake(table.span(), sentence.to_owned()),
            }
        }
        logins
    }

    fn login_hosts(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let texts = self.texts(key, value)?;
        for text in &texts {
            if let Err(sentence) = LoginHost::parse(text) {
                self.mistake(value.span(), format!("`{key}`: {sentence}; a port may follow, as in example.org:8443"));
            }
        }
        Some(texts)
    }

    fn user(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        let text = self.text_of(key, value, "a user's name or id in quotes")?;
        if text.is_empty() {
            self.refuse(value, format!("`{key}` is empty: a user's name or id is needed"))
        } else {
            Some(text)
        }
    }

    fn command(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let words = self.texts(key, value)?;
        if words.first().is_none_or(String::is_empty) {
            return self
                .refuse(value, format!("`{key}` is empty: a program is needed, as in [\"my-token\", \"--print\"]"));
        }
        Some(words)
    }
}

impl Said {
    fn login(self) -> Result<LoginTable, &'static str> {
        let lifetime = self.lifetime;
        let hosts = self.hosts.filter(|hosts| !hosts.is_empty()).ok_or("a [[web.login]] needs `hosts`")?;
        let certificate = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(LoginBy::Certificate { certificate, key }),
            (None, None) => None,
            _ => return Err("`certificate` and `key` go together"),
        };
        let command = self.command.map(|command| LoginBy::BearerCommand { command, lifetime });
        if lifetime.is_some() && command.is_none() {
            return Err("`bearer_lifetime` is about a `bearer_command`");
        }
        let ways = [
            command,
            self.token.map(LoginBy::BearerFile),
            certificate,
            self.cookies.map(LoginBy::CookieFile),
            self.netrc.map(LoginBy::Netrc),
        ];
        let mut ways = ways.into_iter().flatten();
        match (ways.next(), ways.next()) {
            (Some(by), None) => Ok(LoginTable { hosts, user: self.user, by }),
            _ => Err("a [[web.login]] needs one of `bearer_command`, `bearer_file`, `certificate` with `key`, \
                `cookie_file` and `netrc`, and only one"),
        }
    }
}

const LOGIN_KEYS: &[&str] = &[
    "hosts",
    "user",
    "bearer_command",
    "bearer_lifetime",
    "bearer_file",
    "certificate",
    "key",
    "cookie_file",
    "netrc",
];

#[cfg(test)]
mod tests {
    use super::super::file::parse;
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<LoginTable>, String> {
        let settings = parse(Path::new("/etc/weft/weft.toml"), &format!("[[web.login]]\n{text}"));
        settings.map(|settings| settings.web.logins).map_err(|error| error.to_string())
    }

    #[test]
    fn every_way_to_log_in_is_read() {
        let hosts = "hosts = [\"example.org\", \"*.example.org\", \"example.org:8443\"]\n";
        let (certificate, key) = (PathBuf::from("/etc/weft/c.pem"), PathBuf::from("/k.pem"));
        let command = vec!["token".to_owned(), "-x".to_owned()];
        for (text, by) in [
            (
                "bearer_command = [\"token\", \"-x\"]\nbearer_lifetime = \"5m\"",
                LoginBy::BearerCommand { command, lifetime: Some(Duration::from_secs(300)) },
            ),
            ("bearer_file = \"/t\"", LoginBy::BearerFile(PathBuf::from("/t"))),
            ("certificate = \"c.pem\"\nkey = \"/k.pem\"", LoginBy::Certificate { certificate, key }),
            ("cookie_file = \"/c\"", LoginBy::CookieFile(PathBuf::from("/c"))),
            ("user = \"alice\"\nnetrc = \"/n\"", LoginBy::Netrc(PathBuf::from("/n"))),
        ] {
            let logins = read(&format!("{hosts}{text}\n")).expect(text);
            assert_eq!((logins.len(), &logins[0].by), (1, &by));
            assert_eq!(logins[0].hosts.len(), 3);
            assert_eq!(logins[0].user.as_deref(), text.starts_with("user").then_some("alice"));
        }
    }

    #[test]
    fn mistakes_name_what_is_needed() {
        for (text, wanted) in [
            ("bearer_file = \"/t\"", "needs `hosts`"),
            ("hosts = [\"a.org\"]", "and only one"),
            ("hosts = [\"a.org\"]\nbearer_file = \"/t\"\nnetrc = \"/n\"", "and only one"),
            ("hosts = [\"a.org\"]\ncertificate = \"/t\"", "go together"),
            ("hosts = [\"a.org\"]\nbearer_file = \"/t\"\nbearer_lifetime = \"1m\"", "is about a `bearer_command`"),
            ("hosts = [\"a..org\"]\nbearer_file = \"/t\"", "`hosts`: \"a..org\" is no host"),
            ("hosts = [\"a.org\"]\nbearer_command = []", "a program is needed"),
            ("hosts = [\"a.org\"]\ncookie_fil = \"/t\"", "did you mean `cookie_file`?"),
            ("hosts = [\"a.org\"]\nuser = 7\nnetrc = \"/t\"", "`user` = 7"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(wanted) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
