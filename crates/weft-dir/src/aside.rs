//! System calls beside the async threads: a bounded number at a time, none waited for longer than its caller wants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use weft_remote::{RemoteError, Result};

/// The seats for work on the blocking pool. Work that hangs in the kernel keeps its seat, so that a dead disk cannot
/// take every thread there is.
#[derive(Debug)]
pub(crate) struct Aside {
    seats: Arc<Semaphore>,
}

impl Aside {
    pub fn new() -> Aside {
        Aside { seats: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Does `work` on the blocking pool and waits for it until `deadline`; what has begun then ends unheard.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; otherwise what `work` gives.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        shown: impl Fn() -> String,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let late = || RemoteError::TimedOut { detail: format!("{}: the disk", shown()) };
        if deadline <= Instant::now() {
            return Err(late());
        }
        let seat = timeout_at(deadline.into(), self.seats.clone().acquire_owned()).await.map_err(|_| late())?;
        let seat = seat.expect("the seats are never closed");
        let task = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            work()
        });
        match timeout_at(deadline.into(), task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(RemoteError::Failed { detail: format!("{}: {error}", shown()) }),
            Err(_) => Err(late()),
        }
    }
}

/// How long the disk may take for one piece of a body.
pub(crate) const PIECE_TIME_MAX: Duration = Duration::from_secs(60);
/// Most system calls under way at a time.
const AT_ONCE_MAX: usize = 64;
