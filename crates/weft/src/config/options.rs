//! Mount options: `-o ro,allow_other,cache=DIR`.

use std::path::PathBuf;
use std::time::Duration;

use weft_fuse::Transport;

use super::file::SHORTEST_DEADLINE;
use super::{Freshness, OpenFiles, nearest, parse_duration, parse_freshness, parse_open_files};

/// What the options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// `allow_other`.
    pub allow_other: Option<bool>,
    /// `exec`, or `noexec`.
    pub exec: Option<bool>,
    /// `no_passthrough`.
    pub no_passthrough: bool,
    /// `no_open`.
    pub no_open: bool,
    /// `ro`, or `rw`.
    pub read_only: Option<bool>,
    /// `sync`.
    pub sync: bool,
    /// `remount`: what is mounted is to get other options.
    pub remount: bool,
    /// `cache=DIR`.
    pub cache: Option<PathBuf>,
    /// `config=FILE`.
    pub config: Option<PathBuf>,
    /// `freshness=POLICY`.
    pub freshness: Option<Freshness>,
    /// `open_files=WHAT`.
    pub open_files: Option<OpenFiles>,
    /// `deadline=TIME`.
    pub deadline: Option<Duration>,
    /// `transport=WAY`.
    pub transport: Option<Transport>,
    /// `foreground`.
    pub foreground: bool,
}

/// Reads options separated by commas; later ones win.
///
/// # Errors
/// A sentence about the first one that is wrong.
pub fn parse_options(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    let is_remount = text.split(',').any(|option| option.trim() == "remount");
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let of_option = |why: String| format!("option `{name}`: {why}");
        match (name, value) {
            ("allow_other", None) => options.allow_other = Some(true),
            ("noexec", None) => options.exec = Some(false),
            ("exec", None) => options.exec = Some(true),
            ("no_passthrough", None) => options.no_passthrough = true,
            ("no_open", None) => options.no_open = true,
            ("ro", None) => options.read_only = Some(true),
            ("rw", None) => options.read_only = Some(false),
            ("sync", None) => options.sync = true,
            ("async", None) => options.sync = false,
            ("remount", None) => options.remount = true,
            ("foreground", None) => options.foreground = true,
            ("cache", Some(dir)) if !dir.is_empty() => options.cache = Some(PathBuf::from(dir)),
            ("config", Some(file)) if !file.is_empty() => options.config = Some(PathBuf::from(file)),
            ("freshness", Some(policy)) => options.freshness = Some(parse_freshness(policy).map_err(of_option)?),
            ("open_files", Some(what)) => options.open_files = Some(parse_open_files(what).map_err(of_option)?),
            ("deadline", Some(time)) => options.deadline = Some(parse_deadline(time).map_err(of_option)?),
            ("transport", Some(way)) => options.transport = Some(way.parse().map_err(of_option)?),
            ("suid" | "dev", None) => {
                return Err(format!("option `{option}`: weft always mounts nosuid,nodev"));
            }
            (_, None) if AS_IS.contains(&name) || OF_FSTAB.contains(&name) => {}
            ("comment", Some(_)) => {}
            (_, Some(_)) if is_remount && OF_KERNEL.contains(&name) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(wrong(option, name)),
        }
    }
    if options.no_open && options.open_files == Some(OpenFiles::Newest) {
        return Err(
            "no_open and open_files=newest exclude each other: with no_open weft does not know what is open".into()
        );
    }
    Ok(options)
}

/// The longest wait for a remote, as the configuration takes it.
fn parse_deadline(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time < SHORTEST_DEADLINE => Err(format!("`{text}` is too short: at least {SHORTEST_DEADLINE:?}")),
        time => Ok(time),
    }
}

fn wrong(option: &str, name: &str) -> String {
    if WITH_VALUE.contains(&name) {
        return format!("option `{option}` needs a value: {name}=...");
    }
    if ALONE.contains(&name) || AS_IS.contains(&name) || OF_FSTAB.contains(&name) {
        return format!("option `{option}` takes no value");
    }
    if name == "strictatime" {
        return format!("option `{option}`: weft shows access times as the source has them, and sets none by reading");
    }
    let known = ALONE.iter().chain(WITH_VALUE).chain(AS_IS).copied();
    match nearest(name, known) {
        Some(near) => format!("unknown option `{option}`: did you mean `{near}`?"),
        None => format!("unknown option `{option}`: there are {} and {}=", ALONE.join(", "), WITH_VALUE.join("=, ")),
    }
}

const ALONE: &[&str] = &[
    "allow_other",
    "ro",
    "rw",
    "noexec",
    "exec",
    "sync",
    "async",
    "remount",
    "no_passthrough",
    "no_open",
    "foreground",
];
const WITH_VALUE: &[&str] = &["cache", "config", "freshness", "open_files", "deadline", "transport"];
/// True of every mount of weft, or without meaning for one (mount(8), "filesystem-independent mount options";
/// `default_permissions` of fuse(8), which weft decides: modes count either way, see [`weft_fuse::MountOptions::checks_modes`]).
const AS_IS: &[&str] = &[
    "nosuid",
    "nodev",
    "defaults",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "dirsync",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "silent",
    "loud",
    "default_permissions",
];
/// What mount(8) finds in /proc/self/mountinfo of a mount that is to get other options, and gives on with those (fuse(8)).
const OF_KERNEL: &[&str] = &["user_id", "group_id", "max_read", "blksize"];
/// For mount(8) and systemd, not for file systems (fstab(5), mount(8), systemd.mount(5)).
const OF_FSTAB: &[&str] = &["auto", "noauto", "user", "users", "nouser", "owner", "group", "_netdev", "nofail"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_fstab_is_read() {
        let text = "rw,noauto,user,_netdev,nofail,x-systemd.automount,noexec,nosuid,nodev,allow_other,\
            cache=/var/cache/x,config=/etc/x.toml,freshness=ttl=10m,open_files=newest,deadline=5s,\
            transport=io_uring";
        let options = parse_options(text).expect("good");
        assert_eq!(options.allow_other, Some(true));
        assert_eq!((options.exec, options.read_only), (Some(false), Some(false)));
        assert!(!options.foreground && !options.remount);
        assert_eq!(options.cache, Some(PathBuf::from("/var/cache/x")));
        assert_eq!(options.freshness, Some(Freshness::Ttl(Duration::from_secs(600))));
        assert_eq!(options.deadline, Some(Duration::from_secs(5)));
        assert_eq!(options.open_files, Some(OpenFiles::Newest));
        assert_eq!(options.transport, Some(Transport::IoUring));
        assert_eq!(parse_options("").expect("good"), MountOptions::default());
    }

    /// Goal: what mount(8) takes for every file system is no mistake; what it hands on of a mount that is there neither.
    #[test]
    fn what_every_file_system_takes_is_taken() {
        let text = "async,diratime,norelatime,nostrictatime,nolazytime,dirsync,silent,noiversion,nomand,X-mount.mkdir";
        assert_eq!(parse_options(text).expect("good"), MountOptions::default());
        let options = parse_options(
            "rw,nosuid,nodev,noatime,user_id=0,group_id=0,default_permissions,max_read=131072,remount,ro",
        );
        let wanted = MountOptions { read_only: Some(true), remount: true, ..MountOptions::default() };
        assert_eq!(options.expect("good"), wanted);
        assert!(parse_options("sync").expect("good").sync);
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        let cases = [
            ("allow_othr", "did you mean `allow_other`?"),
            ("cache", "needs a value"),
            ("ro=1", "takes no value"),
            ("suid", "always mounts nosuid"),
            ("strictatime", "sets none by reading"),
            ("max_read=4096", "unknown option"),
            ("deadline=soon", "option `deadline`: `soon` is no time"),
            ("deadline=0s", "too short: at least 100ms"),
            ("transport=uring", "use auto, classic or io_uring"),
            ("open_files=old", "write version or newest"),
            ("open_files=newest,no_open", "exclude each other"),
            ("bananas", "there are"),
        ];
        for (text, wanted) in cases {
            let error = parse_options(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
