//! Rows of listings that were told, held while each is promised: the next listing of a directory asks only about names that are
//! new, and about what was told of or changed from here since.
//!
//! * A directory's list gives rights in its files, and no promise of these ends with it: rows are for whoever has the same token
//!   and the same rights in the directory.
//! * Of a file that has several names no row stands: a change from here of one of them changes what the rows of all tell. A
//!   second name that somebody else makes breaks the promise of the file (OpenAFS `src/viced/afsfileprocs.c`, `SAFSS_Link`).
//! * Rows are held for half of the time that they were told for, so that what a caller knows of them does not end one by one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use weft_remote::{Audience, Entry, FileKind, Lease, Name, clock};

use crate::access::Rights;
use crate::afs::Shared;
use crate::fid::Fid;
use crate::identity::Spot;
use crate::own_changes::Moment;
use crate::promises::Ticket;
use crate::retimed::Written;

/// A name in a directory with what it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub fid: Fid,
    pub entry: Arc<Entry>,
    /// Of the fid and all that its status tells.
    pub hash: u64,
    /// None where its server has not told its status.
    pub told: Option<StatusTold>,
}

/// What goes with the status of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusTold {
    pub written: Written,
    pub audience: Audience,
    pub lease: Lease,
    /// The token by which it was asked for.
    pub token: Option<u64>,
    /// From before it was asked for, as is the moment.
    pub ticket: Ticket,
    pub moment: Moment,
}

/// Whose rows of which directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    pub dir: Spot,
    pub token: Option<u64>,
}

/// What somebody may do in a directory, and what anybody may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub caller: Rights,
    pub anybody: Rights,
}

/// The rows of one listing.
#[derive(Debug)]
struct HeldRows {
    access: Access,
    /// How long they are of use.
    until: SystemTime,
    rows: HashMap<Fid, Row, RandomState>,
}

/// Those of as many listings as there is room for. Held for one look or one entry.
#[derive(Debug, Default)]
pub(crate) struct ToldRows(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// With when each was used last.
    held: HashMap<Asker, (Arc<HeldRows>, u64)>,
    rows: usize,
    clock: u64,
}

/// The rows of a listing, from the one before as far as these stand.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub rows: Vec<Row>,
    /// The other names.
    pub asked: Vec<(Name, Fid)>,
    /// How long the rows are of use, where some were held.
    pub until: Option<SystemTime>,
    /// Whether some of the other names had been told to this asker before, and are promised no more.
    pub is_renewed: bool,
}

/// What is held.
enum Of {
    Use(Arc<HeldRows>),
    /// Of other rights, or for too long.
    NoUse,
}

impl Shared {
    /// Which of these names of a directory lead to what was told of each before and is promised to be so still.
    pub fn standing_rows(&self, asker: &Asker, access: Option<Access>, names: Vec<(Name, Fid)>) -> Standing {
        let held = match access.map(|access| self.told_rows.get(asker, access)).unwrap_or_default() {
            Some(Of::Use(held)) => held,
            Some(Of::NoUse) => return Standing { asked: names, is_renewed: true, ..Standing::default() },
            None => return Standing { asked: names, ..Standing::default() },
        };
        let cell = &asker.dir.cell;
        let row_of = |(name, fid): (Name, Fid)| match held.rows.get(&fid) {
            Some(row) if row.entry.name == name => Ok(row),
            _ => Err((name, fid)),
        };
        let (mut known, mut asked) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            match row_of(name) {
                Ok(row) => known.extend(row.told.map(|told| (row, told))),
                Err(name) => asked.push(name),
            }
        }
        let changed = self.own_changes.since(cell, known.iter().map(|(row, told)| (row.fid, told.moment)));
        let of_bytes = known.iter().map(|(row, told)| (row.fid, told.ticket, told.written));
        let leases = self.promises.leases_since(cell, of_bytes);
        let (mut rows, mut is_renewed) = (Vec::with_capacity(known.len()), false);
        for ((row, told), (changed, lease)) in known.into_iter().zip(changed.into_iter().zip(leases)) {
            match lease.filter(|_| !changed) {
                Some(lease) => rows.push(Row { told: Some(StatusTold { lease, ..told }), ..row.clone() }),
                None => {
                    is_renewed = true;
                    asked.push((row.entry.name.clone(), row.fid));
                }
            }
        }
        Standing { rows, asked, until: Some(held.until), is_renewed }
    }
}

impl ToldRows {
    /// Whether the rows of a listing of so many names are held.
    pub fn holds(names: usize) -> bool {
        (ROWS_MIN..=ROWS_MAX).contains(&names)
    }

    /// What is held of a directory for who has these rights in it.
    fn get(&self, asker: &Asker, access: Access) -> Option<Of> {
        let mut table = self.0.lock();
        table.clock += 1;
        let now = table.clock;
        let (held, used) = table.held.get_mut(asker)?;
        if held.access != access || held.until <= clock::now() {
            return Some(Of::NoUse);
        }
        *used = now;
        Some(Of::Use(held.clone()))
    }

    /// Holds the rows of a listing that was told just now, with a lease that ends then; `former` is how long those of them are of
    /// use that stood.
    pub fn hold<'a>(
        &self,
        asker: Asker,
        access: Access,
        (former, ends): (Option<SystemTime>, SystemTime),
        rows: impl Iterator<Item = &'a Row>,
    ) {
        let now = clock::now();
        let half = now + ends.duration_since(now).unwrap_or_default() / 2;
        let until = former.map_or(half, |former| former.min(half));
        let can_stand = |row: &&Row| row.can_stand(asker.token);
        let room = rows.size_hint().1.unwrap_or(0);
        let mut standing = HashMap::with_capacity_and_hasher(room, RandomState::default());
        standing.extend(rows.filter(can_stand).map(|row| (row.fid, row.clone())));
        let mut table = self.0.lock();
        if let Some((gone, _)) = table.held.remove(&asker) {
            table.rows -= gone.rows.len();
        }
        while table.rows + standing.len() > ROWS_MAX && table.drop_oldest() {}
        table.rows += standing.len();
        table.clock += 1;
        let used = table.clock;
        table.held.insert(asker, (Arc::new(HeldRows { access, until, rows: standing }), used));
    }
}

impl Table {
    /// Lets go of those that were used longest ago; whether there were any.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.held.iter().min_by_key(|(_, (_, used))| *used).map(|(asker, _)| asker.clone());
        let gone = oldest.and_then(|asker| self.held.remove(&asker));
        self.rows -= gone.as_ref().map_or(0, |(gone, _)| gone.rows.len());
        gone.is_some()
    }
}

impl Row {
    /// Whether changes of all that it tells are promised to be told.
    fn can_stand(&self, token: Option<u64>) -> bool {
        let is_promised = |told: &StatusTold| matches!(told.lease, Lease::UntilBroken(_)) && told.token == token;
        let attributes = &self.entry.attributes;
        let is_alone = attributes.kind == FileKind::Directory || attributes.links == Some(1);
        is_alone && self.told.as_ref().is_some_and(is_promised)
    }
}

/// Directories with fewer names are asked about with one question.
const ROWS_MIN: usize = crate::wire::status::FIDS_MAX + 1;
/// Most rows that are held; each takes about 500 bytes.
const ROWS_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_remote::Attributes;

    use super::*;
    use crate::cell::CellName;
    use crate::fid::VolumeId;
    use crate::identity::Identity;

    fn asker(vnode: u32, token: Option<u64>) -> Asker {
        let cell = CellName::new(b"weft.test").expect("a name");
        let fid = Fid { volume: VolumeId(1), vnode, unique: 1 };
        Asker { dir: Spot { cell, fid, way: Identity::Top.way_in() }, token }
    }

    /// A row of a file with so many names, asked for with this token.
    fn row(vnode: u32, links: u32, (token, lease): (Option<u64>, Lease)) -> Row {
        let promises = crate::promises::Promises::new(10, Arc::new(weft_remote::News::new(10)));
        let (ticket, moment) = (promises.ticket(), crate::own_changes::OwnChanges::default().moment());
        let dir = asker(1, None).dir;
        let fid = Fid { vnode, ..dir.fid };
        let entry = Entry {
            name: Name::new(format!("f{vnode}")).expect("a name"),
            id: Identity::File(dir.beside(fid)).file_id(),
            attributes: Attributes { links: Some(links), ..Attributes::of_kind(FileKind::File) },
            version: weft_remote::Version::None,
        };
        let written = Written { data_version: 1, modified_s: 1 };
        let told = StatusTold { written, audience: Audience::Everyone, lease, token, ticket, moment };
        Row { fid, entry: Arc::new(entry), hash: 0, told: Some(told) }
    }

    const READS: Access = Access { caller: Rights::READING, anybody: Rights::READING };

    #[test]
    fn rows_are_held_for_whom_and_while_they_may_stand() {
        let (rows, now) = (ToldRows::default(), clock::now());
        let ends = now + Duration::from_secs(100);
        let promised = Lease::UntilBroken(ends);
        let told = [
            row(2, 1, (Some(7), promised)),
            row(4, 2, (Some(7), promised)),
            row(6, 1, (Some(7), Lease::Spent)),
            row(8, 1, (None, promised)),
            Row { told: None, ..row(10, 1, (Some(7), promised)) },
        ];
        let count = |asker: &Asker, access| match rows.get(asker, access) {
            Some(Of::Use(held)) => Some(held.rows.len()),
            Some(Of::NoUse) => Some(0),
            None => None,
        };
        let of = asker(1, Some(7));
        rows.hold(of.clone(), READS, (None, ends), told.iter());
        assert_eq!(count(&of, READS), Some(1), "of one name, promised, and told to who has the token");
        assert_eq!(count(&of, Access { caller: Rights::ALL, ..READS }), Some(0), "other rights");
        assert_eq!((count(&asker(1, None), READS), count(&asker(3, Some(7)), READS)), (None, None));
        rows.hold(of.clone(), READS, (Some(now), ends), told.iter());
        assert_eq!(count(&of, READS), Some(0), "for as long as the oldest of them");
        rows.hold(of.clone(), READS, (None, now), told.iter());
        assert_eq!(count(&of, READS), Some(0), "of a lease that has ended");
    }

    #[test]
    fn what_was_used_longest_ago_goes() {
        let rows = ToldRows::default();
        let ends = clock::now() + Duration::from_secs(100);
        let few: Vec<Row> = (0..4).map(|at| row(2 + 2 * at, 1, (None, Lease::UntilBroken(ends)))).collect();
        let hold = |dir, of: &[Row]| rows.hold(asker(dir, None), READS, (None, ends), of.iter());
        let is_held = |dir| rows.get(&asker(dir, None), READS).is_some();
        hold(1, &few);
        hold(3, &few);
        hold(1, &few);
        assert_eq!(rows.0.lock().rows, 8, "those of before are not counted twice");
        assert!(is_held(3) && is_held(1));
        let many: Vec<Row> = (0..ROWS_MAX as u32 - 4)
            .map(|at| Row { fid: Fid { vnode: 100 + at, ..few[0].fid }, ..few[0].clone() })
            .collect();
        hold(5, &many);
        assert!(!is_held(3) && is_held(1) && is_held(5));
        assert_eq!(rows.0.lock().rows, ROWS_MAX);
    }
}
