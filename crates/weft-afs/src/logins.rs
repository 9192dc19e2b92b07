//! Who the users of this machine are in the cells: their tokens, as their credential caches have them.
//!
//! * The cache of the daemon's own user is where the options say, else where that of any other user is: `/tmp/krb5cc_UID`.
//!   A daemon of root's reads everybody's, one of an ordinary user only its own. Where the daemon itself asks
//!   ([`Caller::DAEMON`]) it is its own user: it then sends what that user has written.
//! * A cache is looked at when somebody asks for something, at most once a second, and read when it has changed. What was
//!   read holds until then, so `kinit` and `kdestroy` are taken up without another mount.
//! * A user who has a ticket of Kerberos and no token for a cell gets one, if the options say so (`gains.rs`). Whoever asks
//!   meanwhile waits a short while, and is then anybody.
//! * A user whose cache goes, or is somebody else's from then on, may not be shown what it brought: the caches of those who
//!   have tokens are looked at every now and then for that ([`Logins::turned`]).
//! * A token that has ended is not shown to anybody; one that a server refuses is dropped until there is another. Either
//!   is said once, with what to do, and its user is anybody until then.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;
use weft_remote::{Call, Caller};
use weft_rx::Level;

use crate::cache_file::{CacheName, Looked, Stamp, USUAL, look};
use crate::ccache::{Ccache, Principal};
use crate::cell::CellName;
use crate::gains::{Gain, Getter, Got, NotGot};
use crate::options::level_worth;
use crate::tokens::{NoToken, Token, Wanted, is_good, time};
use crate::utc::utc;

/// All users' tokens.
#[derive(Debug)]
pub(crate) struct Logins {
    own_uid: u32,
    /// Where the daemon's own user has said that the cache is.
    own_cache: Option<String>,
    /// What the paths of all other caches begin with; the user's id follows.
    others: String,
    level: Level,
    /// What gets tickets that are not there.
    getter: Option<Arc<Getter>>,
    /// How long a call waits for that.
    get_patience: Duration,
    last_id: AtomicU64,
    /// Where somebody had a token, and is somebody else now. Held for one look or one change.
    turned: Arc<Mutex<HashSet<CellName>>>,
    /// Held for one look or one change.
    users: Mutex<HashMap<u32, Arc<User>>>,
}

#[derive(Debug)]
struct User {
    uid: u32,
    cache: Result<CacheName, String>,
    /// Of all users.
    turned: Arc<Mutex<HashSet<CellName>>>,
    /// Only one at a time looks at the cache.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Held for one look or one change.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    stamp: Option<Stamp>,
    cache: Option<Ccache>,
    tokens: HashMap<CellName, Result<Arc<Token>, NoToken>>,
    /// Those of the cache before: the same ticket goes on with its connections.
    former: HashMap<CellName, Arc<Token>>,
    /// What was got for this user, or is being got.
    gains: HashMap<CellName, Gain>,
    /// Cells that were asked with a token of the cache's principal.
    asked: HashSet<CellName>,
    /// What was said since the cache has changed.
    told: HashSet<String>,
}

impl Logins {
    /// `own_cache` as `$KRB5CCNAME` has it.
    pub fn new(own_uid: u32, own_cache: Option<String>, level: Level, getter: Option<Arc<Getter>>) -> Logins {
        let (others, get_patience) = (USUAL.to_owned(), GET_PATIENCE);
        let (last_id, turned, users) = Default::default();
        Logins { own_uid, own_cache, others, level, getter, get_patience, last_id, turned, users }
    }

    /// The token with which a cell is asked for whoever makes this call; `None` for anybody.
    pub async fn token(&self, call: &Call, cell: &CellName) -> Option<Arc<Token>> {
        let user = self.user(self.uid_of(call))?;
        if !user.looked_lately() {
            user.look(call.deadline.min(Instant::now() + LOOK_PATIENCE)).await;
        }
        let mut ended = {
            let mut state = user.state.lock();
            let chosen = self.choose(&user, &mut state, cell);
            let under_way = self.get(&user, &mut state, cell, &chosen);
            match (chosen, under_way) {
                (Ok(token), _) => return Some(token),
                (Err(_), Some(ended)) => ended,
                (Err(why), None) => {
                    user.tell(&mut state, cell, &why);
                    return None;
                }
            }
        };
        // All the calls of one program wait for it together no longer than this.
        let until = call.deadline.min(*ended.borrow() + self.get_patience);
        if tokio::time::timeout_at(until.into(), ended.changed()).await.is_err() {
            tracing::debug!(uid = user.uid, %cell, "a ticket is not got in time: this call is made as anybody");
        }
        let mut state = user.state.lock();
        self.choose(&user, &mut state, cell).ok()
    }

    /// A mark of what whoever makes this call has to log in with: another one when the cache is another or has another ticket in
    /// it, or another one was got.
    pub async fn mark(&self, call: &Call) -> u64 {
        let Some(user) = self.user(self.uid_of(call)) else { return 0 };
        if !user.looked_lately() {
            user.look(call.deadline.min(Instant::now() + LOOK_PATIENCE)).await;
        }
        let state = user.state.lock();
        let got = state.gains.values().filter_map(Gain::got);
        let tickets = got.fold(0, |all: u64, got| all.wrapping_add(hash_of(&got.credential.ticket)));
        hash_of(&(state.stamp, tickets))
    }

    /// A server does not take a token: it is of no use until its user gets another.
    pub fn refused(&self, token: &Token, why: &str) {
        let Some(user) = self.user(token.uid) else { return };
        let mut state = user.state.lock();
        let is_held = |held: &Result<Arc<Token>, NoToken>| held.as_ref().is_ok_and(|held| held.id == token.id);
        if state.tokens.get(&token.cell).is_some_and(is_held) {
            let why = NoToken::Refused(why.to_owned());
            user.tell(&mut state, &token.cell, &why);
            state.tokens.insert(token.cell.clone(), Err(why));
        }
    }

    /// The cells in which somebody who had a token is somebody else since this was asked last, or nobody.
    pub async fn turned(&self) -> HashSet<CellName> {
        let users: Vec<_> = self.users.lock().values().cloned().collect();
        for user in users {
            let has_asked = !user.state.lock().asked.is_empty();
            if has_asked && !user.looked_lately() {
                user.look(Instant::now() + LOOK_PATIENCE).await;
            }
        }
        std::mem::take(&mut *self.turned.lock())
    }

    /// As whom the daemon's own user asks a cell, for people: by what was read last.
    pub fn shown(&self, cell: &CellName) -> String {
        let user = self.users.lock().get(&self.own_uid).cloned();
        let Some(user) = user else { return "anybody, so far".to_owned() };
        let (state, uid) = (user.state.lock(), self.own_uid);
        let why = match state.tokens.get(cell) {
            Some(Ok(token)) if token.ends > SystemTime::now() => {
                let (client, ends, worth) = (&token.client, utc(token.ends), level_worth(self.level));
                return format!("{client} for user id {uid} until {ends}; level {worth}");
            }
            Some(Ok(_)) => &NoToken::Ended,
            Some(Err(why)) => why,
            None if state.looked.is_some() && state.cache.is_none() && state.told.is_empty() => {
                return format!("anybody: user id {uid} has not logged in to Kerberos (`kinit`)");
            }
            None => return "anybody, so far".to_owned(),
        };
        format!("anybody: {why}{}", state.not_got(cell))
    }

    fn uid_of(&self, call: &Call) -> u32 {
        if call.caller == Caller::DAEMON { self.own_uid } else { call.caller.uid }
    }

    /// The user, if this daemon can read the user's cache.
    fn user(&self, uid: u32) -> Option<Arc<User>> {
        if uid != self.own_uid && self.own_uid != ROOT {
            return None;
        }
        let mut users = self.users.lock();
        if let Some(user) = users.get(&uid) {
            return Some(user.clone());
        }
        if users.len() >= USERS_MAX {
            users.retain(|_, user| {
                let stays = Arc::strong_count(user) > 1 || user.looked_lately();
                if !stays {
                    // Nobody would notice when this one logs out.
                    let asked = std::mem::take(&mut user.state.lock().asked);
                    self.turned.lock().extend(asked);
                }
                stays
            });
        }
        let of_own = self.own_cache.as_deref().filter(|_| uid == self.own_uid);
        let usual = || Ok(CacheName::File(PathBuf::from(format!("{}{uid}", self.others))));
        let cache = of_own.map_or_else(usual, |text| CacheName::parse(text).map_err(|error| error.to_string()));
        let (turned, turn, state) = (self.turned.clone(), Arc::default(), Mutex::default());
        let user = Arc::new(User { uid, cache, turned, turn, state });
        // More than that at once are not remembered.
        if users.len() < USERS_MAX {
            users.insert(uid, user.clone());
        }
        Some(user)
    }

    fn choose(&self, user: &User, state: &mut State, cell: &CellName) -> Result<Arc<Token>, NoToken> {
        let now = SystemTime::now();
        let held = state.tokens.get(cell);
        if let Some(held) = held.filter(|held| held.as_ref().map_or(true, |token| token.ends > now)) {
            return held.clone();
        }
        let Some(cache) = &state.cache else { return Err(NoToken::Missing) };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let wanted = Wanted { id, uid: user.uid, cell, level: self.level };
        let got = state.gains.get(cell).and_then(Gain::got).map(|got| got.credential.clone());
        let mut chosen = match got {
            None => Token::of(cache, wanted, now),
            // Of what is as good the first is taken.
            Some(got) => {
                let credentials = std::iter::once(got).chain(cache.credentials.iter().cloned()).collect();
                Token::of(&Ccache { credentials, principal: cache.principal.clone() }, wanted, now)
            }
        }
        .map(Arc::new);
        if let Ok(token) = &mut chosen {
            match state.former.remove(cell).filter(|former| former.is_same(token)) {
                Some(former) => *token = former,
                None => tracing::info!(uid = user.uid, %cell, client = %token.client, "a token"),
            }
        }
        if chosen.is_ok() {
            state.asked.insert(cell.clone());
        }
        state.tokens.insert(cell.clone(), chosen.clone());
        chosen
    }

    /// Has a ticket got for a user who has none that is good for long, where one can be had. The end of that, when it is
    /// under way.
    fn get(
        &self,
        user: &Arc<User>,
        state: &mut State,
        cell: &CellName,
        chosen: &Result<Arc<Token>, NoToken>,
    ) -> Option<watch::Receiver<Instant>> {
        let (getter, now) = (self.getter.as_ref()?, SystemTime::now());
        let granter = state.cache.as_ref()?.granter().filter(|granter| is_good(granter, now))?;
        if let Ok(token) = chosen
            && (token.soon_ends > now || time(granter.ends_s) <= token.ends)
        {
            return None;
        }
        if let Some(gain) = state.gains.get(cell).filter(|gain| !gain.may_begin_again()) {
            return gain.under_way();
        }
        let under_way = state.gains.values().filter(|gain| gain.under_way().is_some()).count();
        let name = user.cache.clone().ok()?;
        if under_way >= GETS_AT_ONCE_MAX {
            return None;
        }
        if state.gains.len() >= GAINS_MAX {
            state.gains.retain(|_, gain| gain.under_way().is_some());
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (mut gain, sender) = Gain::begun(id);
        let ended = gain.under_way();
        // Until there is another, the one that was got before counts.
        gain.outcome = state.gains.remove(cell).and_then(|former| former.outcome);
        state.gains.insert(cell.clone(), gain);
        let (getter, user, cell) = (getter.clone(), user.clone(), cell.clone());
        tokio::spawn(async move {
            let outcome = getter.get(&name, user.uid, &cell).await;
            user.gained(&cell, id, outcome);
            drop(sender);
        });
        ended
    }
}

impl State {
    fn principal(&self) -> Option<&Principal> {
        self.cache.as_ref().map(|cache| &cache.principal)
    }

    /// Why nothing was got for a cell.
    fn not_got(&self, cell: &CellName) -> String {
        let why = self.gains.get(cell).and_then(Gain::why_not);
        why.map_or_else(String::new, |why| format!("; weft could not get one: {why}"))
    }
}

impl User {
    fn looked_lately(&self) -> bool {
        self.state.lock().looked.is_some_and(|looked| looked.elapsed() < LOOK_PAUSE)
    }

    /// Looks at the cache, away from the threads of the runtime. What is known stays where that takes too long.
    async fn look(self: &Arc<Self>, until: Instant) {
        let looking = async {
            // It stays with the look until that ends, however long the disk takes.
            let turn = self.turn.clone().lock_owned().await;
            if self.looked_lately() {
                return;
            }
            let user = self.clone();
            let looked = tokio::task::spawn_blocking(move || {
                user.look_now();
                drop(turn);
            });
            let _ = looked.await;
        };
        if tokio::time::timeout_at(until.into(), looking).await.is_err() {
            tracing::debug!(uid = self.uid, "the credential cache cannot be looked at in time");
        }
    }

    /// An attempt to get a ticket has ended. It counts if what it was begun with is still there.
    fn gained(&self, cell: &CellName, id: u64, outcome: Result<Got, NotGot>) {
        let mut state = self.state.lock();
        let State { gains, cache, tokens, .. } = &mut *state;
        let Some(gain) = gains.get_mut(cell).filter(|gain| gain.id == id) else { return };
        match outcome {
            outcome if !gain.counts(&outcome, cache.as_ref()) => drop(gains.remove(cell)),
            Err(not_got) if gain.got().is_some() => {
                tracing::debug!(uid = self.uid, %cell, why = not_got.why, "no ticket follows the one that was got");
                gain.is_followed_by_none(&not_got);
            }
            outcome => {
                if outcome.is_ok() {
                    tokens.remove(cell);
                }
                gain.ends(outcome);
            }
        }
    }

    fn look_now(&self) {
        let before = self.state.lock().stamp;
        let looked = match &self.cache {
            Ok(name) => look(name, self.uid, before),
            Err(why) => Looked::Bad(None, why.clone()),
        };
        let mut state = self.state.lock();
        state.looked = Some(Instant::now());
        let mut fresh = match looked {
            Looked::Same | Looked::Unfinished => return,
            Looked::Absent => State::default(),
            Looked::Cache(stamp, cache) => {
                let tokens = std::mem::take(&mut state.tokens);
                let former = tokens.into_iter().filter_map(|(cell, token)| Some((cell, token.ok()?))).collect();
                State { stamp: Some(stamp), cache: Some(cache), former, ..State::default() }
            }
            Looked::Bad(stamp, why) => {
                if !state.told.contains(&why) {
                    tracing::warn!(
                        uid = self.uid,
                        "{why}; until that is mended (`kinit` writes it anew) AFS is asked as anybody for this user"
                    );
                }
                State { stamp, told: HashSet::from([why]), ..State::default() }
            }
        };
        let asked = std::mem::take(&mut state.asked);
        match fresh.principal() == state.principal() {
            true => fresh.asked = asked,
            false => self.turned.lock().extend(asked),
        }
        let mut gains = std::mem::take(&mut state.gains);
        gains.retain(|_, gain| gain.outlives(fresh.cache.as_ref()));
        *state = State { looked: state.looked, gains, ..fresh };
    }

    /// Says once why a user is anybody in a cell, and what to do. Who has not logged in to Kerberos is not told of.
    fn tell(&self, state: &mut State, cell: &CellName, why: &NoToken) {
        let uid = self.uid;
        if state.cache.is_none() || !state.told.insert(format!("{cell}: {why}")) {
            return;
        }
        let not_got = state.not_got(cell);
        match why {
            // Whoever has logged in somewhere need not have to do with this cell.
            NoToken::Missing => tracing::info!(uid, %cell, "{why}{not_got}: `weft login {cell}` tries it again"),
            why => tracing::warn!(
                uid,
                %cell,
                "{why}{not_got}. This user gets what anybody gets, until `kinit` and then `weft login {cell}` put another \
                ticket into the cache"
            ),
        }
    }
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The user whose daemon reads everybody's caches.
const ROOT: u32 = 0;
/// How often a cache is looked at, at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How long a call waits for a look.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// How long calls wait for a ticket that is got for them, from when that was begun.
const GET_PATIENCE: Duration = Duration::from_secs(2);
/// Tickets that are got at once for one user.
const GETS_AT_ONCE_MAX: usize = 4;
/// Cells of one user of which it is remembered what was got.
const GAINS_MAX: usize = 256;
/// Users that are remembered.
const USERS_MAX: usize = 1024;

#[cfg(test)]
#[path = "logins_tests.rs"]
mod tests;
