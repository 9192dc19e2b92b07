//! Files with secrets: read only where nobody but their user could have read or written them.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_128;

/// What others may do with such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nothing at all: it holds a secret.
    Nothing,
    /// Read it.
    MayRead,
}

/// Reads a file that belongs to this user, or to root where root alone can say what lies at its path.
///
/// # Errors
/// Why it is not used, as a sentence; nothing of its content.
pub(crate) fn read(path: &Path, uid: u32, others: Others) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{shown}: ignored, for it is no file"));
    }
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let (closed, mode) = match others {
        Others::Nothing => (0o077, 600),
        Others::MayRead => (0o022, 644),
    };
    if found.mode() & closed != 0 {
        let may = if others == Others::Nothing { "read or write" } else { "write" };
        return Err(format!("{shown}: ignored, for others may {may} it; `chmod {mode} {shown}` mends that"));
    }
    // A link that the user makes must not have the daemon read root's files on the user's behalf.
    if found.uid() != uid && !(found.uid() == 0 && only_root_leads_to(path)) {
        return Err(format!("{shown}: ignored, for it is not the file of user id {uid}"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether nobody but root can have another file answer to this path.
fn only_root_leads_to(path: &Path) -> bool {
    let straight = std::fs::canonicalize(path).is_ok_and(|real| real == path);
    let roots_own =
        |dir: &Path| std::fs::metadata(dir).is_ok_and(|found| found.uid() == 0 && found.mode() & 0o022 == 0);
    straight && path.ancestors().skip(1).all(roots_own)
}

/// Files that are read again when some time has passed, and what they say.
pub(crate) struct OwnFiles<T> {
    uid: u32,
    files: Vec<(PathBuf, Others)>,
    parse: fn(&[Vec<u8>]) -> Result<T, String>,
    /// Held for one look or one change.
    kept: Mutex<Option<Kept<T>>>,
}

struct Kept<T> {
    until: Instant,
    hash: u128,
    value: Result<Arc<T>, String>,
}

impl<T: Send + Sync + 'static> OwnFiles<T> {
    pub fn new(uid: u32, files: Vec<(PathBuf, Others)>, parse: fn(&[Vec<u8>]) -> Result<T, String>) -> OwnFiles<T> {
        OwnFiles { uid, files, parse, kept: Mutex::new(None) }
    }

    /// The file that is named first, for people.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |(path, _)| path)
    }

    /// What they say; the same value as before while they say the same.
    ///
    /// # Errors
    /// Why they are not used, as a sentence.
    pub async fn get(self: &Arc<Self>) -> Result<Arc<T>, String> {
        if let Some(kept) = &*self.kept.lock()
            && Instant::now() < kept.until
        {
            return kept.value.clone();
        }
        // A home may lie on a network.
        let files = self.clone();
        tokio::task::spawn_blocking(move || files.load()).await.map_err(|e| e.to_string())?
    }

    /// Has the next use read them again.
    pub fn distrust(&self) {
        if let Some(kept) = &mut *self.kept.lock() {
            kept.until = Instant::now();
        }
    }

    /// What they said last; nothing where they could not be used.
    pub fn last(&self) -> Option<Arc<T>> {
        self.kept.lock().as_ref()?.value.clone().ok()
    }

    /// As [`OwnFiles::get`], at once; reads them.
    pub fn load(&self) -> Result<Arc<T>, String> {
        let texts: Result<Vec<_>, _> =
            self.files.iter().map(|(path, others)| self::read(path, self.uid, *others)).collect();
        let hash = texts.as_ref().map_or(0, |texts| xxh3_128(&texts.concat()));
        let mut kept = self.kept.lock();
        if let Some(kept) = &mut *kept
            && kept.hash == hash
            && texts.is_ok()
            && kept.value.is_ok()
        {
            kept.until = Instant::now() + KEPT_TIME;
            return kept.value.clone();
        }
        let named = |why| format!("{}: ignored: {why}", self.path().display());
        let value = texts.and_then(|texts| (self.parse)(&texts).map(Arc::new).map_err(named));
        let until = Instant::now() + if value.is_ok() { KEPT_TIME } else { ERROR_KEPT_TIME };
        *kept = Some(Kept { until, hash, value: value.clone() });
        value
    }
}

/// More than this is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long what was read is used without another look.
const KEPT_TIME: Duration = Duration::from_secs(30);
/// The same where they cannot be used: whoever mends them is there and waiting.
const ERROR_KEPT_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let uid = rustix::process::geteuid().as_raw();
        for (mode, secret, public) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, false, true),
            (0o604, false, true),
            (0o620, false, false),
        ] {
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(file.path(), uid, Others::Nothing).is_ok(), secret, "{mode:o}");
            assert_eq!(read(file.path(), uid, Others::MayRead).is_ok(), public, "{mode:o}");
        }
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).unwrap();
        // The folder of temporary files is open to all: root's file there may be anything that somebody links to.
        let why = read(file.path(), uid + 1, Others::Nothing).unwrap_err();
        assert!(why.contains("not the file of user id"), "{why}");
        assert!(read(Path::new("/"), uid, Others::Nothing).unwrap_err().contains("no file"));
    }

    #[tokio::test]
    async fn a_file_is_read_again_when_it_is_distrusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let first = |texts: &[Vec<u8>]| Ok(texts[0].clone());
        let files = Arc::new(OwnFiles::new(uid, vec![(file.path().to_owned(), Others::Nothing)], first));
        std::fs::write(file.path(), "one").unwrap();
        let one = files.get().await.unwrap();
        files.distrust();
        assert!(Arc::ptr_eq(&one, &files.get().await.unwrap()), "the same as long as the file says the same");
        std::fs::write(file.path(), "two").unwrap();
        assert_eq!(*files.get().await.unwrap(), b"one");
        files.distrust();
        assert_eq!(*files.get().await.unwrap(), b"two");
    }
}
