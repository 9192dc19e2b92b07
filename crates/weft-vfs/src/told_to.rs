//! Who was told lately what a directory is.
//!
//! The kernel asks again about a directory in which it has had a name made, moved or taken away. An answer of before that,
//! to somebody else who asked, may come to it after that, and it would believe it for as long as that answer says: a change
//! of attributes that it is told of keeps older answers out, a change of names that it asked for does not (fs/fuse/dir.c of
//! Linux 6.18: `fuse_dir_changed` leaves the number alone by which `fuse_change_attributes` knows what is older). So it is
//! told of attributes that changed where there may be such an answer, and only there, for each notice wakes a thread.

use std::time::Instant;

use weft_remote::Call;

use crate::absences::ON_ITS_WAY_MAX;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::Vfs;

/// To whom, by thread, a directory's attributes were told last, and when to anybody else.
#[derive(Debug, Default)]
pub(crate) struct ToldTo {
    last: Option<(u32, Instant)>,
    others: Option<Instant>,
}

impl ToldTo {
    /// A thread is about to be told; 0 is none in particular.
    pub(crate) fn note(&mut self, pid: u32, now: Instant) {
        if let Some((other, at)) = self.last.replace((pid, now))
            && other != pid
        {
            self.others = Some(at);
        }
    }

    /// Whether an answer to anybody but this thread, which waits for one answer at a time, may be on its way. All of them are
    /// outdated then.
    fn outdate(&mut self, pid: u32, now: Instant) -> bool {
        let to_others = match self.last {
            Some((last, at)) if last != pid || pid == 0 => Some(at),
            _ => self.others,
        };
        let any = to_others.is_some_and(|at| now.saturating_duration_since(at) < ON_ITS_WAY_MAX);
        if any {
            *self = ToldTo::default();
        }
        any
    }
}

impl Vfs {
    /// Returns when no answer about these directories that was given before a change of their names, which is known by now,
    /// can be taken for one of after it.
    pub(crate) async fn outdate_answers(&self, call: &Call, dirs: &[&Inode]) {
        let (now, mut any) = (Instant::now(), false);
        for dir in dirs.iter().filter(|dir| dir.content.lock().told_to.outdate(call.caller.pid, now)) {
            self.notices.send(Notice::Attributes { node: self.namespace.shown(dir.id) });
            any = true;
        }
        if any {
            self.notices.settled().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what another thread was told lately may be on its way, what the asking one was told is not; each answer is outdated
    /// once.
    #[test]
    fn answers_to_others_are_on_their_way_for_a_time() {
        let begin = Instant::now();
        let at = |parts: u32| begin + ON_ITS_WAY_MAX / 10 * parts;
        let told_to = |pids: &[u32]| {
            let mut told = ToldTo::default();
            (0..).zip(pids).for_each(|(nth, pid)| told.note(*pid, at(nth)));
            told
        };
        assert!(!told_to(&[]).outdate(1, at(0)), "nobody was told");
        assert!(!told_to(&[1, 1]).outdate(1, at(2)) && told_to(&[1, 1]).outdate(2, at(2)));
        let both = || told_to(&[1, 2, 2]);
        assert!(both().outdate(1, at(5)) && both().outdate(2, at(5)));
        assert!(both().outdate(1, at(11)) && !both().outdate(2, at(11)), "the first is there by now");
        assert!(!both().outdate(1, at(12)));
        assert!(told_to(&[0]).outdate(0, at(1)), "one of whom nothing is known");
        let mut told = both();
        assert!(told.outdate(1, at(3)) && !told.outdate(1, at(3)) && !told.outdate(2, at(3)));
        told.note(3, at(4));
        assert!(told.outdate(1, at(5)));
    }
}
