//! The first request of a connection: what both sides can do.

use serde::{Deserialize, Serialize};

use crate::abi;
use crate::decode::Offer;
use crate::flags::InitFlags;
use crate::transport::RingError;

/// What a server wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Flags that are taken where the kernel offers them. `MAX_PAGES` and `INIT_EXT` are taken in any case.
    pub flags: InitFlags,
    /// Largest body of a request or answer in bytes: at least 4096, at most [`Wanted::TRANSFER_BYTES_MAX`].
    pub max_write: u32,
    /// Requests that the kernel may have in flight without anybody waiting for them (read-ahead).
    pub max_background: u16,
    /// What times of files are rounded to, in nanoseconds: 1 to 1,000,000,000.
    pub time_granularity_ns: u32,
    /// How deep file systems may be stacked, with `PASSTHROUGH`: 1 for backing files that are not stacked themselves.
    pub max_stack_depth: u32,
}

/// What a connection can do: agreed once, when it begins. A server that takes a live connection over must know it, for
/// the kernel does not tell it twice; so this can be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// The protocol's minor version that both speak.
    pub minor: u32,
    /// What was offered and wanted.
    pub flags: InitFlags,
    /// Largest read-ahead in bytes, as the kernel offers it.
    pub max_readahead: u32,
    /// As in [`Wanted`].
    pub max_write: u32,
    /// `max_write` in pages of 4096 bytes.
    pub max_pages: u16,
    /// As in [`Wanted`].
    pub max_background: u16,
    /// As in [`Wanted`].
    pub time_granularity_ns: u32,
    /// As in [`Wanted`]; 0 without `PASSTHROUGH`.
    pub max_stack_depth: u32,
}

/// Why a connection did not begin.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The kernel is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; at least 7.{MINOR_MIN} is needed: use Linux 5.4 or newer")]
    TooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The device cannot be read or written.
    #[error("the kernel's first request cannot be read or answered: {0}")]
    Io(#[from] std::io::Error),
    /// Requests shall come over io_uring and cannot.
    #[error(transparent)]
    NoRing(#[from] RingError),
    /// Something else came first.
    #[error("the kernel's first request is not INIT: the descriptor belongs to a connection that began before")]
    NotInit,
}

impl Wanted {
    /// Largest `max_write` in bytes.
    pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            flags: InitFlags::ASYNC_READ | InitFlags::BIG_WRITES,
            max_write: 1 << 20,
            max_background: 64,
            time_granularity_ns: 1,
            max_stack_depth: 1,
        }
    }
}

impl Negotiated {
    /// Whether all of these flags were agreed on.
    pub fn has(&self, flags: InitFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Room in bytes that a request needs: the kernel reads no request into less (`fuse_dev_do_read`).
    pub fn request_bytes_max(&self) -> usize {
        self.max_write as usize + HEADROOM_BYTES
    }
}

/// How an offer is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With this.
    Agreed(Negotiated, abi::InitOut),
    /// With our major version alone: the kernel then asks again.
    OurMajor(abi::InitOut),
    /// Not at all.
    TooOld,
}

/// What is agreed on.
pub(crate) fn negotiate(offer: &Offer, wanted: &Wanted) -> Answer {
    let empty = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
    if offer.major > abi::MAJOR {
        return Answer::OurMajor(empty);
    }
    if offer.major < abi::MAJOR || offer.minor < MINOR_MIN {
        return Answer::TooOld;
    }
    let always = InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    let flags = (wanted.flags | always) & InitFlags(offer.flags) & SUPPORTED;
    let max_write = wanted.max_write.clamp(PAGE_BYTES, Wanted::TRANSFER_BYTES_MAX);
    // Without MAX_PAGES the kernel sends 32 pages at most.
    let pages = if flags.contains(InitFlags::MAX_PAGES) { max_write.div_ceil(PAGE_BYTES) } else { PAGES_USUAL };
    let max_pages = u16::try_from(pages).unwrap_or(u16::MAX);
    let max_write = max_write.min(u32::from(max_pages) * PAGE_BYTES);
    let stack = if flags.contains(InitFlags::PASSTHROUGH) { wanted.max_stack_depth } else { 0 };
    let agreed = Negotiated {
        minor: offer.minor.min(abi::MINOR),
        flags,
        max_readahead: offer.max_readahead,
        max_write,
        max_pages,
        max_background: wanted.max_background.max(1),
        time_granularity_ns: wanted.time_granularity_ns.clamp(1, 1_000_000_000),
        max_stack_depth: stack,
    };
    let out = abi::InitOut {
        max_readahead: agreed.max_readahead,
        flags: flags.low(),
        flags2: flags.high(),
        max_background: agreed.max_background,
        // Three quarters, as the kernel itself has it: from there on a device counts as busy.
        congestion_threshold: (agreed.max_background / 4 * 3).max(1),
        max_write,
        time_gran: agreed.time_granularity_ns,
        max_pages,
        max_stack_depth: stack,
        ..empty
    };
    Answer::Agreed(agreed, out)
}

/// Flags that this crate can keep the word of. Left out: those that change requests into forms that it does not read
/// (`SETXATTR_EXT`, `SECURITY_CTX`, `CREATE_SUPP_GROUP`), and what is for DAX. `OVER_IO_URING` is for those who have
/// rings.
const SUPPORTED: InitFlags = InitFlags(
    InitFlags::ASYNC_READ.0
        | InitFlags::POSIX_LOCKS.0
        | InitFlags::ATOMIC_O_TRUNC.0
        | InitFlags::EXPORT_SUPPORT.0
        | InitFlags::BIG_WRITES.0
        | InitFlags::DONT_MASK.0
        | InitFlags::FLOCK_LOCKS.0
        | InitFlags::AUTO_INVAL_DATA.0
        | InitFlags::DO_READDIRPLUS.0
        | InitFlags::READDIRPLUS_AUTO.0
        | InitFlags::ASYNC_DIO.0
        | InitFlags::WRITEBACK_CACHE.0
        | InitFlags::NO_OPEN_SUPPORT.0
        | InitFlags::PARALLEL_DIROPS.0
        | InitFlags::POSIX_ACL.0
        | InitFlags::ABORT_ERROR.0
        | InitFlags::MAX_PAGES.0
        | InitFlags::CACHE_SYMLINKS.0
        | InitFlags::NO_OPENDIR_SUPPORT.0
        | InitFlags::EXPLICIT_INVAL_DATA.0
        | InitFlags::HANDLE_KILLPRIV_V2.0
        | InitFlags::INIT_EXT.0
        | InitFlags::HAS_EXPIRE_ONLY.0
        | InitFlags::DIRECT_IO_ALLOW_MMAP.0
        | InitFlags::PASSTHROUGH.0
        | InitFlags::NO_EXPORT_SUPPORT.0
        | InitFlags::HAS_RESEND.0
        | InitFlags::OVER_IO_URING.0,
);
/// The oldest minor version that is spoken (Linux 5.4).
const MINOR_MIN: u32 = 31;
/// The kernel's unit of `max_pages`, on machines with pages of this size.
const PAGE_BYTES: u32 = 4096;
/// `FUSE_DEFAULT_MAX_PAGES_PER_REQ` of the kernel.
const PAGES_USUAL: u32 = 32;
/// Header and arguments beside a request's body; names come here as well.
const HEADROOM_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { major: 7, minor: 45, max_readahead: 131_072, flags: u64::MAX }
    }

    /// Goal: what is agreed on is what both have, and the kernel is told the same.
    #[test]
    fn both_sides_have_what_is_agreed_on() {
        let wanted = Wanted { flags: InitFlags::PASSTHROUGH | InitFlags::PARALLEL_DIROPS, ..Wanted::default() };
        let Answer::Agreed(agreed, out) = negotiate(&offer(), &wanted) else { panic!("agreed") };
        let names: Vec<_> = agreed.flags.names().collect();
        assert_eq!(names, ["PARALLEL_DIROPS", "MAX_PAGES", "INIT_EXT", "PASSTHROUGH"]);
        assert_eq!((agreed.max_write, agreed.max_pages, agreed.max_stack_depth), (1 << 20, 256, 1));
        assert_eq!((out.flags, out.flags2), (1 << 18 | 1 << 22 | 1 << 30, 1 << 5));
        assert_eq!((out.max_stack_depth, out.max_background, out.congestion_threshold), (1, 64, 48));

        let poor = Offer { minor: 31, flags: InitFlags::PARALLEL_DIROPS.0, ..offer() };
        let Answer::Agreed(agreed, out) = negotiate(&poor, &wanted) else { panic!("agreed") };
        assert_eq!(agreed.flags, InitFlags::PARALLEL_DIROPS);
        assert_eq!((agreed.minor, agreed.max_write, agreed.max_stack_depth), (31, 32 * 4096, 0));
        assert_eq!((out.max_pages, out.flags2), (32, 0));
    }

    #[test]
    fn strange_versions_are_met_as_the_protocol_says() {
        assert!(matches!(negotiate(&Offer { minor: 30, ..offer() }, &Wanted::default()), Answer::TooOld));
        assert!(matches!(negotiate(&Offer { major: 6, ..offer() }, &Wanted::default()), Answer::TooOld));
        let Answer::OurMajor(out) = negotiate(&Offer { major: 8, ..offer() }, &Wanted::default()) else {
            panic!("asked again")
        };
        assert_eq!((out.major, out.minor), (7, 45));
    }
}
