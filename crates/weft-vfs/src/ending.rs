//! The end of a mount: bodies on their way end where they are, and what came of them stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Tells bodies on their way that the mount ends, and counts those that have something to keep.
pub(crate) struct Ending {
    begun: watch::Sender<bool>,
    bodies: watch::Sender<usize>,
}

/// A body whose part is of use after the end, for as long as this lives.
pub(crate) struct UnderWay(Arc<Ending>);

impl Default for Ending {
    fn default() -> Ending {
        Ending { begun: watch::Sender::new(false), bodies: watch::Sender::new(0) }
    }
}

impl Ending {
    /// Counts one more body.
    pub(crate) fn body(self: &Arc<Ending>) -> UnderWay {
        self.bodies.send_modify(|bodies| *bodies += 1);
        UnderWay(self.clone())
    }

    /// Whether the mount has ended.
    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Has every counted body end where it is and waits until they have.
    pub(crate) async fn settle(&self) {
        self.begun.send_replace(true);
        let mut bodies = self.bodies.subscribe();
        // What is not done by then is lost, as it is when the daemon is killed: it is fetched again.
        let _ = tokio::time::timeout(PATIENCE, bodies.wait_for(|bodies| *bodies == 0)).await;
    }
}

impl UnderWay {
    /// Ends when the mount does; never for a body that has nothing to keep.
    pub(crate) fn end_of(body: Option<&UnderWay>) -> impl Future<Output = ()> + Send + use<> {
        let begun = body.map(|body| body.0.begun.subscribe());
        async move {
            match begun {
                // The sender lives as long as the body that waits.
                Some(mut begun) => drop(begun.wait_for(|begun| *begun).await),
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.bodies.send_modify(|bodies| *bodies -= 1);
    }
}

/// How long the end of a mount waits for bodies to be put away, and for what is being sent.
const PATIENCE: Duration = Duration::from_secs(2);
