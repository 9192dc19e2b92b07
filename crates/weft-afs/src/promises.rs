//! Callback promises: what file servers have promised to tell, and what becomes of their word.
//!
//! * A promise is entered with the answer that it came with. A break that overtakes the answer wins: whoever asks takes a
//!   [`Ticket`] before the question, and what was broken since is good for one request only.
//! * A server calls nobody who changes something: an answer about a directory of before a change of ours, which comes after
//!   it, is told from one of after it by its data version, and is good for one request only as well.
//! * A break counts from the server that made the promise alone; what strangers say is refused (`afs.rs`).
//! * [`Request::ForgetAll`](crate::wire::callback::Request) ends all promises of its server.
//! * A promise ends by the clock that leases go by, which nobody sets back.
//! * What is broken is told of under each identity that it was shown under: a volume that is mounted twice has each of
//!   its files twice. When more ways into volumes are known than are remembered, all promises end at once and that is
//!   told: nothing is held on a way that nobody would be told of.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Event, FileId, Lease, Name, News, ToldUpTo, clock};

use crate::cell::CellName;
use crate::fid::{Fid, VolumeId};
use crate::held::{AllHeld, Held};
use crate::identity::{Identity, Spot, Way};
use crate::releases::Releases;
use crate::retimed::Written;
use crate::servers::ServerId;
use crate::wire::status::Promise;

/// All promises of all servers.
#[derive(Debug)]
pub(crate) struct Promises {
    max: usize,
    news: Arc<News>,
    pub releases: Arc<Releases>,
    /// Held for one look or one change; the lock of the news is taken under it.
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: AllHeld,
    /// The ways on which volumes were entered, and what lead there.
    ways: HashMap<(CellName, VolumeId), Vec<Entrance>>,
    /// How many these are in all.
    way_count: usize,
    /// When it was looked last which have ended.
    looked: Option<Instant>,
    /// How many breaks there were.
    breaks: u64,
    /// The last of them, with their numbers.
    recent: VecDeque<(u64, Broken)>,
    /// How many changes of directories were made here.
    changes: u64,
    /// The last of them, with their numbers and what they made of whose data version.
    made: VecDeque<(u64, (CellName, Fid), u64)>,
}

/// A way into a volume, and the cell or mount point that leads there where that is known.
type Entrance = (Way, Option<Identity>);

/// What a break was about.
#[derive(Debug)]
enum Broken {
    One(CellName, Fid),
    Volume(CellName, VolumeId),
    Server(ServerId),
    Cell(CellName),
    All,
}

/// The moment before a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    breaks: u64,
    changes: u64,
    asked: SystemTime,
}

impl Promises {
    pub fn new(max: usize, news: Arc<News>) -> Promises {
        Promises { max, news, releases: Arc::default(), table: Mutex::default() }
    }

    /// To be taken before a question is sent.
    pub fn ticket(&self) -> Ticket {
        let table = self.table.lock();
        Ticket { breaks: table.breaks, changes: table.changes, asked: clock::now() }
    }

    /// Enters what a server has promised of a file with its answer; the lease that this makes.
    pub fn enter(&self, ticket: Ticket, server: impl Into<ServerId>, spot: &Spot, promise: Promise) -> Lease {
        self.enter_with(ticket, server.into(), spot, (promise, None))
    }

    /// The same, of a file in this data version.
    pub fn enter_of(
        &self,
        ticket: Ticket,
        server: impl Into<ServerId>,
        spot: &Spot,
        promise: Promise,
        written: Written,
    ) -> Lease {
        self.enter_with(ticket, server.into(), spot, (promise, Some(written)))
    }

    fn enter_with(
        &self,
        ticket: Ticket,
        server: ServerId,
        spot: &Spot,
        (promise, written): (Promise, Option<Written>),
    ) -> Lease {
        let mut table = self.table.lock();
        if self.releases.is_behind(&spot.cell, spot.fid.volume, server) {
            // Once a site with the newer release answers, that counts.
            return Lease::Spent;
        }
        if !promise.is_promise() || table.broken_since(ticket, server, &spot.cell, spot.fid) {
            return Lease::Spent;
        }
        if written.is_some_and(|written| table.made_since(ticket, &spot.cell, spot.fid, written.data_version)) {
            return Lease::Spent;
        }
        self.note_way(&mut table, spot, None);
        let lasts = Duration::from_secs(u64::from(promise.expires_s.min(PROMISE_S_MAX)));
        let ends = ticket.asked + lasts.saturating_sub(MARGIN);
        if !table.has_room(self.max) {
            tracing::debug!(max = self.max, "more promises than are remembered");
            return Lease::Spent;
        }
        let held = Held::until(server, ends, written);
        table.held.insert(&spot.cell, spot.fid, held);
        Lease::UntilBroken(held.ends)
    }

    /// Notes what leads to the root of a volume.
    pub fn note_door(&self, door: &Identity, cell: &CellName, root: Fid) {
        let spot = Spot { cell: cell.clone(), fid: root, way: door.way_in() };
        self.note_way(&mut self.table.lock(), &spot, Some(door));
    }

    /// Notes a way into a volume, and makes room for it where there are too many.
    fn note_way(&self, table: &mut Table, spot: &Spot, door: Option<&Identity>) {
        if table.has_no_room_for(spot) {
            tracing::info!("more ways into volumes than are remembered: all promises are given up");
            table.held.clear();
            table.ways.clear();
            table.way_count = 0;
            table.remember(Broken::All);
            let _ = self.news.tell(vec![Event::AllBroken]);
        }
        table.note_way(spot, door);
    }

    /// Which bytes a file has by what was promised, where that was noted.
    pub fn written(&self, cell: &CellName, fid: Fid) -> Option<Written> {
        let table = self.table.lock();
        let held = table.held.get(cell, fid)?;
        held.written.filter(|_| held.ends > clock::now())
    }

    /// We have stored a file: it is in another data version by our doing, and what was promised of it still is.
    pub fn stored(&self, cell: &CellName, fid: Fid, before: u64, after: Written) {
        let mut table = self.table.lock();
        if let Some(held) = table.held.get(cell, fid) {
            let written = held.written.filter(|written| written.data_version == before).map(|_| after);
            table.held.insert(cell, fid, Held { written, ..held });
        }
    }

    /// We have changed a directory, which has this data version by that. To be called before what is held of it follows.
    pub fn made(&self, cell: &CellName, dir: Fid, data_version: u64) {
        let mut table = self.table.lock();
        table.changes += 1;
        if table.made.len() >= RECENT_MAX {
            table.made.pop_front();
        }
        let entry = (table.changes, (cell.clone(), dir), data_version);
        table.made.push_back(entry);
    }

    /// We may have changed something, and were not told whether: what was promised of it does not count any more.
    pub fn doubt(&self, cell: &CellName, fid: Fid) {
        let mut table = self.table.lock();
        let (key, mut events) = ((cell.clone(), fid), Vec::new());
        table.remember(Broken::One(cell.clone(), fid));
        table.held.remove(cell, fid);
        table.tell(&key, &mut events);
        let _ = self.news.tell(events);
    }

    /// A file is there no more: what was promised of it need not be remembered. It is where its volume was entered on several
    /// ways, for what is known on the others may rest on it.
    pub fn forget(&self, cell: &CellName, fid: Fid) {
        let mut table = self.table.lock();
        if table.ways.get(&(cell.clone(), fid.volume)).is_none_or(|ways| ways.len() <= 1) {
            table.held.remove(cell, fid);
        }
    }

    /// The lease that there is on a file, if any.
    pub fn lease(&self, cell: &CellName, fid: Fid) -> Option<Lease> {
        let table = self.table.lock();
        let held = table.held.get(cell, fid)?;
        (held.ends > clock::now()).then_some(Lease::UntilBroken(held.ends))
    }

    /// The same, if nothing that was said since the ticket was taken is about the file.
    pub fn lease_since(&self, ticket: Ticket, cell: &CellName, fid: Fid) -> Option<Lease> {
        let table = self.table.lock();
        let held = table.held.get(cell, fid)?;
        let holds = held.ends > clock::now() && !table.broken_since(ticket, held.server, cell, fid);
        holds.then_some(Lease::UntilBroken(held.ends))
    }

    /// The same of many, each with a ticket of its own and with the bytes that it had then, which it has to have still.
    pub fn leases_since(
        &self,
        cell: &CellName,
        files: impl Iterator<Item = (Fid, Ticket, Written)>,
    ) -> Vec<Option<Lease>> {
        let table = self.table.lock();
        let (now, since) = (clock::now(), BrokenSince::of(&table, cell));
        let lease = |(fid, ticket, written): (Fid, Ticket, Written)| {
            let held = table.held.get(cell, fid)?;
            let holds = held.ends > now && held.written == Some(written) && !since.has(ticket, held.server, fid);
            holds.then_some(Lease::UntilBroken(held.ends))
        };
        files.map(lease).collect()
    }

    /// A server says that something changed.
    pub fn broken(&self, server: ServerId, cell: &CellName, fids: &[Fid]) -> ToldUpTo {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        for fid in fids.iter().filter(|fid| fid.volume.0 != 0) {
            if fid.is_whole_volume() {
                self.releases.heard_of(cell, fid.volume, server);
                table.remember(Broken::Volume(cell.clone(), fid.volume));
                let of_volume = |of: &CellName, one: Fid| of == cell && one.volume == fid.volume;
                table.end(|of, one, held| held.server == server && of_volume(of, one), &mut events);
            } else {
                table.remember(Broken::One(cell.clone(), *fid));
                let key = (cell.clone(), *fid);
                if table.held.get(cell, *fid).is_some_and(|held| held.server == server) {
                    table.held.remove(cell, *fid);
                    table.tell(&key, &mut events);
                }
            }
        }
        self.news.tell(events)
    }

    /// Another release of a volume is there: what was promised of its files, by whichever server, was of the one before.
    pub fn released(&self, cell: &CellName, volume: VolumeId) {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        table.remember(Broken::Volume(cell.clone(), volume));
        table.end(|of, one, _| of == cell && one.volume == volume, &mut events);
        let _ = self.news.tell(events);
    }

    /// A server has forgotten what it promised.
    pub fn forgotten(&self, server: ServerId) -> ToldUpTo {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        table.remember(Broken::Server(server));
        table.end(|_, _, held| held.server == server, &mut events);
        self.news.tell(events)
    }

    /// Whether a server is known to have forgotten since: it was started anew, or had not heard of us for long.
    pub fn was_forgotten_since(&self, ticket: Ticket, server: ServerId) -> bool {
        let table = self.table.lock();
        let mut since = table.recent.iter().filter(|(number, _)| *number > ticket.breaks);
        since.any(|(_, broken)| matches!(broken, Broken::Server(other) if *other == server))
    }

    /// Somebody may not be shown any more what was read in a cell: all of it has to be asked for again.
    pub fn end_in(&self, cell: &CellName) -> ToldUpTo {
        let mut table = self.table.lock();
        let mut events = Vec::new();
        table.remember(Broken::Cell(cell.clone()));
        table.end(|of, _, _| of == cell, &mut events);
        self.news.tell(events)
    }

    /// We have changed something, and the server calls nobody who changes: what is so on the other ways to it is told, and
    /// on all ways that these names in a directory are to be looked up again. `None` when there is nothing to tell.
    pub fn changed_here(&self, spot: &Spot, names: &[Name]) -> Option<ToldUpTo> {
        let table = self.table.lock();
        let ways = table.ways.get(&(spot.cell.clone(), spot.fid.volume)).map_or(&[][..], Vec::as_slice);
        let mut events = Vec::new();
        for (way, door) in ways {
            let there = Spot { way: *way, ..spot.clone() };
            match spot.fid.is_directory().then(|| directory_id(&there, door.as_ref())) {
                Some(id) if *way != spot.way => events.push(Event::NamesBroken(id)),
                Some(id) => events.extend(names.iter().map(|name| Event::NameBroken {
                    dir: id.clone(),
                    name: name.clone(),
                    file: None,
                })),
                None if *way != spot.way => events.push(Event::Broken(Identity::File(there).file_id())),
                None => {}
            }
        }
        (!events.is_empty()).then(|| self.news.tell(events))
    }

    /// The servers whose promises count still.
    pub fn servers(&self) -> HashSet<ServerId> {
        let now = clock::now();
        self.table.lock().held.iter().filter(|held| held.ends > now).map(|held| held.server).collect()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.table.lock().held.len()
    }
}

impl Table {
    /// Whether one more may be remembered; what has ended goes for it, which takes a while where there are many.
    fn has_room(&mut self, max: usize) -> bool {
        if self.held.len() >= max && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_PAUSE) {
            let now = clock::now();
            self.held.forget_ended(now);
            self.looked = Some(Instant::now());
        }
        self.held.len() < max
    }

    fn remember(&mut self, broken: Broken) {
        self.breaks += 1;
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((self.breaks, broken));
    }

    /// Whether something about a file was broken after a ticket was taken; also when that is not remembered any more.
    fn broken_since(&self, ticket: Ticket, server: ServerId, cell: &CellName, fid: Fid) -> bool {
        if !self.remembers(ticket) {
            return true;
        }
        let mut since = self.recent.iter().rev().take_while(|(number, _)| *number > ticket.breaks);
        since.any(|(_, broken)| broken.is_of(server, cell, fid))
    }

    /// Whether all breaks since a ticket are remembered.
    fn remembers(&self, ticket: Ticket) -> bool {
        ticket.breaks == self.breaks || self.recent.front().is_some_and(|(number, _)| *number <= ticket.breaks + 1)
    }

    /// Whether a directory was changed by us after a ticket was taken, and an answer does not have that.
    fn made_since(&self, ticket: Ticket, cell: &CellName, dir: Fid, data_version: u64) -> bool {
        if self.made.front().is_some_and(|(number, ..)| *number > ticket.changes + 1) {
            return true;
        }
        let since = self.made.iter().rev().take_while(|(number, ..)| *number > ticket.changes);
        since.into_iter().any(|(_, (of, fid), made)| (of, *fid) == (cell, dir) && *made > data_version)
    }

    /// Ends promises, and tells of each; of many it tells that all have ended.
    fn end(&mut self, ends: impl Fn(&CellName, Fid, &Held) -> bool, events: &mut Vec<Event>) {
        let keys = self.held.take_out(ends);
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
            match fid.is_directory() {
                true => events.push(Event::NamesBroken(directory_id(&spot, door.as_ref()))),
                false => {
                    // A link that is a mount point is a directory to the kernel.
                    events.push(Event::Broken(Identity::Mount(spot.clone()).file_id()));
                    events.push(Event::Broken(Identity::File(spot).file_id()));
                }
            }
        }
    }

    fn has_no_room_for(&self, spot: &Spot) -> bool {
        let ways = self.ways.get(&(spot.cell.clone(), spot.fid.volume)).map_or(&[][..], Vec::as_slice);
        (self.way_count >= WAYS_MAX || ways.len() >= WAYS_OF_ONE_MAX) && !ways.iter().any(|(way, _)| *way == spot.way)
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
                ways.push((spot.way, door.cloned()));
                self.way_count += 1;
            }
        }
    }
}

impl Broken {
    /// Whether it was also about a file of which this server has promised something.
    fn is_of(&self, server: ServerId, cell: &CellName, fid: Fid) -> bool {
        match self {
            Broken::One(of, one) => (of, *one) == (cell, fid),
            Broken::Volume(of, volume) => (of, *volume) == (cell, fid.volume),
            Broken::Server(of) => *of == server,
            Broken::Cell(of) => of == cell,
            Broken::All => true,
        }
    }
}

/// What [`Table::broken_since`] says, for many files of one cell.
struct BrokenSince<'a> {
    table: &'a Table,
    cell: &'a CellName,
    /// The last break of each file by itself.
    one: HashMap<Fid, u64>,
    /// Those of more than one.
    several: Vec<&'a (u64, Broken)>,
}

impl<'a> BrokenSince<'a> {
    fn of(table: &'a Table, cell: &'a CellName) -> BrokenSince<'a> {
        let (mut one, mut several) = (HashMap::new(), Vec::new());
        for entry in &table.recent {
            match &entry.1 {
                Broken::One(of, fid) if of == cell => drop(one.insert(*fid, entry.0)),
                Broken::One(..) => {}
                _ => several.push(entry),
            }
        }
        BrokenSince { table, cell, one, several }
    }

    fn has(&self, ticket: Ticket, server: ServerId, fid: Fid) -> bool {
        let is_since = |number: u64| number > ticket.breaks;
        !self.table.remembers(ticket)
            || self.one.get(&fid).copied().is_some_and(is_since)
            || self.several.iter().any(|(number, broken)| is_since(*number) && broken.is_of(server, self.cell, fid))
    }
}

/// What a directory is to the file system: the root of a volume is the door that leads there.
fn directory_id(spot: &Spot, door: Option<&Identity>) -> FileId {
    match door.filter(|_| spot.fid.is_root()) {
        Some(door) => door.file_id(),
        None => Identity::File(spot.clone()).file_id(),
    }
}

/// Longest promise that is believed, in seconds.
const PROMISE_S_MAX: u32 = 24 * 3600;
/// A promise is used for so much less than it lasts: clocks run at different speeds.
const MARGIN: Duration = Duration::from_secs(2);
/// How often it is looked at the most which have ended, when there is no room.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// Breaks, and changes of ours, that are remembered for answers that are under way.
const RECENT_MAX: usize = 4096;
/// Promises that end together and are told of one by one.
const TOLD_ONE_BY_ONE_MAX: usize = 256;
/// Ways into volumes that are remembered.
const WAYS_MAX: usize = 65_536;
/// Ways into one volume that are remembered: each break in it is told of on each of them.
const WAYS_OF_ONE_MAX: usize = 1024;

#[cfg(test)]
#[path = "promises_tests.rs"]
mod tests;
