//! Calls about a volume: to whichever server has it, going on to the next one where that makes sense.
//!
//! What an abort asks for is a table's (`abort.rs`). Here is what is done about it, and how often. A change whose server falls
//! silent is not made again by itself, for it may have been made.
//!
//! Sites of one volume may have different states of it: an answer that does not fit is taken only where no site has one that
//! does.
//!
//! Each call is made with the token of whoever asks (`logins.rs`), or as nobody. A token that a server refuses (`doubt.rs`) is
//! dropped, and a question is put again as nobody; a change is not, for it would be somebody else's.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weft_remote::{Call, RemoteError, Result};

use crate::abort::Next;
use crate::cell::CellName;
use crate::doubt::{Repeat, Verdict, doubt};
use crate::fid::VolumeId;
use crate::logins::Logins;
use crate::releases::{Release, Releases};
use crate::round::{After, Manner, Missed, Said, ask_in_turn};
use crate::rpc::{Failure, Rpc};
use crate::servers::{ServerId, Servers};
use crate::tokens::Token;
use crate::vldb::{Vldb, Volume};
use crate::volume_name::VolumeType;
use crate::wire::Call as WireCall;
use crate::wire::fileserver::GetTime;

/// File servers, by the volumes that they have.
pub(crate) struct FileServers {
    pub rpc: Arc<Rpc>,
    pub servers: Arc<Servers>,
    pub vldb: Vldb,
    pub logins: Logins,
    releases: Arc<Releases>,
    /// Volumes that none of their servers had, and when. Held for one look or one change.
    away: Mutex<HashMap<(CellName, VolumeId), Instant>>,
}

/// Who told something, and to whom.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub server: ServerId,
    /// The token that it was told for; nobody's is none.
    pub token: Option<Arc<Token>>,
    /// Of which copy of the volume it told.
    pub copy: VolumeType,
    /// When the volume was made, of one that is written to, where that was told.
    pub volume_s: Option<u32>,
}

impl From<Teller> for ServerId {
    fn from(teller: Teller) -> ServerId {
        teller.server
    }
}

/// Bytes that follow a request; asked for anew for each server.
pub(crate) type More<'a> = dyn Fn() -> Box<dyn Iterator<Item = Bytes> + Send + 'a> + Sync + 'a;

/// Of which state of its volume an answer is.
pub(crate) type About<C> = fn(&<C as WireCall>::Reply) -> Release;

/// Whether an answer of a server is of the state that is wanted.
pub(crate) type Fits<'a, R> = dyn Fn(ServerId, &R) -> bool + Sync + 'a;

/// An answer, whose it is and to whom, and whether it fits.
pub(crate) struct Told<R> {
    pub reply: R,
    pub teller: Teller,
    pub fit: Fit,
}

/// Whether an answer is of the state that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Fits,
    /// None does of those who can be asked.
    NoneFits,
    /// Others have not answered in time.
    NoneInTime,
}

/// A question, for whom, and about what.
struct Asked<'a, C: WireCall> {
    call: &'a Call,
    fits: &'a Fits<'a, C::Reply>,
    /// How long others may take to give an answer that fits, where there is one that does not; as long as servers have to answer
    /// at all where that is not said.
    patience: Option<Duration>,
    what: &'a str,
    question: &'a C,
    about: About<C>,
    more: &'a More<'a>,
    repeat: Repeat,
    /// The asker's, until a server refuses it. Held for one look or one change.
    token: Mutex<Option<Arc<Token>>>,
}

impl FileServers {
    pub fn new(
        rpc: Arc<Rpc>,
        servers: Arc<Servers>,
        vldb: Vldb,
        logins: Logins,
        releases: Arc<Releases>,
    ) -> FileServers {
        FileServers { rpc, servers, vldb, logins, releases, away: Mutex::default() }
    }

    /// Asks about a volume, of any server that has it. The answer, and whose it is and to whom.
    ///
    /// # Errors
    /// What the servers say; `Unreachable` and `TimedOut` when they say nothing.
    pub async fn ask<C: WireCall + Sync>(
        &self,
        call: &Call,
        place: (&CellName, VolumeId),
        what: &str,
        question: &C,
    ) -> Result<(C::Reply, Teller)> {
        let told = self.ask_fitting(call, place, what, (question, |_| Release::Untold), (&|_, _| true, None)).await?;
        Ok((told.reply, told.teller))
    }

    /// The same, of a site whose answer fits; of any other where none has such an answer, or not in that time.
    ///
    /// # Errors
    /// As of [`FileServers::ask`].
    pub async fn ask_fitting<C: WireCall + Sync>(
        &self,
        call: &Call,
        place: (&CellName, VolumeId),
        what: &str,
        (question, about): (&C, About<C>),
        (fits, patience): (&Fits<'_, C::Reply>, Option<Duration>),
    ) -> Result<Told<C::Reply>> {
        let token = Mutex::new(self.logins.token(call, place.0).await);
        let more: &More<'_> = &|| Box::new(std::iter::empty());
        let repeat = Repeat::Freely;
        self.make(place, &Asked { call, fits, patience, what, question, about, more, repeat, token }).await
    }

    /// Has a change made; `more` gives bytes that follow the request, anew for each server.
    ///
    /// # Errors
    /// As of [`FileServers::ask`]; after `Unreachable` and `TimedOut` it may have been made.
    pub async fn change<'a, C: WireCall + Sync>(
        &self,
        call: &'a Call,
        place: (&CellName, VolumeId),
        what: &'a str,
        (question, about): (&'a C, About<C>),
        more: &'a More<'a>,
    ) -> Result<(C::Reply, Teller)> {
        let token = Mutex::new(self.logins.token(call, place.0).await);
        let asked = Asked {
            call,
            fits: &|_, _| true,
            patience: None,
            what,
            question,
            about,
            more,
            repeat: Repeat::UnlessSilent,
            token,
        };
        let told = self.make(place, &asked).await?;
        Ok((told.reply, told.teller))
    }

    async fn make<C: WireCall + Sync>(
        &self,
        (cell, volume): (&CellName, VolumeId),
        asked: &Asked<'_, C>,
    ) -> Result<Told<C::Reply>> {
        let (Asked { call, what, .. }, begun) = (asked, Instant::now());
        let mut known = self.vldb.by_id(call, cell, volume).await?;
        let was_away = self.is_away(cell, volume);
        let (mut hops, mut waits) = (HOPS_MAX, if was_away { 0 } else { WAITS_MAX });
        loop {
            let mut sites = self.servers.in_order(&servers_of(&known, volume));
            sites.sort_by_key(|(server, _)| self.releases.turn(cell, volume, *server));
            // A change does not go on from one that is silent to another.
            sites.sort_by_key(|(_, at)| self.rpc.silences.is_given_up(*at));
            let asked_at: HashSet<SocketAddr> = sites.iter().map(|(_, at)| *at).collect();
            let Missed { after, last } = match self.round(sites, asked, waits > 0).await {
                Ok(mut answer) => {
                    answer.teller.copy = kind_of(&known, volume);
                    answer.teller.volume_s = match ((asked.about)(&answer.reply), answer.teller.copy) {
                        (Release::Made(made_s), VolumeType::ReadWrite) => Some(made_s),
                        _ => None,
                    };
                    if was_away {
                        self.away.lock().remove(&(cell.clone(), volume));
                    }
                    return Ok(answer);
                }
                Err(missed) => missed,
            };
            let error = || match last.as_ref().and_then(Option::as_ref) {
                Some(failure) => failure.clone().error(what),
                None => RemoteError::Unreachable { detail: format!("{what}: no server has volume {volume}") },
            };
            match after {
                After::GiveUp | After::Seek => {
                    let is_old = after == After::Seek && known.is_of_before(begun);
                    let moved = if is_old { self.seek(call, cell, volume, &asked_at).await } else { None };
                    let Some(moved) = moved else {
                        // It may be elsewhere by the next time.
                        self.vldb.doubt(cell, volume);
                        return Err(error());
                    };
                    known = moved;
                }
                After::AskVldb if hops > 0 => {
                    hops -= 1;
                    let fresh = self.vldb.ask(call, cell, &volume.to_string()).await?;
                    let is_elsewhere = servers_of(&fresh, volume) != servers_of(&known, volume);
                    known = fresh;
                    // Whoever should have it does not have it now: it may be under way.
                    if !is_elsewhere && !wait(call, &mut waits).await {
                        self.note_away(cell, volume);
                        return Err(error());
                    }
                }
                After::Wait if wait(call, &mut waits).await => {}
                After::AskVldb | After::Wait => return Err(error()),
            }
        }
    }

    /// Where a volume is by now, whose servers are silent at the addresses at which they were asked; `None` where the database
    /// has no other, or does not say so soon: it may be as silent.
    async fn seek(
        &self,
        call: &Call,
        cell: &CellName,
        volume: VolumeId,
        asked_at: &HashSet<SocketAddr>,
    ) -> Option<Arc<Volume>> {
        let soon = Call { deadline: call.deadline.min(Instant::now() + SEEK_PATIENCE), ..*call };
        let fresh = self.vldb.ask(&soon, cell, &volume.to_string()).await.ok()?;
        let sites = self.servers.in_order(&servers_of(&fresh, volume));
        sites.iter().any(|(_, at)| !asked_at.contains(at)).then_some(fresh)
    }

    /// Asks some sites, in order ([`ask_in_turn`]): of what may be put twice, also several at once.
    async fn round<C: WireCall + Sync>(
        &self,
        sites: Vec<(ServerId, SocketAddr)>,
        asked: &Asked<'_, C>,
        may_wait: bool,
    ) -> std::result::Result<Told<C::Reply>, Missed<Option<Failure>>> {
        // The first answer that does not fit, or says of a file that it is not there: another site may be at another release.
        let (unfit, is_there) = (Mutex::new(None), Notify::new());
        let is_alone = sites.iter().all(|(server, _)| *server == sites[0].0);
        let set_aside = |told: std::result::Result<Told<C::Reply>, Failure>| {
            unfit.lock().get_or_insert(told);
            is_there.notify_one();
            Said::NotHere(After::GiveUp, None)
        };
        let manner = Manner { hedged: asked.repeat == Repeat::Freely, pauses: &PAUSES };
        let attempt = |site: (ServerId, SocketAddr)| async move {
            let said = match self.attempt(site, asked).await {
                Ok((reply, token)) => {
                    let fits = (asked.fits)(site.0, &reply);
                    // The rest is found by what is known of the volume (`make`).
                    let teller = Teller { server: site.0, token, copy: VolumeType::ReadWrite, volume_s: None };
                    let told = |fit| Told { reply, teller, fit };
                    if fits { Said::Done(told(Fit::Fits)) } else { set_aside(Ok(told(Fit::NoneFits))) }
                }
                Err(failure) => {
                    tracing::debug!(server = %site.1, %failure, what = asked.what, "a file server did not do it");
                    match after(&failure, asked.repeat, asked.call) {
                        None if failure.is_of_one_release() && !is_alone => set_aside(Err(failure)),
                        Some(after) => Said::NotHere(after, Some(failure)),
                        None => Said::Final(Some(failure)),
                    }
                }
            };
            (site, said)
        };
        let patience = async {
            is_there.notified().await;
            match asked.patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = ask_in_turn(sites, manner, attempt) => Some(outcome),
            () = patience => None,
        };
        let (answer, waited_for) = match (outcome, unfit.into_inner()) {
            (Some(Ok(answered)), _) => answered,
            // Who is busy may have one that fits.
            (Some(Err(missed)), _) if missed.after == After::Wait && may_wait => return Err(missed),
            (None, Some(Ok(told))) => (Told { fit: Fit::NoneInTime, ..told }, Vec::new()),
            (Some(Err(_)), Some(Ok(told))) => (told, Vec::new()),
            (_, Some(Err(failure))) => return Err(Missed { after: After::GiveUp, last: Some(Some(failure)) }),
            (Some(Err(missed)), None) => return Err(missed),
            (None, None) => return Err(Missed { after: After::GiveUp, last: None }),
        };
        // Who was asked before and has not answered is asked last from now on.
        waited_for.iter().for_each(|(_, at)| self.servers.was_silent(*at, "another server was quicker"));
        Ok(answer)
    }

    /// Asks one server, as whoever asks; as nobody, if that may be, where it refuses the asker's token.
    ///
    /// # Errors
    /// Why it did not do it.
    async fn attempt<C: WireCall + Sync>(
        &self,
        (_, at): (ServerId, SocketAddr),
        asked: &Asked<'_, C>,
    ) -> std::result::Result<(C::Reply, Option<Arc<Token>>), Failure> {
        let begun = Instant::now();
        let mut token = asked.token.lock().clone();
        let send = async |token: Option<&Arc<Token>>| {
            self.rpc.send(asked.call, (at, token), asked.question, &mut *(asked.more)()).await
        };
        let mut outcome = send(token.as_ref()).await;
        if let Err(failure) = &outcome
            && failure.is_about_token()
            && let Some(doubted) = &token
        {
            let probe =
                async || self.rpc.send(asked.call, (at, Some(doubted)), &GetTime {}, &mut std::iter::empty()).await;
            let again = async || send(Some(doubted)).await;
            outcome = match doubt(failure.clone(), asked.repeat, again, async || probe().await.map(drop)).await {
                Verdict::Stands(outcome) => outcome,
                Verdict::Refused(failure) => {
                    self.logins.refused(doubted, &failure.to_string());
                    (*asked.token.lock(), token) = (None, None);
                    if asked.repeat == Repeat::Freely { send(None).await } else { Err(failure) }
                }
            };
        }
        match &outcome {
            Ok(_) | Err(Failure::Aborted(_)) => self.servers.answered(at, begun.elapsed()),
            Err(failure @ (Failure::Silent(_) | Failure::TimedOut)) => {
                self.servers.was_silent(at, &failure.to_string());
            }
            Err(Failure::Refused(_) | Failure::Damaged(_) | Failure::Unaskable(_)) => {}
        }
        outcome.map(|reply| (reply, token))
    }

    /// Whether a volume was lately with none of those that should have it: then nobody waits for it.
    fn is_away(&self, cell: &CellName, volume: VolumeId) -> bool {
        let since = self.away.lock().get(&(cell.clone(), volume)).copied();
        since.is_some_and(|since| since.elapsed() < AWAY_TIME)
    }

    fn note_away(&self, cell: &CellName, volume: VolumeId) {
        let mut away = self.away.lock();
        if away.len() >= AWAY_MAX {
            away.clear();
        }
        away.insert((cell.clone(), volume), Instant::now());
    }
}

fn servers_of(known: &Volume, volume: VolumeId) -> Vec<ServerId> {
    known.servers_of(kind_of(known, volume))
}

fn kind_of(known: &Volume, volume: VolumeId) -> VolumeType {
    known.entry.kind_of(volume).unwrap_or(VolumeType::ReadWrite)
}

/// What follows from a failure; nothing when it is the answer.
fn after(failure: &Failure, repeat: Repeat, call: &Call) -> Option<After> {
    match failure {
        Failure::Aborted(code) => match code.next() {
            Next::AskVldb => Some(After::AskVldb),
            Next::Wait => Some(After::Wait),
            Next::NextAddress | Next::NextSite | Next::Reconnect => Some(After::GiveUp),
            Next::GiveUp | Next::OlderCall | Next::DropToken | Next::DoubtToken => None,
        },
        Failure::Silent(_) | Failure::TimedOut => {
            (repeat == Repeat::Freely && !call.remaining().is_zero()).then_some(After::Seek)
        }
        Failure::Refused(_) | Failure::Damaged(_) | Failure::Unaskable(_) => None,
    }
}

/// Waits before the same is asked again; false when that may not be any more.
async fn wait(call: &Call, left: &mut u32) -> bool {
    let Some(nth) = left.checked_sub(1) else { return false };
    let pause = PAUSES[WAITS_MAX as usize - 1 - nth as usize];
    if call.remaining() <= pause {
        return false;
    }
    *left = nth;
    tokio::time::sleep(pause).await;
    true
}

/// How often one question has the VLDB asked again.
const HOPS_MAX: u32 = 4;
/// How often one question waits for a volume that is busy or under way.
const WAITS_MAX: u32 = PAUSES.len() as u32;
/// How long it waits each time. File servers say that they are busy also to a client of which they are just finding out who
/// it is (observed with OpenAFS 1.8.9, where the first few connections open at once): that passes in a moment.
const PAUSES: [Duration; 11] = {
    const LONG: Duration = Duration::from_millis(400);
    let mut pauses = [LONG; 11];
    pauses[0] = Duration::from_millis(5);
    pauses[1] = Duration::from_millis(20);
    pauses[2] = Duration::from_millis(80);
    pauses
};
/// How long the database may take to say where a volume is whose servers are silent.
const SEEK_PATIENCE: Duration = Duration::from_secs(2);
/// How long nobody waits for a volume that was with none of its servers.
const AWAY_TIME: Duration = Duration::from_secs(10);
/// Volumes of which that is remembered.
const AWAY_MAX: usize = 1000;
