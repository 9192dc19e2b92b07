//! Mounting and unmounting: by mount(2) as root, through fusermount3 otherwise.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use crate::splice;

/// How a mount is made. It is always `nosuid` and `nodev`.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where.
    pub mountpoint: PathBuf,
    /// First column of `/proc/self/mounts`.
    pub source: String,
    /// The type is `fuse.` and this.
    pub subtype: String,
    /// Whether other users may use it.
    pub allow_other: bool,
    /// Whether the kernel checks permissions (`default_permissions`).
    pub check_permissions: bool,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Whether programs on it may be run.
    pub exec: bool,
    /// Whether the time of the last use is kept.
    pub atime: bool,
    /// Whether each write(2) waits for a FUSE_FSYNC of its own (`MS_SYNCHRONOUS` of mount(2), generic_write_sync() of Linux).
    pub sync: bool,
}

/// Mounts, and gives the descriptor of the connection, on which nothing has been said yet. As root by the system call,
/// with the options of `fs/fuse/inode.c`; otherwise through fusermount3, which sends the descriptor over a socket.
///
/// # Errors
/// A sentence that says what to do when `/dev/fuse` or fusermount3 is missing; what the kernel or fusermount3 said.
pub fn mount(options: &MountOptions) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() { mount_directly(options) } else { mount_through_helper(options) }
}

fn mount_directly(options: &MountOptions) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let device = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(no_device)?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOATIME, !options.atime);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    if options.check_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if let Some(bytes) = splice::read_bytes_max() {
        data.push_str(&format!(",max_read={bytes}"));
    }
    let data = CString::new(data)?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(&options.source, &options.mountpoint, kind, flags, Some(data.as_c_str()))?;
    Ok(device)
}

fn no_device(error: Errno) -> io::Error {
    match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => io::Error::new(
            ErrorKind::NotFound,
            format!("{DEVICE} is missing: load the module with `modprobe fuse`, or give it to the container"),
        ),
        error => io::Error::new(io::Error::from(error).kind(), format!("{DEVICE}: {}", io::Error::from(error))),
    }
}

fn mount_through_helper(options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options, splice::read_bytes_max())).arg("--").arg(&options.mountpoint);
    // The socket is the helper's standard input: so no other program that is started meanwhile inherits it.
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(no_helper)?;
    // Ours is the only end that is left to us: the helper's end gives the end of the stream.
    drop(command);
    let device = receive(&ours);
    let output = child.wait_with_output()?;
    match device? {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(io::Error::other(words_of(&output.stderr))),
    }
}

/// Options as fusermount3 takes them: commas and backslashes in a value are escaped by a backslash.
fn helper_options(options: &MountOptions, read_bytes_max: Option<usize>) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![
        format!("fsname={}", escaped(&options.source)),
        format!("subtype={}", escaped(&options.subtype)),
        "nosuid".to_owned(),
        "nodev".to_owned(),
    ];
    let flags = [
        (options.check_permissions, "default_permissions"),
        (options.allow_other, "allow_other"),
        (options.read_only, "ro"),
        (!options.exec, "noexec"),
        (!options.atime, "noatime"),
        (options.sync, "sync"),
    ];
    words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
    words.extend(read_bytes_max.map(|bytes| format!("max_read={bytes}")));
    words.join(",")
}

/// The descriptor that comes with one byte of data; `None` when the helper ended without sending it.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut data = [io::IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut data, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// Takes a mount away: by the system call as root, by fusermount3 otherwise. A lazy one goes at once, and what is in
/// use works until it is let go.
///
/// # Errors
/// `ResourceBusy` when files on it are open and it is not lazy; what the kernel or fusermount3 said.
pub fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(unmount(mountpoint, flags)?);
    }
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint);
    let output = command.output().map_err(no_helper)?;
    if output.status.success() {
        return Ok(());
    }
    let words = words_of(&output.stderr);
    let kind = if words.contains("busy") { ErrorKind::ResourceBusy } else { ErrorKind::Other };
    Err(io::Error::new(kind, words))
}

fn no_helper(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => {
            io::Error::new(ErrorKind::NotFound, format!("{HELPER} is missing: install the package fuse3"))
        }
        kind => io::Error::new(kind, format!("{HELPER}: {error}")),
    }
}

fn words_of(stderr: &[u8]) -> String {
    let words = String::from_utf8_lossy(&stderr[..stderr.len().min(WORDS_BYTES_MAX)]).trim().to_owned();
    if words.is_empty() { format!("{HELPER} failed and did not say why") } else { words }
}

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// How much of what fusermount3 says is passed on.
const WORDS_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_add_options_of_their_own() {
        let options = MountOptions {
            mountpoint: PathBuf::from("/nowhere"),
            source: r"a,dev\,suid".to_owned(),
            subtype: "sort".to_owned(),
            allow_other: true,
            check_permissions: true,
            read_only: true,
            exec: false,
            atime: true,
            sync: true,
        };
        let plain = r"fsname=a\,dev\\\,suid,subtype=sort,nosuid,nodev,default_permissions,allow_other,ro,noexec,sync";
        assert_eq!(helper_options(&options, None), plain);
        assert_eq!(helper_options(&options, Some(524_288)), format!("{plain},max_read=524288"));
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        assert!(no_device(Errno::NOENT).to_string().contains("modprobe fuse"));
        assert!(no_helper(ErrorKind::NotFound.into()).to_string().contains("install the package fuse3"));
    }
}
