//! Who was told "you may not" several times in a row, or that a directory is not empty.
//!
//! A server of OpenAFS answers who is refused more than ten times in a row only after 3 s each (`fileserver
//! -abortthreshold`, `rxi_SendCallAbort` of OpenAFS `src/rx/rx.c`: by the aborts of one code of a channel). A search through
//! directories that the asker may not read would take that for every one of them. So whoever was refused a few times asks for
//! the status first, of which a refusal is no abort, and does not ask for what that says will be refused.

use std::collections::HashMap;
use std::future::Future;

use parking_lot::Mutex;
use weft_remote::{Call, RemoteError, Result};

use crate::access::Operation;
use crate::afs::Shared;
use crate::cell::CellName;
use crate::facts;
use crate::identity::Spot;
use crate::look::shown;

/// Who asks: a cell, and the number of the token. An administrator, who may more than a status tells, is refused nothing, and
/// so never among these.
type Asker = (CellName, Option<u64>);

/// How often each was refused since anything was granted. Held for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Asker, u32>>);

impl Refusals {
    fn are_many(&self, asker: &Asker) -> bool {
        self.0.lock().get(asker).is_some_and(|refusals| *refusals >= MANY)
    }

    fn note<T>(&self, asker: Asker, outcome: &Result<T>) {
        let mut askers = self.0.lock();
        match outcome {
            Ok(_) => {
                askers.remove(&asker);
            }
            Err(RemoteError::Denied { .. } | RemoteError::NotEmpty { .. }) => {
                if askers.len() >= ASKERS_MAX {
                    askers.clear();
                }
                let refusals = askers.entry(asker).or_default();
                *refusals = refusals.saturating_add(1);
            }
            Err(_) => {}
        }
    }
}

impl Shared {
    /// Asks a server, for what needs these to be allowed, unless the asker was refused often lately and will be again.
    ///
    /// # Errors
    /// `Denied`; what the asking says.
    pub async fn ask_if_allowed<T>(
        &self,
        call: &Call,
        needs: &[(&Spot, Operation)],
        asking: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let Some((first, _)) = needs.first() else { return asking.await };
        let asker = self.asker(call, &first.cell).await;
        if self.refusals.are_many(&asker) {
            for (spot, operation) in needs {
                let status = self.status(call, spot).await?.status;
                if !facts::may(&status, *operation, status.caller_access) {
                    let detail = format!("{}: the rights in its directory do not allow it", shown(spot));
                    return Err(RemoteError::Denied { detail });
                }
            }
        }
        let outcome = asking.await;
        self.refusals.note(asker, &outcome);
        outcome
    }

    /// Whether whoever asks was refused often lately.
    pub async fn is_refused_often(&self, call: &Call, cell: &CellName) -> bool {
        self.refusals.are_many(&self.asker(call, cell).await)
    }

    async fn asker(&self, call: &Call, cell: &CellName) -> Asker {
        let token = self.files.logins.token(call, cell).await;
        (cell.clone(), token.map(|token| token.id))
    }
}

/// How many refusals in a row are many: well below those after which servers answer late, for several may be under way.
const MANY: u32 = 4;
/// Most askers that are remembered.
const ASKERS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_are_counted_for_each_asker() {
        let refusals = Refusals::default();
        let [one, other]: [Asker; 2] =
            [None, Some(7)].map(|token| (CellName::new(b"weft.test").expect("a name"), token));
        let denied = || Err::<(), _>(RemoteError::Denied { detail: String::new() });
        for _ in 1..MANY {
            refusals.note(one.clone(), &denied());
        }
        assert!(!refusals.are_many(&one));
        refusals.note(one.clone(), &Err::<(), _>(RemoteError::TimedOut { detail: String::new() }));
        refusals.note(one.clone(), &denied());
        assert!(refusals.are_many(&one) && !refusals.are_many(&other));
        refusals.note(other.clone(), &Ok(()));
        assert!(refusals.are_many(&one));
        refusals.note(one.clone(), &Ok(()));
        assert!(!refusals.are_many(&one));
        let full = || Err::<(), _>(RemoteError::NotEmpty { detail: String::new() });
        (0..MANY).for_each(|_| refusals.note(one.clone(), &full()));
        assert!(refusals.are_many(&one), "servers count that as well");
    }
}
