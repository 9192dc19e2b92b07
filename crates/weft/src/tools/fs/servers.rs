//! Whether servers answer: each is called, a few at a time.

use std::net::SocketAddr;

use futures_util::StreamExt;
use serde_json::json;
use weft_afs::cell::Cell;
use weft_afs::wire::vl::{Addresses, GetAddrs, GetAddrsU, ProbeServer, SERVERS_MAX};
use weft_afs::wire::{fileserver, vl};
use weft_remote::RemoteError;

use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};

/// `fs checkservers`.
pub fn check(session: &Session, arguments: &Arguments) -> Outcome {
    let cells = match arguments.has("all") {
        true => session.cells().to_vec(),
        false => vec![session.chosen_cell(arguments.text("cell")?)?],
    };
    let mut silent = Vec::new();
    let mut asked = 0;
    for cell in &cells {
        let databases: Vec<SocketAddr> = cell.servers_at(vl::PORT).collect();
        let client = session.client()?;
        let calls = futures_util::stream::iter(databases.iter().copied());
        let calls = calls.map(async |at| (at, client.runs(at, &ProbeServer {}).await)).buffer_unordered(AT_ONCE);
        let found: Vec<(SocketAddr, bool)> = session.wait(calls.collect());
        let some_run = found.iter().any(|(_, runs)| *runs);
        asked += found.len();
        silent.extend(found.into_iter().filter(|(_, runs)| !runs).map(|(at, _)| at));
        if some_run {
            let files = file_servers(session, cell)?;
            asked += files.len();
            files.iter().for_each(|server| client.learn(&cell.name, server));
            silent.extend(silent_of(session, &files)?);
        }
    }
    let mut hosts: Vec<String> = Vec::new();
    for at in &silent {
        if let std::net::IpAddr::V4(address) = at.ip() {
            hosts.push(session.hosts.name(address));
        }
    }
    hosts.sort();
    hosts.dedup();
    let listed: String = hosts.iter().map(|host| format!(" {host}")).collect();
    let text = match hosts.is_empty() {
        true => "All servers are running.".to_owned(),
        false => format!("These servers unavailable due to network or server problems: {listed}."),
    };
    session.tell_all(Told::new(text, json!({ "asked": asked, "unavailable": hosts })));
    match hosts.len() {
        0 => Ok(()),
        count => Err(Failure::new(Exit::Unreachable, format!("{count} servers do not answer"))),
    }
}

/// The file servers of a cell, by all their addresses.
///
/// # Errors
/// What keeps its database from answering.
pub fn file_servers(session: &Session, cell: &Cell) -> Outcome<Vec<Addresses>> {
    let client = session.client()?;
    let what = format!("the file servers of {}", cell.name);
    let all = GetAddrs { handle: 0, spare: 0 };
    let count = session.answer(&cell.name, client.database(&cell.name, &what, &all))?.servers;
    let mut servers = Vec::new();
    for place in 1..=SERVERS_MAX {
        if servers.len() >= usize::try_from(count).unwrap_or(usize::MAX) {
            break;
        }
        match session.wait(client.database(&cell.name, &what, &GetAddrsU::At(place))) {
            Ok(addresses) => servers.push(addresses),
            // A place that nobody has; or the end of them.
            Err(RemoteError::NotFound { .. }) => {}
            Err(RemoteError::Invalid { .. }) => break,
            Err(error) => return Err(session.failure(&cell.name, &error)),
        }
    }
    Ok(servers)
}

/// The first addresses of those that answer at none.
fn silent_of(session: &Session, servers: &[Addresses]) -> Outcome<Vec<SocketAddr>> {
    let client = session.client()?;
    let calls = futures_util::stream::iter(servers).map(async |server| {
        let at = server.addresses.iter().map(|address| SocketAddr::from((*address, fileserver::PORT)));
        for at in at.clone() {
            if client.runs(at, &fileserver::GetTime {}).await {
                return None;
            }
        }
        at.clone().next()
    });
    Ok(session.wait(calls.buffer_unordered(AT_ONCE).filter_map(async |silent| silent).collect()))
}

/// Servers that are called at once.
const AT_ONCE: usize = 32;
