//! The names that the program is called under.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What the program is asked, by the name it is called under.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// The arguments of `weft`.
    Weft(Vec<OsString>),
    /// By mount(8), only to see whether it would work (`-f`): nothing is done.
    Nothing,
}

/// Turns the names `lsw`, `rmw`, `fs`, `vos`, `pts`, `mount.weft` and `mount.fuse.weft` into arguments of `weft`.
///
/// # Errors
/// A sentence when mount(8) is not what called the mount helper.
pub fn by_name(args: Vec<OsString>) -> Result<Called, String> {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let with = |words: &[&str]| words.iter().map(OsString::from).chain(args.clone()).collect();
    match name {
        "lsw" => Ok(Called::Weft(with(&["weft", "ls", "-w"]))),
        "rmw" => Ok(Called::Weft(with(&["weft", "rm", "-w"]))),
        "fs" | "vos" | "pts" => Ok(Called::Weft(with(&["weft", name]))),
        "mount.weft" | "mount.fuse.weft" => helper(args.collect()),
        _ => Ok(Called::Weft(with(&["weft"]))),
    }
}

/// Arguments as mount(8) gives them to a helper: `SOURCE DIR [-sfnv] [-N namespace] [-o OPTIONS] [-t TYPE]`.
fn helper(args: Vec<OsString>) -> Result<Called, String> {
    const USAGE: &str = "usage: mount.weft SOURCE DIR [-o OPTIONS]; it is called by mount(8)";
    let mut places = Vec::new();
    let mut weft: Vec<OsString> = ["weft", "mount"].iter().map(OsString::from).collect();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => weft.extend([arg, args.next().ok_or(USAGE)?]),
            Some("-t" | "-N") => drop(args.next()),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => match flags {
                _ if !flags[1..].chars().all(|flag| "sfnv".contains(flag)) => return Err(USAGE.to_owned()),
                _ if flags.contains('f') => return Ok(Called::Nothing),
                _ => {}
            },
            _ => places.push(arg),
        }
    }
    match places.len() {
        2 => {
            weft.push(OsString::from("--"));
            weft.extend(places);
            Ok(Called::Weft(weft))
        }
        _ => Err(USAGE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn other_names_are_verbs() {
        let called = |line: &str| by_name(words(line)).expect("good");
        assert_eq!(called("/usr/bin/lsw a"), Called::Weft(words("weft ls -w a")));
        assert_eq!(called("rmw -r a"), Called::Weft(words("weft rm -w -r a")));
        assert_eq!(called("weft status"), Called::Weft(words("weft status")));
        assert_eq!(called("/usr/bin/fs la -path x"), Called::Weft(words("weft fs la -path x")));
        assert_eq!(called("vos"), Called::Weft(words("weft vos")));
        let mounted = Called::Weft(words("weft mount -o rw,user -- weft /mnt"));
        assert_eq!(called("/sbin/mount.weft weft /mnt -o rw,user"), mounted);
        assert_eq!(called("mount.fuse.weft weft /mnt -n -o rw,user -t fuse.weft"), mounted);
        assert_eq!(called("mount.weft weft /mnt -f"), Called::Nothing);
        for line in ["mount.weft weft", "mount.weft", "mount.weft a b c", "mount.weft a b -q", "mount.weft a b -o"] {
            assert!(by_name(words(line)).is_err(), "{line}");
        }
    }
}
