//! What a daemon that is replaced must not cut in two: a change of names, and a lock that is being asked for at a source, or
//! given back there.
//!
//! Of a change that was begun and not answered the next daemon does not know whether it was made. If its name is there by then,
//! that can be by somebody else, and two would be told that they have made it. A source that does not tell whose a lock is keeps
//! one that the asker did not hear of, until its time has come (300 s at AFS's file servers): the next daemon could neither use
//! it nor give it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// Changes that sources are asked for: those that have begun come to their end. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<RwLock<()>>);

/// A change that has begun, for as long as this lives.
pub(crate) type Changing = OwnedRwLockReadGuard<()>;

impl Changes {
    /// Begins one. After [`Changes::end`] none begins any more: whoever asks for one waits.
    pub(crate) async fn begin(&self) -> Changing {
        self.0.clone().read_owned().await
    }

    /// The same without a wait: `None` after [`Changes::end`].
    pub(crate) fn try_begin(&self) -> Option<Changing> {
        self.0.clone().try_read_owned().ok()
    }

    /// Lets none begin from now on, for good: for a process that is about to end. Returns when all that had begun have come
    /// to their end; `false` when they have not within `patience`.
    pub async fn end(&self, patience: Duration) -> bool {
        let ended = tokio::time::timeout(patience, self.0.clone().write_owned()).await;
        ended.map(std::mem::forget).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_has_begun_comes_to_its_end_and_nothing_else_begins() {
        let changes = Changes::default();
        let begun = changes.begin().await;
        assert!(!changes.end(Duration::from_millis(1)).await, "one is under way");
        let ending = tokio::spawn({
            let changes = changes.clone();
            async move { changes.end(Duration::from_secs(60)).await }
        });
        drop(begun);
        assert!(ending.await.expect("no panic"));
        let late = tokio::time::timeout(Duration::from_millis(1), changes.begin()).await;
        assert!(late.is_err() && changes.try_begin().is_none(), "begun after the end");
    }
}
