//! Where volumes are: what the database servers of a cell say, kept for a while.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_remote::{Call, RemoteError, Result, Source, SourceState};

use crate::abort::{AbortCode, Next};
use crate::cell::CellName;
use crate::cells::{Cells, Known};
use crate::fid::VolumeId;
use crate::rpc::{Failure, Rpc};
use crate::servers::{ServerId, Servers};
use crate::tokens::Token;
use crate::volume_name::VolumeType;
use crate::wire::vl::{Entry, GetAddrsU, GetEntryByNameN, GetEntryByNameU, Site, SiteServer};
use crate::wire::{Call as WireCall, Text, fileserver, pr};

/// The databases of all cells.
pub(crate) struct Vldb {
    rpc: Arc<Rpc>,
    servers: Arc<Servers>,
    volume_time: Duration,
    pub cells: Cells,
}

/// A volume and its copies, as the database has it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub entry: Entry,
    /// Whose the sites are.
    servers: Vec<(Site, ServerId)>,
    asked: Instant,
}

impl Volume {
    /// Whether it or a copy of it has this number.
    fn has_number(&self, digits: &str) -> bool {
        self.entry.volumes.iter().flatten().any(|id| id.to_string() == digits)
    }

    /// Whether the database said so before then.
    pub fn is_of_before(&self, then: Instant) -> bool {
        self.asked < then
    }

    /// The servers of a copy, as far as their addresses are known.
    pub fn servers_of(&self, copy: VolumeType) -> Vec<ServerId> {
        let sites = self.entry.sites_of(copy);
        sites.iter().filter_map(|site| self.servers.iter().find(|(of, _)| of == site)).map(|(_, id)| *id).collect()
    }
}

impl Vldb {
    pub fn new(rpc: Arc<Rpc>, servers: Arc<Servers>, cells: Cells, volume_time: Duration) -> Vldb {
        Vldb { rpc, servers, volume_time, cells }
    }

    /// What is known of a volume, by its number.
    pub async fn by_id(&self, call: &Call, cell: &CellName, volume: VolumeId) -> Result<Arc<Volume>> {
        self.find(call, cell, &volume.to_string()).await
    }

    /// What is known of a volume, by its name or its number in digits.
    ///
    /// # Errors
    /// `NotFound` when there is no such cell or volume; whatever keeps its database from answering.
    pub async fn find(&self, call: &Call, cell: &CellName, asked: &str) -> Result<Arc<Volume>> {
        let known = self.cells.known(call, cell).await?;
        let held = known.volumes.lock().get(asked).cloned();
        match held {
            Some(volume) if volume.asked.elapsed() < self.volume_time => Ok(volume),
            _ => self.ask(call, cell, asked).await,
        }
    }

    /// Asks the database, whatever it said before.
    ///
    /// # Errors
    /// As of [`Vldb::find`].
    pub async fn ask(&self, call: &Call, cell: &CellName, asked: &str) -> Result<Arc<Volume>> {
        let known = &*self.cells.known(call, cell).await?;
        let what = format!("volume {asked} of {cell}");
        let name = || Text(asked.as_bytes().to_vec());
        let entry = match self.query(call, (known, None), &what, &GetEntryByNameU { volume: name() }).await {
            Err(Failure::Aborted(code)) if code.next() == Next::OlderCall => {
                self.query(call, (known, None), &what, &GetEntryByNameN { volume: name() }).await.map(|entry| entry.0)
            }
            outcome => outcome,
        };
        let entry = entry.map_err(|failure| failure.error(&what));
        if let Err(RemoteError::NotFound { .. }) = &entry {
            known.volumes.lock().retain(|name, volume| name != asked && !volume.has_number(asked));
        }
        let entry = entry?;
        let mut servers = Vec::new();
        for site in &entry.sites {
            match self.server_of(call, known, site).await {
                Ok(id) => servers.push((*site, id)),
                // The other sites may do.
                Err(error) => tracing::warn!(%error, %cell, volume = asked, "a site of the volume is not known"),
            }
        }
        let volume = Arc::new(Volume { entry, servers, asked: Instant::now() });
        let mut volumes = known.volumes.lock();
        if volumes.len() >= VOLUMES_MAX {
            volumes.clear();
        }
        for id in volume.entry.volumes.iter().flatten() {
            volumes.insert(id.to_string(), volume.clone());
        }
        volumes.insert(asked.to_owned(), volume.clone());
        Ok(volume)
    }

    /// Whether a volume is known by this name or number, and nothing was said against it since.
    pub fn has(&self, cell: &CellName, asked: &str) -> bool {
        self.cells.at_hand(cell).is_some_and(|known| known.volumes.lock().contains_key(asked))
    }

    /// A cell none of whose databases answers, as the contract tells of sources; `None` for one that has one that does, or of
    /// which nothing was asked.
    pub fn silent(&self, cell: &CellName) -> Option<Source> {
        let known = self.cells.at_hand(cell)?;
        let silent: Option<Vec<_>> = known.servers().into_iter().map(|at| self.rpc.silences.shown(at)).collect();
        let last_error = silent?.into_iter().max_by_key(|(since, _)| *since)?;
        Some(Source {
            name: cell.to_string(),
            state: SourceState::Disconnected,
            since: last_error.0,
            last_contact: None,
            last_error: Some(last_error),
            requests: 0,
            received_bytes: 0,
        })
    }

    /// What is known of a volume did not help: the next question about it goes to the database, unless it was asked lately.
    pub fn doubt(&self, cell: &CellName, volume: VolumeId) {
        let Some(known) = self.cells.at_hand(cell) else { return };
        let (mut volumes, name) = (known.volumes.lock(), volume.to_string());
        if volumes.get(&name).is_some_and(|held| held.asked.elapsed() >= DOUBT_PAUSE) {
            volumes.remove(&name);
        }
    }

    /// The server of a site, with its addresses known.
    async fn server_of(&self, call: &Call, known: &Known, site: &Site) -> Result<ServerId> {
        let (uuid, unique) = match site.server {
            SiteServer::Address(address) => {
                let (id, at) = (ServerId::Address(address.into()), SocketAddr::from((address, fileserver::PORT)));
                self.servers.learn(&known.name, id, None, &[at]);
                return Ok(id);
            }
            SiteServer::Uuid { uuid, unique } => (uuid, unique),
        };
        let id = ServerId::Uuid(uuid);
        if self.servers.knows(id, Some(unique)) {
            return Ok(id);
        }
        let what = format!("the addresses of file server {uuid} of {}", known.name);
        let told = self
            .query(call, (known, None), &what, &GetAddrsU::Of(uuid))
            .await
            .map_err(|failure| failure.error(&what))?;
        let usable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified() && !address.is_multicast();
        let addresses = told.addresses.into_iter().map(IpAddr::from).filter(usable);
        let addresses: Vec<SocketAddr> = addresses.map(|address| (address, fileserver::PORT).into()).collect();
        self.servers.learn(&known.name, id, Some(unique), &addresses);
        Ok(id)
    }

    /// Has what is known of volumes asked for again; of one cell, or of all.
    pub fn forget(&self, cell: Option<&CellName>) {
        let known = match cell {
            Some(cell) => self.cells.at_hand(cell).into_iter().collect(),
            None => self.cells.all_at_hand(),
        };
        known.iter().for_each(|known| known.volumes.lock().clear());
    }

    /// Puts a question to a database of a cell, as nobody or with a token: that of volumes or that of users, as the call says.
    ///
    /// # Errors
    /// What the servers say, or that none does; `Unaskable` when the cell is not known.
    pub async fn database<C: WireCall>(
        &self,
        call: &Call,
        (cell, token): (&CellName, Option<&Arc<Token>>),
        what: &str,
        question: &C,
    ) -> std::result::Result<C::Reply, Failure> {
        let known = self.cells.known(call, cell).await.map_err(|error| Failure::Unaskable(error.to_string()))?;
        self.query(call, (&known, token), what, question).await
    }

    /// Asks the database servers of a cell one after the other, beginning with the one that answered last.
    async fn query<C: WireCall>(
        &self,
        call: &Call,
        (known, token): (&Known, Option<&Arc<Token>>),
        what: &str,
        question: &C,
    ) -> std::result::Result<C::Reply, Failure> {
        let mut last = Failure::Silent(format!("{}: no database server of this cell is known", known.name));
        for server in known.servers() {
            // The protection database is on the same machines.
            let at = if C::SERVICE == pr::SERVICE { SocketAddr::new(server.ip(), pr::PORT) } else { server };
            match self.rpc.send(call, (at, token), question, &mut std::iter::empty()).await {
                Ok(reply) => {
                    *known.last.lock() = Some(server);
                    return Ok(reply);
                }
                Err(Failure::Aborted(code)) if !goes_on(code) => return Err(Failure::Aborted(code)),
                Err(failure) => {
                    tracing::debug!(%server, %failure, what, "a database server did not answer the question");
                    last = failure;
                }
            }
        }
        Err(last)
    }
}

/// Whether another database server may say something else.
fn goes_on(code: AbortCode) -> bool {
    matches!(code.next(), Next::NextSite | Next::NextAddress | Next::Reconnect | Next::Wait)
}

/// How often the database is asked about a volume that cannot be reached.
const DOUBT_PAUSE: Duration = Duration::from_secs(30);
/// Volumes of a cell that are remembered.
const VOLUMES_MAX: usize = 10_000;
