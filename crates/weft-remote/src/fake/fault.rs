//! Faults to order.

use bytes::Bytes;
use tokio::sync::watch;

use crate::RemoteError;

/// A call of [`Remote`](crate::Remote) that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `lookup`.
    Lookup,
    /// `attributes`.
    Attributes,
    /// `entries`.
    Entries,
    /// `fetch`.
    Fetch,
    /// `read_link`.
    ReadLink,
    /// `apply`.
    Apply,
    /// The answer of `apply`, on its way: the change is made.
    ApplyAnswer,
    /// The answer of `lookup`, on its way.
    LookupAnswer,
    /// The answer of `entries`, on its way.
    EntriesAnswer,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call waits at this gate, and gives up with `TimedOut` at its deadline.
    Delay(Gate),
    /// The call fails with this.
    Error(RemoteError),
    /// The file is taken away before the call is answered.
    Disappear,
    /// The body waits at the gate after so many bytes. It has no deadline of its own.
    Stall {
        /// Bytes delivered before.
        after: u64,
        /// Where it waits.
        gate: Gate,
    },
    /// After so many bytes of a body the file becomes `to` under a new version, and the body ends with
    /// `VersionChanged`.
    ChangeUnderReader {
        /// Bytes delivered before.
        after: u64,
        /// The new content.
        to: Bytes,
    },
    /// The body ends with `VersionChanged` after so many bytes, by whatever has changed the file meanwhile.
    Outdated {
        /// Bytes delivered before.
        after: u64,
    },
    /// The body ends with `CutShort` after so many bytes.
    CutShort {
        /// Bytes delivered before.
        after: u64,
    },
}

impl Fault {
    /// Whether it strikes a body on its way, and not the call itself.
    pub(super) fn strikes_body(&self) -> bool {
        match self {
            Fault::Stall { .. } | Fault::ChangeUnderReader { .. } | Fault::Outdated { .. } | Fault::CutShort { .. } => {
                true
            }
            Fault::Delay(_) | Fault::Error(_) | Fault::Disappear => false,
        }
    }
}

/// A fault with where and how often it happens: everywhere and for ever unless limited.
#[derive(Clone, Debug)]
pub struct Order {
    pub(super) fault: Fault,
    operation: Option<Operation>,
    path: Option<Vec<u8>>,
    spared_left: u32,
    times_left: Option<u32>,
}

impl Order {
    /// This fault on every call.
    pub fn of(fault: Fault) -> Order {
        Order { fault, operation: None, path: None, spared_left: 0, times_left: None }
    }

    /// Only on this operation.
    pub fn on(self, operation: Operation) -> Order {
        Order { operation: Some(operation), ..self }
    }

    /// Only where this path is asked about; for `lookup` that is the path of what is looked up.
    pub fn at(self, path: impl AsRef<[u8]>) -> Order {
        Order { path: Some(path.as_ref().to_vec()), ..self }
    }

    /// Not the first times.
    pub fn after(self, times: u32) -> Order {
        Order { spared_left: times, ..self }
    }

    /// Only so many times.
    pub fn times(self, times: u32) -> Order {
        Order { times_left: Some(times), ..self }
    }

    fn matches(&self, operation: Operation, path: &[u8]) -> bool {
        self.times_left != Some(0)
            && self.operation.is_none_or(|wanted| wanted == operation)
            && self.path.as_ref().is_none_or(|wanted| wanted == path)
    }
}

impl From<Fault> for Order {
    fn from(fault: Fault) -> Order {
        Order::of(fault)
    }
}

/// The faults that happen now to this operation on this path, in the order they were ordered; each is counted.
pub(super) fn take(orders: &mut Vec<Order>, operation: Operation, path: &[u8], strikes_body: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for order in orders.iter_mut() {
        if order.fault.strikes_body() == strikes_body && order.matches(operation, path) {
            if order.spared_left > 0 {
                order.spared_left -= 1;
                continue;
            }
            faults.push(order.fault.clone());
            order.times_left = order.times_left.map(|times| times - 1);
        }
    }
    orders.retain(|order| order.times_left != Some(0));
    faults
}

/// A gate that calls wait at until a test opens it. Clones are one gate; once open it stays open.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
    arrived: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate { open: watch::Sender::new(false), arrived: watch::Sender::new(0) }
    }

    /// Lets everybody through.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until so many calls in all have come to the gate.
    pub async fn arrived(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        arrived.wait_for(|so_far| *so_far >= count).await.expect("the gate itself holds the sender");
    }

    /// Waits until the gate is open.
    pub(super) async fn pass(&self) {
        self.arrived.send_modify(|so_far| *so_far += 1);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the gate itself holds the sender");
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}
