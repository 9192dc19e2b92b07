//! `[afs]`: where the cells of AFS are written down, and how users prove there who they are.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use weft_afs::{CacheName, Level, Resolver};

use super::duration::show_duration;
use super::file::{Reader, Value};

/// The keys of `[afs]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfsSettings {
    /// The folder with CellServDB and CellAlias.
    pub config_dir: Option<PathBuf>,
    /// How what is said with a user's token is protected.
    pub level: Option<Level>,
    /// The name of the credential cache of the user who mounts.
    pub ccache: Option<String>,
    /// What `@sys` at the end of a name stands for, the first that there is.
    pub sysname: Option<Vec<String>>,
    /// Where users' tickets come from.
    pub tickets: Option<TicketSource>,
    /// Whether DNS is asked for cells that are not written down.
    pub dns: Option<bool>,
    /// The name server that is asked, instead of those of the machine.
    pub resolver: Option<SocketAddr>,
    /// How long a server that has promised something may have said nothing before it is asked whether it is there.
    pub probe: Option<Duration>,
}

/// Where users' tickets come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TicketSource {
    /// From their credential caches, and where one is missing the daemon gets it with the user's own ticket of Kerberos.
    #[default]
    Get,
    /// From their credential caches alone.
    Found,
}

impl AfsSettings {
    /// These settings where they say something, otherwise those `below`.
    pub(super) fn over(self, below: AfsSettings) -> AfsSettings {
        AfsSettings {
            config_dir: self.config_dir.or(below.config_dir),
            level: self.level.or(below.level),
            ccache: self.ccache.or(below.ccache),
            sysname: self.sysname.or(below.sysname),
            tickets: self.tickets.or(below.tickets),
            dns: self.dns.or(below.dns),
            resolver: self.resolver.or(below.resolver),
            probe: self.probe.or(below.probe),
        }
    }

    /// That folder: where OpenAFS has it, unless somebody says otherwise.
    pub fn config_dir(&self) -> PathBuf {
        self.config_dir.clone().unwrap_or_else(|| PathBuf::from(CONFIG_DIR))
    }

    /// Whom cells are asked for that are not written down.
    pub fn resolver(&self) -> Option<Resolver> {
        self.dns.unwrap_or(true).then(|| self.resolver.map_or(Resolver::System, Resolver::At))
    }

    /// As `weft config show` has it.
    pub fn to_json(&self) -> Json {
        json!({
            "config_dir": self.config_dir,
            "level": self.level.and_then(|level| name_of(LEVELS, level)),
            "ccache": self.ccache,
            "sysname": self.sysname,
            "tickets": self.tickets.and_then(|tickets| name_of(TICKETS, tickets)),
            "dns": self.dns,
            "resolver": self.resolver,
            "probe": self.probe.map(show_duration),
        })
    }
}

impl Reader<'_> {
    /// Reads the table.
    pub(super) fn afs(&mut self, value: &Value<'_>) -> AfsSettings {
        let mut afs = AfsSettings::default();
        self.each(value, "afs", AFS_KEYS, |reader, key, value| match key {
            "config_dir" => afs.config_dir = reader.path(key, value),
            "level" => afs.level = reader.one_of(key, value, LEVELS, "\"clear\", \"auth\" or \"crypt\""),
            "sysname" => afs.sysname = reader.sysnames(key, value),
            "tickets" => afs.tickets = reader.one_of(key, value, TICKETS, "\"get\" or \"found\""),
            "dns" => afs.dns = reader.boolean(key, value),
            "resolver" => afs.resolver = reader.address(key, value),
            "probe" => afs.probe = reader.time(key, value, PROBE_MIN),
            _ => afs.ccache = reader.ccache(key, value),
        });
        afs
    }

    fn one_of<T: Copy>(&mut self, key: &str, value: &Value<'_>, all: &[(&str, T)], allowed: &str) -> Option<T> {
        let text = self.text_of(key, value, allowed)?;
        match all.iter().find(|(name, _)| *name == text) {
            Some((_, meant)) => Some(*meant),
            None => self.refuse(value, format!("`{key}` = \"{text}\": {allowed} is allowed")),
        }
    }

    fn sysnames(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let names = self.texts(key, value)?;
        let is_part = |name: &String| !name.is_empty() && name.len() <= 64 && !name.contains(['/', '\0']);
        if names.is_empty() || names.len() > SYSNAMES_MAX || !names.iter().all(is_part) {
            let allowed = "1 to 16 names without a slash, as in [\"amd64_linux26\", \"i386_linux26\"]";
            return self.refuse(value, format!("`{key}`: {allowed} are allowed"));
        }
        Some(names)
    }

    fn ccache(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        let text = self.text_of(key, value, "a credential cache, as in \"FILE:/tmp/krb5cc_1000\"")?;
        match CacheName::parse(&text) {
            Ok(_) => Some(text),
            Err(error) => self.refuse(value, format!("`{key}`: {error}")),
        }
    }
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], wanted: T) -> Option<&'static str> {
    all.iter().find(|(_, known)| *known == wanted).map(|(name, _)| *name)
}

const AFS_KEYS: &[&str] = &["config_dir", "level", "ccache", "sysname", "tickets", "dns", "resolver", "probe"];
/// A shorter while is a burden for servers.
const PROBE_MIN: Duration = Duration::from_secs(1);
/// Most names that `@sys` may stand for, as OpenAFS has it (MAXNUMSYSNAMES of src/afs/afs.h).
const SYSNAMES_MAX: usize = 16;
const TICKETS: &[(&str, TicketSource)] = &[("get", TicketSource::Get), ("found", TicketSource::Found)];
const LEVELS: &[(&str, Level)] = &[("clear", Level::Clear), ("auth", Level::Auth), ("crypt", Level::Crypt)];
const CONFIG_DIR: &str = "/etc/openafs";

#[cfg(test)]
mod tests {
    use super::super::file::parse;
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<AfsSettings, String> {
        let settings = parse(Path::new("/etc/weft/weft.toml"), &format!("[afs]\n{text}"));
        settings.map(|settings| settings.afs).map_err(|error| error.to_string())
    }

    #[test]
    fn the_table_is_read_and_shown() {
        let text = "config_dir = \"cells\"\nlevel = \"auth\"\nccache = \"DIR:/run/user/1/krb5cc\"\n\
            sysname = [\"plan9\"]\ntickets = \"found\"\ndns = true\nresolver = \"192.0.2.1:53\"\nprobe = \"5m\"\n";
        let afs = read(text).expect("good");
        assert_eq!((afs.config_dir(), afs.level), (PathBuf::from("/etc/weft/cells"), Some(Level::Auth)));
        let shown = json!({
            "config_dir": "/etc/weft/cells",
            "level": "auth",
            "ccache": "DIR:/run/user/1/krb5cc",
            "sysname": ["plan9"],
            "tickets": "found",
            "dns": true,
            "resolver": "192.0.2.1:53",
            "probe": "5m",
        });
        assert_eq!(afs.clone().over(AfsSettings::default()).to_json(), shown);
        assert_eq!(AfsSettings::default().over(afs.clone()), afs);
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (text, wanted) in [
            ("level = \"none\"", "\"clear\", \"auth\" or \"crypt\" is allowed"),
            ("level = 2", "is needed"),
            ("dns = \"no\"", "is needed"),
            ("resolver = \"ns.example.org\"", "is needed"),
            ("probe = \"0s\"", "too short: at least 1s"),
            ("tickets = \"take\"", "\"get\" or \"found\" is allowed"),
            ("ccache = \"KCM:\"", "not from KCM:"),
            ("ccache = \"krb5cc\"", "needs a whole path"),
            ("sysname = []", "1 to 16 names"),
            ("sysname = [\"a/b\"]", "without a slash"),
            ("sysname = \"a\"", "is needed"),
            ("ccahe = \"/x\"", "did you mean `ccache`?"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(wanted) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
