//! AFS for a program that asks something and ends: calls in types, made as the user who runs it, over a socket of its own.
//!
//! It is a tree ([`Afs`]) that nobody looks at: the same servers, tokens and mount points. What servers promise to it while
//! it lives is given up at its end ([`Client::close`]), so that they do not call somebody who is gone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, Caller, MemoryNotes, Notes, RemoteError, Result};

use crate::abort::Next;
use crate::afs::{Afs, AfsError, Shared};
use crate::cell::{Cell, CellName, CellServer, ServerRole};
use crate::doors::mount_of_cell;
use crate::fid::{Fid, VolumeId};
use crate::identity::{Identity, Spot};
use crate::options::AfsOptions;
use crate::releases::Release;
use crate::rpc::Failure;
use crate::servers::ServerId;
use crate::tokens::Token;
use crate::wire::fileserver;
use crate::wire::vl::{Addresses, Entry, GetEntryByNameN};
use crate::wire::{Call as WireCall, Text};

/// Asks the servers of AFS.
pub struct Client {
    afs: Arc<Afs>,
    who: As,
    /// The cells that are written down.
    written: Vec<Cell>,
    /// File servers that were asked by their address. Held for one look or one change.
    asked: Mutex<Vec<SocketAddr>>,
}

/// As whom databases and volume servers are asked. File servers are always asked as the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// As the user of this process, if the credential cache has a ticket for the cell.
    TheUser,
    /// As anybody.
    Anybody,
}

/// A file, directory, link or mount point in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The cell.
    pub cell: CellName,
    /// What it is there.
    pub fid: Fid,
}

impl Client {
    /// A client with a socket of its own. Within a runtime. Asks nobody.
    ///
    /// # Errors
    /// As of [`Afs::open`].
    pub fn open(options: AfsOptions, who: As) -> std::result::Result<Client, AfsError> {
        let written = options.cells.clone();
        let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
        let afs = Afs::open(options, &notes)?;
        Ok(Client { afs, who, written, asked: Mutex::default() })
    }

    /// A cell of this name or alias, as it is written down, else as DNS has it.
    ///
    /// # Errors
    /// `Unreachable` when DNS does not answer.
    pub async fn cell(&self, name: &str) -> Result<Option<Cell>> {
        let Some(name) = self.shared().cell(name.as_bytes()) else { return Ok(None) };
        let written = self.written.iter().find(|cell| cell.name == name);
        if let Some(written) = written.filter(|cell| !cell.servers.is_empty()) {
            return Ok(Some(written.clone()));
        }
        let (known, _) = self.shared().files.vldb.cells.find(&call(), &name).await?;
        let server = |at: SocketAddr| match at.ip() {
            IpAddr::V4(address) => Some(CellServer { address, host: String::new(), role: ServerRole::Voter }),
            IpAddr::V6(_) => None,
        };
        Ok(known.map(|known| {
            let servers = known.servers().into_iter().filter_map(server).collect();
            Cell { name, linked: None, comment: String::new(), servers }
        }))
    }

    /// As whom the cell was asked, in words.
    #[must_use]
    pub fn asked_as(&self, cell: &CellName) -> String {
        self.shared().files.logins.shown(cell)
    }

    /// The root directory that the name of a cell leads to; `writable`: that of the read-write volume.
    ///
    /// # Errors
    /// What keeps the volume from being found.
    pub async fn root_of(&self, cell: &CellName, writable: bool) -> Result<Place> {
        self.through(&Identity::Cell { cell: cell.clone(), writable }).await
    }

    /// The root directory that a mount point leads to.
    ///
    /// # Errors
    /// `NotADirectory` when it is no mount point; what keeps it from being read or the volume from being found.
    pub async fn target_of(&self, mount_point: &Place) -> Result<Place> {
        self.through(&Identity::Mount(spot(mount_point))).await
    }

    /// What a mount point says.
    ///
    /// # Errors
    /// As of [`Client::target_of`].
    pub async fn mount_point(&self, place: &Place) -> Result<String> {
        Ok(self.shared().mount(&call(), &spot(place)).await?.to_string())
    }

    /// What the name of a cell is a mount point for.
    #[must_use]
    pub fn mount_of_cell(writable: bool) -> String {
        mount_of_cell(writable).to_string()
    }

    /// Puts a question to a file server that has the volume.
    ///
    /// # Errors
    /// What the servers say, or that none does.
    pub async fn ask<C: WireCall + Sync>(&self, place: &Place, what: &str, question: &C) -> Result<C::Reply> {
        let volume = (&place.cell, place.fid.volume);
        Ok(self.shared().files.ask(&call(), volume, what, question).await?.0)
    }

    /// Has the file server of a volume change something.
    ///
    /// # Errors
    /// What the server says; after `Unreachable` and `TimedOut` it may have been made.
    pub async fn change<C: WireCall + Sync>(&self, place: &Place, what: &str, question: &C) -> Result<C::Reply> {
        let volume = (&place.cell, place.fid.volume);
        let nothing_more = || -> Box<dyn Iterator<Item = bytes::Bytes> + Send> { Box::new(std::iter::empty()) };
        Ok(self.shared().files.change(&call(), volume, what, (question, |_| Release::Untold), &nothing_more).await?.0)
    }

    /// The same, for servers that do not know the first call.
    ///
    /// # Errors
    /// As of [`Client::change`].
    pub async fn change_or_older<C: WireCall + Sync, O: WireCall<Reply = C::Reply> + Sync>(
        &self,
        place: &Place,
        what: &str,
        (question, older): (&C, &O),
    ) -> Result<C::Reply> {
        match self.change(place, what, question).await {
            Err(RemoteError::Unsupported { .. }) => self.change(place, what, older).await,
            outcome => outcome,
        }
    }

    /// Where a volume is, by its name or its number in digits; sites by one address each.
    ///
    /// # Errors
    /// `NotFound` when the cell has no such volume; what keeps its database from answering.
    pub async fn volume(&self, cell: &CellName, asked: &str) -> Result<Entry> {
        let what = format!("volume {asked} of {cell}");
        Ok(self.database(cell, &what, &GetEntryByNameN { volume: Text(asked.as_bytes().to_vec()) }).await?.0)
    }

    /// Puts a question to a database of a cell, that of volumes or that of users.
    ///
    /// # Errors
    /// What its servers say, or that none does.
    pub async fn database<C: WireCall>(&self, cell: &CellName, what: &str, question: &C) -> Result<C::Reply> {
        let vldb = &self.shared().files.vldb;
        let ask =
            async |token: Option<Arc<Token>>| vldb.database(&call(), (cell, token.as_ref()), what, question).await;
        self.with_token(cell, ask).await.map_err(|failure| failure.error(what))
    }

    /// Puts a question to one server, which is no file server.
    ///
    /// # Errors
    /// What it says, or that it does not.
    pub async fn server<C: WireCall>(
        &self,
        (cell, at): (&CellName, SocketAddr),
        what: &str,
        question: &C,
    ) -> Result<C::Reply> {
        let rpc = &self.shared().files.rpc;
        let ask = async |token: Option<Arc<Token>>| {
            rpc.send(&call(), (at, token.as_ref()), question, &mut std::iter::empty()).await
        };
        self.with_token(cell, ask).await.map_err(|failure| failure.error(what))
    }

    /// Takes in who a file server is. One that is not known is not heard, and does not answer whoever does not hear it.
    pub fn learn(&self, cell: &CellName, server: &Addresses) {
        let addresses: Vec<SocketAddr> =
            server.addresses.iter().map(|address| SocketAddr::from((*address, fileserver::PORT))).collect();
        self.shared().files.servers.learn(cell, ServerId::Uuid(server.uuid), Some(server.unique), &addresses);
    }

    /// Whether a server answers a call at all, be it with an abort. A file server has to be known ([`Client::learn`]).
    pub async fn runs<C: WireCall>(&self, at: SocketAddr, question: &C) -> bool {
        if C::SERVICE == fileserver::SERVICE {
            self.asked.lock().push(at);
        }
        let outcome = self.shared().files.rpc.ask(&call(), at, question).await;
        // An address where nobody listens, or where the service is not, is no server that runs.
        match outcome {
            Ok(_) => true,
            Err(Failure::Aborted(code)) => code.next() != Next::NextAddress && code.next() != Next::NextSite,
            Err(_) => false,
        }
    }

    /// Has the file servers that were asked forget this client.
    pub async fn close(self) {
        let mut servers = self.shared().files.servers.that_answered();
        servers.extend(std::mem::take(&mut *self.asked.lock()));
        servers.sort_unstable();
        servers.dedup();
        let call = Call { deadline: Instant::now() + CLOSE_PATIENCE, ..call() };
        self.shared().files.rpc.forget_at(servers, call).await;
    }

    /// Asks as the user; as anybody where that is wanted, or where a server does not take the user's token.
    async fn with_token<R>(
        &self,
        cell: &CellName,
        ask: impl AsyncFn(Option<Arc<Token>>) -> std::result::Result<R, Failure>,
    ) -> std::result::Result<R, Failure> {
        let logins = &self.shared().files.logins;
        let token = match self.who {
            As::TheUser => logins.token(&call(), cell).await,
            As::Anybody => None,
        };
        let Some(token) = token else { return ask(None).await };
        match ask(Some(token.clone())).await {
            Err(failure) if failure.is_about_token() => {
                logins.refused(&token, &failure.to_string());
                ask(None).await
            }
            outcome => outcome,
        }
    }

    async fn through(&self, door: &Identity) -> Result<Place> {
        let Spot { cell, fid, .. } = self.shared().inside(&call(), door).await?;
        Ok(Place { cell, fid })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.afs.shared
    }
}

impl Place {
    /// The root directory of a volume.
    #[must_use]
    pub fn root_of(cell: CellName, volume: VolumeId) -> Place {
        Place { cell, fid: Fid::root_of(volume) }
    }
}

impl Cell {
    /// The addresses of its database servers with a port.
    pub fn servers_at(&self, port: u16) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(move |server| SocketAddr::from((server.address, port)))
    }
}

/// Where it is reached on no particular way.
fn spot(place: &Place) -> Spot {
    Spot { cell: place.cell.clone(), fid: place.fid, way: Identity::Top.way_in() }
}

/// A call of this process's user.
fn call() -> Call {
    Call::within(Caller::DAEMON, PATIENCE)
}

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long the end may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
