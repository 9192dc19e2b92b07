//! Trying again by itself what could not be sent for a reason that may pass: a full disk, a source that is away, a login that
//! has ended.
//!
//! One task for the whole file system sleeps until something is left over, and then tries with growing pauses until
//! nothing is left over any more. What was refused to whoever wrote it is tried again when that user has logged in anew, which
//! is looked for every now and then, and else rarely: nobody tells of a right that was given. What the source refuses for good,
//! as a file that it has in another version, is left to people; so is what is open for writing, which is sent when it is closed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weft_remote::{Call, Caller, RemoteError};
use weft_store::BindingId;

use crate::VfsError;
use crate::inode::Inode;
use crate::vfs::Vfs;

/// When what could not be sent is tried again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Not at all.
    Never,
    /// At each turn.
    Soon,
    /// It was refused to a user with this login, then: with another one, or a long time after that.
    Otherwise { login: u64, refused: Instant },
}

impl Again {
    /// After this, with this login.
    pub(crate) fn after(error: &VfsError, login: u64) -> Again {
        match error {
            error if error.may_pass() => Again::Soon,
            error if is_refusal(error) => Again::Otherwise { login, refused: Instant::now() },
            _ => Again::Never,
        }
    }
}

/// Who is asked for, at which source.
type Asker = (BindingId, u32);

/// One turn of trying.
struct Turn {
    /// Whether the time has come for all that may pass, and not only for who has logged in anew.
    is_full: bool,
    /// The logins, as far as they were looked at.
    logins: HashMap<Asker, u64>,
    /// Sources that do not answer.
    silent: HashSet<BindingId>,
}

impl Vfs {
    /// Starts the task. It ends with the file system, at the latest when the runtime does.
    pub(crate) fn send_again(self: &Arc<Self>) {
        let (vfs, left_over) = (Arc::downgrade(self), self.left_over.clone());
        self.runtime.spawn(async move {
            while vfs.strong_count() > 0 {
                left_over.notified().await;
                let (mut pause, mut due) = (PAUSE_MIN, Instant::now() + PAUSE_MIN);
                let mut is_refused = false;
                loop {
                    let until = if is_refused { due.min(Instant::now() + LOGIN_PAUSE) } else { due };
                    if tokio::time::timeout_at(until, left_over.notified()).await.is_ok() {
                        // Something else is left over, maybe of another source.
                        (pause, due) = (PAUSE_MIN, Instant::now() + PAUSE_MIN);
                        continue;
                    }
                    let Some(vfs) = vfs.upgrade().filter(|vfs| !vfs.ending.has_begun()) else { return };
                    let is_full = due <= Instant::now();
                    let left = vfs.send_left_over(is_full).await;
                    if left.is_empty() {
                        break;
                    }
                    is_refused = left.iter().any(|again| matches!(again, Again::Otherwise { .. }));
                    if is_full {
                        pause = longer(pause);
                        due = Instant::now() + pause;
                    }
                }
            }
        });
    }

    /// Something could not be sent, for this reason.
    pub(crate) fn tell_left_over(&self, error: &VfsError) {
        if error.may_pass() || is_refusal(error) {
            self.left_over.notify_one();
        }
    }

    /// The mark of the login with which a file is sent for somebody.
    pub(crate) async fn login_of(&self, caller: Caller, inode: &Inode) -> u64 {
        let Ok(remote) = self.remote_of(inode) else { return 0 };
        remote.login(&Call::within(caller, self.options.deadline)).await
    }

    /// Tries each that is left over and due once; returns when those are tried again that are left over then.
    async fn send_left_over(self: &Arc<Self>, is_full: bool) -> Vec<Again> {
        let mut turn = Turn { is_full, logins: HashMap::new(), silent: HashSet::new() };
        let inodes: Vec<_> = self.drafts.lock().values().cloned().collect();
        for inode in &inodes {
            let binding = inode.record.read().binding;
            if turn.silent.contains(&binding) || !self.is_due(inode, &mut turn).await {
                continue;
            }
            let _gate = inode.gate.lock().await;
            let outcome = match self.send_for_writer(inode).await {
                Ok(()) => self.retire(inode).await,
                failed => failed,
            };
            if outcome.is_err_and(|error| error.is_silence()) {
                // Each of its files would wait as long.
                turn.silent.insert(binding);
            }
        }
        inodes.iter().map(|inode| self.again(inode)).filter(|again| *again != Again::Never).collect()
    }

    /// Whether a file is to be tried in a turn.
    async fn is_due(&self, inode: &Arc<Inode>, turn: &mut Turn) -> bool {
        match self.again(inode) {
            Again::Never => false,
            Again::Soon => turn.is_full,
            Again::Otherwise { refused, .. } if turn.is_full && refused.elapsed() >= REFUSED_PAUSE => true,
            Again::Otherwise { login, .. } => {
                let writer = inode.draft().map_or(Caller::DAEMON, |draft| draft.writer());
                let asker = (inode.record.read().binding, writer.uid);
                let now = match turn.logins.get(&asker) {
                    Some(now) => *now,
                    None => self.login_of(writer, inode).await,
                };
                turn.logins.insert(asker, now);
                now != login
            }
        }
    }

    /// When a file is to be tried again of which something is left over.
    fn again(&self, inode: &Inode) -> Again {
        let failed = inode.draft().filter(|draft| draft.dirty.is_unsent()).and_then(|draft| draft.failed());
        failed.filter(|_| !self.is_open_for_writing(inode)).map_or(Again::Never, |failed| failed.again)
    }
}

/// Whether the source refuses whoever asked, and may not refuse another, or the same with another login.
fn is_refusal(error: &VfsError) -> bool {
    matches!(error, VfsError::Remote(RemoteError::Denied { .. }))
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// Before the first try.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Between two tries at most.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// After which a file is tried again that was refused to the same login.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);
/// How often is looked whether somebody has logged in, while something is refused.
const LOGIN_PAUSE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pauses: Vec<_> = std::iter::successors(Some(PAUSE_MIN), |pause| Some(longer(*pause))).take(12).collect();
        assert_eq!(pauses[..3].iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(pauses[11], PAUSE_MAX);
    }
}
