//! The suite that every kind runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use weft_dir::{Directory, DirectoryOptions};
use weft_remote::Remote;
use weft_remote::conformance::{self, Bench, CaseOutcome};

struct Sampled {
    folder: tempfile::TempDir,
    dir: Arc<Directory>,
}

impl Sampled {
    fn in_folder(folder: tempfile::TempDir, watches_max: usize) -> Sampled {
        conformance::write_sample(folder.path()).unwrap();
        let options = DirectoryOptions { watches_max, ..DirectoryOptions::new(folder.path()) };
        let dir = Directory::open(options).unwrap();
        Sampled { folder, dir }
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        self.folder.path().join(OsStr::from_bytes(path))
    }

    async fn passes(&self) {
        let report = conformance::run(self).await;
        println!("{report}");
        report.assert_clean();
        let excluded = report.results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Excluded(_)));
        let excluded: Vec<&str> = excluded.map(|result| result.name.as_str()).collect();
        let expected = ["backing files hold the same bytes", "a read-only kind answers every mutation with ReadOnly"];
        assert_eq!(excluded, expected, "nothing else is excluded");
    }
}

#[async_trait]
impl Bench for Sampled {
    fn remote(&self) -> Arc<dyn Remote> {
        self.dir.clone()
    }

    async fn change(&self, path: &[u8], bytes: &[u8]) {
        std::fs::write(self.path(path), bytes).unwrap();
    }

    async fn remove(&self, path: &[u8]) {
        std::fs::remove_file(self.path(path)).unwrap();
    }
}

#[tokio::test]
async fn a_watched_directory_passes_the_suite() {
    Sampled::in_folder(tempfile::tempdir().unwrap(), 65_536).passes().await;
}

#[tokio::test]
async fn an_unwatched_directory_passes_the_suite() {
    Sampled::in_folder(tempfile::tempdir().unwrap(), 0).passes().await;
}

#[tokio::test]
async fn a_directory_in_memory_passes_the_suite() {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => Sampled::in_folder(folder, 65_536).passes().await,
        Err(error) => println!("skipped: /dev/shm cannot be used: {error}"),
    }
}
