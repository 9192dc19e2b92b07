//! Work that begins where it is asked for and goes on by itself.
//!
//! To give a task to the runtime from a thread that is not its own wakes one of its threads, which finds that there is
//! nothing to do yet but to wait, and another one to look for more. So work is begun where it comes about, and becomes a
//! task when it has something to do: then it is mostly a thread of the runtime that says so, and goes on with it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins work here, and has it go on as a task of the runtime as soon as it is woken. A panic ends the work alone, and is
/// told by the panic hook.
///
/// What waits for ever, or is woken when the runtime has ended, leaves what it holds behind: the work has to have a
/// deadline, or wait for what comes surely.
pub fn go_on(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    let mut work: Work = Box::pin(work);
    let begun = Arc::new(Begun { state: Mutex::new(State::Polled), runtime: runtime.clone() });
    let waker = Waker::from(begun.clone());
    let _entered = runtime.enter();
    let mut poll = || work.as_mut().poll(&mut Context::from_waker(&waker));
    // Whoever begins it waits for something else.
    let polled = catch_unwind(AssertUnwindSafe(|| weft_remote::unlent(&mut poll)));
    if !matches!(polled, Ok(Poll::Pending)) {
        return;
    }
    let was_woken = {
        let mut state = begun.state.lock();
        match std::mem::replace(&mut *state, State::Woken) {
            State::Polled => {
                *state = State::Waits(work);
                None
            }
            State::Waits(_) | State::Woken => Some(work),
        }
    };
    was_woken.map(|work| runtime.spawn(work));
}

/// Work that has been begun and is no task yet.
struct Begun {
    /// Held for one look or one change.
    state: Mutex<State>,
    runtime: Handle,
}

enum State {
    /// It is being polled for the first time, and was not woken meanwhile.
    Polled,
    /// It waits to be woken.
    Waits(Work),
    /// It was woken: it is a task of the runtime or soon will be.
    Woken,
}

impl Wake for Begun {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Woken);
        if let State::Waits(work) = before {
            self.runtime.spawn(Woken { work: Some(work), was_polled: false });
        }
    }
}

/// Work that was woken. A runtime that has ended drops at once what it is given, and whoever wakes may hold a lock that the
/// work takes when it is dropped: what was never polled there is left alone, as what nobody wakes is.
struct Woken {
    work: Option<Work>,
    was_polled: bool,
}

impl Future for Woken {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.was_polled = true;
        self.work.as_mut().map_or(Poll::Ready(()), |work| work.as_mut().poll(context))
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        if !self.was_polled {
            std::mem::forget(self.work.take());
        }
    }
}

/// Work for somebody who may stop waiting for it: then it goes on to its end by itself.
pub struct ToItsEnd<F: Future<Output: Send + 'static> + Send + 'static> {
    work: Option<Pin<Box<F>>>,
    runtime: Handle,
    left: Left,
}

/// Whether nobody waits for work any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left(Arc<AtomicBool>);

impl Left {
    /// Whether that is so by now.
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> ToItsEnd<F> {
    /// Goes on by itself on this runtime.
    pub fn new(runtime: &Handle, work: F) -> ToItsEnd<F> {
        ToItsEnd::told(runtime, |_| work)
    }

    /// The same, of work that looks whether somebody waits for it still.
    pub(crate) fn told(runtime: &Handle, work: impl FnOnce(Left) -> F) -> ToItsEnd<F> {
        let left = Left::default();
        ToItsEnd { work: Some(Box::pin(work(left.clone()))), runtime: runtime.clone(), left }
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for ToItsEnd<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            self.work = None;
        }
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for ToItsEnd<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.left.0.store(true, Ordering::Release);
            self.runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    }

    fn here() -> ThreadId {
        std::thread::current().id()
    }

    /// Goal: what needs not wait is done here, what waits goes on elsewhere, and is woken by any thread and at any time.
    #[test]
    fn work_begins_here_and_goes_on_there() {
        let runtime = runtime();
        let (tell, told) = mpsc::channel();
        let (at_once, later) = (tell.clone(), tell.clone());
        go_on(runtime.handle(), async move { at_once.send((1, here())).expect("the test listens") });
        assert_eq!(told.try_recv(), Ok((1, here())));

        let (gate, opened) = oneshot::channel::<()>();
        go_on(runtime.handle(), async move {
            later.send((2, here())).expect("the test listens");
            opened.await.expect("the gate is opened");
            later.send((3, here())).expect("the test listens");
        });
        assert_eq!(told.try_recv(), Ok((2, here())));
        assert!(told.try_recv().is_err());
        gate.send(()).expect("it waits");
        let (what, thread) = told.recv().expect("it goes on");
        assert!(what == 3 && thread != here());

        go_on(runtime.handle(), async move {
            // Wakes itself while it is polled for the first time.
            tokio::task::yield_now().await;
            tell.send((4, here())).expect("the test listens");
        });
        assert_eq!(told.recv().expect("it goes on").0, 4);
    }

    /// Goal: no wake is lost, whenever it comes. Method: many of them, by another thread while the work is begun.
    #[test]
    fn no_wake_is_lost() {
        let runtime = runtime();
        let (hand, gates) = mpsc::channel::<oneshot::Sender<()>>();
        let opener = std::thread::spawn(move || gates.iter().for_each(|gate| gate.send(()).expect("it waits")));
        let (tell, told) = mpsc::channel();
        for number in 0..10_000 {
            let (gate, opened) = oneshot::channel();
            hand.send(gate).expect("it listens");
            let tell = tell.clone();
            go_on(runtime.handle(), async move {
                opened.await.expect("the gate is opened");
                tell.send(number).expect("the test listens");
            });
        }
        drop((hand, tell));
        opener.join().expect("no panic");
        assert_eq!(told.iter().count(), 10_000);
    }

    /// Goal: who wakes work when the runtime has ended may hold a lock that the work takes when it is dropped.
    #[test]
    fn what_is_woken_too_late_is_not_dropped_under_who_wakes_it() {
        struct Takes(Arc<Mutex<()>>);
        impl Drop for Takes {
            fn drop(&mut self) {
                drop(self.0.try_lock().expect("nobody holds it"));
            }
        }
        let (runtime, lock) = (runtime(), Arc::new(Mutex::new(())));
        let (gate, opened) = oneshot::channel::<()>();
        let takes = Takes(lock.clone());
        go_on(runtime.handle(), async move {
            let _takes = takes;
            drop(opened.await);
        });
        drop(runtime);
        let _held = lock.lock();
        gate.send(()).expect("it waits");
    }

    #[test]
    fn a_panic_ends_the_work_alone() {
        let runtime = runtime();
        go_on(runtime.handle(), async { panic!("on purpose") });
    }

    #[tokio::test]
    async fn what_goes_to_its_end_does_so_when_nobody_waits() {
        let (gate, opened) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let work = |left: Left| async move {
            let before = left.is_so();
            opened.await.expect("the gate is opened");
            tell.send((before, left.is_so())).expect("the test listens");
        };
        let mut work = Box::pin(ToItsEnd::told(&Handle::current(), work));
        let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(work);
        gate.send(()).expect("it goes on");
        assert_eq!(told.await.expect("it ends"), (false, true));
        assert_eq!(ToItsEnd::new(&Handle::current(), async { 7 }).await, 7);
    }
}
