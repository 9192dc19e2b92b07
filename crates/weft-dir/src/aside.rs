//! System calls beside the async threads: a bounded number at a time, none waited for longer than its caller wants.
//!
//! Short ones are made on the thread that asks where that is lent to its request ([`weft_remote::Lender`]). Where the disk is
//! slow, that one waits, and those that come meanwhile are made beside, as many at a time as before.

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
    /// Whether calls are ever made on the threads that ask: what a call waits for is here, and no other machine's.
    is_near: bool,
}

impl Aside {
    pub fn new(is_near: bool) -> Aside {
        Aside { seats: Arc::new(Semaphore::new(AT_ONCE_MAX)), is_near }
    }

    /// Does `work` that is short as a rule: here, if this thread is lent, and otherwise as [`Aside::run`] does. What is done
    /// here is waited for beyond the deadline, as a program waits that works on the disk itself.
    ///
    /// # Errors
    /// As [`Aside::run`].
    pub async fn run_short<T: Send + 'static>(
        &self,
        deadline: Instant,
        shown: impl Fn() -> String,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.is_near
            && deadline > Instant::now()
            && let Some(_borrowed) = weft_remote::borrow_thread()
        {
            return work();
        }
        self.run(deadline, shown, work).await
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

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use weft_remote::Lender;

    use super::*;

    #[test]
    fn a_short_call_is_made_where_it_is_asked_for_if_the_thread_is_lent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let here = std::thread::current().id();
        let made_on = |aside: &Aside| -> ThreadId {
            let deadline = Instant::now() + Duration::from_secs(600);
            let made = aside.run_short(deadline, String::new, || Ok(std::thread::current().id()));
            runtime.block_on(made).expect("it is made")
        };
        let (near, far) = (Aside::new(true), Aside::new(false));
        assert_ne!(made_on(&near), here, "nobody lends the thread");
        let lender = Arc::new(Lender::default());
        lender.lend(|| {
            assert_eq!(made_on(&near), here);
            assert_ne!(made_on(&far), here, "it may wait for another machine");
            let _out = weft_remote::borrow_thread().expect("it is back");
            assert_ne!(made_on(&near), here, "another waits already");
        });
    }
}
