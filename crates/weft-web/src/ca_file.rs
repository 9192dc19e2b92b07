//! The file of certificate authorities that are trusted besides the system's.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use weft_remote::{RemoteError, Result};

/// It is read again when nobody vouches for a host: authorities are replaced while a mount lives for months.
pub(crate) struct CaFile {
    path: PathBuf,
    /// What it held when it could last be read. Held for one look or one change.
    good: Mutex<Vec<CertificateDer<'static>>>,
}

/// A state of the file: when it was last written, its length and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(i64, i64, u64, u64);

impl CaFile {
    /// Reads it, in PEM.
    ///
    /// # Errors
    /// `Failed` when it cannot be read or holds no certificate.
    pub fn read(path: &Path) -> Result<CaFile> {
        let good = Mutex::new(certificates(path).map_err(|detail| RemoteError::Failed { detail })?);
        Ok(CaFile { path: path.to_owned(), good })
    }

    /// What it holds now; while it cannot be read, as when it is just being written, what it held last.
    pub fn now(&self) -> Vec<CertificateDer<'static>> {
        match certificates(&self.path) {
            Ok(certificates) => self.good.lock().clone_from(&certificates),
            Err(why) => tracing::warn!("{why}; what it held before counts"),
        }
        self.good.lock().clone()
    }

    /// Its state; `None` while there is no such file.
    pub fn stamp(&self) -> Option<Stamp> {
        let found = std::fs::metadata(&self.path).ok()?;
        Some(Stamp(found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
    }
}

fn certificates(path: &Path) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?;
    let certificates = read.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| failed(e.to_string()))?;
    match certificates.is_empty() {
        true => Err(failed("holds no certificate in PEM form".to_owned())),
        false => Ok(certificates),
    }
}
