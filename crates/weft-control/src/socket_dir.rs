//! Where control sockets lie.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ControlError;

/// The folder for this user's control sockets: `/run/weft` for root, else `weft` in `runtime_dir`
/// (`$XDG_RUNTIME_DIR`), else `/tmp/weft-<uid>`. It need not exist.
pub fn socket_dir(runtime_dir: Option<&Path>) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    match (uid, runtime_dir) {
        (0, _) => PathBuf::from(ROOT_DIR),
        (_, Some(dir)) if dir.is_absolute() => dir.join("weft"),
        _ => PathBuf::from(format!("/tmp/weft-{uid}")),
    }
}

/// Every folder where this user may find sockets of daemons: the user's own, root's, and for root those of all.
pub(crate) fn all_dirs(own: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![own.to_owned()];
    if own != Path::new(ROOT_DIR) {
        dirs.push(PathBuf::from(ROOT_DIR));
    }
    if rustix::process::geteuid().is_root() {
        let of_users = folders("/run/user").into_iter().map(|dir| dir.join("weft"));
        let in_tmp = folders("/tmp")
            .into_iter()
            .filter(|dir| dir.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("weft-")));
        dirs.extend(of_users.chain(in_tmp));
    }
    dirs
}

/// Makes the folder, or checks that the existing one is this user's and not open to changes by others.
///
/// # Errors
/// `UnsafeFolder`, `Io`.
pub(crate) fn prepare(dir: &Path, mode: u32) -> Result<(), ControlError> {
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(ControlError::Io { path: dir.to_owned(), source: error }),
    }
    check_owner(dir, rustix::process::geteuid().as_raw())?;
    // Another mount of the same user may have opened the folder to others: that stays.
    let present = std::fs::symlink_metadata(dir).map_err(ControlError::io(dir))?.permissions().mode() & 0o777;
    if present | mode != present || present & 0o022 != 0 {
        let wanted = std::fs::Permissions::from_mode((present | mode) & !0o022);
        std::fs::set_permissions(dir, wanted).map_err(ControlError::io(dir))?;
    }
    Ok(())
}

/// That the folder is one (not a link) and belongs to `uid`.
pub(crate) fn check_owner(dir: &Path, uid: u32) -> Result<(), ControlError> {
    let found = std::fs::symlink_metadata(dir).map_err(ControlError::io(dir))?;
    let unsafe_because = |why| Err(ControlError::UnsafeFolder { path: dir.to_owned(), why });
    match () {
        () if !found.is_dir() => unsafe_because("not a directory"),
        () if found.uid() != uid => unsafe_because("it belongs to another user"),
        () => Ok(()),
    }
}

fn folders(of: &str) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(of) else { return Vec::new() };
    let dirs = read.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.take(FOLDERS_MAX).map(|entry| entry.path()).collect()
}

const ROOT_DIR: &str = "/run/weft";
/// Most folders of other users that root looks into.
const FOLDERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_a_link_is_refused() {
        let temp = tempfile::tempdir().expect("a folder");
        let real = temp.path().join("real");
        std::fs::create_dir(&real).expect("made");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&real, &link).expect("made");
        assert!(matches!(prepare(&link, 0o700), Err(ControlError::UnsafeFolder { .. })));
        assert!(prepare(&real, 0o700).is_ok());
    }

    #[test]
    fn a_folder_that_others_may_change_is_closed_to_them() {
        let temp = tempfile::tempdir().expect("a folder");
        let dir = temp.path().join("open");
        std::fs::create_dir(&dir).expect("made");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).expect("set");
        prepare(&dir, 0o700).expect("prepared");
        let mode = std::fs::metadata(&dir).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode & 0o022, 0);
    }
}
