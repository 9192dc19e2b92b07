//! Locks of programs: fcntl(2) and flock(2).

use rustix::io::Errno as E;
use weft_fusedev::{Header, Lock, LockFamily, LockRange, Reply};
use weft_remote::LockMode;
use weft_vfs::{HandleId, NodeId};

use super::{Door, caller};
use crate::Errno;
use crate::handler::Handler;
use crate::lock_table::Patience;
use crate::locks::{Family, Held, Owner};
use crate::meter::Operation;

/// The file that a request about locks means: they are of all its versions.
pub(super) fn locked(header: &Header) -> NodeId {
    weft_vfs::file_of(NodeId(header.node))
}

impl<H: Handler> Door<H> {
    /// Which lock is in the way of another.
    pub(super) fn getlk(&self, header: &Header, lock: &Lock, reply: Reply) {
        let Some((wanted, Asked::Take)) = held_of(header, lock) else {
            return self.refuse(Operation::Getlk, header, E::INVAL, reply);
        };
        let asked = self.driver.meter.begin(Operation::Getlk, header);
        if let Some(Held { start, end, exclusive, pid, .. }) = self.locks.in_the_way(locked(header), &wanted) {
            asked.answered(None);
            reply.lock(LockRange { start, end, kind: if exclusive { WRITE } else { READ }, pid });
            return;
        }
        let elsewhere = self.locks.clone().in_the_way_elsewhere(caller(header), locked(header), wanted);
        let (none, (start, end)) = (LockRange { kind: UNLOCK, ..lock.range }, crate::lock_table::WHOLE);
        self.driver.drive(asked, header, elsewhere, move |answer| {
            match answer {
                Ok(None) => reply.lock(none),
                // Whose it is nobody says.
                Ok(Some(LockMode::Exclusive)) => reply.lock(LockRange { start, end, kind: WRITE, pid: 0 }),
                Ok(Some(_)) => reply.lock(LockRange { start, end, kind: READ, pid: 0 }),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    /// Takes a lock, or gives it back.
    pub(super) fn setlk(&self, header: &Header, lock: &Lock, patience: Patience, reply: Reply) {
        let operation = if patience == Patience::None { Operation::Setlk } else { Operation::Setlkw };
        let (caller, node, locks) = (caller(header), locked(header), self.locks.clone());
        let Some((held, asked)) = held_of(header, lock) else { return self.refuse(operation, header, E::INVAL, reply) };
        if asked == Asked::GiveBack {
            let given_back = self.driver.to_its_end(locks.give_back(caller, node, held));
            let given_back = async {
                given_back.await;
                Ok(())
            };
            return self.finish(operation, header, given_back, reply);
        }
        let taken = locks.take(caller, node, held, patience);
        let asked = self.driver.meter.begin(operation, header);
        let answer = move |answer: Result<(), Errno>| {
            match answer {
                Ok(()) => reply.done(),
                Err(errno) => reply.error(errno.raw()),
            };
        };
        match patience {
            Patience::None => self.driver.drive(asked, header, taken, answer),
            Patience::Endless => self.driver.drive_unbounded(asked, header, taken, answer),
        }
    }

    /// What else closing a descriptor means: the process loses its locks on the file, after what it wrote is sent.
    pub(super) fn flush(&self, header: &Header, handle: HandleId, owner: u64, reply: Reply) {
        let flushed = self.handler.flush(caller(header), handle);
        let node = locked(header);
        if !self.locks.has(node) {
            return self.finish_sending(Operation::Flush, header, flushed, reply);
        }
        let given_back = self.locks.clone().closed_by(caller(header), node, owner);
        let flushed = async {
            let outcome = flushed.await;
            given_back.await;
            outcome
        };
        self.finish_sending(Operation::Flush, header, flushed, reply);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Take,
    GiveBack,
}

/// What a request is about; `None` when it makes no sense.
fn held_of(header: &Header, lock: &Lock) -> Option<(Held, Asked)> {
    let LockRange { start, end, kind, pid } = lock.range;
    let asked = match kind {
        READ | WRITE => Asked::Take,
        UNLOCK => Asked::GiveBack,
        _ => return None,
    };
    let family = match lock.family {
        LockFamily::Posix => Family::Posix,
        LockFamily::Flock => Family::Flock,
    };
    let (start, end) = if family == Family::Flock { crate::lock_table::WHOLE } else { (start, end) };
    let owner = Owner { family, number: lock.owner };
    let held = Held {
        owner,
        start,
        end,
        exclusive: kind == WRITE,
        pid,
        uid: header.uid,
        gid: header.gid,
        handle: lock.handle,
    };
    (start <= end && end <= crate::locks::END).then_some((held, asked))
}

/// Kinds of locks of fcntl(2) (include/uapi/asm-generic/fcntl.h).
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;
