//! AFS as one tree: the socket, the servers, what they promised, and what is done when they call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use weft_remote::{Call, Caller, News, Notes, NotesError};

use crate::cell::CellName;
use crate::cells::Cells;
use crate::cut_stores::CutStores;
use crate::directories::{Directories, Turns};
use crate::doors::Led;
use crate::gains::Getter;
use crate::heritage::Heritage;
use crate::identity::Identity;
use crate::learnt::may_be_known;
use crate::locks::Locks;
use crate::logins::Logins;
use crate::options::{AfsOptions, Tickets};
use crate::own_changes::OwnChanges;
use crate::pace::Paces;
use crate::promises::Promises;
use crate::refusals::Refusals;
use crate::retimed::Retimed;
use crate::rights::KnownRights;
use crate::rotate::FileServers;
use crate::rows::ToldRows;
use crate::rpc::Rpc;
use crate::servers::Servers;
use crate::socket::Socket;
use crate::space::Spaces;
use crate::told::LastTold;
use crate::transport::Transport;
use crate::uuid::Uuid;
use crate::vldb::Vldb;
use crate::wire::callback::{self, Answer, Client, Request};

/// The cells of AFS, or one of them, as a remote tree.
pub struct Afs {
    pub(crate) shared: Arc<Shared>,
}

/// Why the tree cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AfsError {
    /// No socket.
    #[error("a UDP socket cannot be opened: {0}")]
    Socket(#[source] std::io::Error),
    /// No random numbers.
    #[error("the system gives no random bytes: {0}")]
    Random(#[source] std::io::Error),
    /// The notes cannot be used.
    #[error(transparent)]
    Notes(#[from] NotesError),
    /// The tree of a cell that is not known.
    #[error("{cell}: no cell of this name is known; add it to CellServDB")]
    NoSuchCell {
        /// Which.
        cell: CellName,
    },
}

/// What the tree is made of.
pub(crate) struct Shared {
    pub options: AfsOptions,
    pub files: FileServers,
    pub promises: Promises,
    pub directories: Directories,
    pub turns: Turns,
    /// Where cells and mount points lead. Held for one look or one change.
    pub doors: Mutex<HashMap<Identity, Led>>,
    pub news: Arc<News>,
    pub told: LastTold,
    pub told_rows: ToldRows,
    pub own_changes: OwnChanges,
    pub spaces: Spaces,
    pub locks: Locks,
    pub refusals: Refusals,
    pub rights: KnownRights,
    pub retimed: Retimed,
    pub cut_stores: CutStores,
    pub paces: Paces,
    heritage: Heritage,
    aliases: HashMap<CellName, CellName>,
    client: Client,
}

impl Afs {
    /// A tree over a socket of its own. Within a runtime. Asks nobody.
    ///
    /// # Errors
    /// `Socket`, `Random`, `Notes`; `NoSuchCell` when it is to be of a cell that the options do not have.
    pub fn open(mut options: AfsOptions, notes: &Arc<dyn Notes>) -> Result<Arc<Afs>, AfsError> {
        let cells = std::mem::take(&mut options.cells);
        let is_known = |tree: &CellName| {
            cells.iter().any(|cell| cell.name == *tree) || options.resolver.is_some() && may_be_known(tree)
        };
        if let Some(cell) = options.tree.as_ref().filter(|tree| !is_known(tree)) {
            return Err(AfsError::NoSuchCell { cell: cell.clone() });
        }
        let client = Client { uuid: uuid(&**notes)?, interfaces: Vec::new() };
        let seed = random()?;
        let config = weft_rx::Config {
            services: [callback::SERVICE].into(),
            dead_after: options.dead_after,
            ..weft_rx::Config::default()
        };
        // The one answers on the socket of the other.
        let answering = Arc::new(OnceLock::<Weak<Shared>>::new());
        let of_socket = answering.clone();
        let answer = move |from: SocketAddr, request: Bytes| -> BoxFuture<'static, _> {
            let shared = of_socket.get().and_then(Weak::upgrade);
            Box::pin(async move {
                match shared {
                    Some(shared) => shared.answer(from, &request).await,
                    None => Err(callback::ABORT_UNKNOWN_CALL),
                }
            })
        };
        // File servers know this cache by its UUID and call it where it was last: when a daemon was killed and the next one has
        // another port, they try the old one for ten seconds and tell of no change meanwhile, and at one that is closed until it is
        // open again, for up to six seconds in which the change is not made (OpenAFS 1.8, observed).
        let heritage = Heritage::of(notes.clone());
        let (former, connections) = (heritage.port()?, heritage.connections()?);
        let kept = options.socket.take().map(|kept| Socket::on(kept.try_clone()?));
        let socket = kept.unwrap_or_else(|| Socket::open(former)).map_err(AfsError::Socket)?;
        let transport = Transport::open(seed, socket, config, Box::new(answer), heritage.clone());
        if former != Some(transport.port()) {
            heritage.keep_port(transport.port())?;
        }
        transport.end_former(&connections);
        let rpc = Arc::new(Rpc::new(transport));
        let servers = Arc::new(Servers::new(options.down_time));
        let cells = Cells::new(cells, options.resolver);
        let vldb = Vldb::new(rpc.clone(), servers.clone(), cells, options.volume_time);
        let own_uid = rustix::process::geteuid().as_raw();
        let getter = match &options.tickets {
            Tickets::Found => None,
            Tickets::Get(kvno) => Some(Arc::new(Getter::new(kvno.clone(), own_uid))),
        };
        let logins = Logins::new(own_uid, options.ccache.clone(), options.level, getter);
        let news = Arc::new(News::new(EVENTS_MAX));
        let promises = Promises::new(options.promises_max, news.clone());
        let shared = Arc::new(Shared {
            files: FileServers::new(rpc, servers, vldb, logins, promises.releases.clone()),
            promises,
            directories: Directories::new(options.directory_bytes_max),
            turns: Turns::default(),
            doors: Mutex::default(),
            news,
            told: LastTold::default(),
            told_rows: ToldRows::default(),
            own_changes: OwnChanges::default(),
            spaces: Spaces::default(),
            locks: Locks::default(),
            refusals: Refusals::default(),
            rights: KnownRights::default(),
            retimed: Retimed::default(),
            cut_stores: CutStores::noted(notes.clone()),
            paces: Paces::default(),
            heritage,
            aliases: options.aliases.iter().map(|alias| (alias.alias.clone(), alias.cell.clone())).collect(),
            client,
            options,
        });
        let _ = answering.set(Arc::downgrade(&shared));
        tokio::spawn(crate::locks::keep(Arc::downgrade(&shared)));
        tokio::spawn(crate::silences::keep(Arc::downgrade(&shared)));
        tokio::spawn(crate::logouts::keep(Arc::downgrade(&shared)));
        tokio::spawn(crate::probes::keep(Arc::downgrade(&shared), shared.options.probe_after));
        Ok(Arc::new(Afs { shared }))
    }

    /// The socket, for who keeps it until another tree goes on with it ([`AfsOptions::socket`]).
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.shared.files.rpc.socket()
    }

    /// Leaves what comes in the [socket](Afs::socket) from now on, for another tree that goes on with it, and waits until the calls
    /// that file servers have made are answered. No call has an answer after that.
    pub async fn rest(&self) {
        self.shared.files.rpc.rest().await;
    }

    /// Tells the file servers that have promised something to forget this client, all at once: for whoever ends in good
    /// order. Nobody is told that the promises have ended. One that does not answer within `patience` finds out by itself.
    pub async fn give_up(&self, patience: Duration) {
        let Shared { files, promises, .. } = &*self.shared;
        let servers = promises.servers().into_iter().filter_map(|id| files.servers.in_order(&[id]).first().copied());
        files.rpc.forget_at(servers.map(|(_, at)| at), Call::within(Caller::DAEMON, patience)).await;
        self.shared.heritage.keep_connections(std::iter::empty());
    }
}

impl Shared {
    /// The own name of a cell, if a name can be that of one.
    pub fn cell(&self, name: &[u8]) -> Option<CellName> {
        let name = CellName::new(name).ok()?;
        Some(self.aliases.get(&name).cloned().unwrap_or(name))
    }

    /// A file server calls. What it says is taken in, and told, before it is answered: it lets nobody see the change before.
    /// But not for long: what is told may wait for a request, and that for the same server.
    async fn answer(&self, from: SocketAddr, request: &[u8]) -> Result<Vec<u8>, i32> {
        let request = Request::read(request).map_err(|error| {
            tracing::debug!(%from, %error, "a call that makes no sense");
            callback::ABORT_BAD_ARGUMENTS
        })?;
        let told = match (&request, self.files.servers.who(from.ip())) {
            (Request::Break { fids, .. }, Some((server, cell))) => {
                tracing::debug!(%from, fids = fids.0.len(), "promises are broken");
                self.forget_doors(&cell, &fids.0);
                Some(self.promises.broken(server, &cell, &fids.0))
            }
            (Request::ForgetAll { .. }, Some((server, _))) => {
                tracing::debug!(%from, "a server begins anew with us");
                Some(self.promises.forgotten(server))
            }
            (Request::Break { .. } | Request::ForgetAll { .. }, None) => {
                tracing::warn!(%from, "a stranger says that promises end: refused");
                return Err(callback::ABORT_UNKNOWN_CALL);
            }
            _ => None,
        };
        if let Some(told) = told
            && tokio::time::timeout(TOLD_PATIENCE, self.news.heard(told)).await.is_err()
        {
            tracing::debug!(%from, "the end of promises is not told in time");
        }
        match request.answer(&self.client) {
            Answer::Results(bytes) => Ok(bytes),
            Answer::Abort(code) => Err(code),
        }
    }
}

/// The name under which file servers know this cache: made once, kept with it.
fn uuid(notes: &dyn Notes) -> Result<Uuid, AfsError> {
    if let Some(known) = notes.get(UUID_KEY)?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
        return Ok(Uuid(known));
    }
    let mut bytes = <[u8; 16]>::try_from(&random()?[..16]).expect("16 of 32");
    // Random, of the usual variant (RFC 9562, 5.4).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    notes.put(UUID_KEY, Some(&bytes))?;
    Ok(Uuid(bytes))
}

fn random() -> Result<[u8; 32], AfsError> {
    let mut seed = [0; 32];
    let mut at = 0;
    while at < seed.len() {
        let got = rustix::rand::getrandom(&mut seed[at..], rustix::rand::GetRandomFlags::empty());
        at += got.map_err(|errno| AfsError::Random(errno.into()))?;
    }
    Ok(seed)
}

/// Where the UUID is in the notes.
const UUID_KEY: &[u8] = b"uuid";
/// How long a server waits until its word is heard.
pub(crate) const TOLD_PATIENCE: Duration = Duration::from_millis(100);
/// Events that wait for the file system; more become one.
const EVENTS_MAX: usize = 65_536;
