//! Where a path is in AFS: its mount tells, by extended attributes that only weft's mounts have.
//!
//! On other file systems anybody may write such attributes on files of one's own, and with them send whoever uses a tool
//! elsewhere. So a path counts only when the kernel says that it is in a mount of weft which this user or root has made.
//!
//! The words of failures are those of OpenAFS's `fs` (`src/venus/fs.c`, `Die`): scripts look for them.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, getxattr, lgetxattr, statx};
use rustix::io::Errno;
use weft_afs::cell::CellName;
use weft_afs::fid::Fid;
use weft_control::Mounts;

use crate::exit::{Exit, Failure, Outcome};

/// What a path is in AFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The directory of all cells, which is in none of them.
    Cells,
    /// A cell in it: a mount point of weft's own.
    Cell {
        /// Which.
        cell: CellName,
        /// Whether to the read-write volume.
        writable: bool,
    },
    /// A mount point in a volume.
    MountPoint(CellName, Fid),
    /// Anything else in a volume.
    File(CellName, Fid),
}

/// What is looked at where a path ends in a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Where it leads.
    Follow,
    /// The link.
    Stay,
}

impl Whereabouts {
    /// Of a path.
    ///
    /// # Errors
    /// `NoMount` for what is not in AFS, `NotFound` and `Denied`; `Unreachable` when its mount cannot tell.
    pub fn of(path: &Path, link: Link) -> Outcome<Whereabouts> {
        in_trusted_mount(path, link)?;
        let Some(cell) = attribute(path, "user.weft.cell", link)? else {
            return match attribute(path, "user.weft.cells", link)? {
                Some(_) => Ok(Whereabouts::Cells),
                None => Err(not_in_afs(path)),
            };
        };
        let fid = attribute(path, "user.weft.fid", link)?;
        let mount_point = attribute(path, "user.weft.mount_point", link)?;
        Whereabouts::read(&cell, fid.as_deref(), mount_point.as_deref())
            .ok_or_else(|| Failure::failed(format!("{}: its mount tells no place in AFS", path.display())))
    }

    fn read(cell: &str, fid: Option<&str>, mount_point: Option<&str>) -> Option<Whereabouts> {
        let cell = CellName::new(cell.as_bytes()).ok()?;
        match (fid.map(str::parse::<Fid>), mount_point) {
            (Some(fid), Some(_)) => Some(Whereabouts::MountPoint(cell, fid.ok()?)),
            (Some(fid), None) => Some(Whereabouts::File(cell, fid.ok()?)),
            (None, Some(words)) => Some(Whereabouts::Cell { cell, writable: words.starts_with('%') }),
            (None, None) => None,
        }
    }
}

/// What is told of a path that is not in AFS, in the words by which scripts know it.
fn not_in_afs(path: &Path) -> Failure {
    let words = format!("Invalid argument; it is possible that {} is not in AFS.", path.display());
    Failure::new(Exit::NoMount, format!("{words} It is in no cell that a mount of weft shows"))
}

/// The same of one that is not there.
pub fn no_such_file(path: &Path) -> String {
    format!("File '{}' doesn't exist", path.display())
}

/// The same of one with which its user may not do this.
pub fn no_rights(path: &Path) -> String {
    format!("You don't have the required access rights on '{}'", path.display())
}

fn in_trusted_mount(path: &Path, link: Link) -> Outcome {
    let mut flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    flags.set(AtFlags::SYMLINK_NOFOLLOW, link == Link::Stay);
    let found = statx(CWD, path, flags, StatxFlags::MNT_ID).map_err(|errno| failed(path, errno))?;
    let owner = Mounts::of_this_process()?.owner(found.stx_mnt_id).ok_or_else(|| not_in_afs(path))?;
    if owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let path = path.display();
    let sentence = format!("{path}: user id {owner} has mounted this: where its files are is that user's word alone");
    Err(Failure::new(Exit::Denied, sentence))
}

/// An attribute; `None` when there is none of that name.
fn attribute(path: &Path, name: &str, link: Link) -> Outcome<Option<String>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let got = match link {
        Link::Follow => getxattr(path, name, &mut value),
        Link::Stay => lgetxattr(path, name, &mut value),
    };
    match got {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(failed(path, errno)),
    }
}

fn failed(path: &Path, errno: Errno) -> Failure {
    let told = || format!("{}: {}", path.display(), nix::errno::Errno::from_raw(errno.raw_os_error()).desc());
    match errno {
        Errno::NOENT => Failure::new(Exit::NotFound, no_such_file(path)),
        Errno::NOTDIR => Failure::new(Exit::NotFound, told()),
        Errno::ACCESS | Errno::PERM => Failure::new(Exit::Denied, no_rights(path)),
        Errno::HOSTUNREACH | Errno::NETDOWN | Errno::NETUNREACH | Errno::TIMEDOUT => {
            Failure::new(Exit::Unreachable, told())
        }
        _ => Failure::new(Exit::Failed, told()),
    }
}

/// Longest value that is read.
const VALUE_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_tells_is_a_place() {
        let cell = CellName::new(b"example.org").expect("a name");
        let fid: Fid = "536870918.4.7".parse().expect("a fid");
        let read = |fid, mount_point| Whereabouts::read("example.org", fid, mount_point);
        let text = fid.to_string();
        assert_eq!(read(Some(&text), None), Some(Whereabouts::File(cell.clone(), fid)));
        assert_eq!(read(Some(&text), Some("#x.")), Some(Whereabouts::MountPoint(cell.clone(), fid)));
        assert_eq!(read(None, Some("%root.cell.")), Some(Whereabouts::Cell { cell: cell.clone(), writable: true }));
        assert_eq!(read(None, Some("#root.cell.")), Some(Whereabouts::Cell { cell, writable: false }));
        assert_eq!(read(None, None), None);
        assert_eq!(read(Some("1.2"), None), None);
        assert_eq!(Whereabouts::read("..", Some(&text), None), None);
    }

    /// Goal: what a user may write on a file of one's own does not count.
    #[test]
    fn what_is_written_on_other_file_systems_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "").expect("written");
        for (name, value) in [("user.weft.cell", "example.org"), ("user.weft.fid", "1.2.3")] {
            // Not every file system has attributes.
            let _ = rustix::fs::setxattr(&path, name, value.as_bytes(), rustix::fs::XattrFlags::empty());
        }
        for link in [Link::Follow, Link::Stay] {
            let failure = Whereabouts::of(&path, link).expect_err("no mount of weft");
            assert_eq!(failure.exit, Exit::NoMount, "{}", failure.sentence);
        }
        let failure = Whereabouts::of(&folder.path().join("none"), Link::Follow).expect_err("not there");
        assert_eq!(failure.exit, Exit::NotFound, "{}", failure.sentence);
    }
}
