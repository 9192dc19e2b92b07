//! System calls beside the async threads: a bounded number at a time, none waited for longer than its caller wants.
//!
//! Short ones are made on the thread that asks where that is lent to its request ([`weft_remote::Lender`]). Where the disk is
//! slow, that one waits, and those that come meanwhile are made beside, as many at a time as before.
//!
//! Where nothing is answered any more, as by a file system over a network whose server is silent, only the first to find that
//! out waits to its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use weft_remote::{RemoteError, Result};

/// The seats for work on the blocking pool. Work that hangs in the kernel keeps its seat, so that a dead disk cannot
/// take every thread there is.
#[derive(Debug)]
pub(crate) struct Aside {
    seats: Arc<Semaphore>,
    answers: Arc<Answers>,
    /// How long a call must have been waited for before that it has no answer says anything.
    silence_after: Duration,
    /// Whether calls are ever made on the threads that ask: what a call waits for is here, and no other machine's.
    is_near: bool,
}

/// How many calls the system has answered, and when it fell silent.
#[derive(Debug)]
struct Answers {
    count: AtomicU64,
    /// The count at which a call was given up that had been made at that count already.
    silent_at: AtomicU64,
    /// When that call was given up. Held for one look or one change.
    silent_since: Mutex<SystemTime>,
}

impl Answers {
    fn new() -> Answers {
        let silent_since = Mutex::new(SystemTime::UNIX_EPOCH);
        Answers { count: AtomicU64::new(0), silent_at: AtomicU64::new(u64::MAX), silent_since }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// One more; it is not silent.
    fn one_more(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// A call is given up that was made at this count.
    fn given_up(&self, made_at: u64) {
        if self.count() == made_at && !self.is_silent() {
            *self.silent_since.lock() = SystemTime::now();
            self.silent_at.store(made_at, Ordering::Release);
        }
    }

    /// Whether no call has been answered since before one was made that was given up.
    fn is_silent(&self) -> bool {
        self.silent_at.load(Ordering::Acquire) == self.count()
    }
}

impl Aside {
    pub fn new(is_near: bool) -> Aside {
        let (seats, answers) = (Arc::new(Semaphore::new(AT_ONCE_MAX)), Arc::new(Answers::new()));
        Aside { seats, answers, silence_after: SILENCE_AFTER, is_near }
    }

    /// Since when nothing is answered, if so.
    pub fn silent_since(&self) -> Option<SystemTime> {
        self.answers.is_silent().then(|| *self.answers.silent_since.lock())
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
            let outcome = work();
            self.answers.one_more();
            return outcome;
        }
        let (begun, made_at) = (Instant::now(), self.answers.count());
        let outcome = self.run(deadline, shown, work).await;
        if matches!(outcome, Err(RemoteError::TimedOut { .. })) && begun.elapsed() >= self.silence_after {
            self.answers.given_up(made_at);
        }
        outcome
    }

    /// Does `work` on the blocking pool and waits for it until `deadline`, or for a moment while nothing is answered at all; what
    /// has begun then ends unheard, and tells that there are answers again.
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
        let deadline =
            if self.answers.is_silent() { deadline.min(Instant::now() + SILENCE_PATIENCE) } else { deadline };
        let seat = timeout_at(deadline.into(), self.seats.clone().acquire_owned()).await.map_err(|_| late())?;
        let seat = seat.expect("the seats are never closed");
        let answers = self.answers.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            let outcome = work();
            answers.one_more();
            outcome
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
/// Beyond what a busy disk may take for one call.
const SILENCE_AFTER: Duration = Duration::from_secs(5);
/// How long is waited for an answer where there are none.
const SILENCE_PATIENCE: Duration = Duration::from_millis(250);
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

    /// Method: calls that are answered when the test lets go of them.
    #[tokio::test]
    async fn where_nothing_is_answered_only_the_first_waits_to_its_deadline() {
        let aside = Aside { silence_after: Duration::from_millis(10), ..Aside::new(false) };
        let hung = || {
            let (let_go, wait) = std::sync::mpsc::channel::<()>();
            (let_go, move || {
                // It is let go of when the sender is gone.
                let _ = wait.recv();
                Ok(())
            })
        };
        let soon = || Instant::now() + Duration::from_millis(20);
        let far = Instant::now() + Duration::from_secs(3600);
        let is_late = |outcome: Result<()>| matches!(outcome, Err(RemoteError::TimedOut { .. }));

        let (slow, work) = hung();
        assert!(is_late(aside.run_short(soon(), String::new, work).await));
        assert!(aside.answers.is_silent());
        let (other, work) = hung();
        assert!(is_late(aside.run_short(far, String::new, work).await), "long before its deadline");
        assert!(aside.run_short(far, String::new, || Ok(())).await.is_ok(), "what is answered is heard");
        assert!(!aside.answers.is_silent());

        let (third, work) = hung();
        let late = aside.run_short(far, String::new, work);
        let quick = async {
            assert!(aside.run_short(far, String::new, || Ok(())).await.is_ok());
            drop(third);
        };
        assert!(tokio::join!(late, quick).0.is_ok(), "others are answered: it is waited for");

        let (fourth, work) = hung();
        assert!(is_late(aside.run_short(soon(), String::new, work).await) && aside.answers.is_silent());
        drop((slow, other, fourth));
        while aside.answers.is_silent() {
            tokio::task::yield_now().await;
        }
    }
}
