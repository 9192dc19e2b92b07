//! What an AFS tree is made with.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use weft_rx::Level;

use crate::cell::{Cell, CellName};
use crate::cell_server_db::CellAlias;
use crate::kvno::Kvno;
use crate::resolver::Resolver;

/// Which mode bits are shown. In AFS those of a file's owner count for everybody, those of directories and all others for
/// nobody; the access lists decide, which the server knows. Linux has its own idea of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// As they are told: for a mount whose user owns all that is shown.
    #[default]
    Exact,
    /// Those of the owner for everybody, and all for directories, so that Linux leaves it to the server: for a mount that
    /// has several users.
    Everybodys,
}

/// Where users' tickets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tickets {
    /// From their credential caches alone.
    #[default]
    Found,
    /// From there, and where one is missing the daemon gets it with the user's own ticket of Kerberos.
    Get(Kvno),
}

/// Settings of [`Afs`](crate::Afs).
#[derive(Clone, Debug)]
pub struct AfsOptions {
    /// The cells that there are, with their database servers.
    pub cells: Vec<Cell>,
    /// Whom cells are asked for that are not among these, or have no servers there; nobody unless it is said.
    pub resolver: Option<Resolver>,
    /// Further names of them.
    pub aliases: Vec<CellAlias>,
    /// The cell that the tree is of; `None` for the directory of all cells.
    pub tree: Option<CellName>,
    /// Which mode bits are shown.
    pub modes: Modes,
    /// How what is said with a user's token is protected.
    pub level: Level,
    /// Where users' tickets come from.
    pub tickets: Tickets,
    /// The name of the credential cache of the daemon's own user, as `$KRB5CCNAME` has it; that of any other user is
    /// `/tmp/krb5cc_UID`, and without a name this one as well.
    pub ccache: Option<String>,
    /// What `@sys` at the end of a name stands for: the first of these of which there is such a name.
    pub sysnames: Vec<String>,
    /// How long what the VLDB says is used without asking again; a server that says otherwise ends it at once.
    pub volume_time: Duration,
    /// How long a server may be silent in a call before it is held to be down.
    pub dead_after: Duration,
    /// How long a server that was silent is asked last.
    pub down_time: Duration,
    /// How long a server that has promised something may have said nothing before it is asked whether it is there.
    pub probe_after: Duration,
    /// How long a piece of content may take, in all.
    pub piece_time: Duration,
    /// Most bytes of directories that are kept in memory.
    pub directory_bytes_max: usize,
    /// Most promises that are remembered; what is told beyond that is good for one request.
    pub promises_max: usize,
    /// The socket of a daemon before this one, of which servers know the port, with what has come to it since; `None` has one
    /// opened.
    pub socket: Option<Arc<UdpSocket>>,
}

/// The name of a level of protection, and in a few words what it is worth. rxkad's own cipher is all that it has (OpenAFS
/// `src/rxkad/fcrypt.c`).
#[must_use]
pub fn level_worth(level: Level) -> &'static str {
    match level {
        Level::Clear => "clear: who asks is proved; what is said is neither hidden nor protected",
        Level::Auth => {
            "auth: the head of each packet is protected by fcrypt (56 bits, obsolete); what is said is not hidden"
        }
        Level::Crypt => {
            "crypt: what is said is hidden by fcrypt (56 bits): obsolete, no protection from a determined listener"
        }
    }
}

impl Default for AfsOptions {
    fn default() -> AfsOptions {
        AfsOptions {
            cells: Vec::new(),
            resolver: None,
            aliases: Vec::new(),
            tree: None,
            modes: Modes::default(),
            level: Level::Crypt,
            tickets: Tickets::default(),
            ccache: None,
            sysnames: vec![usual_sysname()],
            volume_time: Duration::from_secs(3600),
            dead_after: Duration::from_secs(12),
            down_time: Duration::from_secs(20),
            probe_after: Duration::from_secs(30),
            piece_time: Duration::from_secs(60),
            directory_bytes_max: 32 << 20,
            promises_max: 1_000_000,
            socket: None,
        }
    }
}

/// What OpenAFS's clients on machines like this one read `@sys` as (src/config/afs_args.h and the param.h of each).
fn usual_sysname() -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "i386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64",
        other => other,
    };
    format!("{machine}_linux26")
}
