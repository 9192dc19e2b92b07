//! Hits on the reading thread, misses on the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Instrument;

use crate::Errno;
use crate::handler::Answer;
use crate::meter::{Asked, Meter};

/// Runs requests.
#[derive(Clone)]
pub(crate) struct Driver {
    runtime: Handle,
    deadline: Duration,
    /// Counts what is driven.
    pub(crate) meter: Arc<Meter>,
}

impl Driver {
    /// Requests that wait do so on `runtime`, for at most `deadline` and a little longer, so that an operation's own
    /// deadline, which says what was waited for, comes first.
    pub(crate) fn new(runtime: Handle, deadline: Duration, meter: Arc<Meter>) -> Driver {
        Driver { runtime, deadline: deadline + GRACE, meter }
    }

    /// Polls a request once here, and replies if it is ready; otherwise lets it wait on the runtime. A panic of a
    /// request drops its reply, which answers EIO, and nothing else.
    pub(crate) fn drive<T: Send + 'static>(
        &self,
        mut asked: Asked,
        request: impl Future<Output = Answer<T>> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let _entered = self.runtime.enter();
        let mut request = Box::pin(request.instrument(asked.span().clone()));
        let first = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        match first {
            Ok(Poll::Ready(answer)) => {
                asked.answered(answer.as_ref().err().copied());
                reply(answer);
            }
            Ok(Poll::Pending) => {
                asked.waits();
                let waiting = tokio::time::timeout(self.deadline, request);
                self.runtime.spawn(async move {
                    let answer = waiting.await.unwrap_or(Err(Errno(rustix::io::Errno::TIMEDOUT)));
                    asked.answered(answer.as_ref().err().copied());
                    reply(answer);
                });
            }
            Err(_) => tracing::error!("a request panicked; answered EIO"),
        }
    }
}

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

    #[test]
    fn what_is_ready_is_answered_here_and_what_waits_elsewhere() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver = Driver::new(runtime.handle().clone(), Duration::from_secs(5), Arc::default());
        let (sender, answers) = mpsc::channel();
        let here = std::thread::current().id();

        let tell = sender.clone();
        driver.drive(asked(&driver), async { Ok(1) }, move |answer| {
            tell.send((answer, std::thread::current().id())).expect("the test listens");
        });
        assert_eq!(answers.recv().expect("an answer"), (Ok(1), here));

        let (gate, opened) = tokio::sync::oneshot::channel::<()>();
        let waits = async move {
            opened.await.expect("the gate is opened");
            Ok(2)
        };
        driver.drive(asked(&driver), waits, move |answer| {
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
        driver.drive(asked(&driver), std::future::pending::<Answer<()>>(), move |answer| {
            tell.send(answer).expect("the test listens");
        });
        assert_eq!(answers.recv(), Ok(Err(Errno(rustix::io::Errno::TIMEDOUT))));
        driver.drive(asked(&driver), async { panic!("on purpose") }, move |answer: Answer<()>| {
            sender.send(answer).expect("the test listens");
        });
        assert!(answers.recv().is_err(), "the reply is dropped");
    }
}
