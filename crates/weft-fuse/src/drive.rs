//! Hits on the reading thread, misses on the runtime, where an interrupt finds them.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::Instrument;
use weft_fusedev::{Entered, Header, Waiting, has_relief};
use weft_vfs::{Lender, ToItsEnd};

use crate::Errno;
use crate::handler::Answer;
use crate::meter::{Asked, Meter};
use crate::signals::{self, WaitsFor};

/// Runs requests.
#[derive(Clone)]
pub(crate) struct Driver {
    runtime: Handle,
    deadline: Duration,
    waits_for: WaitsFor,
    /// Lends the thread that reads a request to it, where others read on.
    lender: Arc<Lender>,
    /// What ends requests that wait, by the kernel's number.
    waiting: Arc<Waiting<Arc<Waiter>>>,
    /// Counts what is driven.
    pub(crate) meter: Arc<Meter>,
}

/// Whether the kernel tells when somebody who waits for a request has a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    /// By an interrupt.
    Told,
    /// Not always: reads into the page cache are asked for by nobody who waits (read-ahead), so it is looked.
    Untold,
}

/// Somebody who waits for a request.
struct Waiter {
    /// The thread, as the kernel told it.
    thread: u32,
    waits_for: WaitsFor,
    /// Ends the request.
    stop: Notify,
}

impl Driver {
    /// Requests that wait do so on `runtime`, for at most `deadline` and a little longer, so that an operation's own
    /// deadline, which says what was waited for, comes first.
    pub(crate) fn new(runtime: Handle, deadline: Duration, meter: Arc<Meter>) -> Driver {
        let (deadline, waits_for) = (deadline + GRACE, WaitsFor::Source);
        Driver { runtime, deadline, waits_for, lender: Arc::default(), waiting: Arc::default(), meter }
    }

    /// The same, for what takes as long as there is to be sent: what it waits for has deadlines of its own, by how much that is.
    pub(crate) fn without_deadline(&self) -> Driver {
        Driver { deadline: UNBOUNDED, ..self.clone() }
    }

    /// Where requests wait.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Polls a request once here, and replies if it is ready; otherwise lets it wait on the runtime. A panic of a
    /// request drops its reply, which answers EIO, and nothing else.
    ///
    /// An interrupt drops the request wherever it waits, and answers EINTR. What others wait for as well goes on, for
    /// it is theirs, not the request's.
    pub(crate) fn drive<T: Send + 'static>(
        &self,
        asked: Asked,
        header: &Header,
        request: impl Future<Output = Answer<T>> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        self.drive_with(Signals::Told, asked, header, request, reply);
    }

    /// The same, of a request that waits for other programs, for as long as they make it wait.
    pub(crate) fn drive_unbounded<T: Send + 'static>(
        &self,
        asked: Asked,
        header: &Header,
        request: impl Future<Output = Answer<T>> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let unbounded = Driver { waits_for: WaitsFor::Programs, ..self.without_deadline() };
        unbounded.drive_with(Signals::Told, asked, header, request, reply);
    }

    /// The same, of a request of whose signals the kernel may not tell.
    pub(crate) fn drive_with<T: Send + 'static>(
        &self,
        signals: Signals,
        mut asked: Asked,
        header: &Header,
        request: impl Future<Output = Answer<T>> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let _entered = self.runtime.enter();
        let mut request = Box::pin(request.instrument(asked.span().clone()));
        let mut poll = || request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let first = catch_unwind(AssertUnwindSafe(|| match has_relief() {
            true => self.lender.lend(poll),
            false => poll(),
        }));
        match first {
            Ok(Poll::Ready(answer)) => {
                asked.answered(answer.as_ref().err().copied());
                reply(answer);
            }
            Ok(Poll::Pending) => {
                asked.waits();
                let wait = self.enter(header);
                let outcome = until_stopped(tokio::time::timeout(self.deadline, request), wait, signals);
                weft_vfs::go_on(&self.runtime, async move {
                    let answer = outcome.await;
                    asked.answered(answer.as_ref().err().copied());
                    reply(answer);
                });
            }
            Err(_) => tracing::error!("a request panicked; answered EIO"),
        }
    }

    /// A request that goes on when whoever waits for it does not any more: what was written is sent, also for a program
    /// that is killed while it closes its files.
    pub(crate) fn to_its_end<F: Future<Output: Send + 'static> + Send + 'static>(
        &self,
        request: F,
    ) -> impl Future<Output = F::Output> + Send + 'static {
        ToItsEnd::new(&self.runtime, request)
    }

    /// Somebody who waits for this request has a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        if let Some(waiter) = self.waiting.interrupt(unique) {
            self.signalled(&waiter);
        }
    }

    fn enter(&self, header: &Header) -> Wait {
        let waiter = Arc::new(Waiter { thread: header.pid, waits_for: self.waits_for, stop: Notify::new() });
        let entered = self.waiting.enter(header.unique, waiter.clone());
        if entered == Entered::Interrupted {
            self.signalled(&waiter);
        }
        Wait { table: self.waiting.clone(), unique: header.unique, waiter }
    }

    /// Ends the request if the signal says so. Otherwise the wait goes on; the kernel tells of the first signal alone,
    /// so it is looked now and then whether another has come.
    fn signalled(&self, waiter: &Arc<Waiter>) {
        if signals::end_a_wait(waiter.thread, waiter.waits_for) {
            waiter.stop.notify_one();
            return;
        }
        let waiter = Arc::downgrade(waiter);
        self.runtime.spawn(watch(waiter));
    }
}

async fn watch(waiter: Weak<Waiter>) {
    loop {
        tokio::time::sleep(SIGNALS_PAUSE).await;
        let Some(waiter) = waiter.upgrade() else { return };
        if signals::end_a_wait(waiter.thread, waiter.waits_for) {
            waiter.stop.notify_one();
            return;
        }
    }
}

/// A request in the table of those that wait. It leaves when this goes, a panic included.
struct Wait {
    table: Arc<Waiting<Arc<Waiter>>>,
    unique: u64,
    waiter: Arc<Waiter>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.table.leave(self.unique);
    }
}

/// The answer, or EINTR when the wait is to end before; the request is dropped when this returns.
async fn until_stopped<T>(
    request: impl Future<Output = std::result::Result<Answer<T>, tokio::time::error::Elapsed>>,
    wait: Wait,
    signals: Signals,
) -> Answer<T> {
    tokio::select! {
        biased;
        answer = request => answer.unwrap_or(Err(Errno(rustix::io::Errno::TIMEDOUT))),
        () = wait.waiter.stop.notified() => Err(Errno(rustix::io::Errno::INTR)),
        () = left(wait.waiter.thread, signals) => Err(Errno(rustix::io::Errno::INTR)),
    }
}

/// Looks whether a thread of whose signals nobody tells has one that ends its wait, or is no more. Another that waits for
/// the same pages asks for them itself when they do not come.
async fn left(thread: u32, signals: Signals) {
    if signals == Signals::Told || thread == 0 {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(SIGNALS_PAUSE).await;
        if signals::ends_unasked(thread) {
            return;
        }
    }
}

/// How often somebody who had a signal that ends nothing is looked after.
const SIGNALS_PAUSE: Duration = Duration::from_millis(50);
/// Longer than anybody waits.
const UNBOUNDED: Duration = Duration::from_secs(u32::MAX as u64);
/// How much longer than its deadline a request may be on the runtime.
const GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Operation;

    fn asked(driver: &Driver) -> Asked {
        driver.meter.start(Operation::Read, tracing::Span::none())
    }

    /// A request of nobody: without a thread every interrupt counts.
    fn header(unique: u64) -> Header {
        Header { opcode: 15, unique, node: 1, uid: 0, gid: 0, pid: 0 }
    }

    /// Goal: an interrupt drops its request, whichever of them comes first. Method: requests that wait for ever and
    /// hold something whose end can be seen.
    #[test]
    fn an_interrupt_drops_its_request_before_and_after_it_waits() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver = Driver::new(runtime.handle().clone(), Duration::from_secs(600), Arc::default());
        let (sender, answers) = mpsc::channel();
        for overtakes in [false, true] {
            let unique = 2 + 2 * u64::from(overtakes);
            let held = Arc::new(());
            let lost = Arc::downgrade(&held);
            let request = async move {
                let _held = held;
                std::future::pending::<Answer<()>>().await
            };
            if overtakes {
                driver.interrupt(unique);
            }
            let tell = sender.clone();
            driver.drive(asked(&driver), &header(unique), request, move |answer| {
                tell.send((answer, lost.upgrade().is_none())).expect("the test listens");
            });
            if !overtakes {
                driver.interrupt(unique);
            }
            let wanted = (Err(Errno(rustix::io::Errno::INTR)), true);
            assert_eq!(answers.recv(), Ok(wanted), "answered, and dropped before");
        }
        assert!(driver.waiting.is_empty());
        driver.interrupt(2);
        let tell = sender.clone();
        driver.drive(asked(&driver), &header(6), async { Ok(()) }, move |answer| {
            tell.send((answer, false)).expect("the test listens");
        });
        assert_eq!(answers.recv(), Ok((Ok(()), false)), "an interrupt that comes late is nobody else's");
    }

    #[test]
    fn what_is_ready_is_answered_here_and_what_waits_elsewhere() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver = Driver::new(runtime.handle().clone(), Duration::from_secs(5), Arc::default());
        let (sender, answers) = mpsc::channel();
        let here = std::thread::current().id();

        let tell = sender.clone();
        driver.drive(asked(&driver), &header(2), async { Ok(1) }, move |answer| {
            tell.send((answer, std::thread::current().id())).expect("the test listens");
        });
        assert_eq!(answers.recv().expect("an answer"), (Ok(1), here));

        let (gate, opened) = tokio::sync::oneshot::channel::<()>();
        let waits = async move {
            opened.await.expect("the gate is opened");
            Ok(2)
        };
        driver.drive(asked(&driver), &header(2), waits, move |answer| {
            sender.send((answer, std::thread::current().id())).expect("the test listens");
        });
        gate.send(()).expect("the request waits");
        let (answer, thread) = answers.recv().expect("an answer");
        assert_eq!(answer, Ok(2));
        assert_ne!(thread, here);
    }

    #[test]
    fn a_request_that_never_ends_is_answered_at_its_deadline_and_a_panic_is_survived() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver = Driver::new(runtime.handle().clone(), Duration::ZERO, Arc::default());
        let (sender, answers) = mpsc::channel();
        let tell = sender.clone();
        driver.drive(asked(&driver), &header(2), std::future::pending::<Answer<()>>(), move |answer| {
            tell.send(answer).expect("the test listens");
        });
        assert_eq!(answers.recv(), Ok(Err(Errno(rustix::io::Errno::TIMEDOUT))));
        driver.drive(asked(&driver), &header(2), async { panic!("on purpose") }, move |answer: Answer<()>| {
            sender.send(answer).expect("the test listens");
        });
        assert!(answers.recv().is_err(), "the reply is dropped");
    }

    #[test]
    fn what_is_sent_takes_as_long_as_there_is_to_be_sent() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver =
            Driver { deadline: Duration::ZERO, ..Driver::new(runtime.handle().clone(), GRACE, Arc::default()) };
        let (sender, answers) = mpsc::channel();
        let (gate, opened) = tokio::sync::oneshot::channel::<()>();
        let sends = async move {
            opened.await.expect("the gate is opened");
            Ok(())
        };
        let tell = sender.clone();
        let sends = driver.to_its_end(sends);
        driver.without_deadline().drive(asked(&driver), &header(2), sends, move |answer| {
            tell.send(answer).expect("the test listens");
        });
        // Another request has come to its deadline meanwhile.
        driver.drive(asked(&driver), &header(4), std::future::pending::<Answer<()>>(), move |answer| {
            sender.send(answer).expect("the test listens");
        });
        assert_eq!(answers.recv(), Ok(Err(Errno(rustix::io::Errno::TIMEDOUT))));
        gate.send(()).expect("the request waits");
        assert_eq!(answers.recv(), Ok(Ok(())));
    }
}
