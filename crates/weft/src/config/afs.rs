//! `[afs]`: where the cells of AFS are written down.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::file::{Reader, Value};

/// The keys of `[afs]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfsSettings {
    /// The folder with CellServDB, ThisCell and CellAlias.
    pub config_dir: Option<PathBuf>,
}

impl AfsSettings {
    /// These settings where they say something, otherwise those `below`.
    pub(super) fn over(self, below: AfsSettings) -> AfsSettings {
        AfsSettings { config_dir: self.config_dir.or(below.config_dir) }
    }

    /// That folder: where OpenAFS has it, unless somebody says otherwise.
    pub fn config_dir(&self) -> PathBuf {
        self.config_dir.clone().unwrap_or_else(|| PathBuf::from(CONFIG_DIR))
    }

    /// As `weft config show` has it.
    pub fn to_json(&self) -> Json {
        json!({ "config_dir": self.config_dir })
    }
}

impl Reader<'_> {
    /// Reads the table.
    pub(super) fn afs(&mut self, value: &Value<'_>) -> AfsSettings {
        let mut afs = AfsSettings::default();
        self.each(value, "afs", AFS_KEYS, |reader, key, value| afs.config_dir = reader.path(key, value));
        afs
    }
}

const AFS_KEYS: &[&str] = &["config_dir"];
const CONFIG_DIR: &str = "/etc/openafs";
