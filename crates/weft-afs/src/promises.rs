//! Callback promises: what file servers have promised to tell, and what becomes of their word.
//!
//! * A promise is entered with the answer that it came with. A break that overtakes the answer wins: whoever asks takes a
//!   [`Ticket`] before the question, and what was broken since is good for one request only.
//! * A break counts from the server that made the promise alone; what strangers say is refused (`afs.rs`).
//! * [`Request::ForgetAll`](crate::wire::callback::Request) ends all promises of its server.
//! * What is broken is told of under each identity that it was shown under: a volume that is mounted twice has each of
//!   its files twice.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Event, Lease, News, ToldUpTo};

use crate::cell::CellName;
use crate::fid::{Fid, VolumeId};
use crate::identity::{Identity, Spot, Way};
use crate::servers::ServerId;
use crate::wire::status::Promise;

/// All promises of all servers.
#[derive(Debug)]
pub(crate) struct Promises {
    max: usize,
    news: Arc<News>,
    /// Held for one look or one change; the lock of the news is taken under it.
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<(CellName, Fid), Held>,
    /// The ways on which volumes were entered, and what lead there.
    ways: HashMap<(CellName, VolumeId), Vec<Entrance>>,
    /// How many breaks there were.
    breaks: u64,
    /// The last of them, with their numbers.
    recent: VecDeque<(u64, Broken)>,
}

/// A way into a volume, and the cell or mount point that leads there where that is known.
type Entrance = (Way, Option<Identity>);

#[derive(Clone, Copy, Debug)]
struct Held {
    server: ServerId,
    ends: SystemTime,
}

/// What a break was about.
#[derive(Debug)]
enum Broken {
    One(CellName, Fid),
    Volume(CellName, VolumeId),
    Server(ServerId),
}

/// The moment before a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    breaks: u64,
    asked: SystemTime,
}

impl Promises {
    pub fn new(max: usize, news: Arc<News>) -> Promises {
        Promises { max, news, table: Mutex::default() }
    }

    /// To be taken before a question is sent.
    pub fn ticket(&self) -> Ticket {
        Ticket { breaks: self.table.lock().breaks, asked: SystemTime::now() }
    }

    /// Enters what a server has promised of a file with its answer; the lease that this makes.
    pub fn enter(&self, ticket: Ticket, server: impl Into<ServerId>, spot: &Spot, promise: Promise) -> Lease {
        let server = server.into();
        let mut table = self.table.lock();
        if !promise.is_promise() || table.broken_since(ticket, server, &spot.cell, spot.fid) {
            return Lease::Spent;
        }
        table.note_way(spot, None);
        let lasts = Duration::from_secs(u64::from(promise.expires_s.min(PROMISE_S_MAX)));
        let ends = ticket.asked + lasts.saturating_sub(MARGIN);
        if table.held.len() >= self.max {
            let now = SystemTime::now();
            table.held.retain(|_, held| held.ends > now);
            if table.held.len() >= self.max {
                tracing::debug!(max = self.max, "more promises than are remembered");
                return Lease::Spent;
            }
        }
        table.held.insert((spot.cell.clone(), spot.fid), Held { server, ends });
        Lease::UntilBroken(ends)
    }

    /// Notes what leads to the root of a volume.
    pub fn note_door(&self, door: &Identity, cell: &CellName, root: Fid) {
        let spot = Spot { cell: cell.clone(), fid: root, way: door.way_in() };
        self.table.lock().note_way(&spot, Some(door));
    }

    /// The lease that there is on a file, if any.
    pub fn lease(&self, cell: &CellName, fid: Fid) -> Option<Lease> {
        let table = self.table.lock();
        let held = table.held.get(&(cell.clone(), fid))?;
        (held.ends > SystemTime::now()).then_some(Lease::UntilBroken(held.ends))
    }

    /// The same, if nothing that was said since the ticket was taken is about the file.
    pub fn lease_since(&self, ticket: Ticket, cell: &CellName, fid: Fid) -> Option<Lease> {
        let table = self.table.lock();
        let held = table.held.get(&(cell.clone(), fid))?;
        let holds = held.ends > SystemTime::now() && !table.broken_since(ticket, held.server, cell, fid);
        holds.then_some(Lease::UntilBroken(held.ends))
    }

    /// A server says that something changed.
    pub fn broken(&self, server: ServerId, cell: &CellName, fids: &[Fid]) -> ToldUpTo {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        for fid in fids.iter().filter(|fid| fid.volume.0 != 0) {
            if fid.is_whole_volume() {
                table.remember(Broken::Volume(cell.clone(), fid.volume));
                let of_volume = |held: &(CellName, Fid)| held.0 == *cell && held.1.volume == fid.volume;
                table.end(|key, held| held.server == server && of_volume(key), &mut events);
            } else {
                table.remember(Broken::One(cell.clone(), *fid));
                let key = (cell.clone(), *fid);
                if table.held.get(&key).is_some_and(|held| held.server == server) {
                    table.held.remove(&key);
                    table.tell(&key, &mut events);
                }
            }
        }
        self.news.tell(events)
    }

    /// A server has forgotten what it promised.
    pub fn forgotten(&self, server: ServerId) -> ToldUpTo {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        table.remember(Broken::Server(server));
        table.end(|_, held| held.server == server, &mut events);
        self.news.tell(events)
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.table.lock().held.len()
    }
}

impl Table {
    fn remember(&mut self, broken: Broken) {
        self.breaks += 1;
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((self.breaks, broken));
    }

    /// Whether something about a file was broken after a ticket was taken; also when that is not remembered any more.
    fn broken_since(&self, ticket: Ticket, server: ServerId, cell: &CellName, fid: Fid) -> bool {
        if ticket.breaks == self.breaks {
            return false;
        }
        if self.recent.front().is_none_or(|(number, _)| *number > ticket.breaks + 1) {
            return true;
        }
        let since = self.recent.iter().rev().take_while(|(number, _)| *number > ticket.breaks);
        since.into_iter().any(|(_, broken)| match broken {
            Broken::One(of, one) => (of, *one) == (cell, fid),
            Broken::Volume(of, volume) => (of, *volume) == (cell, fid.volume),
            Broken::Server(of) => *of == server,
        })
    }

    /// Ends promises, and tells of each; of many it tells that all have ended.
    fn end(&mut self, ends: impl Fn(&(CellName, Fid), &Held) -> bool, events: &mut Vec<Event>) {
        let keys: Vec<(CellName, Fid)> =
            self.held.iter().filter(|(key, held)| ends(key, held)).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.held.remove(key);
        }
        match keys.len() {
            0..=TOLD_ONE_BY_ONE_MAX => keys.iter().for_each(|key| self.tell(key, events)),
            _ => events.push(Event::AllBroken),
        }
    }

    /// Tells of a file under each of its identities.
    fn tell(&self, (cell, fid): &(CellName, Fid), events: &mut Vec<Event>) {
        let ways = self.ways.get(&(cell.clone(), fid.volume)).into_iter().flatten();
        for (way, door) in ways {
            let spot = Spot { cell: cell.clone(), fid: *fid, way: *way };
            match (fid.is_directory(), door) {
                (true, Some(door)) if fid.is_root() => events.push(Event::NamesBroken(door.file_id())),
                (true, _) => events.push(Event::NamesBroken(Identity::File(spot).file_id())),
                (false, _) => {
                    // A link that is a mount point is a directory to the kernel.
                    events.push(Event::Broken(Identity::Mount(spot.clone()).file_id()));
                    events.push(Event::Broken(Identity::File(spot).file_id()));
                }
            }
        }
    }

    fn note_way(&mut self, spot: &Spot, door: Option<&Identity>) {
        let ways = self.ways.entry((spot.cell.clone(), spot.fid.volume)).or_default();
        match ways.iter_mut().find(|(way, _)| *way == spot.way) {
            Some((_, known)) => {
                if let Some(door) = door {
                    *known = Some(door.clone());
                }
            }
            None => {
                // The oldest is told of no more; its leases end by themselves.
                if ways.len() >= WAYS_MAX {
                    ways.remove(0);
                }
                ways.push((spot.way, door.cloned()));
            }
        }
    }
}

/// Longest promise that is believed, in seconds.
const PROMISE_S_MAX: u32 = 24 * 3600;
/// A promise is used for so much less than it lasts: clocks run at different speeds.
const MARGIN: Duration = Duration::from_secs(2);
/// Breaks that are remembered for answers that are under way.
const RECENT_MAX: usize = 4096;
/// Promises that end together and are told of one by one.
const TOLD_ONE_BY_ONE_MAX: usize = 256;
/// Ways into one volume that are told of.
const WAYS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::uuid::Uuid;

    const SERVER: ServerId = ServerId::Uuid(Uuid([1; 16]));
    const PROMISE: Promise = Promise { version: 1, expires_s: 3600, kind: 2 };

    fn cell() -> CellName {
        CellName::new(b"example.org").expect("a name")
    }

    fn door() -> Identity {
        Identity::Cell { cell: cell(), writable: false }
    }

    fn spot(vnode: u32) -> Spot {
        Spot { cell: cell(), fid: Fid { volume: VolumeId(7), vnode, unique: 1 }, way: door().way_in() }
    }

    /// Promises, and what is told.
    fn promises(max: usize) -> (Promises, impl FnMut() -> Vec<Event>) {
        let news = Arc::new(News::new(10_000));
        let mut stream = news.stream();
        assert_eq!(stream.next().now_or_never(), Some(Some(Event::AllBroken)));
        let told = move || std::iter::from_fn(|| stream.next().now_or_never().flatten()).collect();
        (Promises::new(max, news), told)
    }

    fn holds(lease: Lease) -> bool {
        matches!(lease, Lease::UntilBroken(_))
    }

    #[test]
    fn a_break_is_told_of_under_every_identity() {
        let (promises, mut told) = promises(100);
        promises.note_door(&door(), &cell(), spot(1).fid);
        for vnode in [1, 2, 3] {
            let lease = promises.enter(promises.ticket(), SERVER, &spot(vnode), PROMISE);
            assert!(holds(lease) && promises.lease(&cell(), spot(vnode).fid) == Some(lease));
        }
        let other = Spot { way: Identity::Mount(spot(8)).way_in(), ..spot(3) };
        assert!(holds(promises.enter(promises.ticket(), SERVER, &other, PROMISE)));
        promises.broken(SERVER, &cell(), &[spot(1).fid, spot(2).fid, spot(3).fid, spot(9).fid]);
        let (file, mount) = (Identity::File, Identity::Mount);
        let on_other = Spot { way: other.way, ..spot(1) };
        let wanted = [
            Event::NamesBroken(door().file_id()),
            Event::NamesBroken(file(on_other).file_id()),
            Event::Broken(mount(spot(2)).file_id()),
            Event::Broken(file(spot(2)).file_id()),
            Event::Broken(mount(Spot { way: other.way, ..spot(2) }).file_id()),
            Event::Broken(file(Spot { way: other.way, ..spot(2) }).file_id()),
            Event::NamesBroken(file(spot(3)).file_id()),
            Event::NamesBroken(file(other).file_id()),
        ];
        assert_eq!(told(), wanted, "and nothing of what was not promised");
        assert_eq!(promises.lease(&cell(), spot(2).fid), None);
        assert_eq!(promises.count(), 0);
    }

    #[test]
    fn a_break_that_overtakes_the_answer_wins() {
        let (promises, mut told) = promises(100);
        let ticket = promises.ticket();
        promises.broken(SERVER, &cell(), &[spot(2).fid]);
        assert_eq!(promises.enter(ticket, SERVER, &spot(2), PROMISE), Lease::Spent);
        assert!(holds(promises.enter(ticket, SERVER, &spot(4), PROMISE)), "another file");
        promises.broken(SERVER, &cell(), &[Fid { volume: VolumeId(7), vnode: 0, unique: 0 }]);
        assert_eq!(promises.enter(ticket, SERVER, &spot(6), PROMISE), Lease::Spent, "the whole volume");
        promises.forgotten(SERVER);
        let elsewhere = Spot { fid: Fid { volume: VolumeId(8), ..spot(2).fid }, ..spot(2) };
        assert_eq!(promises.enter(ticket, SERVER, &elsewhere, PROMISE), Lease::Spent, "all of the server");
        told();
        for _ in 0..=RECENT_MAX {
            promises.broken(SERVER, &cell(), &[spot(2).fid]);
        }
        let late = Ticket { breaks: promises.ticket().breaks - RECENT_MAX as u64 - 1, asked: SystemTime::now() };
        assert_eq!(promises.enter(late, SERVER, &spot(8), PROMISE), Lease::Spent, "not remembered any more");
        assert!(holds(promises.enter(promises.ticket(), SERVER, &spot(8), PROMISE)));
    }

    #[test]
    fn only_the_server_that_promised_breaks() {
        let (promises, mut told) = promises(100);
        promises.enter(promises.ticket(), SERVER, &spot(2), PROMISE);
        let other = ServerId::Uuid(Uuid([2; 16]));
        promises.broken(other, &cell(), &[spot(2).fid]);
        promises.forgotten(other);
        assert!(promises.lease(&cell(), spot(2).fid).is_some() && told().is_empty());
        promises.forgotten(SERVER);
        assert!(promises.lease(&cell(), spot(2).fid).is_none() && told().len() == 2);
    }

    #[test]
    fn there_are_no_more_than_the_maximum() {
        let (promises, mut told) = promises(3);
        let enter = |vnode| holds(promises.enter(promises.ticket(), SERVER, &spot(vnode), PROMISE));
        assert!(enter(2) && enter(4) && enter(6) && !enter(8));
        let none = Promise { expires_s: 0, ..PROMISE };
        assert_eq!(promises.enter(promises.ticket(), SERVER, &spot(2), none), Lease::Spent);
        promises.broken(SERVER, &cell(), &[Fid { volume: VolumeId(7), vnode: 0, unique: 0 }]);
        assert_eq!((promises.count(), told().len()), (0, 6));
        assert!(enter(8));
    }
}
