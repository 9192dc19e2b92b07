//! What an endpoint is told once, and the limits that nobody sets.

use std::collections::BTreeSet;
use std::time::Duration;

/// Calls of one route that wait for a channel, at most.
pub(crate) const WAITING_CALLS_MAX: usize = 4096;

/// Packets that concern no running call and wait to be sent, at most; more are dropped.
pub(crate) const CONTROL_PACKETS_MAX: usize = 256;

/// Packets of a reply that are taken ahead of the application.
pub(crate) const REPLY_WINDOW_PACKETS: u8 = 255;

/// Packets of a request that are taken ahead of the application: anybody can send one.
pub(crate) const REQUEST_WINDOW_PACKETS: u8 = 32;

/// How long a client's connection without calls is known; as in OpenAFS, a little longer than a client keeps one.
pub(crate) const INCOMING_IDLE: Duration = Duration::from_secs(700);

/// What an endpoint is and what it bears.
#[derive(Clone, Debug)]
pub struct Config {
    /// The services that are offered; calls for others are aborted with -2.
    pub services: BTreeSet<u16>,
    /// Connections to one server for one route, at most; each runs four calls at once.
    pub connections_per_route_max: usize,
    /// Clients' connections that are known at once, at most; the one that is idle for the longest time is forgotten for
    /// a new one. At least `incoming_calls_max + 1` are known.
    pub incoming_connections_max: usize,
    /// Clients' calls that run at once, at most; who comes then is told that the channel is busy.
    pub incoming_calls_max: usize,
    /// How long the other side of a running call may be silent. It is asked for a sign of life after a sixth of that
    /// time, and then every two seconds.
    pub dead_after: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            services: BTreeSet::new(),
            connections_per_route_max: 8,
            incoming_connections_max: 1024,
            incoming_calls_max: 256,
            dead_after: Duration::from_secs(50),
        }
    }
}

/// Said of calls that nobody waits for (RX_USER_ABORT, OpenAFS `src/rx/rx.h`).
pub(crate) const USER_ABORT: i32 = -6;
