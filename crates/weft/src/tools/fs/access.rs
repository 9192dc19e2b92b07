//! Access control lists: what they say, and changing them.
//!
//! A list is read, changed here, and stored as a whole; what another has stored in between is written over, as with
//! every client of AFS.

use std::path::Path;

use serde_json::{Value, json};
use weft_afs::Place;
use weft_afs::access::{Acl, AclEntry, Rights};
use weft_afs::wire::fileserver::{FetchAcl, FetchStatus, OldStoreAcl, StoreAcl};
use weft_afs::wire::pr::{ANONYMOUS, NameToId, Principal};
use weft_afs::wire::{List, Text};
use weft_remote::RemoteError;

use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};

/// `fs listacl`.
pub fn list(session: &Session, arguments: &Arguments) -> Outcome {
    let as_commands = arguments.has("cmd");
    let paths = arguments.paths("path");
    let last = paths.len() - 1;
    let mut at = 0;
    session.each(&paths, |path| {
        let (_, acl) = fetch(session, path)?;
        let shown = path.display().to_string();
        let mut text = if as_commands { commands(&shown, &acl) } else { lines(&shown, &acl) };
        if !as_commands && at < last {
            text.push('\n');
        }
        at += 1;
        Ok(Told::new(text, fields(path, &acl)))
    })
}

/// `fs setacl`.
pub fn set(session: &Session, arguments: &Arguments) -> Outcome {
    let texts = arguments.texts("acl")?;
    let mut changes = Vec::new();
    for pair in texts.chunks(2) {
        let [who, rights] = pair else {
            return Err(Failure::usage(format!("{}: after a user or group come rights, in pairs", pair[0])));
        };
        changes.push(Change::read(who, rights)?);
    }
    let side = if arguments.has("negative") { Side::Negative } else { Side::Positive };
    let clear = arguments.has("clear");
    change(session, arguments, "dir", |acl| {
        if clear {
            *acl = Acl::default();
        }
        changes.iter().for_each(|change| change.apply(acl, side));
    })
}

/// `fs copyacl`.
pub fn copy(session: &Session, arguments: &Arguments) -> Outcome {
    let from = arguments.path("fromdir")?;
    let (place, mut source) = fetch(session, from)?;
    drop_nameless(session, &place, from, &mut source)?;
    let clear = arguments.has("clear");
    change(session, arguments, "todir", |acl| {
        if clear {
            *acl = Acl::default();
        }
        for (side, entries) in [(Side::Positive, &source.positive), (Side::Negative, &source.negative)] {
            for AclEntry { who, rights } in entries {
                Change { who: who.clone(), how: How::Set(*rights) }.apply(acl, side);
            }
        }
    })
}

/// `fs cleanacl`.
pub fn clean(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let (place, mut acl) = fetch(session, path)?;
        let shown = path.display().to_string();
        let text = match drop_nameless(session, &place, path, &mut acl)? {
            true => {
                store(session, &place, path, &acl)?;
                lines(&shown, &acl).replacen(" is\n", " is now\n", 1)
            }
            false => format!("Access list for {shown} is fine."),
        };
        Ok(Told::new(text, fields(path, &acl)))
    })
}

/// `fs getcalleraccess`.
pub fn of_caller(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let place = session.place(path)?;
        let what = path.display().to_string();
        let question = FetchStatus { fid: place.fid };
        let status = session.answer_of((path, &place), session.client()?.ask(&place, &what, &question))?.status;
        let rights = letters(status.caller_access);
        let text = format!("Callers access to {what} is {rights}");
        Ok(Told::new(text, json!({ "path": path, "rights": rights })))
    })
}

/// Which half of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Positive,
    Negative,
}

/// What becomes of somebody's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    who: Principal,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Set(Rights),
    Add(Rights),
    Take(Rights),
}

impl Change {
    /// `rights` may end in `+` (also these), `-` (not these any more) or `=` (these alone).
    fn read(who: &str, rights: &str) -> Outcome<Change> {
        let principal = Principal::new(who.as_bytes()).filter(|_| !who.contains(char::is_whitespace));
        let principal =
            principal.ok_or_else(|| Failure::usage(format!("`{who}`: no user and no group can have this name")))?;
        let read = |text: &str| match text {
            "mail" => Ok(Rights(Rights::INSERT.0 | Rights::LOCK.0 | Rights::LOOKUP.0)),
            text => text.parse().map_err(|error| Failure::usage(format!("{who}: {error}; mail is lik"))),
        };
        let how = match (rights.strip_suffix('+'), rights.strip_suffix('-')) {
            (Some(rights), _) => How::Add(read(rights)?),
            (_, Some(rights)) => How::Take(read(rights)?),
            (None, None) => How::Set(read(rights.strip_suffix('=').unwrap_or(rights))?),
        };
        Ok(Change { who: principal, how })
    }

    /// An entry that comes to no rights goes.
    fn apply(&self, acl: &mut Acl, side: Side) {
        let entries = match side {
            Side::Positive => &mut acl.positive,
            Side::Negative => &mut acl.negative,
        };
        let is_theirs = |entry: &AclEntry| entry.who.as_bytes().eq_ignore_ascii_case(self.who.as_bytes());
        let before = entries.iter().position(is_theirs);
        let had = before.map_or(Rights(0), |at| entries[at].rights);
        let rights = match self.how {
            How::Set(rights) => rights,
            How::Add(rights) => Rights(had.0 | rights.0),
            How::Take(rights) => Rights(had.0 & !rights.0),
        };
        match before {
            Some(at) if rights == Rights(0) => drop(entries.remove(at)),
            Some(at) => entries[at].rights = rights,
            None if rights == Rights(0) => {}
            None => entries.insert(0, AclEntry { who: self.who.clone(), rights }),
        }
    }
}

/// Changes the lists of some directories.
fn change(session: &Session, arguments: &Arguments, name: &str, change: impl Fn(&mut Acl)) -> Outcome {
    session.each(&arguments.paths(name), |path| {
        let (place, mut acl) = fetch(session, path)?;
        drop_nameless(session, &place, path, &mut acl)?;
        change(&mut acl);
        store(session, &place, path, &acl)?;
        Ok(Told::new("", fields(path, &acl)))
    })
}

fn fetch(session: &Session, path: &Path) -> Outcome<(Place, Acl)> {
    let place = session.place(path)?;
    let what = format!("{}: the access list", path.display());
    let question = FetchAcl { fid: place.fid };
    let reply = session.answer_of((path, &place), session.client()?.ask(&place, &what, &question))?;
    let acl = Acl::read(&reply.acl.0).map_err(|error| Failure::failed(format!("{what} of the server: {error}")))?;
    Ok((place, acl))
}

fn store(session: &Session, place: &Place, path: &Path, acl: &Acl) -> Outcome {
    let what = format!("{}: the access list", path.display());
    let text = acl.write().map_err(|error| Failure::failed(format!("{what}: {error}")))?;
    let question = StoreAcl { dir: place.fid, acl: Text(text.clone()) };
    let older = OldStoreAcl { dir: place.fid, acl: Text(text) };
    let client = session.client()?;
    match session.wait(client.change_or_older(place, &what, (&question, &older))) {
        Ok(_) => Ok(()),
        Err(RemoteError::Invalid { .. } | RemoteError::NotADirectory { .. }) if !place.fid.is_directory() => {
            Err(Failure::new(Exit::Failed, format!("{what} is that of its directory: name that")))
        }
        Err(RemoteError::Invalid { detail }) => {
            let sentence = format!("{detail}: is there a user or group that the cell does not know?");
            Err(Failure::failed(sentence))
        }
        Err(error) => Err(session.failure_of((path, place), &error)),
    }
}

/// Takes out the numbers of users and groups that are no more, with which a server would refuse the list. Whether there
/// were any; they are told on standard error.
fn drop_nameless(session: &Session, place: &Place, path: &Path, acl: &mut Acl) -> Outcome<bool> {
    let is_number = |entry: &&AclEntry| entry.who.as_bytes().iter().all(|byte| *byte == b'-' || byte.is_ascii_digit());
    let numbers: Vec<Principal> =
        acl.positive.iter().chain(&acl.negative).filter(is_number).map(|entry| entry.who.clone()).collect();
    if numbers.is_empty() {
        return Ok(false);
    }
    let what = format!("{}: users and groups of its access list", path.display());
    let question = NameToId { names: List(numbers.clone()) };
    let ids = session.answer(&place.cell, session.client()?.database(&place.cell, &what, &question))?.0;
    let gone: Vec<&Principal> =
        numbers.iter().zip(ids).filter(|(_, id)| *id == ANONYMOUS).map(|(who, _)| who).collect();
    for who in &gone {
        session.warn(&format!("{}: {} is no user and no group any more", path.display(), name(who)));
    }
    acl.positive.retain(|entry| !gone.contains(&&entry.who));
    acl.negative.retain(|entry| !gone.contains(&&entry.who));
    Ok(!gone.is_empty())
}

/// As `fs listacl` writes it.
fn lines(path: &str, acl: &Acl) -> String {
    let mut text = vec![format!("Access list for {path} is")];
    for (title, entries) in [("Normal rights:", &acl.positive), ("Negative rights:", &acl.negative)] {
        if !entries.is_empty() {
            text.push(title.to_owned());
        }
        text.extend(entries.iter().map(|entry| format!("  {} {}", name(&entry.who), letters(entry.rights))));
    }
    text.join("\n")
}

/// As commands that set it.
fn commands(path: &str, acl: &Acl) -> String {
    let pairs = |entries: &[AclEntry]| -> String {
        entries.iter().map(|entry| format!("  {} {}", name(&entry.who), letters(entry.rights))).collect()
    };
    let mut text = format!("fs setacl -dir {path} -acl {}", pairs(&acl.positive));
    if !acl.negative.is_empty() {
        text += &format!("\nfs setacl -dir {path} -acl {} -negative", pairs(&acl.negative));
    }
    text
}

fn fields(path: &Path, acl: &Acl) -> Value {
    let list = |entries: &[AclEntry]| -> Vec<Value> {
        entries.iter().map(|entry| json!({ "who": name(&entry.who), "rights": letters(entry.rights) })).collect()
    };
    json!({ "path": path, "positive": list(&acl.positive), "negative": list(&acl.negative) })
}

/// The letters alone; nothing for no right.
fn letters(rights: Rights) -> String {
    if rights == Rights(0) { String::new() } else { rights.to_string() }
}

fn name(who: &Principal) -> String {
    crate::tools::server_text(who.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(who: &str, rights: &str) -> AclEntry {
        AclEntry { who: Principal::new(who.as_bytes()).expect("a name"), rights: rights.parse().expect("rights") }
    }

    fn acl() -> Acl {
        Acl {
            positive: vec![entry("system:administrators", "all"), entry("alice", "rl")],
            negative: vec![entry("bob", "write")],
        }
    }

    fn changed(side: Side, changes: &[(&str, &str)]) -> Acl {
        let mut acl = acl();
        for (who, rights) in changes {
            Change::read(who, rights).map_err(|failure| failure.sentence).expect("good").apply(&mut acl, side);
        }
        acl
    }

    /// Goal: rights are set, added and taken, and who has none any more is not on the list.
    #[test]
    fn entries_are_changed() {
        let positive =
            |changes: &[(&str, &str)]| lines("d", &Acl { negative: vec![], ..changed(Side::Positive, changes) });
        let with =
            |alice: &str| format!("Access list for d is\nNormal rights:\n  system:administrators rlidwka{alice}");
        assert_eq!(positive(&[("alice", "write")]), with("\n  alice rlidwk"));
        assert_eq!(positive(&[("Alice", "w+")]), with("\n  alice rlw"));
        assert_eq!(positive(&[("alice", "r-")]), with("\n  alice l"));
        assert_eq!(positive(&[("alice", "mail=")]), with("\n  alice lik"));
        assert_eq!(positive(&[("alice", "none")]), with(""));
        assert_eq!(positive(&[("alice", "all-")]), with(""));
        assert_eq!(positive(&[("eve", "none"), ("eve", "r-")]), with("\n  alice rl"));
        assert!(positive(&[("eve", "rlA")]).contains("rights:\n  eve rlA\n  system"), "new ones come first");
        let negative = changed(Side::Negative, &[("bob", "none"), ("eve", "r")]);
        assert_eq!((negative.positive, negative.negative), (acl().positive, vec![entry("eve", "r")]));
    }

    #[test]
    fn rights_that_do_not_exist_are_refused() {
        for (who, rights) in [("alice", "rx"), ("alice", ""), ("alice", "reading"), ("", "rl"), ("a b", "rl")] {
            let failure = Change::read(who, rights).expect_err(rights);
            assert_eq!(failure.exit, Exit::Usage, "{}", failure.sentence);
        }
    }

    /// Goal: what is printed is what scripts read, and commands set the same again.
    #[test]
    fn lists_are_written_as_people_know_them() {
        let wanted = "Access list for d is\nNormal rights:\n  system:administrators rlidwka\n  alice rl\nNegative rights:\n  bob rlidwk";
        assert_eq!(lines("d", &acl()), wanted);
        assert_eq!(lines("d", &Acl::default()), "Access list for d is");
        let wanted = "fs setacl -dir d -acl   system:administrators rlidwka  alice rl\nfs setacl -dir d -acl   bob rlidwk -negative";
        assert_eq!(commands("d", &acl()), wanted);
        let list = fields(Path::new("d"), &acl());
        assert_eq!(list["negative"], json!([{ "who": "bob", "rights": "rlidwk" }]));
    }
}
