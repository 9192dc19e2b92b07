//! Attributes that are set.

use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno as E;
use weft_fusedev::{Changes, Header, Moment, Reply};
use weft_vfs::{HandleId, NodeId, SetStat, SetTime};

use super::{Door, caller};
use crate::attributes::attributes_of;
use crate::handler::Handler;
use crate::meter::Operation;

impl<H: Handler> Door<H> {
    pub(super) fn setattr(&self, header: &Header, changes: &Changes, reply: Reply) {
        let Some(new) = new_of(changes) else {
            return self.refuse(Operation::Setattr, header, E::INVAL, reply);
        };
        let node = NodeId(header.node);
        // A length is set as by an open that writes; by a descriptor it was opened for that.
        if new.size.is_some() && changes.handle.is_none() && !self.modes_allow(header, 2) {
            return self.refuse(Operation::Setattr, header, E::ACCESS, reply);
        }
        // What the kernel reads by itself would not end where the file does.
        let reserved = new.size.map(|_| self.files.modes.reserve(self.inode(node)));
        if matches!(reserved, Some(None)) {
            return self.refuse(Operation::Setattr, header, E::TXTBSY, reply);
        }
        let asked = self.driver.meter.begin(Operation::Setattr, header);
        let set = self.handler.set_stat(caller(header), node, changes.handle.map(HandleId), new);
        self.driver_of_change(node).drive(asked, header, set, move |answer| {
            match answer {
                Ok(stat) => reply.attributes(&attributes_of(&stat), stat.ttl),
                Err(errno) => reply.error(errno.raw()),
            };
            drop(reserved);
        });
    }
}

/// Permission bits with the set-id and sticky bits, of a mode that may have a type as well.
pub(super) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// What the kernel wants set; `None` when it is a time that cannot be.
fn new_of(changes: &Changes) -> Option<SetStat> {
    let time = |moment: Option<Moment>| match moment {
        None => Some(None),
        Some(moment) => time_of(moment).map(Some),
    };
    Some(SetStat {
        mode: changes.mode.map(permissions),
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        modified: time(changes.modified)?,
        accessed: time(changes.accessed)?,
        kill_suidgid: changes.kill_suidgid,
    })
}

fn time_of(moment: Moment) -> Option<SetTime> {
    let Moment::At { seconds, nanoseconds } = moment else { return Some(SetTime::Now) };
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let part = Duration::from_nanos(nanoseconds.into());
    (part < Duration::from_secs(1)).then_some(SetTime::At(whole?.checked_add(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_times_and_impossible_ones_are_none() {
        let at = |seconds, nanoseconds| time_of(Moment::At { seconds, nanoseconds });
        let half = Duration::from_millis(500);
        assert_eq!(at(-1, 500_000_000), Some(SetTime::At(UNIX_EPOCH - half)));
        assert_eq!(at(1, 500_000_000), Some(SetTime::At(UNIX_EPOCH + Duration::from_secs(1) + half)));
        assert_eq!(at(0, 999_999_999), Some(SetTime::At(UNIX_EPOCH + Duration::from_nanos(999_999_999))));
        assert_eq!([at(0, 1_000_000_000), at(i64::MAX, u32::MAX)], [None; 2]);
        // Whatever it is, it ends nothing.
        let _ = [at(i64::MAX, 999_999_999), at(i64::MIN, 0)];
        assert_eq!(time_of(Moment::Now), Some(SetTime::Now));
    }
}
