//! `[afs]`: where the cells of AFS are written down, and how users prove there who they are.

use std::path::PathBuf;

use serde_json::{Value as Json, json};
use weft_afs::{CacheName, Level};

use super::file::{Reader, Value};

/// The keys of `[afs]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfsSettings {
    /// The folder with CellServDB, ThisCell and CellAlias.
    pub config_dir: Option<PathBuf>,
    /// How what is said with a user's token is protected.
    pub level: Option<Level>,
    /// The name of the credential cache of the user who mounts.
    pub ccache: Option<String>,
}

impl AfsSettings {
    /// These settings where they say something, otherwise those `below`.
    pub(super) fn over(self, below: AfsSettings) -> AfsSettings {
        AfsSettings {
            config_dir: self.config_dir.or(below.config_dir),
            level: self.level.or(below.level),
            ccache: self.ccache.or(below.ccache),
        }
    }

    /// That folder: where OpenAFS has it, unless somebody says otherwise.
    pub fn config_dir(&self) -> PathBuf {
        self.config_dir.clone().unwrap_or_else(|| PathBuf::from(CONFIG_DIR))
    }

    /// As `weft config show` has it.
    pub fn to_json(&self) -> Json {
        let named = |level: Level| LEVELS.iter().find(|(_, known)| *known == level).map(|(name, _)| *name);
        json!({ "config_dir": self.config_dir, "level": self.level.and_then(named), "ccache": self.ccache })
    }
}

impl Reader<'_> {
    /// Reads the table.
    pub(super) fn afs(&mut self, value: &Value<'_>) -> AfsSettings {
        let mut afs = AfsSettings::default();
        self.each(value, "afs", AFS_KEYS, |reader, key, value| match key {
            "config_dir" => afs.config_dir = reader.path(key, value),
            "level" => afs.level = reader.level(key, value),
            _ => afs.ccache = reader.ccache(key, value),
        });
        afs
    }

    fn level(&mut self, key: &str, value: &Value<'_>) -> Option<Level> {
        let text = self.text_of(key, value, "\"clear\", \"auth\" or \"crypt\"")?;
        match LEVELS.iter().find(|(name, _)| *name == text) {
            Some((_, level)) => Some(*level),
            None => self.refuse(value, format!("`{key}` = \"{text}\": \"clear\", \"auth\" or \"crypt\" is allowed")),
        }
    }

    fn ccache(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        let text = self.text_of(key, value, "a credential cache, as in \"FILE:/tmp/krb5cc_1000\"")?;
        match CacheName::parse(&text) {
            Ok(_) => Some(text),
            Err(error) => self.refuse(value, format!("`{key}`: {error}")),
        }
    }
}

const AFS_KEYS: &[&str] = &["config_dir", "level", "ccache"];
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
        let text = "config_dir = \"cells\"\nlevel = \"auth\"\nccache = \"DIR:/run/user/1/krb5cc\"\n";
        let afs = read(text).expect("good");
        assert_eq!((afs.config_dir(), afs.level), (PathBuf::from("/etc/weft/cells"), Some(Level::Auth)));
        let shown = json!({ "config_dir": "/etc/weft/cells", "level": "auth", "ccache": "DIR:/run/user/1/krb5cc" });
        assert_eq!(afs.clone().over(AfsSettings::default()).to_json(), shown);
        assert_eq!(AfsSettings::default().over(afs.clone()), afs);
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (text, wanted) in [
            ("level = \"none\"", "\"clear\", \"auth\" or \"crypt\" is allowed"),
            ("level = 2", "is needed"),
            ("ccache = \"KCM:\"", "not from KCM:"),
            ("ccache = \"krb5cc\"", "needs a whole path"),
            ("ccahe = \"/x\"", "did you mean `ccache`?"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(wanted) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
