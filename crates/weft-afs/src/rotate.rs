//! Calls about a volume: to whichever server has it, going on to the next one where that makes sense.
//!
//! What an abort asks for is a table's (`abort.rs`). Here is what is done about it, and how often. A change whose server falls
//! silent is not made again by itself, for it may have been made.
//!
//! Each call is made with the token of whoever asks (`logins.rs`), or as nobody. A token that a server refuses is dropped, and
//! a question is put again as nobody; a change is not, for it would be somebody else's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_remote::{Call, RemoteError, Result};

use crate::abort::{AbortCode, Next};
use crate::cell::CellName;
use crate::fid::VolumeId;
use crate::logins::Logins;
use crate::rpc::{Failure, Rpc};
use crate::servers::{ServerId, Servers};
use crate::tokens::Token;
use crate::vldb::{Vldb, Volume};
use crate::volume_name::VolumeType;
use crate::wire::Call as WireCall;

/// File servers, by the volumes that they have.
pub(crate) struct FileServers {
    pub rpc: Arc<Rpc>,
    pub servers: Arc<Servers>,
    pub vldb: Vldb,
    pub logins: Logins,
}

/// Who told something, and to whom.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub server: ServerId,
    /// The token that it was told for; nobody's is none.
    pub token: Option<Arc<Token>>,
}

impl From<Teller> for ServerId {
    fn from(teller: Teller) -> ServerId {
        teller.server
    }
}

/// Whether a call may be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It asks.
    Freely,
    /// It changes something.
    UnlessSilent,
}

/// What may still be done for one question.
struct Budget {
    hops: u32,
    waits: u32,
}

/// What comes after a round of sites.
enum After {
    AskVldb,
    Wait,
    GiveUp,
}

impl FileServers {
    /// Asks about a volume, of any server that has it. The answer, and whose it is and to whom.
    ///
    /// # Errors
    /// What the servers say; `Unreachable` and `TimedOut` when they say nothing.
    pub async fn ask<C: WireCall + Sync>(
        &self,
        call: &Call,
        (cell, volume): (&CellName, VolumeId),
        what: &str,
        question: &C,
    ) -> Result<(C::Reply, Teller)> {
        self.make(call, (cell, volume), what, question, Repeat::Freely, &|| Box::new(std::iter::empty())).await
    }

    /// The same, with bytes that follow the request; they are asked for anew for each server.
    pub async fn make<C: WireCall + Sync>(
        &self,
        call: &Call,
        (cell, volume): (&CellName, VolumeId),
        what: &str,
        question: &C,
        repeat: Repeat,
        more: &(dyn Fn() -> Box<dyn Iterator<Item = Bytes> + Send> + Sync),
    ) -> Result<(C::Reply, Teller)> {
        let mut token = self.logins.token(call, cell).await;
        let mut known = self.vldb.by_id(call, cell, volume).await?;
        let mut budget = Budget { hops: HOPS_MAX, waits: WAITS_MAX };
        loop {
            let mut last = RemoteError::Unreachable { detail: format!("{what}: no server has volume {volume}") };
            let mut after = After::AskVldb;
            for (id, at) in self.servers.in_order(&servers_of(&known, volume)) {
                let begun = std::time::Instant::now();
                let mut outcome = self.rpc.send(call, (at, token.as_ref()), question, &mut *more()).await;
                if let Err(failure) = &outcome
                    && failure.is_about_token()
                    && let Some(refused) = token.take()
                {
                    self.logins.refused(&refused, &failure.to_string());
                    if repeat == Repeat::UnlessSilent {
                        return Err(failure.clone().error(what));
                    }
                    outcome = self.rpc.send(call, (at, None), question, &mut *more()).await;
                }
                let failure = match outcome {
                    Ok(reply) => {
                        self.servers.answered(at, begun.elapsed(), 0);
                        return Ok((reply, Teller { server: id, token }));
                    }
                    Err(failure) => failure,
                };
                tracing::debug!(server = %at, %failure, what, "a file server did not do it");
                after = match &failure {
                    Failure::Aborted(code) => {
                        self.servers.answered(at, begun.elapsed(), 0);
                        match next(*code) {
                            Some(after) => after,
                            None => return Err(failure.error(what)),
                        }
                    }
                    Failure::Silent(_) | Failure::TimedOut => {
                        self.servers.was_silent(at, &failure.to_string());
                        if repeat == Repeat::UnlessSilent || call.remaining().is_zero() {
                            return Err(failure.error(what));
                        }
                        After::AskVldb
                    }
                    Failure::Refused(_) | Failure::Damaged(_) | Failure::Unaskable(_) => {
                        return Err(failure.error(what));
                    }
                };
                last = failure.error(what);
            }
            match after {
                After::AskVldb if budget.hops > 0 => {
                    budget.hops -= 1;
                    let fresh = self.vldb.ask(call, cell, &volume.to_string()).await?;
                    // Nothing else is known than before: whoever has it does not have it now.
                    if same_sites(&fresh, &known, volume) && !wait(call, &mut budget).await {
                        return Err(last);
                    }
                    known = fresh;
                }
                After::Wait if wait(call, &mut budget).await => {}
                _ => return Err(last),
            }
        }
    }
}

fn servers_of(known: &Volume, volume: VolumeId) -> Vec<ServerId> {
    known.servers_of(known.entry.kind_of(volume).unwrap_or(VolumeType::ReadWrite))
}

fn same_sites(one: &Arc<Volume>, other: &Arc<Volume>, volume: VolumeId) -> bool {
    servers_of(one, volume) == servers_of(other, volume)
}

/// What an abort leads to; `None` when it is the answer.
fn next(code: AbortCode) -> Option<After> {
    match code.next() {
        Next::AskVldb => Some(After::AskVldb),
        Next::Wait => Some(After::Wait),
        Next::NextAddress | Next::NextSite | Next::Reconnect => Some(After::GiveUp),
        Next::GiveUp | Next::OlderCall | Next::DropToken | Next::DoubtToken => None,
    }
}

/// Waits before the same is asked again; false when that may not be any more.
async fn wait(call: &Call, budget: &mut Budget) -> bool {
    if budget.waits == 0 || call.remaining() <= PAUSE {
        return false;
    }
    budget.waits -= 1;
    tokio::time::sleep(PAUSE).await;
    true
}

/// How often one question has the VLDB asked again.
const HOPS_MAX: u32 = 4;
/// How often one question waits for a volume that is busy.
const WAITS_MAX: u32 = 60;
/// How long it waits each time.
const PAUSE: Duration = Duration::from_millis(500);
