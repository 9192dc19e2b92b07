//! `[[dir]]`: directories of this machine that the mount shows under a name.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weft_remote::Name;

use super::file::{Reader, Value};

/// One such table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirTable {
    /// Its name in `dir/`.
    pub name: Name,
    /// Where it is: absolute.
    pub path: PathBuf,
    /// Nothing in it is changed through the mount.
    pub read_only: bool,
}

impl DirTable {
    /// As `weft config show` has it.
    pub fn to_json(&self) -> Json {
        json!({ "name": self.name.to_string(), "path": self.path, "read_only": self.read_only })
    }
}

/// The tables of a file over those of another: of two with one name the first counts.
pub(super) fn joined(ours: Vec<DirTable>, below: Vec<DirTable>) -> Vec<DirTable> {
    let others = below.into_iter().filter(|other| ours.iter().all(|table| table.name != other.name));
    let others: Vec<DirTable> = others.collect();
    [ours, others].concat()
}

impl Reader<'_> {
    /// Reads all such tables.
    pub(super) fn directories(&mut self, value: &Value<'_>) -> Vec<DirTable> {
        let mut tables: Vec<DirTable> = Vec::new();
        for table in self.tables("dir", value) {
            let before = self.mistakes_count();
            let (mut name, mut path, mut read_only) = (None, None, false);
            self.each(table, "dir", DIR_KEYS, |reader, key, value| match key {
                "name" => name = reader.name(key, value),
                "read_only" => read_only = reader.boolean(key, value).unwrap_or_default(),
                _ => path = reader.absolute(key, value),
            });
            match (name, path) {
                _ if self.mistakes_count() > before => {}
                (Some(name), Some(_)) if tables.iter().any(|other| other.name == name) => {
                    self.mistake(table.span(), format!("two [[dir]] have the name {name}"));
                }
                (Some(name), Some(path)) => tables.push(DirTable { name, path, read_only }),
                _ => self.mistake(table.span(), "a [[dir]] needs a `name` and a `path`".to_owned()),
            }
        }
        tables
    }

    fn name(&mut self, key: &str, value: &Value<'_>) -> Option<Name> {
        const WANTED: &str = "a name without slashes in quotes, as in \"www\"";
        let text = self.text_of(key, value, WANTED)?;
        match Name::new(&text) {
            Ok(name) => Some(name),
            Err(_) => self.refuse(value, format!("`{key}` = \"{text}\": {WANTED} is needed")),
        }
    }

    fn absolute(&mut self, key: &str, value: &Value<'_>) -> Option<PathBuf> {
        let path = self.path(key, value)?;
        if path.components().any(|part| part.as_os_str() == "..") {
            return self.refuse(value, format!("`{key}` = \"{}\": a path without .. is needed", path.display()));
        }
        Some(plain(&path))
    }
}

/// The same path without `.` and doubled slashes.
pub(super) fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

const DIR_KEYS: &[&str] = &["name", "path", "read_only"];
