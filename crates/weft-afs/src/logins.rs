//! Who the users of this machine are in the cells: their tokens, as their credential caches have them.
//!
//! * The cache of the daemon's own user is where the options say, else where that of any other user is: `/tmp/krb5cc_UID`.
//!   A daemon of root's reads everybody's, one of an ordinary user only its own. Where the daemon itself asks
//!   ([`Caller::DAEMON`]) it is its own user: it then sends what that user has written.
//! * A cache is looked at when somebody asks for something, at most once a second, and read when it has changed. What was
//!   read holds until then, so `kinit` and `kdestroy` are taken up without another mount.
//! * A token that has ended is not shown to anybody; one that a server refuses is dropped until the cache changes. Either
//!   is said once, with what to do, and its user is anybody until then.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Call, Caller};
use weft_rx::Level;

use crate::cache_file::{CacheName, Looked, Stamp, look};
use crate::ccache::Ccache;
use crate::cell::CellName;
use crate::tokens::{NoToken, Token, Wanted};

/// All users' tokens.
#[derive(Debug)]
pub(crate) struct Logins {
    own_uid: u32,
    /// Where the daemon's own user has said that the cache is.
    own_cache: Option<String>,
    /// What the paths of all other caches begin with; the user's id follows.
    others: String,
    level: Level,
    last_id: AtomicU64,
    /// Held for one look or one change.
    users: Mutex<HashMap<u32, Arc<User>>>,
}

#[derive(Debug)]
struct User {
    uid: u32,
    cache: Result<CacheName, String>,
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
    /// What was said since the cache has changed.
    told: HashSet<String>,
}

impl Logins {
    /// `own_cache` as `$KRB5CCNAME` has it.
    pub fn new(own_uid: u32, own_cache: Option<String>, level: Level) -> Logins {
        let (others, last_id, users) = (OTHERS.to_owned(), AtomicU64::default(), Mutex::default());
        Logins { own_uid, own_cache, others, level, last_id, users }
    }

    /// The token with which a cell is asked for whoever makes this call; `None` for anybody.
    pub async fn token(&self, call: &Call, cell: &CellName) -> Option<Arc<Token>> {
        let uid = if call.caller == Caller::DAEMON { self.own_uid } else { call.caller.uid };
        let user = self.user(uid)?;
        if !user.looked_lately() {
            user.look(call.deadline.min(Instant::now() + LOOK_PATIENCE)).await;
        }
        let mut state = user.state.lock();
        self.choose(&user, &mut state, cell).ok()
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

    /// As whom the daemon's own user asks a cell, for people: by what was read last.
    pub fn shown(&self, cell: &CellName) -> String {
        let user = self.users.lock().get(&self.own_uid).cloned();
        let known = user.as_ref().and_then(|user| user.state.lock().tokens.get(cell).cloned());
        match known {
            Some(Ok(token)) if token.ends > SystemTime::now() => {
                let level = match self.level {
                    Level::Clear => "clear",
                    Level::Auth => "auth",
                    Level::Crypt => "crypt",
                };
                format!("{} for user id {}, level {level}", token.client, self.own_uid)
            }
            Some(Ok(_)) => format!("anybody: {}", NoToken::Ended),
            Some(Err(why)) => format!("anybody: {why}"),
            None => "anybody, so far".to_owned(),
        }
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
            users.retain(|_, user| Arc::strong_count(user) > 1 || user.looked_lately());
        }
        let of_own = self.own_cache.as_deref().filter(|_| uid == self.own_uid);
        let usual = || Ok(CacheName::File(PathBuf::from(format!("{}{uid}", self.others))));
        let cache = of_own.map_or_else(usual, |text| CacheName::parse(text).map_err(|error| error.to_string()));
        let user = Arc::new(User { uid, cache, turn: Arc::default(), state: Mutex::default() });
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
        let mut chosen = Token::of(cache, wanted, now).map(Arc::new);
        let former = state.former.remove(cell);
        match &mut chosen {
            Ok(token) => match former.filter(|former| former.is_same(token)) {
                Some(former) => *token = former,
                None => tracing::info!(uid = user.uid, %cell, client = %token.client, "a token"),
            },
            Err(why) => user.tell(state, cell, why),
        }
        state.tokens.insert(cell.clone(), chosen.clone());
        chosen
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

    fn look_now(&self) {
        let before = self.state.lock().stamp;
        let looked = match &self.cache {
            Ok(name) => look(name, self.uid, before),
            Err(why) => Looked::Bad(None, why.clone()),
        };
        let mut state = self.state.lock();
        state.looked = Some(Instant::now());
        match looked {
            Looked::Same | Looked::Unfinished => {}
            Looked::Absent => *state = State { looked: state.looked, ..State::default() },
            Looked::Cache(stamp, cache) => {
                let (looked, tokens) = (state.looked, std::mem::take(&mut state.tokens));
                let former = tokens.into_iter().filter_map(|(cell, token)| Some((cell, token.ok()?))).collect();
                *state = State { looked, stamp: Some(stamp), cache: Some(cache), former, ..State::default() };
            }
            Looked::Bad(stamp, why) => {
                if !state.told.contains(&why) {
                    tracing::warn!(
                        uid = self.uid,
                        "{why}; until that is mended (`kinit` writes it anew) AFS is asked as anybody for this user"
                    );
                }
                let told = HashSet::from([why]);
                *state = State { looked: state.looked, stamp, told, ..State::default() };
            }
        }
    }

    /// Says once why a user is anybody in a cell, and what to do.
    fn tell(&self, state: &mut State, cell: &CellName, why: &NoToken) {
        let uid = self.uid;
        if !state.told.insert(format!("{cell}: {why}")) {
            return;
        }
        match why {
            // Whoever has logged in somewhere need not have to do with this cell.
            NoToken::Missing => tracing::info!(uid, %cell, "{why}: `kvno afs/{cell}` or `aklog {cell}` gets one"),
            why => tracing::warn!(
                uid,
                %cell,
                "{why}. This user gets what anybody gets, until `kinit` and then `kvno afs/{cell}` or `aklog {cell}` put \
                another ticket into the cache"
            ),
        }
    }
}

/// The user whose daemon reads everybody's caches.
const ROOT: u32 = 0;
/// What the paths of caches begin with.
const OTHERS: &str = "/tmp/krb5cc_";
/// How often a cache is looked at, at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How long a call waits for a look.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// Users that are remembered.
const USERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::ccache::tests::{Writer, alice, credential};
    use crate::ccache::{Credential, Principal};

    /// Users whose caches are in a folder.
    fn logins(folder: &Path) -> Logins {
        let others = format!("{}/cc_", folder.display());
        Logins { others, ..Logins::new(rustix::process::geteuid().as_raw(), None, Level::Crypt) }
    }

    fn cell() -> CellName {
        CellName::new(b"example.org").expect("a name")
    }

    fn own() -> Call {
        Call::within(Caller { uid: rustix::process::geteuid().as_raw(), gid: 0, pid: 7 }, Duration::from_secs(60))
    }

    /// Puts a cache with this ticket in the place of the user's, and has the next call look.
    fn login(logins: &Logins, ticket: &str) {
        let path = format!("{}{}", logins.others, logins.own_uid);
        let afs = credential(Principal::service(&["afs", "example.org"], b"EXAMPLE.ORG"), u32::MAX);
        let bytes = Writer::new(4, &alice()).credential(&Credential { ticket: ticket.into(), ..afs }).bytes;
        let fresh = format!("{path}.new");
        std::fs::write(&fresh, bytes).expect("written");
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o600)).expect("set");
        std::fs::rename(&fresh, &path).expect("moved");
        look_again(logins);
    }

    fn look_again(logins: &Logins) {
        logins.users.lock().values().for_each(|user| user.state.lock().looked = None);
    }

    #[tokio::test]
    async fn a_token_is_kept_while_its_ticket_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = logins(folder.path());
        assert!(logins.token(&own(), &cell()).await.is_none());
        login(&logins, "one");
        let first = logins.token(&own(), &cell()).await.expect("a token");
        assert!(logins.shown(&cell()).starts_with("alice@EXAMPLE.ORG for user id"));
        login(&logins, "one");
        let again = logins.token(&own(), &cell()).await.expect("a token");
        assert!(Arc::ptr_eq(&first, &again), "another cache with the same ticket");
        let daemon = Call { caller: Caller::DAEMON, ..own() };
        let daemons = logins.token(&daemon, &cell()).await.expect("a token");
        assert!(Arc::ptr_eq(&first, &daemons), "the daemon is its user");
        login(&logins, "another");
        let second = logins.token(&own(), &cell()).await.expect("a token");
        assert_ne!(second.id, first.id);
        assert_eq!(Arc::strong_count(&first), 3, "nobody but this test has it any more");
        std::fs::remove_file(format!("{}{}", logins.others, logins.own_uid)).expect("removed");
        look_again(&logins);
        assert!(logins.token(&own(), &cell()).await.is_none(), "logged out");
    }

    #[tokio::test]
    async fn what_a_server_refuses_is_not_shown_again_before_the_cache_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = logins(folder.path());
        login(&logins, "one");
        let token = logins.token(&own(), &cell()).await.expect("a token");
        logins.refused(&token, "no");
        logins.refused(&token, "no");
        look_again(&logins);
        assert!(logins.token(&own(), &cell()).await.is_none());
        assert!(logins.shown(&cell()).contains("a server refuses the ticket for it: no"));
        let told = logins.user(logins.own_uid).expect("known").state.lock().told.len();
        assert_eq!(told, 1, "said once");
        login(&logins, "another");
        let renewed = logins.token(&own(), &cell()).await.expect("a token");
        logins.refused(&token, "late");
        assert!(logins.token(&own(), &cell()).await.is_some_and(|token| token.id == renewed.id), "that was the former");
    }

    #[tokio::test]
    async fn only_roots_daemon_reads_what_is_another_users() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_user = Logins { own_uid: 1000, ..logins(folder.path()) };
        assert!(of_user.user(0).is_none() && of_user.user(1001).is_none() && of_user.user(1000).is_some());
        let of_root = Logins { own_uid: ROOT, ..logins(folder.path()) };
        for uid in 0..USERS_MAX as u32 + 10 {
            assert!(of_root.user(uid).is_some());
        }
        assert_eq!(of_root.users.lock().len(), 10, "those who do nothing are forgotten when there are too many");
    }

    #[tokio::test]
    async fn a_cache_that_is_no_file_is_told_once() {
        let kcm = Logins::new(rustix::process::geteuid().as_raw(), Some("KCM:".to_owned()), Level::Crypt);
        for _ in 0..3 {
            assert!(kcm.token(&own(), &cell()).await.is_none());
            look_again(&kcm);
        }
        let user = kcm.user(kcm.own_uid).expect("known");
        let told = user.state.lock().told.clone();
        assert!(told.len() == 1 && told.iter().all(|told| told.contains("not from KCM:")), "{told:?}");
    }
}
