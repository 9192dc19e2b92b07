//! Whether what servers have promised still stands.
//!
//! A server that was started anew has forgotten its promises, and one that could not reach us keeps to itself what it could not
//! tell. Either says so only when it hears of us: before it answers whatever call, even one for the time (OpenAFS
//! `src/viced/afsfileprocs.c`, `CallPreamble`; observed with 1.8). So servers are asked for that when nothing else was answered
//! for a while.

use std::collections::HashSet;
use std::sync::Weak;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use weft_remote::{Call, Caller};

use crate::afs::Shared;
use crate::rpc::Failure;
use crate::wire::fileserver::GetTime;

/// Probes servers for as long as there is a tree.
pub(crate) async fn keep(tree: Weak<Shared>, after: Duration) {
    loop {
        tokio::time::sleep(after / ROUNDS).await;
        let Some(shared) = tree.upgrade() else { return };
        shared.probe_quiet(after).await;
    }
}

impl Shared {
    /// Probes those that have promised something, and have answered nothing for so long.
    async fn probe_quiet(&self, after: Duration) {
        let files = &self.files;
        let quiet: HashSet<_> = files.servers.quiet_for(after);
        if quiet.is_empty() {
            return;
        }
        let promised = self.promises.servers().into_iter().filter(|id| quiet.contains(id));
        let probes = promised.filter_map(|id| files.servers.in_order(&[id]).first().copied()).map(async |(_, at)| {
            let begun = Instant::now();
            match files.rpc.ask(&Call::within(Caller::DAEMON, PATIENCE), at, &GetTime {}).await {
                Ok(_) | Err(Failure::Aborted(_)) => files.servers.answered(at, begun.elapsed()),
                Err(failure) => {
                    tracing::debug!(%at, %failure, "a server that has promised something does not answer");
                    files.servers.was_silent(at, &failure.to_string());
                }
            }
        });
        join_all(probes).await;
    }
}

/// So many times in that while it is looked for servers to probe. As long after one did not answer it is asked again.
const ROUNDS: u32 = 3;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
