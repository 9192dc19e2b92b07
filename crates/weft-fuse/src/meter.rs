//! What the kernel asked, how it was answered and how long that took.
//!
//! Counting costs two looks at the clock and three additions per request, without a lock. Each request has a span as
//! well (operation, node, user, process and the kernel's own number of it), which costs nothing unless `WEFT_LOG` asks
//! for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_fusedev::Header;

use crate::Errno;

/// What a request asks for, in the kernel's words (`linux/fuse.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Finding a name.
    Lookup,
    /// Attributes.
    Getattr,
    /// What a mode allows.
    Access,
    /// What a symbolic link says.
    Readlink,
    /// Opening a file.
    Open,
    /// Reading a file.
    Read,
    /// Closing a file.
    Release,
    /// Opening a directory.
    Opendir,
    /// Names of a directory.
    Readdir,
    /// Names of a directory with attributes.
    Readdirplus,
    /// Closing a directory.
    Releasedir,
    /// Figures for `df`.
    Statfs,
    /// An extended attribute.
    Getxattr,
    /// The names of extended attributes.
    Listxattr,
    /// Setting attributes.
    Setattr,
    /// Making a symbolic link.
    Symlink,
    /// Making a special file.
    Mknod,
    /// Making a directory.
    Mkdir,
    /// Removing a name.
    Unlink,
    /// Removing a directory.
    Rmdir,
    /// Moving a name.
    Rename,
    /// One more name for a file.
    Link,
    /// Making and opening a file.
    Create,
    /// Writing a file.
    Write,
    /// Closing a descriptor of a file that may have been written.
    Flush,
    /// Making a file durable.
    Fsync,
    /// Making a directory's names durable.
    Fsyncdir,
    /// Making room in a file, or zeros.
    Fallocate,
    /// Finding data or a hole.
    Lseek,
    /// Asking which lock is in the way.
    Getlk,
    /// Taking a lock, or giving it back.
    Setlk,
    /// Waiting for a lock.
    Setlkw,
    /// Setting an extended attribute.
    Setxattr,
    /// Removing an extended attribute.
    Removexattr,
}

impl Operation {
    /// All of them, each at its own index.
    pub const ALL: [Operation; 34] = [
        Operation::Lookup,
        Operation::Getattr,
        Operation::Access,
        Operation::Readlink,
        Operation::Open,
        Operation::Read,
        Operation::Release,
        Operation::Opendir,
        Operation::Readdir,
        Operation::Readdirplus,
        Operation::Releasedir,
        Operation::Statfs,
        Operation::Getxattr,
        Operation::Listxattr,
        Operation::Setattr,
        Operation::Symlink,
        Operation::Mknod,
        Operation::Mkdir,
        Operation::Unlink,
        Operation::Rmdir,
        Operation::Rename,
        Operation::Link,
        Operation::Create,
        Operation::Write,
        Operation::Flush,
        Operation::Fsync,
        Operation::Fsyncdir,
        Operation::Fallocate,
        Operation::Lseek,
        Operation::Getlk,
        Operation::Setlk,
        Operation::Setlkw,
        Operation::Setxattr,
        Operation::Removexattr,
    ];

    /// As the kernel calls it, in small letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Lookup => "lookup",
            Operation::Getattr => "getattr",
            Operation::Access => "access",
            Operation::Readlink => "readlink",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Release => "release",
            Operation::Opendir => "opendir",
            Operation::Readdir => "readdir",
            Operation::Readdirplus => "readdirplus",
            Operation::Releasedir => "releasedir",
            Operation::Statfs => "statfs",
            Operation::Getxattr => "getxattr",
            Operation::Listxattr => "listxattr",
            Operation::Setattr => "setattr",
            Operation::Symlink => "symlink",
            Operation::Mknod => "mknod",
            Operation::Mkdir => "mkdir",
            Operation::Unlink => "unlink",
            Operation::Rmdir => "rmdir",
            Operation::Rename => "rename",
            Operation::Link => "link",
            Operation::Create => "create",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Fsync => "fsync",
            Operation::Fsyncdir => "fsyncdir",
            Operation::Fallocate => "fallocate",
            Operation::Lseek => "lseek",
            Operation::Getlk => "getlk",
            Operation::Setlk => "setlk",
            Operation::Setlkw => "setlkw",
            Operation::Setxattr => "setxattr",
            Operation::Removexattr => "removexattr",
        }
    }
}

/// Counts the requests of one mount.
pub struct Meter {
    operations: [Counters; Operation::ALL.len()],
}

/// The requests of one operation so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Which operation.
    pub operation: Operation,
    /// Upper bound in nanoseconds, and how many took at most that long and longer than the bound before.
    pub buckets: Vec<(u64, u64)>,
    /// How many took longer than the last bound.
    pub longer: u64,
    /// How long all took together.
    pub sum_ns: u64,
    /// How many were answered with which error.
    pub errors: Vec<(Errno, u64)>,
}

struct Counters {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
    errors: [AtomicU64; ERRNO_MAX + 1],
}

/// A request on its way. Dropped without an answer it counts as EIO, which is what the kernel gets then.
pub(crate) struct Asked {
    meter: Arc<Meter>,
    operation: Operation,
    started: Instant,
    span: tracing::Span,
    waited: bool,
    answered: bool,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter { operations: std::array::from_fn(|_| Counters::default()) }
    }
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = |_| AtomicU64::new(0);
        Counters { buckets: std::array::from_fn(zero), sum_ns: AtomicU64::new(0), errors: std::array::from_fn(zero) }
    }
}

impl Meter {
    /// The requests so far, by operation.
    pub fn requests(&self) -> Vec<Requests> {
        Operation::ALL.iter().map(|operation| self.operations[*operation as usize].read(*operation)).collect()
    }

    /// Begins to count a request of the kernel.
    pub(crate) fn begin(self: &Arc<Self>, operation: Operation, header: &Header) -> Asked {
        let span = tracing::debug_span!(
            "request",
            op = operation.as_str(),
            node = header.node,
            uid = header.uid,
            pid = header.pid,
            unique = header.unique
        );
        self.start(operation, span)
    }

    pub(crate) fn start(self: &Arc<Self>, operation: Operation, span: tracing::Span) -> Asked {
        Asked { meter: self.clone(), operation, started: Instant::now(), span, waited: false, answered: false }
    }

    fn count(&self, operation: Operation, took: Duration, error: Option<Errno>) {
        let counters = &self.operations[operation as usize];
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counters.buckets[bucket_of(took_ns)].fetch_add(1, Ordering::Relaxed);
        counters.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
        if let Some(Errno(errno)) = error {
            let index = usize::try_from(errno.raw_os_error()).unwrap_or(0).min(ERRNO_MAX);
            counters.errors[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Counters {
    fn read(&self, operation: Operation) -> Requests {
        let buckets = (0..BUCKETS).map(|index| (bound_of(index), self.buckets[index].load(Ordering::Relaxed)));
        let errors = self.errors.iter().enumerate().filter_map(|(errno, count)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then(|| (Errno(rustix::io::Errno::from_raw_os_error(errno as i32)), count))
        });
        Requests {
            operation,
            buckets: buckets.collect(),
            longer: self.buckets[BUCKETS].load(Ordering::Relaxed),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            errors: errors.collect(),
        }
    }
}

impl Asked {
    /// The request's span, for what is done on its behalf.
    pub(crate) fn span(&self) -> &tracing::Span {
        &self.span
    }

    /// The request has not been answered at once.
    pub(crate) fn waits(&mut self) {
        self.waited = true;
    }

    /// Counts the answer; to be called just before the kernel gets it.
    pub(crate) fn answered(mut self, error: Option<Errno>) {
        self.note(error);
    }

    fn note(&mut self, error: Option<Errno>) {
        let took = self.started.elapsed();
        self.answered = true;
        self.meter.count(self.operation, took, error);
        if self.span.is_disabled() {
            return;
        }
        let (took_us, error) = (took.as_micros() as u64, error.map_or("none", Errno::name));
        if self.waited {
            tracing::debug!(parent: &self.span, took_us, error, "answered after a wait");
        } else {
            tracing::trace!(parent: &self.span, took_us, error, "answered");
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered {
            self.note(Some(Errno(rustix::io::Errno::IO)));
        }
    }
}

/// The bucket whose bound is the smallest power of two that is not below the duration.
fn bucket_of(took_ns: u64) -> usize {
    let power = u64::BITS - took_ns.saturating_sub(1).leading_zeros();
    (power.saturating_sub(FIRST_POWER) as usize).min(BUCKETS)
}

fn bound_of(bucket: usize) -> u64 {
    1 << (bucket as u32 + FIRST_POWER)
}

/// The first bound is two to this power, in nanoseconds: about a microsecond.
const FIRST_POWER: u32 = 10;
/// Bounds, each twice the one before: the last is 34 seconds, beyond the longest wait that is usual.
const BUCKETS: usize = 26;
/// Errors with greater numbers are counted as this one (the greatest of Linux is 133, EHWPOISON).
const ERRNO_MAX: usize = 133;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_below_their_bounds() {
        for took_ns in [0, 1, 1023, 1024, 1025, 2048, 2049, 1_000_000, 34_359_738_368] {
            let bucket = bucket_of(took_ns);
            assert!(took_ns <= bound_of(bucket), "{took_ns}");
            assert!(bucket == 0 || took_ns > bound_of(bucket - 1), "{took_ns}");
        }
        assert_eq!(bucket_of(34_359_738_369), BUCKETS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS);
    }

    #[test]
    fn each_request_counts_once_with_its_error_and_one_that_is_dropped_as_eio() {
        let meter = Arc::new(Meter::default());
        let begin = |operation| meter.start(operation, tracing::Span::none());
        begin(Operation::Read).answered(None);
        begin(Operation::Read).answered(Some(Errno(rustix::io::Errno::NOENT)));
        drop(begin(Operation::Read));
        begin(Operation::Listxattr).answered(None);
        for requests in meter.requests() {
            let count = requests.buckets.iter().map(|(_, count)| count).sum::<u64>() + requests.longer;
            let wanted = match requests.operation {
                Operation::Read => (3, vec![("ENOENT", 1), ("EIO", 1)]),
                Operation::Listxattr => (1, Vec::new()),
                _ => (0, Vec::new()),
            };
            let errors: Vec<_> = requests.errors.iter().map(|(errno, count)| (errno.name(), *count)).collect();
            assert_eq!((count, errors), wanted, "{:?}", requests.operation);
        }
    }
}
