//! What is the mount's: its cache, and how it talks to servers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_afs::Level;
use weft_control::{ControlError, Depth, Located, OfPinned, Removed, daemons};

use crate::cmd::find;
use crate::config::Environment;
use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};
use crate::tools::whereabouts::{Link, Whereabouts};

/// `fs flush`: the content goes, and its source is asked anew.
pub fn flush(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        Whereabouts::of(path, Link::Follow)?;
        let whole = whole_path(path)?;
        let depth = if whole.is_dir() { None } else { Some(Depth::This) };
        drop_from_cache(path, &whole, depth)
    })
}

/// `fs flushvolume`: the same for all that lies below the root of the volume in this mount.
pub fn flush_volume(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        Whereabouts::of(path, Link::Follow)?;
        let root = volume_root(&whole_path(path)?)?;
        drop_from_cache(path, &root, Some(Depth::Below))
    })
}

/// `fs checkvolumes`: where volumes are is asked for anew, by every mount of this user that shows AFS, or by those of some
/// paths.
pub fn check_volumes(session: &Session, arguments: &Arguments) -> Outcome {
    let socket_dir = Environment::of_this_process().socket_dir();
    let found = match arguments.all("path") {
        [] => daemons(&socket_dir).into_iter().map(|(client, _)| client).collect(),
        paths => paths.iter().map(|path| Ok(find(Path::new(path))?.client)).collect::<Outcome<Vec<_>>>()?,
    };
    let mut mounts = 0;
    for mut client in found {
        // A daemon may end meanwhile, or belong to somebody else.
        let Ok(status) = client.status() else { continue };
        for binding in status.bindings.iter().filter(|binding| binding.kind == KIND) {
            client.reload(&binding.path.0, Depth::This)?;
            mounts += 1;
        }
    }
    if mounts == 0 {
        return Err(Failure::new(Exit::NoMount, "no mount of weft shows AFS; `weft mount afs DIR` makes one"));
    }
    session.tell_all(Told::new("All volumeID/name mappings checked.", json!({ "mounts": mounts })));
    Ok(())
}

/// `fs getcacheparms`.
pub fn parameters(session: &Session, _: &Arguments) -> Outcome {
    let mut live = daemons(&Environment::of_this_process().socket_dir());
    let several = live.len() > 1;
    if live.is_empty() {
        return Err(Failure::new(Exit::NoMount, "no weft mounts; `weft mount afs DIR` makes one"));
    }
    session.each(&(0..live.len()).collect::<Vec<_>>(), |at| {
        let (client, hello) = &mut live[*at];
        let report = client.cache(b"")?;
        let (used, max) = (report.total.bytes.div_ceil(1024), report.max_bytes.map(|bytes| bytes / 1024));
        let text = match max {
            Some(max) => format!("AFS using {used} of the cache's available {max} 1K byte blocks."),
            None => format!("AFS using {used} 1K byte blocks of the cache, whose size has no bound."),
        };
        let text = if several { format!("{}: {text}", hello.mountpoint) } else { text };
        Ok(Told::new(text, json!({ "mount": hello.mountpoint.to_string(), "used_kib": used, "max_kib": max })))
    })
}

/// `fs setcachesize`: that is the configuration's.
pub fn set_size(_: &Session, _: &Arguments) -> Outcome {
    Err(Failure::usage(
        "nothing was changed: the size of a cache is `[cache] max` in weft.toml, and `weft upgrade MOUNT` has the mount \
        read it",
    ))
}

/// `fs getcrypt`.
pub fn level(session: &Session, _: &Arguments) -> Outcome {
    let (word, text) = words_of(session.level());
    session.tell_all(Told::new(format!("Security level is currently {text}."), json!({ "level": word })));
    Ok(())
}

/// `fs setcrypt`: that is the configuration's; what it is already can be asked for.
pub fn set_level(session: &Session, arguments: &Arguments) -> Outcome {
    let wanted = match arguments.needed("crypt")? {
        "on" => true,
        "off" => false,
        other => return Err(Failure::usage(format!("-crypt {other}: `on` or `off`"))),
    };
    let (word, _) = words_of(session.level());
    if wanted == (session.level() == Level::Crypt) {
        return Ok(());
    }
    let level = if wanted { "crypt" } else { "auth" };
    Err(Failure::usage(format!(
        "nothing was changed: the level is {word}; write `level = \"{level}\"` into `[afs]` of weft.toml, and `weft upgrade \
        MOUNT` has the mount read it"
    )))
}

/// `fs sysname`: what `@sys` stands for is the configuration's; what it is already can be asked for.
pub fn system_name(session: &Session, arguments: &Arguments) -> Outcome {
    let known = session.sysnames();
    let wanted = arguments.texts("newsys")?;
    if !wanted.is_empty() && wanted != known {
        let list = wanted.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!(
            "nothing was changed: write `sysname = [{list}]` into `[afs]` of weft.toml, and `weft upgrade MOUNT` has the mount \
            read it"
        )));
    }
    let several = if known.len() > 1 { " list" } else { "" };
    let names: String = known.iter().map(|name| format!(" '{name}'")).collect();
    session.tell_all(Told::new(format!("Current sysname{several} is{names}"), json!({ "sysnames": known })));
    Ok(())
}

fn words_of(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::Crypt => ("crypt", "crypt (data security)"),
        Level::Auth => ("auth", "auth (data integrity)"),
        Level::Clear => ("clear", "clear"),
    }
}

/// Drops what is held at and, as the depth says, below a path, and has it asked for anew. What nobody has looked at is not
/// held.
fn drop_from_cache(path: &Path, whole: &Path, depth: Option<Depth>) -> Outcome<Told> {
    let Located { mut client, path: place, .. } = find(whole)?;
    let mut removed = Removed::default();
    if let Some(depth) = depth {
        removed = found(client.remove(&place.0, depth, OfPinned::Stays))?.unwrap_or_default();
    }
    found(client.reload(&place.0, Depth::This))?;
    let fields: Value = json!({ "path": path, "files": removed.files, "bytes": removed.bytes });
    Ok(Told::new("", fields))
}

fn found<T>(outcome: Result<T, ControlError>) -> Outcome<Option<T>> {
    match outcome {
        Err(ControlError::Refused(refusal)) if refusal.code == weft_control::Code::NotFound => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

/// The path with all links followed: below the mount the daemon knows it by names.
fn whole_path(path: &Path) -> Outcome<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// The directory above a path where its volume begins in this mount.
fn volume_root(path: &Path) -> Outcome<PathBuf> {
    let mut root = path;
    loop {
        match Whereabouts::of(root, Link::Stay)? {
            Whereabouts::File(..) => {}
            Whereabouts::Cells | Whereabouts::Cell { .. } | Whereabouts::MountPoint(..) => return Ok(root.to_owned()),
        }
        let Some(parent) = root.parent() else { return Ok(root.to_owned()) };
        // A cell may be mounted by itself: then its root is the mount's.
        match Whereabouts::of(parent, Link::Stay) {
            Err(Failure { exit: Exit::NoMount, .. }) => return Ok(root.to_owned()),
            _ => root = parent,
        }
    }
}

/// The kind of the bindings that show AFS.
const KIND: &str = "afs";
