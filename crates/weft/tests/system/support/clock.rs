//! A clock for programs, which is as wrong as it is set to be (libfaketime); what they measure time with goes on.

use std::path::PathBuf;

use super::without;

pub struct Clock {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl Clock {
    pub fn new() -> Option<Clock> {
        let folders = std::fs::read_dir("/usr/lib").expect("a folder").flatten().map(|folder| folder.path());
        let library = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.exists());
        let Some(library) = library else {
            without("libfaketime is not installed");
            return None;
        };
        let clock = Clock { library, folder: tempfile::tempdir().expect("a folder") };
        clock.set(0);
        Some(clock)
    }

    pub fn set(&self, ahead_s: i64) {
        let (new, path) = (self.folder.path().join("new"), self.folder.path().join("offset"));
        std::fs::write(&new, format!("{ahead_s:+}\n")).expect("written");
        std::fs::rename(new, path).expect("moved");
    }

    /// The words that run a program by this clock.
    pub fn words(&self) -> Vec<String> {
        let words = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.folder.path().join("offset").display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        words.to_vec()
    }
}
