//! `weft login`: tickets for cells of AFS.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};
use weft_afs::cell::CellName;
use weft_afs::{Kvno, Level, LoggedIn, LoginError, LoginOrder, NoTicket, dns_knows, level_worth, log_in, utc};

use super::status::show_time;
use crate::cells::{Cells, this_cell};
use crate::config::{AfsSettings, Environment, Given, MountOptions, Source, resolve};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{complain, say};

/// What `weft login` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoginArgs {
    /// Cells of AFS; the own one of this machine (ThisCell) unless said
    #[arg(value_name = "CELL")]
    pub cells: Vec<String>,
    /// The Kerberos realm of the cells, where it is neither yours nor named as the cell
    #[arg(long, value_name = "REALM")]
    pub realm: Option<String>,
    /// Read this configuration file alone
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Logs in to each cell. The first that fails decides how it ends; the others are tried all the same.
///
/// # Errors
/// Usage: no cell, a cache of another kind. `NotFound`: a cell that is not known, here or to Kerberos. `Denied`: without a
/// ticket of Kerberos. `Unreachable`: no answer in time.
pub fn run(args: &LoginArgs, json: bool) -> Outcome {
    let given = Given {
        source: Source::Everything,
        mountpoint: PathBuf::from("/"),
        cache: None,
        config: args.config.clone(),
        options: MountOptions::default(),
    };
    let resolved = resolve(given, &Environment::of_this_process()).map_err(Failure::usage)?;
    let cells = Cells::read(&resolved.afs).map_err(|error| Failure::failed(format!("{error:#}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let one =
        |cell: &CellName| runtime.block_on(login(cell, args.realm.as_deref(), &cells, &resolved.afs, &resolved.kvno));
    let (mut done, mut first_failure) = (Vec::new(), None);
    for cell in named(args, &cells, &resolved.afs)? {
        match one(&cell) {
            Ok(logged_in) => done.push(logged_in),
            Err(failure) if first_failure.is_none() => first_failure = Some(failure),
            Err(failure) => complain!("weft: {}", failure.sentence),
        }
    }
    let level = resolved.afs.level.unwrap_or(Level::Crypt);
    if json && !done.is_empty() {
        let told: Vec<Value> = done.iter().map(|(cell, found)| to_json(cell, found, level)).collect();
        say!("{}", json!({ "logins": told }));
    }
    if !json {
        done.iter().for_each(|(cell, found)| say!("{}", words(cell, found, level)));
        if let Some(elsewhere) = done.iter().find_map(|(_, found)| elsewhere(found)) {
            say!("{elsewhere}");
        }
    }
    first_failure.map_or(Ok(()), Err)
}

/// The cells that are meant.
fn named(args: &LoginArgs, cells: &Cells, afs: &AfsSettings) -> Outcome<Vec<CellName>> {
    let read = |text: &String| {
        let name = CellName::new(text.as_bytes()).map_err(|why| Failure::usage(format!("`{text}`: {why}")))?;
        Ok(cells.unaliased(name))
    };
    if !args.cells.is_empty() {
        return args.cells.iter().map(read).collect();
    }
    match this_cell(afs) {
        Ok(Some(cell)) => Ok(vec![cell]),
        Ok(None) => {
            let dir = cells.cell_server_db().with_file_name("ThisCell");
            let dir = dir.display();
            Err(Failure::usage(format!(
                "{dir} is not there, which would name the own cell: say which, `weft login CELL`"
            )))
        }
        Err(error) => Err(Failure::failed(format!("{error:#}"))),
    }
}

async fn login(
    cell: &CellName,
    realm: Option<&str>,
    cells: &Cells,
    afs: &AfsSettings,
    kvno: &Kvno,
) -> Outcome<(CellName, LoggedIn)> {
    if cells.known.get(cell).is_none() {
        let in_dns = match afs.resolver() {
            Some(resolver) => dns_knows(&resolver, cell, PATIENCE).await,
            None => Ok(false),
        };
        let file = cells.cell_server_db();
        let file = file.display();
        match in_dns {
            Ok(true) => {}
            Ok(false) => {
                let sentence = format!("{cell}: neither {file} nor DNS knows such a cell: mind how it is written");
                return Err(Failure::new(Exit::NotFound, sentence));
            }
            Err(why) => {
                let sentence =
                    format!("{cell}: not in {file}, and DNS does not say whether there is such a cell: {why}");
                return Err(Failure::new(Exit::Unreachable, sentence));
            }
        }
    }
    let order = LoginOrder {
        cell: cell.clone(),
        realm: realm.map(str::to_owned),
        ccache: afs.ccache.clone(),
        level: afs.level.unwrap_or(Level::Crypt),
        kvno: kvno.clone(),
        patience: PATIENCE,
    };
    log_in(&order).await.map(|found| (cell.clone(), found)).map_err(|error| Failure::new(exit_of(&error), error))
}

fn exit_of(error: &LoginError) -> Exit {
    match error {
        LoginError::CacheName(_) | LoginError::Realm { .. } => Exit::Usage,
        LoginError::NoCache { .. }
        | LoginError::NoGranter { .. }
        | LoginError::Ended { .. }
        | LoginError::NotBegun { .. } => Exit::Denied,
        LoginError::Unknown { .. } => Exit::NotFound,
        LoginError::NoTicket(NoTicket::Late { .. }) => Exit::Unreachable,
        LoginError::NoTicket(_) | LoginError::BadCache(_) | LoginError::Useless { .. } => Exit::Failed,
    }
}

/// `example.org: alice@EXAMPLE.ORG until 2026-11-22 05:46 UTC (9 h 59 min); level crypt: ...`
fn words(cell: &CellName, found: &LoggedIn, level: Level) -> String {
    let left = found.ends.duration_since(SystemTime::now()).unwrap_or_default().as_secs();
    let (client, ends) = (&found.client, utc(found.ends));
    format!("{cell}: {client} until {ends} ({}); level {}", show_time(left), level_worth(level))
}

fn to_json(cell: &CellName, found: &LoggedIn, level: Level) -> Value {
    let ends = found.ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    json!({
        "cell": cell.as_str(),
        "client": found.client,
        "service": found.service,
        "cache": found.cache,
        "ends_unix_s": ends,
        "protection": level_worth(level),
    })
}

/// What is to be known where the ticket is not where root's mounts look.
fn elsewhere(found: &LoggedIn) -> Option<String> {
    let usual = format!("FILE:/tmp/krb5cc_{}", rustix::process::geteuid().as_raw());
    (found.cache != usual)
        .then(|| format!("It is in {}; mounts of another user's look for yours in {usual} alone.", found.cache))
}

const EXAMPLES: &str = "\
Examples:
  kinit && weft login                          the own cell of this machine
  weft login example.org grand.central.org     others
  weft login --realm UNI.EXAMPLE physics.uni.example

Kerberos's program kvno gets the ticket afs/CELL of your realm, else of the realm that is named as
the cell, else afs of the latter. It is put into the cache that $KRB5CCNAME or [afs] ccache names,
else into /tmp/krb5cc_UID; mounts look there once a second. `kdestroy` logs out.";
/// How long Kerberos may take for one cell.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_one_line() {
        let cell = CellName::new(b"example.org").expect("a name");
        let found = LoggedIn {
            cache: "FILE:/x".to_owned(),
            client: "alice@EXAMPLE.ORG".to_owned(),
            service: "afs/example.org@EXAMPLE.ORG".to_owned(),
            ends: SystemTime::now() + Duration::from_secs(7230),
        };
        let line = words(&cell, &found, Level::Crypt);
        assert!(line.starts_with("example.org: alice@EXAMPLE.ORG until 20"), "{line}");
        assert!(line.contains(" UTC (2 h 0 min); level crypt: ") && line.contains("obsolete"), "{line}");
        assert!(elsewhere(&found).is_some_and(|told| told.contains("FILE:/tmp/krb5cc_")));
    }
}
