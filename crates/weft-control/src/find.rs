//! Finding the daemon behind a path, without entering a mount.
//!
//! A dead remote must not hang `weft why`: so no component at or below a mount point of weft is ever asked of the
//! kernel. Above a mount point symbolic links are followed as usual; from there on the path is taken as written.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use crate::client::SHORT;
use crate::{Client, ControlError, Hello, PathBytes, socket_dir};

/// The mount points that must not be entered.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Place>);

/// One mount point.
#[derive(Clone, Debug, Default)]
struct Place {
    path: PathBuf,
    /// The kernel's number of it; 0 where that is not known.
    id: u64,
    /// Who mounted, where the kernel tells.
    uid: Option<u32>,
    /// Which directory of its file system stands there, from that one's root: of a bind mount it may be any.
    root: PathBuf,
    /// The connection's number: the minor one of the device, whose major one is 0 (`fc->dev` in Linux fs/fuse/control.c).
    connection: Option<u32>,
    /// Whether the file system itself, beyond this mount of it, is read-only.
    is_read_only: bool,
    /// The mount's own options.
    flags: MountFlags,
}

/// What may be done at a mount point (proc(5), the sixth field of mountinfo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// `ro`.
    pub read_only: bool,
    /// `noexec`.
    pub noexec: bool,
    /// `noatime`.
    pub noatime: bool,
}

/// A daemon and a place in its mount.
#[derive(Debug)]
pub struct Located {
    /// A connection to the daemon.
    pub client: Client,
    /// Who it is.
    pub hello: Hello,
    /// The mount point by which it was found: the daemon's own, or that of a bind mount.
    pub mount: PathBuf,
    /// Whether the path is that mount point.
    pub is_mount: bool,
    /// The place, relative to the root of the daemon's tree.
    pub path: PathBytes,
}

impl Mounts {
    /// The mount points of weft in `/proc/self/mountinfo` (proc(5)).
    ///
    /// # Errors
    /// `Io` when it cannot be read.
    pub fn of_this_process() -> Result<Mounts, ControlError> {
        Mounts::read(Path::new(MOUNTINFO))
    }

    /// The mount points of weft as another process sees them.
    ///
    /// # Errors
    /// `Io` when they cannot be read.
    pub fn of_process(pid: u32) -> Result<Mounts, ControlError> {
        Mounts::read(Path::new(&format!("/proc/{pid}/mountinfo")))
    }

    fn read(path: &Path) -> Result<Mounts, ControlError> {
        let text = std::fs::read(path).map_err(ControlError::io(path))?;
        Ok(Mounts::parse(&text))
    }

    /// Mounts at these places.
    pub fn at(places: impl IntoIterator<Item = PathBuf>) -> Mounts {
        let unknown = |path| Place { path, root: PathBuf::from("/"), ..Place::default() };
        Mounts(places.into_iter().map(unknown).collect())
    }

    /// Whether `path` is the root of one of these mounts.
    pub fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|mount| mount.path == path)
    }

    /// The mounts, in the order they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|mount| mount.path.as_path())
    }

    /// The connection of the mount at this place, the uppermost where there are several; `None` where there is none of weft's.
    pub fn connection_at(&self, path: &Path) -> Option<u32> {
        self.at_top(path)?.connection
    }

    /// What may be done at this place, and whether the file system that stands there is read-only itself; `None` where there is no
    /// mount of weft's.
    pub fn flags_at(&self, path: &Path) -> Option<(MountFlags, bool)> {
        self.at_top(path).map(|place| (place.flags, place.is_read_only))
    }

    fn at_top(&self, path: &Path) -> Option<&Place> {
        self.0.iter().rfind(|mount| mount.path == path)
    }

    /// Where the mount with this connection can be reached, by its newest place.
    pub fn place_of(&self, connection: u32) -> Option<&Path> {
        self.0.iter().rfind(|mount| mount.connection == Some(connection)).map(|mount| mount.path.as_path())
    }

    /// Who mounted the one with this number (`stx_mnt_id` of statx(2)); `None` when it is none of weft's.
    pub fn owner(&self, id: u64) -> Option<u32> {
        self.0.iter().find(|mount| mount.id == id && id != 0)?.uid
    }

    /// Lines of mountinfo: the first field is the mount's number, the third its device, the fourth which directory of its file
    /// system it shows, the fifth its place, the sixth what may be done there; after the lone `-` come the type, the source and
    /// the options of the file system, among them `user_id=` of every FUSE mount.
    fn parse(text: &[u8]) -> Mounts {
        let of_weft = |line: &[u8]| -> Option<Place> {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            if *fields.get(dash + 1)? != b"fuse.weft" {
                return None;
            }
            let has = |field: usize, option: &[u8]| {
                fields.get(field).is_some_and(|options| options.split(|byte| *byte == b',').any(|has| has == option))
            };
            let flags = MountFlags { read_only: has(5, b"ro"), noexec: has(5, b"noexec"), noatime: has(5, b"noatime") };
            let is_read_only = has(dash + 3, b"ro");
            let mut options = fields.get(dash + 3).copied().unwrap_or_default().split(|byte| *byte == b',');
            let uid =
                options.find_map(|option| std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok());
            let id = std::str::from_utf8(fields.first()?).ok()?.parse().ok()?;
            let connection =
                std::str::from_utf8(fields.get(2)?).ok()?.strip_prefix("0:").and_then(|minor| minor.parse().ok());
            let (root, path) = (unescape(fields.get(3)?), unescape(fields.get(4)?));
            Some(Place { path, id, uid, root, connection, is_read_only, flags })
        };
        Mounts(text.split(|byte| *byte == b'\n').filter_map(of_weft).collect())
    }

    /// Whether the kernel says that `uid` has mounted at `path`.
    fn has_of(&self, path: &Path, uid: u32) -> bool {
        self.0.iter().any(|mount| mount.path == path && mount.uid == Some(uid))
    }

    /// The mount that `path` lies in, the innermost if there are several.
    fn around<'a>(&'a self, path: &Path) -> Option<&'a Path> {
        let around = self.iter().filter(|mount| path.starts_with(mount));
        around.max_by_key(|mount| mount.as_os_str().len())
    }
}

/// Every live daemon that this user may ask, with who it is. Sockets whose daemon is gone are removed from the
/// user's own folder `own` ([`socket_dir`](crate::socket_dir())). All are asked at once: those that stand still cost a moment
/// together.
pub fn daemons(own: &Path) -> Vec<(Client, Hello)> {
    let me = rustix::process::geteuid();
    let mounts = Mounts::of_this_process().unwrap_or_default();
    let mut asked = Vec::new();
    for dir in socket_dir::all_dirs(own) {
        let Ok(found) = std::fs::symlink_metadata(&dir) else { continue };
        let owner = std::os::unix::fs::MetadataExt::uid(&found);
        let trusted = owner == me.as_raw() || owner == 0;
        if !found.is_dir() || !(trusted || me.is_root()) {
            continue;
        }
        let greeted = sockets(&dir).into_iter().filter_map(|socket| greet(&socket, owner));
        asked.extend(greeted.map(|client| (client, owner, trusted)));
    }
    let end = Instant::now() + SHORT;
    let answer = |(mut client, owner, trusted): (Client, u32, bool)| {
        let hello = client.greeted(end.saturating_duration_since(Instant::now())).ok()?;
        // Root is told by other users only what the kernel confirms: else anybody could claim any path.
        let is_believed = trusted || mounts.has_of(hello.mountpoint.as_path(), owner);
        is_believed.then_some((client, hello))
    };
    asked.into_iter().filter_map(answer).collect()
}

/// The daemon whose mount `path` lies in, and the place there. `own` is the user's socket folder.
///
/// # Errors
/// `NotAMount`, `NoDaemon`, or `Io` when the path above the mount cannot be followed.
pub fn find_for_path(own: &Path, path: &Path) -> Result<Located, ControlError> {
    let mut daemons = daemons(own);
    let mut mounts = Mounts::of_this_process()?;
    let of_kernel = mounts.clone();
    mounts.0.extend(Mounts::at(daemons.iter().map(|(_, hello)| hello.mountpoint.as_path().to_owned())).0);
    let resolved = resolve_without_entering(path, &mounts)?;
    let not_a_mount = || ControlError::NotAMount { path: path.to_owned() };
    let mount = mounts.around(&resolved).ok_or_else(not_a_mount)?;
    // One that was unmounted while it was in use lives on, and another may be at its place.
    let top = of_kernel.at_top(mount).filter(|top| top.connection.is_some());
    let claims = daemons.iter().map(|(client, hello)| (client.daemon_uid().ok(), hello));
    let Some(at) = which(claims, mount, top) else {
        return Err(ControlError::NoDaemon { mountpoint: mount.to_owned() });
    };
    let (client, hello) = daemons.swap_remove(at);
    let root = top.and_then(|top| top.root.strip_prefix("/").ok()).unwrap_or(Path::new(""));
    let below = resolved.strip_prefix(mount).expect("around() gives a prefix");
    let path: PathBuf = root.components().chain(below.components()).collect();
    let (is_mount, path) = (below.as_os_str().is_empty(), PathBytes::from(path.as_path()));
    Ok(Located { client, hello, mount: mount.to_owned(), is_mount, path })
}

/// Which of these daemons, with whose each is and what it says of itself, serves the mount at a place. A connection's number is
/// given to another as soon as its mount has gone, and its daemon may be there for a while: one that says so is not asked, and
/// of several with one number the one that has mounted there.
fn which<'a>(
    daemons: impl Iterator<Item = (Option<u32>, &'a Hello)>,
    mount: &Path,
    shown: Option<&Place>,
) -> Option<usize> {
    let rank = |(uid, hello): (Option<u32>, &Hello)| {
        let claims_it = hello.mountpoint.as_path() == mount;
        let Some(shown) = shown else { return if claims_it { 1 } else { 0 } };
        // Whose it is the kernel says: a daemon may claim anything.
        let is_its_number = hello.connection == shown.connection && shown.uid.is_some() && uid == shown.uid;
        match (is_its_number, claims_it) {
            _ if hello.is_ending => 0,
            (true, true) => 3,
            (true, false) => 2,
            (false, true) if hello.connection.is_none() => 1,
            (false, _) => 0,
        }
    };
    daemons.map(rank).enumerate().filter(|(_, rank)| *rank > 0).max_by_key(|(_, rank)| *rank).map(|(at, _)| at)
}

/// The absolute path with links above the mounts followed, `.` and `..` gone, and nothing asked of the kernel at or
/// below one of `mounts`. What does not exist is kept as written.
///
/// # Errors
/// `Io` when a link cannot be read, there are too many, or the current directory is gone.
pub fn resolve_without_entering(path: &Path, mounts: &Mounts) -> Result<PathBuf, ControlError> {
    let absolute = std::path::absolute(path).map_err(ControlError::io(path))?;
    let mut rest: VecDeque<OsString> = names(&absolute);
    let mut at = PathBuf::from("/");
    let mut links_left = LINKS_MAX;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        if mounts.around(&next).is_some() {
            at = next;
            continue;
        }
        let target = match std::fs::read_link(&next) {
            Ok(target) => target,
            // Not a link, or not there: as written.
            Err(_) => {
                at = next;
                continue;
            }
        };
        if links_left == 0 {
            return Err(ControlError::io(path)(io::Error::other("too many symbolic links")));
        }
        links_left -= 1;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    Ok(at)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

/// Asks whoever listens at this socket who it is, if its user is one that may.
fn greet(socket: &Path, dir_owner: u32) -> Option<Client> {
    match Client::connect(socket) {
        Ok(mut client) => {
            let uid = client.daemon_uid().ok()?;
            client.greet().ok()?;
            (uid == dir_owner || uid == 0).then_some(client)
        }
        Err(ControlError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            // Bound but not yet listening looks the same: only a process that is gone leaves a dead socket.
            if !process_lives(socket) {
                let _ = std::fs::remove_file(socket);
            }
            None
        }
        Err(_) => None,
    }
}

fn process_lives(socket: &Path) -> bool {
    let pid = socket.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    Path::new("/proc").join(pid).exists()
}

fn sockets(dir: &Path) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_socket = |path: &PathBuf| {
        let stem = path.file_stem().map(|stem| stem.as_bytes()).unwrap_or_default();
        path.extension().is_some_and(|ending| ending == "sock")
            && !stem.is_empty()
            && stem.iter().all(u8::is_ascii_digit)
    };
    let mut found: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).filter(is_socket).collect();
    found.sort();
    found.truncate(SOCKETS_MAX);
    found
}

/// mountinfo writes space, tab, newline and backslash as three octal digits after a backslash (proc(5)).
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// As the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// Most sockets that are tried in one folder.
const SOCKETS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who has mounted is told of weft's mounts alone.
    #[test]
    fn a_mount_has_an_owner() {
        let table = b"36 25 0:31 / /afs rw,nosuid - fuse.weft afs rw,user_id=1000,group_id=0,allow_other\n\
            37 25 0:32 / /other rw - fuse.sshfs host rw,user_id=1000\n38 25 0:33 / /old rw - fuse.weft weft rw\nx y\n";
        let mounts = Mounts::parse(table);
        assert_eq!(mounts.owner(36), Some(1000));
        assert_eq!([37, 38, 39, 0].map(|id| mounts.owner(id)), [None; 4]);
        assert_eq!(Mounts::at([PathBuf::from("/x")]).owner(0), None);
    }

    /// Goal: what a mount forbids is told apart from what its file system does.
    #[test]
    fn a_mount_forbids_what_its_file_system_allows() {
        let table = b"36 25 0:31 / /a ro,nosuid,noexec - fuse.weft weft rw,user_id=0\n\
            37 25 0:32 / /b rw,noatime - fuse.weft weft ro,user_id=0\n38 25 0:33 / /c ro - ext4 x rw\n";
        let mounts = Mounts::parse(table);
        let flags = |path: &str| mounts.flags_at(Path::new(path));
        let closed = MountFlags { read_only: true, noexec: true, noatime: false };
        assert_eq!(flags("/a"), Some((closed, false)));
        assert_eq!(flags("/b"), Some((MountFlags { noatime: true, ..MountFlags::default() }, true)));
        assert_eq!(flags("/c"), None);
    }

    #[test]
    fn mountinfo_names_the_mounts_of_weft() {
        let text = b"36 35 98:0 / /mnt1 rw,noatime master:1 - ext3 /dev/root rw\n\
            40 35 0:50 / /home/a\\040b\\134c rw,nosuid,nodev shared:7 - fuse.weft weft rw,user_id=1000,group_id=0\n\
            41 35 0:51 / /other rw - fuse.sshfs host: rw\nbroken line\n";
        let mounts = Mounts::parse(text);
        let place = Path::new("/home/a b\\c");
        assert_eq!(mounts.iter().collect::<Vec<_>>(), [place]);
        assert!(mounts.has_of(place, 1000) && !mounts.has_of(place, 0));
        assert_eq!((mounts.connection_at(place), mounts.place_of(50)), (Some(50), Some(place)));
        assert_eq!((mounts.connection_at(Path::new("/other")), mounts.place_of(51)), (None, None));
    }

    #[test]
    fn links_are_followed_above_a_mount_and_never_in_it() {
        let temp = tempfile::tempdir().expect("a folder");
        let top = temp.path().canonicalize().expect("it is there");
        let mount = top.join("real/mount");
        std::fs::create_dir_all(&mount).expect("made");
        std::os::unix::fs::symlink("real", top.join("link")).expect("made");
        // Were the mount entered, this link would be followed.
        std::os::unix::fs::symlink("/etc", mount.join("inner")).expect("made");
        let mounts = Mounts::at([mount.clone()]);
        let resolve = |path: PathBuf| resolve_without_entering(&path, &mounts).expect("resolved");
        assert_eq!(resolve(top.join("link/mount/inner/passwd")), mount.join("inner/passwd"));
        assert_eq!(resolve(top.join("link/./mount/a/../b")), mount.join("b"));
        assert_eq!(resolve(top.join("link/mount/../../x")), top.join("x"));
        assert_eq!(mounts.around(&mount.join("inner")), Some(mount.as_path()));
        assert_eq!(mounts.around(&top.join("real/mountain")), None);
    }

    #[test]
    fn links_in_circles_are_an_error() {
        let temp = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("b", temp.path().join("a")).expect("made");
        std::os::unix::fs::symlink("a", temp.path().join("b")).expect("made");
        let circle = resolve_without_entering(&temp.path().join("a/x"), &Mounts::default());
        assert!(matches!(circle, Err(ControlError::Io { .. })), "{circle:?}");
    }

    /// Goal: of daemons with one number the one whose mount it is now is asked, whichever comes first; a claim alone counts
    /// where nothing else is known.
    #[test]
    fn a_number_that_another_mount_has_by_now_leads_to_that() {
        let hello = |at: &str, connection: Option<u32>, is_ending: bool| Hello {
            version: String::new(),
            daemon_pid: 1,
            mountpoint: PathBytes::from(Path::new(at)),
            uid: 0,
            connection,
            is_ending,
        };
        let at = PathBuf::from("/mount");
        let shown = Place {
            path: at.clone(),
            id: 1,
            uid: Some(0),
            root: PathBuf::from("/"),
            connection: Some(7),
            ..Place::default()
        };
        let shown = Some(&shown);
        let (former, ending) = (hello("/former", Some(7), false), hello("/mount", Some(7), true));
        let (own, other) = (hello("/mount", Some(7), false), hello("/mount", Some(8), false));
        let untold = hello("/mount", None, false);
        let asked = |daemons: &[&Hello], shown| which(daemons.iter().map(|hello| (Some(0), *hello)), &at, shown);
        assert_eq!([&[&former, &own], &[&own, &former]].map(|daemons| asked(daemons, shown)), [Some(1), Some(0)]);
        assert_eq!([&[&ending, &own], &[&own, &ending]].map(|daemons| asked(daemons, shown)), [Some(1), Some(0)]);
        assert_eq!(asked(&[&other, &former], shown), Some(1), "a bind mount of it");
        assert_eq!(asked(&[&ending, &other], shown), None);
        assert_eq!((asked(&[&untold], shown), asked(&[&former], None)), (Some(0), None));
        assert_eq!(asked(&[&former, &ending], None), Some(1), "whose end somebody waits for");
        let anothers = which([(Some(1000), &own)].into_iter(), &at, shown);
        assert_eq!(anothers, None, "it claims what another user has mounted");
    }

    #[test]
    fn a_dead_socket_is_cleaned_away() {
        let temp = tempfile::tempdir().expect("a folder");
        // No process has this number: it is above the kernel's limit of 2^22.
        let dead = temp.path().join("99999999.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).expect("bound"));
        let of_this_test = daemons(temp.path()).into_iter().filter(|(_, hello)| hello.daemon_pid == 99_999_999);
        assert_eq!(of_this_test.count(), 0);
        assert!(!dead.exists());
    }

    /// Goal: daemons that stand still hold nobody up for ever, also where they have as many connections waiting as may be,
    /// and keep nobody from those that answer.
    #[test]
    fn a_daemon_that_stands_still_is_passed_by() {
        let temp = tempfile::tempdir().expect("a folder");
        let listen = |name: &str, backlog: i32| {
            let socket = temp.path().join(name);
            let listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
            rustix::net::listen(&listener, backlog).expect("listens");
            (socket, listener)
        };
        let [_silent, (full, _listens)] = [listen("99999997.sock", 8), listen("99999998.sock", 0)];
        let connect = || std::os::unix::net::UnixStream::connect(&full);
        let _waits = connect().expect("one fits");
        let (answers, listener) = listen("99999999.sock", 8);
        let dies = answers.clone();
        let answering = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("asked");
            let mut line = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut line).expect("a line");
            std::fs::remove_file(dies).expect("its own");
            line
        });
        let silent = daemons(temp.path()).into_iter().filter(|(_, hello)| hello.daemon_pid >= 99_999_997);
        assert_eq!(silent.count(), 0);
        assert!(answering.join().expect("ended").contains("hello"), "{answers:?} is asked as well");
    }
}
