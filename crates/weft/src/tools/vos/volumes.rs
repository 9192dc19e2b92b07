//! Volumes on their servers.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use weft_afs::cell::Cell;
use weft_afs::fid::VolumeId;
use weft_afs::volume_name::{VolumeName, VolumeType};
use weft_afs::wire::vl::{Entry, Site, SiteFlags, SiteServer};
use weft_afs::wire::volser::{self, ListOneVolume, ListVolumes, XListOneVolume, XListVolumes};

use super::display::{Shown, Totals, without_counts};
use super::{entries, partition, servers};
use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};
use crate::tools::times;

/// `vos examine`.
pub fn examine(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let asked = arguments.needed("id")?;
    let (extended, format) = (arguments.has("extended"), arguments.has("format"));
    only_one(extended, format)?;
    let entry = entries::of_volume(session, &cell, asked)?;
    let (kind, volume) = copy_of(&entry, asked)?;
    let zone = times::zone();
    let (mut blocks, mut fields) = (Vec::new(), Vec::new());
    let mut failure = None;
    for (address, site) in sites(&entry, kind) {
        match one(session, &cell, (address, site.partition), volume, extended) {
            Ok(shown) => {
                blocks.push(match format {
                    // Each with its entry, of which it is not said that it is locked.
                    true => format!("{}\n{}", shown.format(&zone), entries::named_sites(session, &entry)),
                    false => shown.block(&zone),
                });
                fields.push(shown.fields());
            }
            Err(error) if failure.is_none() => failure = Some(error),
            Err(error) => session.warn(&error.sentence),
        }
    }
    if blocks.is_empty() {
        session.warn("Dump only information from VLDB");
        blocks.push(format!("\n{} ", entry.name));
    }
    if !format || fields.is_empty() {
        blocks.push(entries::lines(session, &entry));
    }
    let fields = json!({ "cell": cell.name.as_str(), "volumes": fields, "entry": entries::fields(session, &entry) });
    session.tell_all(Told::new(blocks.join("\n"), fields));
    failure.map_or(Ok(()), Err)
}

/// `vos listvol`.
pub fn list(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let server = arguments.needed("server")?;
    let address = session.hosts.address(server)?;
    let (fast, quiet) = (arguments.has("fast"), arguments.has("quiet"));
    let (extended, format) = (arguments.has("extended"), arguments.has("format"));
    only_one(extended, format)?;
    only_one(extended, fast)?;
    let long = arguments.has("long") || extended;
    let partitions = servers::partitions_of(session, &cell, address, arguments.text("partition")?)?;
    let zone = times::zone();
    session.each(&partitions, |at| {
        let mut all = all_of(session, &cell, (address, *at), (extended, !fast))?;
        all.sort_by(|one, other| match fast {
            true => one.info.volume.cmp(&other.info.volume),
            false => one.info.name.as_bytes().cmp(other.info.name.as_bytes()),
        });
        let name = partition::name(*at);
        let mut lines = Vec::new();
        if !quiet {
            lines.push(format!("Total number of volumes on server {server} partition {name}: {} ", all.len()));
        }
        for shown in &all {
            match shown.is_good() {
                _ if fast => lines.push(format!("{:<10}", shown.info.volume.0)),
                _ if format => lines.push(format!("BEGIN_OF_ENTRY\n{}\nEND_OF_ENTRY\n", shown.format(&zone))),
                true if long => lines.push(shown.block(&zone)),
                true => lines.push(shown.line()),
                false if long => lines.push(String::new()),
                false => {}
            }
        }
        let troubled = all.iter().filter(|shown| !fast && !format && !shown.is_good());
        lines.extend(troubled.map(Shown::trouble));
        let totals = Totals::of(&all);
        if !quiet && !format {
            lines.push(String::new());
            if !fast {
                lines.push(totals_line(totals, extended));
            }
        }
        let fields: Vec<_> = all.iter().map(Shown::fields).collect();
        let Totals { online, offline, busy } = totals;
        let totals = json!({ "online": online, "offline": offline, "busy": busy });
        let fields = json!({ "server": server, "partition": name, "volumes": fields, "totals": totals });
        Ok(Told::new(lines.join("\n"), fields))
    })
}

fn totals_line(Totals { online, offline, busy }: Totals, extended: bool) -> String {
    match extended {
        true => format!("Total volumes: {online} on-line, {offline} off-line, {busy}  busyd\n"),
        false => format!("Total volumes onLine {online} ; Total volumes offLine {offline} ; Total busy {busy}\n"),
    }
}

fn only_one(one: bool, other: bool) -> Outcome {
    match one && other {
        true => Err(Failure::usage("-extended goes neither with -format nor with -fast")),
        false => Ok(()),
    }
}

/// Which copy of a volume a name or number means.
fn copy_of(entry: &Entry, asked: &str) -> Outcome<(VolumeType, VolumeId)> {
    let kind = match asked.parse::<u32>() {
        Ok(number) => entry.kind_of(VolumeId(number)),
        Err(_) => {
            Some(VolumeName::new(asked.as_bytes()).ok().and_then(|name| name.ending()).unwrap_or(VolumeType::ReadWrite))
        }
    };
    let found = kind.and_then(|kind| Some((kind, entry.volume(kind)?)));
    found.ok_or_else(|| Failure::new(Exit::NotFound, format!("Volume {asked} does not exist")))
}

/// Where a copy is. A backup is beside the read-write volume.
fn sites(entry: &Entry, kind: VolumeType) -> Vec<(Ipv4Addr, Site)> {
    let flag = if kind == VolumeType::ReadOnly { SiteFlags::READ_ONLY } else { SiteFlags::READ_WRITE };
    let of_kind = entry.sites.iter().filter(|site| site.flags.has(flag));
    of_kind.filter_map(|site| Some((address_of(site)?, *site))).collect()
}

/// The address of a site's server.
pub fn address_of(site: &Site) -> Option<Ipv4Addr> {
    match site.server {
        SiteServer::Address(address) => Some(address),
        SiteServer::Uuid { .. } => None,
    }
}

fn one(
    session: &Session,
    cell: &Cell,
    (address, partition): (Ipv4Addr, u32),
    volume: VolumeId,
    extended: bool,
) -> Outcome<Shown> {
    let server = session.hosts.name(address);
    let what = format!("volume {volume} on {server}");
    let to = (&cell.name, SocketAddr::from((address, volser::PORT)));
    let client = session.client()?;
    let shown = |info, counts| Shown { info, counts, server: server.clone(), address: address.to_string(), partition };
    let found = match extended {
        true => {
            let question = XListOneVolume { partition, volume };
            let mut all = session.answer(&cell.name, client.server(to, &what, &question))?.0;
            all.pop().map(|counted| shown(without_counts(&counted), Some(counted)))
        }
        false => {
            let question = ListOneVolume { partition, volume };
            session.answer(&cell.name, client.server(to, &what, &question))?.0.pop().map(|info| shown(info, None))
        }
    };
    found.ok_or_else(|| {
        let sentence = format!("Volume does not exist on server {server} as indicated by the VLDB");
        Failure::new(Exit::NotFound, sentence)
    })
}

fn all_of(
    session: &Session,
    cell: &Cell,
    (address, partition): (Ipv4Addr, u32),
    (extended, all): (bool, bool),
) -> Outcome<Vec<Shown>> {
    let server = session.hosts.name(address);
    let what = format!("the volumes of {server} on {}", partition::name(partition));
    let to = (&cell.name, SocketAddr::from((address, volser::PORT)));
    let (client, all) = (session.client()?, i32::from(all));
    let shown = |info, counts| Shown { info, counts, server: server.clone(), address: address.to_string(), partition };
    Ok(match extended {
        true => {
            let question = XListVolumes { partition, all };
            let counted = session.answer(&cell.name, client.server(to, &what, &question))?.0;
            counted.into_iter().map(|counted| shown(without_counts(&counted), Some(counted))).collect()
        }
        false => {
            let question = ListVolumes { partition, all };
            let told = session.answer(&cell.name, client.server(to, &what, &question))?.0;
            told.into_iter().map(|info| shown(info, None)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use weft_afs::wire::vl::Operations;

    use super::*;

    fn entry() -> Entry {
        let site = |last, flags| Site {
            server: SiteServer::Address(Ipv4Addr::new(192, 0, 2, last)),
            partition: 0,
            flags: SiteFlags(flags),
        };
        Entry {
            name: VolumeName::new(b"pub").expect("a name"),
            sites: vec![site(1, 4), site(1, 2), site(2, 2)],
            volumes: [Some(VolumeId(7)), Some(VolumeId(8)), None],
            clone: None,
            operations: Operations::default(),
        }
    }

    #[test]
    fn a_name_or_a_number_means_a_copy() {
        let copy = |asked| copy_of(&entry(), asked).map_err(|failure| failure.exit);
        assert_eq!(copy("pub"), Ok((VolumeType::ReadWrite, VolumeId(7))));
        assert_eq!(copy("pub.readonly"), Ok((VolumeType::ReadOnly, VolumeId(8))));
        assert_eq!(copy("8"), Ok((VolumeType::ReadOnly, VolumeId(8))));
        assert_eq!(copy("pub.backup"), Err(Exit::NotFound));
        assert_eq!(copy("9"), Err(Exit::NotFound));
        assert_eq!(sites(&entry(), VolumeType::ReadOnly).len(), 2);
        assert_eq!(sites(&entry(), VolumeType::Backup).len(), 1);
    }
}
