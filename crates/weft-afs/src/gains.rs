//! Tickets that the daemon gets by itself, for users who have logged in to Kerberos: `kinit` alone is enough.
//!
//! * Kerberos is asked as the user whose ticket it is to be. The user's cache is read as ever, with all that is checked of the
//!   file (`cache_file.rs`); what gets other tickets is copied from it into memory that has no name, and that is the cache
//!   which `kvno` works on, as its standard input. The program has the user's id and group and no other right, so what the
//!   user makes of it is what the user could do anyway. What it has put there is read like any cache, the user's own is
//!   neither written nor named, and what was got is kept in memory alone.
//! * One is got when a user without a usable token asks for something in a cell, and before a token ends if what it was got
//!   with lasts longer. There is one attempt at a time for a user and a cell; after it there is none until the user's cache
//!   changes, or until some minutes have gone: half a minute where nobody answered.
//! * What was got goes when the ticket that it was got with is no longer in the user's cache.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::MemfdFlags;
use tokio::sync::{Semaphore, watch};

use crate::cache_file::{CacheName, bytes_of};
use crate::ccache::{CCACHE_BYTES_MAX, Ccache, Credential};
use crate::cell::CellName;
use crate::kvno::{Kvno, NoTicket, RunAs};
use crate::login::is_realm;
use crate::tokens::{services, time};

/// What gets tickets.
#[derive(Debug)]
pub(crate) struct Getter {
    kvno: Kvno,
    own_uid: u32,
    slots: Semaphore,
}

/// A ticket that was got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub credential: Credential,
    /// The ticket that it was got with.
    granter: Vec<u8>,
}

/// One attempt, for one user and cell, and what came of it.
#[derive(Debug)]
pub(crate) struct Gain {
    /// No other of the same user has had this number.
    pub id: u64,
    /// When the attempt was begun; it tells no more when that has ended.
    ended: watch::Receiver<Instant>,
    /// When there may be another; none before it has ended.
    again: Option<Instant>,
    /// The cache has changed since it began.
    is_late: bool,
    /// What was got, or why nothing was.
    pub outcome: Option<Result<Got, NotGot>>,
}

/// Why nothing was got.
#[derive(Clone, Debug)]
pub(crate) struct NotGot {
    /// For people.
    pub why: String,
    /// How long there is no other attempt.
    pause: Duration,
}

impl Gain {
    /// One that begins. It has ended when the sender is dropped.
    pub fn begun(id: u64) -> (Gain, watch::Sender<Instant>) {
        let (sender, ended) = watch::channel(Instant::now());
        (Gain { id, ended, again: None, is_late: false, outcome: None }, sender)
    }

    /// Its end, while it is under way.
    pub fn under_way(&self) -> Option<watch::Receiver<Instant>> {
        (self.again.is_none() && !self.is_lost()).then(|| self.ended.clone())
    }

    /// Whether another may begin.
    pub fn may_begin_again(&self) -> bool {
        self.again.map_or(self.is_lost(), |again| again <= Instant::now())
    }

    /// Whether nobody is left who could end it.
    fn is_lost(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// The user has another cache, or none any more. Whether this is still to be remembered: what was got is while it was
    /// got with a ticket that is there, and an attempt until it ends.
    pub fn outlives(&mut self, cache: Option<&Ccache>) -> bool {
        let counts = |outcome: &Result<Got, NotGot>| {
            cache.is_some_and(|cache| outcome.as_ref().is_ok_and(|got| got.is_of(cache)))
        };
        self.outcome = self.outcome.take().filter(counts);
        self.is_late = true;
        self.under_way().is_some() || self.outcome.is_some()
    }

    /// Whether what comes of it says anything about the user's cache as it is.
    pub fn counts(&self, outcome: &Result<Got, NotGot>, cache: Option<&Ccache>) -> bool {
        match outcome {
            Ok(got) => cache.is_some_and(|cache| got.is_of(cache)),
            Err(_) => !self.is_late,
        }
    }

    /// It has ended. A ticket that does not last long may be followed by another earlier.
    pub fn ends(&mut self, outcome: Result<Got, NotGot>) {
        let pause = match &outcome {
            Ok(got) => {
                let left = time(got.credential.ends_s).duration_since(SystemTime::now()).unwrap_or_default();
                AGAIN_AFTER.min(left / 2)
            }
            Err(not_got) => not_got.pause,
        };
        self.again = Some(Instant::now() + pause);
        self.outcome = Some(outcome);
    }

    /// It has ended without another ticket; the one before counts on.
    pub fn is_followed_by_none(&mut self, not_got: &NotGot) {
        self.again = Some(Instant::now() + not_got.pause);
    }

    /// What was got.
    pub fn got(&self) -> Option<&Got> {
        self.outcome.as_ref()?.as_ref().ok()
    }

    /// Why nothing was.
    pub fn why_not(&self) -> Option<&str> {
        self.outcome.as_ref()?.as_ref().err().map(|not_got| not_got.why.as_str())
    }
}

impl Got {
    /// Whether it was got with a ticket of this cache.
    pub fn is_of(&self, cache: &Ccache) -> bool {
        cache.credentials.iter().any(|credential| credential.ticket == self.granter)
    }
}

impl From<String> for NotGot {
    fn from(why: String) -> NotGot {
        NotGot { why, pause: AGAIN_AFTER }
    }
}

impl From<NoTicket> for NotGot {
    fn from(error: NoTicket) -> NotGot {
        let pause = if matches!(error, NoTicket::Late { .. }) { ANSWERED_AFTER } else { AGAIN_AFTER };
        NotGot { why: error.to_string(), pause }
    }
}

impl Getter {
    pub fn new(kvno: Kvno, own_uid: u32) -> Getter {
        Getter { kvno, own_uid, slots: Semaphore::new(AT_ONCE_MAX) }
    }

    /// Gets the ticket of a cell for the user whose cache this is.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(&self, name: &CacheName, uid: u32, cell: &CellName) -> Result<Got, NotGot> {
        let until = Instant::now() + PATIENCE;
        let slot = tokio::time::timeout_at(until.into(), self.slots.acquire()).await;
        let _slot = slot.map_err(|_| "others are still asking Kerberos".to_owned())?;
        let name = name.clone();
        let own_uid = self.own_uid;
        let prepared = tokio::task::spawn_blocking(move || {
            let run_as = (uid != own_uid).then(|| RunAs { uid, gid: group_of(uid) });
            Copied::of(&name, uid).map(|copied| (copied, run_as))
        });
        let (copied, run_as) = prepared.await.map_err(|error| error.to_string())??;
        let own_realm = String::from_utf8_lossy(&copied.cache.principal.realm).into_owned();
        if !is_realm(&own_realm) {
            return Err(format!("{}: not a realm that can be asked", copied.cache.principal).into());
        }
        let mut unknown = Vec::new();
        for service in services(cell, &own_realm, None) {
            let input = copied.memory.try_clone().map_err(|error| error.to_string())?;
            let input = (COPY_NAME.as_ref(), Stdio::from(input));
            match self.kvno.get(&service, input, run_as, until).await {
                Ok(()) => return Ok(copied.got(&service)?),
                Err(error @ NoTicket::Unknown { .. }) => unknown.push(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(unknown.join("; ").into())
    }
}

/// What gets tickets, of one user's cache.
struct Copied {
    cache: Ccache,
    granter: Vec<u8>,
    memory: File,
}

impl Copied {
    fn of(name: &CacheName, uid: u32) -> Result<Copied, String> {
        let path = name.path().display();
        let bytes = bytes_of(name, uid)?.ok_or_else(|| format!("{path}: it has gone"))?;
        let bytes = Ccache::granters_of(&bytes).map_err(|error| format!("{path}: {error}"))?;
        let cache = Ccache::read(&bytes).map_err(|error| format!("{path}: {error}"))?;
        let granter = cache.granter().map(|granter| granter.ticket.clone());
        let granter = granter.ok_or_else(|| format!("{path}: no ticket there gets others"))?;
        let memory = rustix::fs::memfd_create("weft-tickets", MemfdFlags::CLOEXEC).map(File::from);
        let write = |mut memory: File| memory.write_all(&bytes).map(|()| memory);
        let memory = memory.map_err(std::io::Error::from).and_then(write);
        Ok(Copied { cache, granter, memory: memory.map_err(|error| format!("memory for tickets: {error}"))? })
    }

    /// What has been put there for a service. Its user may have had a hand in it.
    fn got(&self, service: &str) -> Result<Got, String> {
        let mut bytes = vec![0; CCACHE_BYTES_MAX + 1];
        let mut length = 0;
        loop {
            match self.memory.read_at(&mut bytes[length..], length as u64).map_err(|error| error.to_string())? {
                0 => break,
                more => length += more,
            }
        }
        let cache = Ccache::read(&bytes[..length]).map_err(|error| format!("what `kvno` has got: {error}"))?;
        let credential = cache.credentials.into_iter().rfind(|credential| credential.server.to_string() == service);
        let credential = credential.ok_or_else(|| format!("{service}: `kvno` has got another ticket"))?;
        Ok(Got { credential, granter: self.granter.clone() })
    }
}

/// The group of a user; whom the system does not know has nobody's.
fn group_of(uid: u32) -> u32 {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    known.ok().flatten().map_or(NOBODYS_GROUP, |user| user.gid.as_raw())
}

/// The standard input, as Linux has it, as a credential cache.
const COPY_NAME: &str = "FILE:/proc/self/fd/0";
/// The group of what has none (`/proc/sys/kernel/overflowgid`).
const NOBODYS_GROUP: u32 = 65_534;
/// How long one attempt may take; a call does not wait for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after an attempt there is no other.
const AGAIN_AFTER: Duration = Duration::from_secs(300);
/// The same where nobody answered: whoever is away may be back soon.
const ANSWERED_AFTER: Duration = Duration::from_secs(30);
/// Attempts that are under way, for all users.
const AT_ONCE_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_answer_is_asked_again_soon() {
        let service = || "afs/example.org@EXAMPLE.ORG".to_owned();
        let late = NotGot::from(NoTicket::Late { service: service() });
        let refused = NotGot::from(NoTicket::Failed { service: service(), said: "policy".to_owned() });
        assert!(late.pause < refused.pause && late.why.contains("no answer"));
    }
}
