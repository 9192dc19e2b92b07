//! What the volume location database has of volumes.

use serde_json::{Value, json};
use weft_afs::cell::Cell;
use weft_afs::volume_name::VolumeType;
use weft_afs::wire::Text;
use weft_afs::wire::vl::{EntriesLike, Entry, ListAttributesN2, Operations, Site, SiteFlags};

use super::partition;
use super::volumes::address_of;
use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};

/// What the database has of a volume. That it has nothing is told in the words of OpenAFS's `vos`, for which scripts look.
///
/// # Errors
/// `NotFound`; what keeps the database from answering.
pub fn of_volume(session: &Session, cell: &Cell, asked: &str) -> Outcome<Entry> {
    let entry = session.answer(&cell.name, session.client()?.volume(&cell.name, asked));
    entry.map_err(|Failure { exit, sentence }| match exit {
        Exit::NotFound => Failure::new(exit, format!("VLDB: no such entry: {sentence}")),
        _ => Failure::new(exit, sentence),
    })
}

/// `vos listvldb`.
pub fn list(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let locked = arguments.has("locked");
    if let Some(asked) = arguments.text("name")? {
        if locked || arguments.has("server") || arguments.has("partition") {
            return Err(Failure::usage("-name goes with none of -server, -partition and -locked"));
        }
        let entry = of_volume(session, &cell, asked)?;
        session.tell_all(Told::new(named_lines(session, &entry), fields(session, &entry)));
        return Ok(());
    }
    let (server, partition) = (arguments.text("server")?, arguments.text("partition")?);
    let like = EntriesLike {
        server: server.map(|server| session.hosts.address(server)).transpose()?,
        partition: partition.map(partition::read).transpose()?,
        operations: locked.then_some(Operations::ALL),
    };
    let mut all = fetch(session, &cell, like)?;
    if !arguments.has("nosort") {
        all.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let quiet = arguments.has("quiet");
    if !quiet {
        let of_server = if server.is_some() { "server" } else { "all" };
        let partition = like.partition.map(|at| format!(" partition {}", partition::name(at))).unwrap_or_default();
        let locked = if locked { "which are locked:" } else { "" };
        session.heading(format!("VLDB entries for {of_server} {}{partition} {locked}", server.unwrap_or("servers")));
    }
    session.each(&all, |entry| Ok(Told::new(named_lines(session, entry), fields(session, entry))))?;
    if !quiet {
        session.heading(format!("\nTotal entries: {}", all.len()));
    }
    Ok(())
}

fn fetch(session: &Session, cell: &Cell, like: EntriesLike) -> Outcome<Vec<Entry>> {
    let what = format!("the volumes of {}", cell.name);
    let client = session.client()?;
    let (mut all, mut start) = (Vec::new(), 0);
    loop {
        let question = ListAttributesN2 { like, name: Text(Vec::new()), start };
        let part = session.answer(&cell.name, client.database(&cell.name, &what, &question))?;
        let told = usize::try_from(part.count).unwrap_or(usize::MAX);
        all.extend(part.entries.0.into_iter().take(told).map(|entry| entry.0));
        // Places in a file: who goes on tells a later one.
        if part.next <= start || all.len() > ENTRIES_MAX {
            return Ok(all);
        }
        start = part.next;
    }
}

/// Its name, and what is known of it.
fn named_lines(session: &Session, entry: &Entry) -> String {
    format!("\n{} \n{}", entry.name, lines(session, entry))
}

/// What is known of it, without its name.
pub fn lines(session: &Session, entry: &Entry) -> String {
    lines_with(entry, |site| server_of(session, site))
}

/// Its name, and where its volumes are.
pub fn named_sites(session: &Session, entry: &Entry) -> String {
    format!("\n{} \n{}", entry.name, sites_with(entry, |site| server_of(session, site)).join("\n"))
}

fn lines_with(entry: &Entry, server_of: impl Fn(&Site) -> String) -> String {
    let mut lines = sites_with(entry, server_of);
    if entry.operations != Operations::default() {
        lines.push("    Volume is currently LOCKED  ".to_owned());
    }
    for (operation, what) in OPERATIONS {
        if entry.operations.has(operation) {
            lines.push(format!("    Volume is locked for a {what} operation"));
        }
    }
    lines.join("\n")
}

fn sites_with(entry: &Entry, server_of: impl Fn(&Site) -> String) -> Vec<String> {
    let mut first = String::new();
    for (kind, title) in KINDS {
        if let Some(volume) = entry.volume(kind) {
            first += &format!("    {title}: {:<10}", volume.0);
        }
    }
    if let (Some(clone), Some(_)) = (entry.clone, entry.volume(VolumeType::ReadOnly)) {
        first += &format!("    RClone: {:<10}", clone.0);
    }
    let mut lines = vec![first, format!("    number of sites -> {}", entry.sites.len())];
    let in_release = entry.sites.iter().any(|site| site.flags.has(SiteFlags::NEW_RELEASE));
    for site in &entry.sites {
        let writable = site.flags.has(SiteFlags::READ_WRITE);
        let kind = if writable { "RW" } else { "RO" };
        let state = match in_release {
            true if site.flags.has(SiteFlags::NEW_RELEASE) => " -- New release",
            true if !writable => " -- Old release",
            false if site.flags.has(SiteFlags::DO_NOT_USE) => " -- Not released",
            _ => "",
        };
        let (server, partition) = (server_of(site), partition::name(site.partition));
        lines.push(format!("       server {server} partition {partition} {kind} Site {state}"));
    }
    lines
}

/// For programs.
pub fn fields(session: &Session, entry: &Entry) -> Value {
    let site = |site: &Site| {
        json!({
            "server": server_of(session, site),
            "partition": partition::name(site.partition),
            "type": if site.flags.has(SiteFlags::READ_WRITE) { "RW" } else { "RO" },
            "new_release": site.flags.has(SiteFlags::NEW_RELEASE),
            "released": !site.flags.has(SiteFlags::DO_NOT_USE),
        })
    };
    let locks = OPERATIONS.iter().filter(|(operation, _)| entry.operations.has(*operation)).map(|(_, what)| *what);
    let volume = |kind| entry.volume(kind).map(|volume| volume.0);
    json!({
        "name": entry.name.as_str(),
        "read_write": volume(VolumeType::ReadWrite),
        "read_only": volume(VolumeType::ReadOnly),
        "backup": volume(VolumeType::Backup),
        "sites": entry.sites.iter().map(site).collect::<Vec<_>>(),
        "locked_for": locks.collect::<Vec<_>>(),
    })
}

fn server_of(session: &Session, site: &Site) -> String {
    address_of(site).map_or_else(|| "unknown".to_owned(), |address| session.hosts.name(address))
}

const KINDS: [(VolumeType, &str); 3] =
    [(VolumeType::ReadWrite, "RWrite"), (VolumeType::ReadOnly, "ROnly"), (VolumeType::Backup, "Backup")];
const OPERATIONS: [(Operations, &str); 5] = [
    (Operations::MOVE, "move"),
    (Operations::RELEASE, "release"),
    (Operations::BACKUP, "backup"),
    (Operations::DELETE, "delete/misc"),
    (Operations::DUMP, "dump/restore"),
];
/// Most volumes of a cell that are listed.
const ENTRIES_MAX: usize = 5_000_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use weft_afs::fid::VolumeId;
    use weft_afs::volume_name::VolumeName;
    use weft_afs::wire::vl::SiteServer;

    use super::*;

    fn entry(flags: &[u32], operations: Operations) -> Entry {
        let site = |flags: &u32| Site {
            server: SiteServer::Address(Ipv4Addr::new(192, 0, 2, 1)),
            partition: 1,
            flags: SiteFlags(*flags),
        };
        Entry {
            name: VolumeName::new(b"pub").expect("a name"),
            sites: flags.iter().map(site).collect(),
            volumes: [Some(VolumeId(536_870_918)), Some(VolumeId(536_870_919)), None],
            clone: Some(VolumeId(536_870_920)),
            operations,
        }
    }

    /// Goal: lines are as scripts read them, and a release under way is told.
    #[test]
    fn entries_are_told_by_line() {
        let told = |flags: &[u32], operations| lines_with(&entry(flags, operations), |_| "fs1".to_owned());
        let wanted = "    RWrite: 536870918     ROnly: 536870919     RClone: 536870920 \n    number of sites -> 2\n       \
            server fs1 partition /vicepb RW Site \n       server fs1 partition /vicepb RO Site ";
        assert_eq!(told(&[4, 2], Operations::default()), wanted);
        assert!(told(&[4, 0x22], Operations::default()).ends_with("RO Site  -- Not released"));
        let mixed = told(&[4, 3, 2], Operations::RELEASE);
        assert!(mixed.contains("RW Site \n") && mixed.contains("RO Site  -- New release\n"), "{mixed}");
        assert!(mixed.contains("RO Site  -- Old release\n    Volume is currently LOCKED  \n"), "{mixed}");
        assert!(mixed.ends_with("    Volume is locked for a release operation"));
    }
}
