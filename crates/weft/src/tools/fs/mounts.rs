//! Mount points of AFS: telling where they lead, making and removing them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use weft_afs::fid::VolumeId;
use weft_afs::mount_point::{MOUNT_POINT_MODE, MountKind, MountPoint, MountedVolume};
use weft_afs::volume_name::{BadVolumeName, VolumeName};
use weft_afs::wire::Text;
use weft_afs::wire::fileserver::{RemoveFile, Symlink};
use weft_afs::wire::status::StatusChange;
use weft_afs::{Client, Place};
use weft_remote::RemoteError;

use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};
use crate::tools::whereabouts::{Link, Whereabouts};

/// `fs lsmount`.
pub fn list(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("dir"), |path| {
        let shown = path.display();
        let (at, through_link) = match std::fs::read_link(without_slash(path)) {
            Ok(target) => (path.parent().unwrap_or(Path::new("")).join(target), true),
            Err(_) => (path.clone(), false),
        };
        let words = match Whereabouts::of(without_slash(&at), Link::Stay)? {
            Whereabouts::Cell { cell, writable } => {
                // It is in no volume, so it has to say of which cell it is.
                let words = Client::mount_of_cell(writable);
                format!("{}{cell}:{}", &words[..1], &words[1..])
            }
            Whereabouts::MountPoint(cell, fid) => words_of(session, &Place { cell, fid })?,
            Whereabouts::Cells | Whereabouts::File(..) => return Err(no_mount_point(path)),
        };
        let volume = words.strip_suffix('.').unwrap_or(&words);
        let link = if through_link { "symbolic link, leading to a " } else { "" };
        let text = format!("'{shown}' is a {link}mount point for volume '{volume}'");
        Ok(Told::new(text, json!({ "path": path, "volume": volume, "through_link": through_link })))
    })
}

/// `fs mkmount`.
pub fn make(session: &Session, arguments: &Arguments) -> Outcome {
    let path = arguments.path("dir")?;
    let (parent, name) = split(path)?;
    let (cell, volume) = wanted(arguments)?;
    let cell = cell.map(|cell| session.cell(cell)).transpose()?.map(|cell| cell.name);
    let place = session.place(parent)?;
    if !arguments.has("fast") {
        let target = cell.as_ref().unwrap_or(&place.cell);
        match session.wait(session.client()?.volume(target, &asked(&volume))) {
            Ok(_) => {}
            Err(RemoteError::NotFound { .. }) => {
                let volume = asked(&volume);
                session.warn(&format!("warning, volume {volume} does not exist in cell {target}."));
            }
            Err(error) => session.warn(&format!("whether there is such a volume is not known: {error}")),
        }
    }
    let kind = if arguments.has("rw") { MountKind::ReadWrite } else { MountKind::Regular };
    let mount_point = MountPoint { kind, cell, volume };
    let content = mount_point.write().map_err(Failure::usage)?;
    let status = StatusChange { mode: Some(MOUNT_POINT_MODE), ..StatusChange::default() };
    let question = Symlink { dir: place.fid, name, content: Text(content), status };
    let what = path.display().to_string();
    session.answer_of((path, &place), session.client()?.change(&place, &what, &question))?;
    session.tell_all(Told::new("", json!({ "path": path, "volume": mount_point.to_string() })));
    Ok(())
}

/// `fs rmmount`.
pub fn remove(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("dir"), |path| {
        let (parent, name) = split(path)?;
        let Whereabouts::MountPoint(cell, fid) = Whereabouts::of(without_slash(path), Link::Stay)? else {
            return Err(no_mount_point(path));
        };
        // What the server has, whatever the mount had looked at.
        words_of(session, &Place { cell, fid })?;
        let place = session.place(parent)?;
        let what = path.display().to_string();
        let question = RemoveFile { dir: place.fid, name };
        session.answer_of((path, &place), session.client()?.change(&place, &what, &question))?;
        Ok(Told::new("", json!({ "path": path })))
    })
}

/// What a mount point says, as its server has it now.
fn words_of(session: &Session, place: &Place) -> Outcome<String> {
    let cell = session.cell(place.cell.as_str())?.name;
    session.answer(&cell, session.client()?.mount_point(place))
}

/// The cell, if one is named, and the volume that is to be mounted.
fn wanted(arguments: &Arguments) -> Outcome<(Option<&str>, MountedVolume)> {
    let (cell, volume) = (arguments.text("cell")?, arguments.needed("vol")?);
    let (cell, volume) = match (volume.split_once(':'), cell) {
        (Some((of_volume, _)), Some(cell)) if !of_volume.eq_ignore_ascii_case(cell) => {
            return Err(Failure::usage(format!("-vol {volume} names another cell than -cell {cell}")));
        }
        (Some((cell, volume)), _) => (Some(cell), volume),
        (None, cell) => (cell, volume),
    };
    match VolumeName::new(volume.as_bytes()) {
        Ok(name) => Ok((cell, MountedVolume::Name(name))),
        Err(BadVolumeName::Number) => match volume.parse() {
            Ok(number @ 1..) => Ok((cell, MountedVolume::Number { volume: VolumeId(number), place: None })),
            _ => Err(Failure::usage(format!("-vol {volume}: not the number of a volume"))),
        },
        Err(error) => Err(Failure::usage(format!("-vol {volume}: {error}"))),
    }
}

/// What the database is asked for.
fn asked(volume: &MountedVolume) -> String {
    match volume {
        MountedVolume::Name(name) => name.to_string(),
        MountedVolume::Number { volume, .. } => volume.to_string(),
    }
}

/// The directory that a path is in, and its name there.
fn split(path: &Path) -> Outcome<(&Path, weft_afs::wire::status::FileName)> {
    let name = path.file_name().ok_or_else(|| {
        Failure::usage(format!("{}: `.` and `..` are no names of mount points; name its directory too", path.display()))
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent, Text(name.as_bytes().to_vec())))
}

/// A path that ends in a slash means what is behind the last name.
fn without_slash(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes.iter().rposition(|byte| *byte != b'/').map_or(bytes.len(), |at| at + 1);
    Path::new(std::ffi::OsStr::from_bytes(&bytes[..length]))
}

fn no_mount_point(path: &Path) -> Failure {
    Failure::new(Exit::Failed, format!("'{}' is not a mount point.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_their_last_name() {
        let parts = |path: &str| {
            let (parent, name) = split(Path::new(path)).map_err(|failure| failure.sentence)?;
            Ok::<_, String>((parent.display().to_string(), String::from_utf8_lossy(&name.0).into_owned()))
        };
        let both = |parent: &str, name: &str| Ok((parent.to_owned(), name.to_owned()));
        assert_eq!(parts("/afs/cell/x/"), both("/afs/cell", "x"));
        assert_eq!(parts("x"), both(".", "x"));
        assert_eq!(parts("../x"), both("..", "x"));
        for path in ["..", "/", "a/.."] {
            assert!(parts(path).is_err(), "{path}");
        }
        assert_eq!(without_slash(Path::new("/a/b//")), Path::new("/a/b"));
        assert_eq!(without_slash(Path::new("/")), Path::new("/"));
    }
}
