//! How requests come: which ways there are, and why one cannot be had.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::sys::Ring;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Over io_uring where the kernel offers it and this process may, over the device otherwise.
    #[default]
    Auto,
    /// By read(2) and write(2) on `/dev/fuse`.
    Classic,
    /// Over io_uring (Linux 6.14), or not at all.
    IoUring,
}

impl Transport {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Classic => "classic",
            Transport::IoUring => "io_uring",
        }
    }
}

impl std::str::FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        let all = [Transport::Auto, Transport::Classic, Transport::IoUring];
        let found = all.into_iter().find(|transport| transport.name() == text);
        found.ok_or_else(|| format!("the transport `{text}` is not known: use auto, classic or io_uring"))
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.name())
    }
}

/// Why requests cannot come over io_uring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel does not offer it.
    #[error(
        "the kernel does not offer FUSE over io_uring: it needs Linux 6.14 or newer, built with CONFIG_FUSE_IO_URING, \
         and as root `echo Y > {PARAMETER}`"
    )]
    NotOffered,
    /// A ring cannot be made.
    #[error("a ring for FUSE requests cannot be made ({source}): {}", advice(source))]
    Setup {
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no memory for entries.
    #[error("no memory for {entries} requests over io_uring ({source}): check the limits on address space")]
    Memory {
        /// Entries of one queue.
        entries: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not take the entries of a queue.
    #[error("the kernel refused FUSE requests over io_uring on queue {queue} ({source}): use transport=classic")]
    Refused {
        /// The queue, which has the number of its CPU.
        queue: u16,
        /// What the kernel said.
        source: io::Error,
    },
    /// There are more CPUs than there can be queues.
    #[error("FUSE over io_uring needs a queue for each of {cpus} CPUs, which are too many: use transport=classic")]
    Cpus {
        /// CPUs that the kernel thinks possible.
        cpus: usize,
    },
}

impl RingError {
    /// Whether FUSE over io_uring can be had by a mount that is made now.
    ///
    /// # Errors
    /// Why not, with what to do.
    pub fn check() -> Result<(), RingError> {
        let offered = std::fs::read_to_string(PARAMETER).is_ok_and(|text| text.trim() == "Y");
        if !offered {
            return Err(RingError::NotOffered);
        }
        Ring::try_out().map_err(|source| RingError::Setup { source })
    }
}

fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "io_uring is forbidden here: set the sysctl kernel.io_uring_disabled to 0, or let the container's seccomp \
             profile allow io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(Errno::NOMEM) => "raise the limit on locked memory (ulimit -l, LimitMEMLOCK= of systemd)",
        Some(Errno::NOSYS) => "this kernel or the container's seccomp profile has no io_uring",
        Some(Errno::INVAL) => "use Linux 6.14 or newer",
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit on open files (ulimit -n)",
        _ => "use transport=classic",
    }
}

/// The switch of the whole machine.
pub(crate) const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for transport in [Transport::Auto, Transport::Classic, Transport::IoUring] {
            assert_eq!(transport.name().parse(), Ok(transport));
        }
        assert!("uring".parse::<Transport>().is_err_and(|error| error.contains("auto, classic or io_uring")));
    }

    #[test]
    fn what_is_forbidden_is_named_with_what_to_do() {
        let said = |errno: Errno| RingError::Setup { source: errno.into() }.to_string();
        assert!(said(Errno::PERM).contains("kernel.io_uring_disabled"));
        assert!(said(Errno::PERM).contains("seccomp"));
        assert!(said(Errno::NOMEM).contains("LimitMEMLOCK"));
        assert!(RingError::NotOffered.to_string().contains("enable_uring"));
    }
}
