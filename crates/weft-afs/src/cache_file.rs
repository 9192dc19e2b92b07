//! Where a user's credential cache is, and reading it: a file of that user's, and nothing else.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ccache::{CCACHE_BYTES_MAX, Ccache};

/// The name of a credential cache, as `$KRB5CCNAME` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheName {
    /// `FILE:PATH`, or the path alone.
    File(PathBuf),
    /// `DIR:PATH`, a folder of caches whose file `primary` names the one in use.
    Dir(PathBuf),
}

/// Why a text names no cache that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCacheName {
    /// A cache that is no file.
    #[error(
        "{name}: credential caches are read from files (FILE:/PATH, DIR:/PATH) and not from {kind}: \
        `kinit -c FILE:/tmp/krb5cc_$(id -u)` makes one that is found"
    )]
    Kind {
        /// The whole name.
        name: String,
        /// What it begins with.
        kind: String,
    },
    /// A path that depends on the place of whoever reads it.
    #[error("{name}: the name of a credential cache needs a whole path, as in FILE:/tmp/krb5cc_1000")]
    Relative {
        /// The whole name.
        name: String,
    },
}

/// The name that a text gives, as `$KRB5CCNAME` has it, and without one that of a user's own file.
///
/// # Errors
/// As of [`CacheName::parse`].
pub(crate) fn cache_of(uid: u32, text: Option<&str>) -> Result<CacheName, BadCacheName> {
    let usual = || Ok(CacheName::File(PathBuf::from(format!("{USUAL}{uid}"))));
    text.map_or_else(usual, CacheName::parse)
}

impl CacheName {
    /// Reads a name: `FILE:`, `DIR:` (`DIR::` for one file in such a folder) or a path.
    ///
    /// # Errors
    /// `Kind` for caches that are kept elsewhere (`KEYRING:`, `KCM:`, `API:`, `MEMORY:`); `Relative`.
    pub fn parse(text: &str) -> Result<CacheName, BadCacheName> {
        let name = match text.split_once(':') {
            _ if text.starts_with('/') => CacheName::File(text.into()),
            Some(("FILE", path)) => CacheName::File(path.into()),
            Some(("DIR", path)) => match path.strip_prefix(':') {
                Some(file) => CacheName::File(file.into()),
                None => CacheName::Dir(path.into()),
            },
            Some((kind, _)) => {
                return Err(BadCacheName::Kind { name: text.to_owned(), kind: format!("{kind}:") });
            }
            None => CacheName::File(text.into()),
        };
        let (CacheName::File(path) | CacheName::Dir(path)) = &name;
        if path.is_absolute() { Ok(name) } else { Err(BadCacheName::Relative { name: text.to_owned() }) }
    }

    /// As `$KRB5CCNAME` has it.
    #[must_use]
    pub fn to_text(&self) -> OsString {
        let kind = match self {
            CacheName::File(_) => "FILE:",
            CacheName::Dir(_) => "DIR:",
        };
        let mut text = OsString::from(kind);
        text.push(self.path());
        text
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        let (CacheName::File(path) | CacheName::Dir(path)) = self;
        path
    }
}

/// Which state of which file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a look at a cache found.
#[derive(Debug)]
pub(crate) enum Looked {
    /// The same as the last time.
    Same,
    /// Nobody has logged in.
    Absent,
    /// Another cache.
    Cache(Stamp, Ccache),
    /// Something that is not used, and why.
    Bad(Option<Stamp>, String),
    /// It is being written just now.
    Unfinished,
}

/// Looks at the cache of a user. Waits for the disk.
pub(crate) fn look(name: &CacheName, uid: u32, before: Option<Stamp>) -> Looked {
    let (path, file) = match find(name, uid) {
        Ok(Some(found)) => found,
        Ok(None) => return Looked::Absent,
        Err(why) => return Looked::Bad(None, why),
    };
    let shown = path.display();
    let of = |file: &File| file.metadata().map(|found| (Stamp::of(&found), found));
    let (stamp, found) = match of(&file) {
        Ok((stamp, _)) if before == Some(stamp) => return Looked::Same,
        Ok(seen) => seen,
        Err(error) => return Looked::Bad(None, format!("{shown}: {error}")),
    };
    let bytes = match read(&file, CCACHE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => return Looked::Bad(None, format!("{shown}: {error}")),
    };
    let is_young = found.modified().is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < YOUNG));
    match Ccache::read(&bytes) {
        _ if of(&file).is_ok_and(|(after, _)| after != stamp) => Looked::Unfinished,
        Ok(cache) => Looked::Cache(stamp, cache),
        Err(_) if is_young => Looked::Unfinished,
        Err(error) => Looked::Bad(Some(stamp), format!("{shown}: {error}")),
    }
}

/// All bytes of the cache of a user, of which [`look`] would say the same; none where there is no cache. Waits for the disk.
pub(crate) fn bytes_of(name: &CacheName, uid: u32) -> Result<Option<Vec<u8>>, String> {
    let Some((path, file)) = find(name, uid)? else { return Ok(None) };
    read(&file, CCACHE_BYTES_MAX).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// Opens a cache that is a user's own.
fn find(name: &CacheName, uid: u32) -> Result<Option<(PathBuf, File)>, String> {
    let path = match name {
        CacheName::File(path) => path.clone(),
        CacheName::Dir(folder) => primary(folder, uid)?,
    };
    Ok(open(&path, uid)?.map(|file| (path, file)))
}

/// The cache in use of a folder of caches.
fn primary(folder: &Path, uid: u32) -> Result<PathBuf, String> {
    let at = folder.join("primary");
    let Some(file) = open(&at, uid)? else { return Ok(folder.join(DEFAULT_PRIMARY)) };
    let text = read(&file, PRIMARY_BYTES_MAX).map_err(|error| format!("{}: {error}", at.display()))?;
    let name = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if !name.starts_with(DEFAULT_PRIMARY.as_bytes()) || name.contains(&b'/') || text.len() > PRIMARY_BYTES_MAX {
        return Err(format!("{}: it does not name a file of its folder that begins with tkt", at.display()));
    }
    Ok(folder.join(std::os::unix::ffi::OsStrExt::from_bytes(name) as &OsStr))
}

/// Opens a file that is a user's own; `None` where there is none. What others could have put there is not used: a link,
/// which could lead to somebody else's, a file of somebody else's, or one that others may write.
fn open(path: &Path, uid: u32) -> Result<Option<File>, String> {
    let shown = path.display();
    // Opening a pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(format!("{shown}: ignored, for it is a symbolic link")),
        Err(errno) => return Err(format!("{shown}: {errno}")),
    };
    let found = file.metadata().map_err(|error| format!("{shown}: {error}"))?;
    let why = match () {
        () if !found.is_file() => "it is no file".to_owned(),
        () if found.uid() != uid => format!("it belongs to user id {} and not to {uid}", found.uid()),
        () if found.mode() & 0o022 != 0 => format!("others may write it: `chmod 600 {shown}` mends that"),
        () => return Ok(Some(file)),
    };
    Err(format!("{shown}: ignored, for {why}"))
}

/// All of a file, or one byte more than is allowed.
fn read(file: &File, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            file: (found.dev(), found.ino()),
            length: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// What the path of a user's own cache begins with; the user's id follows.
pub(crate) const USUAL: &str = "/tmp/krb5cc_";
/// A cache that makes no sense may be half written for so long.
const YOUNG: Duration = Duration::from_secs(2);
/// The cache in use where nothing names one, and how the names of all begin.
const DEFAULT_PRIMARY: &str = "tkt";
/// Longest name of a cache in a folder of caches.
const PRIMARY_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::ccache::Principal;
    use crate::ccache::tests::{Writer, alice, credential};

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn cache() -> Vec<u8> {
        let afs = credential(Principal::service(&["afs", "example.org"], b"EXAMPLE.ORG"), 1);
        Writer::new(4, &alice()).credential(&afs).bytes
    }

    fn why(looked: Looked) -> String {
        match looked {
            Looked::Bad(_, why) => why,
            other => panic!("expected a reason, got {other:?}"),
        }
    }

    /// A file whose last change was long ago.
    fn write(path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).expect("written");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("set");
        let file = File::options().write(true).open(path).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("set");
    }

    #[test]
    fn names_are_read_as_kerberos_has_them() {
        let file = |path: &str| Ok(CacheName::File(path.into()));
        assert_eq!(CacheName::parse("FILE:/tmp/a:b"), file("/tmp/a:b"));
        assert_eq!(CacheName::parse("/tmp/a:b"), file("/tmp/a:b"));
        assert_eq!(CacheName::parse("DIR::/run/x/tkta"), file("/run/x/tkta"));
        assert_eq!(CacheName::parse("DIR:/run/x"), Ok(CacheName::Dir("/run/x".into())));
        for (text, wanted) in [("KEYRING:persistent:1000", "KEYRING:"), ("KCM:", "not from KCM:"), ("a", "whole path")]
        {
            let error = CacheName::parse(text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_cache_is_read_again_when_it_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cc");
        let name = CacheName::File(path.clone());
        assert!(matches!(look(&name, uid(), None), Looked::Absent));
        write(&path, &cache());
        let Looked::Cache(stamp, read) = look(&name, uid(), None) else { panic!("it is good") };
        assert_eq!(read.principal, alice());
        assert!(matches!(look(&name, uid(), Some(stamp)), Looked::Same));
        write(&path, &cache()[..60]);
        assert!(why(look(&name, uid(), Some(stamp))).contains("ends in the middle"));
        std::fs::write(&path, &cache()[..60]).expect("written");
        assert!(matches!(look(&name, uid(), Some(stamp)), Looked::Unfinished), "of this moment");
        let other = folder.path().join("other");
        write(&other, &cache());
        std::fs::rename(&other, &path).expect("moved");
        assert!(matches!(look(&name, uid(), Some(stamp)), Looked::Cache(other, _) if other != stamp));
        write(&path, &vec![5; CCACHE_BYTES_MAX + 9]);
        assert!(why(look(&name, uid(), None)).contains("of more than"));
    }

    #[test]
    fn what_others_could_have_put_there_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cc");
        let look = |path: &Path, uid| why(look(&CacheName::File(path.to_owned()), uid, None));
        write(&path, &cache());
        assert!(look(&path, uid() + 1).contains("belongs to user id"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).expect("set");
        assert!(look(&path, uid()).contains("others may write"));
        let link = folder.path().join("link");
        symlink(&path, &link).expect("made");
        assert!(look(&link, uid()).contains("symbolic link"));
        assert!(look(folder.path(), uid()).contains("no file"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("made");
        assert!(look(&pipe, uid()).contains("no file"), "and nothing waits for its other end");
    }

    #[test]
    fn a_folder_of_caches_says_which_is_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = CacheName::Dir(folder.path().to_owned());
        assert!(matches!(look(&name, uid(), None), Looked::Absent));
        write(&folder.path().join("tkt"), &cache());
        assert!(matches!(look(&name, uid(), None), Looked::Cache(..)));
        write(&folder.path().join("primary"), b"tktother\n");
        assert!(matches!(look(&name, uid(), None), Looked::Absent));
        write(&folder.path().join("tktother"), &cache());
        assert!(matches!(look(&name, uid(), None), Looked::Cache(..)));
        for other in ["tkt/../../x", "../x", "", "passwd"] {
            write(&folder.path().join("primary"), other.as_bytes());
            assert!(why(look(&name, uid(), None)).contains("does not name"), "{other}");
        }
    }
}
