//! Volume servers and file servers themselves.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tz::TimeZone;
use weft_afs::cell::Cell;
use weft_afs::uuid::Uuid;
use weft_afs::wire::Text;
use weft_afs::wire::vl::{Addresses, GetAddrsU};
use weft_afs::wire::volser::{self, Monitor, PartitionInfo64, Transaction, XListPartitions};
use weft_remote::RemoteError;

use super::partition;
use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::fs::file_servers;
use crate::tools::session::{Session, Told};
use crate::tools::{server_text, times};

/// `vos partinfo`.
pub fn partitions(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let server = arguments.needed("server")?;
    let address = session.hosts.address(server)?;
    let to = (&cell.name, SocketAddr::from((address, volser::PORT)));
    let (mut free_kib, mut total_kib) = (0i64, 0i64);
    let partitions = partitions_of(session, &cell, address, arguments.text("partition")?)?;
    session.each(&partitions, |at| {
        let name = partition::name(*at);
        let question = PartitionInfo64 { name: Text(name.clone().into_bytes()) };
        let what = format!("partition {name} of {server}");
        let info = session.answer(&cell.name, session.client()?.server(to, &what, &question))?;
        let (free, total) = (info.free_kib, info.total_kib);
        free_kib = free_kib.saturating_add(free);
        total_kib = total_kib.saturating_add(total);
        let text = format!("Free space on partition {name}: {free} K blocks out of total {total}");
        Ok(Told::new(text, json!({ "partition": name, "free_kib": free, "total_kib": total })))
    })?;
    if arguments.has("summary") {
        let (free, total) = (units(free_kib), units(total_kib));
        session.heading(format!("Summary: {free} free out of {total} on {} partitions", partitions.len()));
    }
    Ok(())
}

/// The partitions of a server, or the one that is named if the server has it.
///
/// # Errors
/// `Usage` for what is no partition, `NotFound` for one that the server does not have; what the server says.
pub fn partitions_of(session: &Session, cell: &Cell, address: Ipv4Addr, named: Option<&str>) -> Outcome<Vec<u32>> {
    let wanted = named.map(partition::read).transpose()?;
    let to = (&cell.name, SocketAddr::from((address, volser::PORT)));
    let what = format!("the partitions of {}", session.hosts.name(address));
    let mut all = session.answer(&cell.name, session.client()?.server(to, &what, &XListPartitions {}))?.0;
    all.sort_unstable();
    match wanted {
        None => Ok(all),
        Some(wanted) if all.contains(&wanted) => Ok(vec![wanted]),
        Some(wanted) => {
            let sentence = format!("partition {} does not exist on the server", partition::name(wanted));
            Err(Failure::new(Exit::NotFound, sentence))
        }
    }
}

/// `vos status`.
pub fn status(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let server = arguments.needed("server")?;
    let to = (&cell.name, SocketAddr::from((session.hosts.address(server)?, volser::PORT)));
    let what = format!("what {server} does");
    let all = session.answer(&cell.name, session.client()?.server(to, &what, &Monitor {}))?.0;
    match all.len() {
        0 => session.heading(format!("No active transactions on {server}")),
        count => session.heading(format!("Total transactions: {count}")),
    }
    let zone = times::zone();
    session
        .each(&all, |transaction| Ok(Told::new(transaction_lines(transaction, &zone), transaction_fields(transaction))))
}

/// `vos listaddrs`.
pub fn addresses(session: &Session, arguments: &Arguments) -> Outcome {
    let cell = session.chosen_cell(arguments.text("cell")?)?;
    let (uuid, host) = (arguments.text("uuid")?, arguments.text("host")?);
    let one = match (uuid, host) {
        (Some(_), Some(_)) => return Err(Failure::usage("-uuid and -host do not go together")),
        (Some(uuid), None) => {
            Some(GetAddrsU::Of(uuid.parse::<Uuid>().map_err(|error| Failure::usage(format!("-uuid {uuid}: {error}")))?))
        }
        (None, Some(host)) => Some(GetAddrsU::With(session.hosts.address(host)?)),
        (None, None) => None,
    };
    let servers = match one {
        Some(question) => {
            let what = format!("the file server {}", uuid.or(host).unwrap_or_default());
            match session.wait(session.client()?.database(&cell.name, &what, &question)) {
                Ok(server) => vec![server],
                Err(RemoteError::NotFound { .. }) => {
                    let sentence = format!("{what}: the VLDB of {} has no such server", cell.name);
                    return Err(Failure::new(Exit::NotFound, sentence));
                }
                Err(error) => return Err(session.failure(&cell.name, &error)),
            }
        }
        None => file_servers(session, &cell)?,
    };
    let print_uuid = arguments.has("printuuid");
    session.each(&servers, |Addresses { uuid, addresses, .. }| {
        let hosts: Vec<String> = addresses.iter().map(|address| session.hosts.name(*address)).collect();
        let text = match print_uuid {
            true => format!("UUID: {}\n{}\n", shown(*uuid), hosts.join("\n")),
            false => hosts.join("\n"),
        };
        let addresses: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
        Ok(Told::new(text, json!({ "uuid": shown(*uuid), "hosts": hosts, "addresses": addresses })))
    })
}

/// As OpenAFS writes a UUID: its fourth group is two.
fn shown(uuid: Uuid) -> String {
    let mut text = uuid.to_string();
    text.insert(FOURTH_GROUP + 2, '-');
    text
}

fn transaction_lines(transaction: &Transaction, zone: &TimeZone) -> String {
    let Transaction { id, began_s, active_s, code, volume, .. } = transaction;
    let mut lines = vec![
        LINE.to_owned(),
        format!("transaction: {id}  created: {}", times::shown(*began_s, zone)),
        format!("lastActiveTime: {}", times::shown(*active_s, zone)),
    ];
    if *code != 0 {
        lines.push(format!("returnCode: {code}"));
    }
    let words = |flags: i32, known: &[(i32, &str)]| -> String {
        known.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| format!("{word} ")).collect()
    };
    if transaction.attached != 0 {
        lines.push(format!("attachFlags:  {}", words(transaction.attached, ATTACHED)));
    }
    if transaction.volume_flags.0 != 0 {
        lines.push(format!("volumeStatus: {}", words(transaction.volume_flags.0.into(), VOLUME)));
    }
    if transaction.flags.0 != 0 {
        lines.push("transactionFlags: delete".to_owned());
    }
    let procedure = server_text(transaction.procedure.as_bytes());
    let partition = partition::name(transaction.partition);
    lines.push(format!("volume: {volume}  partition: {partition}  procedure: {procedure}"));
    if transaction.has_call != 0 {
        let Transaction { next_read, next_sent, received_s, sent_s, .. } = transaction;
        lines.push(format!("packetRead: {next_read}  lastReceiveTime: {}", times::shown(*received_s, zone)));
        lines.push(format!("packetSend: {next_sent}  lastSendTime: {}", times::shown(*sent_s, zone)));
    }
    lines.push(format!("{LINE}\n"));
    lines.join("\n")
}

fn transaction_fields(transaction: &Transaction) -> Value {
    json!({
        "transaction": transaction.id,
        "volume": transaction.volume.0,
        "partition": partition::name(transaction.partition),
        "procedure": server_text(transaction.procedure.as_bytes()),
        "created_unix_s": transaction.began_s,
        "active_unix_s": transaction.active_s,
        "code": transaction.code,
    })
}

/// Kilobytes in whole units: the largest of which there are at least four.
fn units(kib: i64) -> String {
    let kib = u64::try_from(kib).unwrap_or(0);
    // Below so many bits a unit counts; by so many the number is cut.
    let of_size = |(bits, _, _): &&(u32, u32, &str)| kib >> bits == 0;
    let (_, cut, unit) = UNITS.iter().find(of_size).unwrap_or(&(64, 40, "PB"));
    format!("{} {unit}", kib >> cut)
}

const UNITS: [(u32, u32, &str); 4] = [(32, 0, "KB"), (42, 10, "MB"), (52, 20, "GB"), (62, 30, "TB")];
/// Where the fourth group of a UUID's text begins.
const FOURTH_GROUP: usize = 19;
const LINE: &str = "--------------------------------------";
const ATTACHED: &[(i32, &str)] =
    &[(1, "offline"), (2, "busy"), (8, "readonly"), (0x10, "create"), (0x1000, "create volid")];
const VOLUME: &[(i32, &str)] = &[(1, "deleteOnSalvage"), (2, "outOfService"), (4, "deleted")];

#[cfg(test)]
mod tests {
    use weft_afs::fid::VolumeId;
    use weft_afs::wire::status::Char;
    use weft_afs::wire::volser::Chars;

    use super::*;

    #[test]
    fn what_a_server_does_is_told_by_line() {
        let transaction = Transaction {
            id: 7,
            active_s: 60,
            began_s: 0,
            code: 0,
            volume: VolumeId(536_870_918),
            partition: 1,
            attached: 0x12,
            volume_flags: Char(4),
            flags: Char(0),
            procedure: Chars::new(b"Dump"),
            has_call: 0,
            next_read: 1,
            next_sent: 2,
            sent_s: 3,
            received_s: 4,
        };
        let lines = transaction_lines(&transaction, &TimeZone::utc());
        let wanted = "--------------------------------------\ntransaction: 7  created: Thu Jan  1 00:00:00 1970\n\
            lastActiveTime: Thu Jan  1 00:01:00 1970\nattachFlags:  busy create \nvolumeStatus: deleted \n\
            volume: 536870918  partition: /vicepb  procedure: Dump\n--------------------------------------\n";
        assert_eq!(lines, wanted);
        let with_call = transaction_lines(&Transaction { has_call: 1, ..transaction }, &TimeZone::utc());
        assert!(with_call.contains("packetRead: 1  lastReceiveTime: Thu Jan  1 00:00:04 1970\n"));
    }

    #[test]
    fn uuids_are_as_openafs_writes_them() {
        let uuid = "8091a2b3-c4d5-e6f7-0899-0102030405ff".parse().expect("a UUID");
        assert_eq!(shown(uuid), "8091a2b3-c4d5-e6f7-08-99-0102030405ff");
    }

    #[test]
    fn sums_are_in_whole_units() {
        assert_eq!((units(-1), units(4096), units(5 << 30)), ("0 KB".into(), "4096 KB".into(), "5242880 MB".into()));
        assert_eq!((units(1 << 42), units(i64::MAX)), ("4194304 GB".into(), "8388607 PB".into()));
    }
}
