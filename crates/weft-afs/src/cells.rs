//! All cells that are known: those that are written down, and those that DNS was asked about.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, RemoteError, Result};

use crate::cell::{Cell, CellName};
use crate::learnt::{self, Said, may_be_known};
use crate::resolver::Resolver;
use crate::vldb::Volume;
use crate::wire::vl;

/// Cells by name.
#[derive(Debug)]
pub(crate) struct Cells {
    written: HashMap<CellName, Arc<Known>>,
    /// Whom cells are asked for that are not written down, or have no servers there.
    resolver: Option<Resolver>,
    /// Held for one look or one change.
    learnt: Mutex<HashMap<CellName, Arc<Learnt>>>,
}

/// A cell, and what its database servers have said.
#[derive(Debug)]
pub(crate) struct Known {
    pub name: CellName,
    /// Held for one look or one change.
    servers: Mutex<Vec<SocketAddr>>,
    /// What was said, by what was asked. Held for one look or one change.
    pub volumes: Mutex<HashMap<String, Arc<Volume>>>,
    /// The server that answered last. Held for one look or one change.
    pub last: Mutex<Option<SocketAddr>>,
}

/// A name that DNS was asked about.
#[derive(Debug, Default)]
struct Learnt {
    /// Only one at a time asks.
    turn: tokio::sync::Mutex<()>,
    /// Held for one look or one change.
    state: Mutex<Option<State>>,
}

/// What came of that last.
#[derive(Clone, Debug)]
struct State {
    until: Instant,
    /// `None` where there is no such cell.
    outcome: std::result::Result<Option<Arc<Known>>, String>,
}

/// Whether there is a cell, and how long that is so; no bound where it is written down.
pub(crate) type There = (Option<Arc<Known>>, Option<Duration>);

impl Known {
    fn new(name: &CellName, servers: Vec<SocketAddr>) -> Known {
        let servers = Mutex::new(servers);
        Known { name: name.clone(), servers, volumes: Mutex::default(), last: Mutex::default() }
    }

    /// Its database servers: the one that answered last, and after it the others in their order, as in a circle.
    pub fn servers(&self) -> Vec<SocketAddr> {
        let (mut servers, last) = (self.servers.lock().clone(), *self.last.lock());
        if let Some(first) = last.and_then(|last| servers.iter().position(|server| *server == last)) {
            servers.rotate_left(first);
        }
        servers
    }
}

impl Cells {
    pub fn new(written: Vec<Cell>, resolver: Option<Resolver>) -> Cells {
        let known = |cell: Cell| {
            let servers = cell.servers.iter().map(|server| (server.address, vl::PORT).into()).collect();
            (cell.name.clone(), Arc::new(Known::new(&cell.name, servers)))
        };
        Cells { written: written.into_iter().map(known).collect(), resolver, learnt: Mutex::default() }
    }

    /// The names of those that are written down, in order.
    pub fn written(&self) -> Vec<&CellName> {
        let mut names: Vec<&CellName> = self.written.keys().collect();
        names.sort_unstable();
        names
    }

    /// A cell, as far as it is known without asking.
    pub fn at_hand(&self, cell: &CellName) -> Option<Arc<Known>> {
        if let Some(written) = self.written.get(cell).filter(|known| !known.servers.lock().is_empty()) {
            return Some(written.clone());
        }
        let learnt = self.learnt.lock().get(cell)?.clone();
        let state = learnt.state.lock();
        state.as_ref()?.outcome.as_ref().ok()?.clone()
    }

    /// All that are known without asking.
    pub fn all_at_hand(&self) -> Vec<Arc<Known>> {
        let learnt: Vec<CellName> = self.learnt.lock().keys().cloned().collect();
        self.written.keys().chain(&learnt).filter_map(|cell| self.at_hand(cell)).collect()
    }

    /// A cell that is to be there.
    ///
    /// # Errors
    /// `NotFound` when it is not; `Unreachable` when DNS does not answer.
    pub async fn known(&self, call: &Call, cell: &CellName) -> Result<Arc<Known>> {
        let nowhere = || match self.resolver {
            Some(_) => format!("{cell}: no cell of this name is in CellServDB, and DNS knows none"),
            None => format!("{cell}: no cell of this name is in CellServDB"),
        };
        self.find(call, cell).await?.0.ok_or_else(|| RemoteError::NotFound { detail: nowhere() })
    }

    /// A cell, if it is there.
    ///
    /// # Errors
    /// `Unreachable` when DNS does not answer.
    pub async fn find(&self, call: &Call, cell: &CellName) -> Result<There> {
        let written = self.written.get(cell);
        if let Some(written) = written.filter(|known| !known.servers.lock().is_empty()) {
            return Ok((Some(written.clone()), None));
        }
        let Some(resolver) = self.resolver.as_ref().filter(|_| may_be_known(cell)) else {
            return Ok((written.cloned(), None));
        };
        let learnt = self.learnt_of(cell)?;
        let asking = async {
            let _turn = learnt.turn.lock().await;
            match learnt.at_hand() {
                Some(state) => state,
                None => learnt.ask(resolver, cell).await,
            }
        };
        let state = match learnt.at_hand() {
            Some(state) => state,
            None => match tokio::time::timeout_at(call.deadline.into(), asking).await {
                Ok(state) => state,
                Err(_) => return Err(RemoteError::TimedOut { detail: format!("{cell}: asking DNS for the cell") }),
            },
        };
        match state.outcome {
            Ok(known) => Ok((known, Some(state.until.saturating_duration_since(Instant::now())))),
            Err(why) => {
                Err(RemoteError::Unreachable { detail: format!("{cell}: DNS does not say where it is: {why}") })
            }
        }
    }

    /// The place of what is learnt of a name.
    fn learnt_of(&self, cell: &CellName) -> Result<Arc<Learnt>> {
        let mut all = self.learnt.lock();
        if let Some(learnt) = all.get(cell) {
            return Ok(learnt.clone());
        }
        if all.len() >= LEARNT_MAX {
            // Cells stay; names that are none, and that nobody asks about just now, go.
            all.retain(|_, learnt| learnt.is_cell() || Arc::strong_count(learnt) > 1);
        }
        if all.len() >= LEARNT_MAX {
            return Err(RemoteError::Busy {
                detail: format!("{cell}: DNS is asked for too many cells"),
                retry_after: None,
            });
        }
        Ok(all.entry(cell.clone()).or_default().clone())
    }
}

impl Learnt {
    /// What counts still.
    fn at_hand(&self) -> Option<State> {
        self.state.lock().clone().filter(|state| state.until > Instant::now())
    }

    fn is_cell(&self) -> bool {
        self.state.lock().as_ref().is_some_and(|state| matches!(state.outcome, Ok(Some(_))))
    }

    /// Asks, and remembers what comes of it. A cell that is known stays while DNS does not answer.
    async fn ask(&self, resolver: &Resolver, cell: &CellName) -> State {
        let said = learnt::ask(resolver, cell, Instant::now() + DNS_PATIENCE).await;
        let mut state = self.state.lock();
        let before = state.take().and_then(|state| state.outcome.ok().flatten());
        let (lasts, outcome) = match said {
            Ok(Said { servers, lasts }) if servers.is_empty() => (lasts, Ok(None)),
            Ok(Said { servers, lasts }) => {
                tracing::debug!(%cell, ?servers, ?lasts, "a cell by DNS");
                let known = before.unwrap_or_else(|| Arc::new(Known::new(cell, Vec::new())));
                *known.servers.lock() = servers;
                (lasts, Ok(Some(known)))
            }
            Err(why) => {
                tracing::debug!(%cell, why, "DNS does not answer");
                (SILENCE_TIME, before.map(Some).ok_or(why))
            }
        };
        let fresh = State { until: Instant::now() + lasts, outcome };
        *state = Some(fresh.clone());
        fresh
    }
}

/// How long one name may take.
const DNS_PATIENCE: Duration = Duration::from_secs(6);
/// How long DNS is not asked again for a name for which it did not answer.
const SILENCE_TIME: Duration = Duration::from_secs(30);
/// Names that DNS was asked about and that are remembered.
const LEARNT_MAX: usize = 1000;

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
