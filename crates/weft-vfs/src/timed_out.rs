//! Reads of an open file that came to their deadline.
//!
//! Where one fails that was to fill pages, the kernel asks for the page that its program wants once more before the program
//! gets the error (filemap_read(), Linux mm/filemap.c). That question gets the same answer at once: the program has waited
//! as long as it may.

use std::ops::Range;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The last such reads of one open file.
#[derive(Debug, Default)]
pub(crate) struct TimedOut {
    /// When the last of them ended, and which bytes were wanted.
    last: Mutex<Option<(Instant, Range<u64>)>>,
}

/// A read under way; one that is dropped after its deadline came to it.
pub(crate) struct Reading<'a> {
    timed_out: &'a TimedOut,
    deadline: Instant,
    bytes: Range<u64>,
    is_over: bool,
}

impl TimedOut {
    /// Whether a read from this byte asks again for what has just failed. The next one does not.
    pub(crate) fn is_asked_again(&self, offset: u64) -> bool {
        let failed = self.last.lock().take_if(|(at, bytes)| at.elapsed() >= AGAIN_TIME || bytes.contains(&offset));
        failed.is_some_and(|(at, _)| at.elapsed() < AGAIN_TIME)
    }

    /// A read of these bytes begins.
    pub(crate) fn begin(&self, deadline: Instant, bytes: Range<u64>) -> Reading<'_> {
        Reading { timed_out: self, deadline, bytes, is_over: false }
    }

    fn note(&self, bytes: Range<u64>) {
        let mut last = self.last.lock();
        // What is read ahead fails at the same time.
        let bytes = match last.take().filter(|(at, _)| at.elapsed() < AGAIN_TIME) {
            Some((_, before)) => before.start.min(bytes.start)..before.end.max(bytes.end),
            None => bytes,
        };
        *last = Some((Instant::now(), bytes));
    }
}

impl Reading<'_> {
    /// It got its bytes, or an error of its own.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.is_over && Instant::now() >= self.deadline {
            self.timed_out.note(self.bytes.clone());
        }
    }
}

/// How soon the kernel asks again.
const AGAIN_TIME: Duration = Duration::from_millis(500);
