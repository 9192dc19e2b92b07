//! Memory for what is on its way from servers, shared by all hosts.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound for the memory of connections, and one for pages that are held while they are read. Half of the whole each.
#[derive(Debug)]
pub(crate) struct Budget {
    half_kib: u32,
    connections: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

/// What one connection may have in memory; given back with this value.
#[derive(Debug)]
pub(crate) struct Share {
    /// In bytes.
    pub bytes: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Arc<Budget> {
        let half_kib = u32::try_from(bytes / 2 / KIB).unwrap_or(u32::MAX >> 3).max(1);
        let half = || Arc::new(Semaphore::new(half_kib as usize));
        Arc::new(Budget { half_kib, connections: half(), pages: half() })
    }

    /// A connection's share: what it asks for while there is plenty, less when there is less, and in the end so little
    /// that it need not be counted. Never waits, for connections that nobody uses hold their shares as well.
    pub fn share(&self, ample: usize) -> Share {
        for (part, left_free) in [(1, 2), (8, 4), (32, 8)] {
            let bytes = ample / part;
            let kib = u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
            let free = self.connections.available_permits();
            if bytes > SHARE_BYTES_MIN
                && free >= self.half_kib as usize / left_free + kib as usize
                && let Ok(permit) = self.connections.clone().try_acquire_many_owned(kib)
            {
                return Share { bytes, _permit: Some(permit) };
            }
        }
        Share { bytes: SHARE_BYTES_MIN, _permit: None }
    }

    /// Room for a page of at most so many bytes and what is read from it; waits for that of others. One for each page,
    /// and taken once, so that no two can wait for each other.
    pub async fn page(&self, bytes: usize) -> OwnedSemaphorePermit {
        let kib = u32::try_from(bytes.saturating_mul(2) / KIB).unwrap_or(u32::MAX).min(self.half_kib);
        self.pages.clone().acquire_many_owned(kib).await.expect("this semaphore is never closed")
    }
}

const KIB: usize = 1024;
/// The least that a connection works with.
const SHARE_BYTES_MIN: usize = 16 << 10;
/// A page this small needs no room of its own.
pub(crate) const SMALL_PAGE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_more_there_are_the_less_each_has_and_all_have_no_more_than_half() {
        let budget = Budget::new(96 << 20);
        let shares: Vec<Share> = (0..2000).map(|_| budget.share(2 << 20)).collect();
        assert_eq!(shares[0].bytes, 2 << 20);
        assert!(shares.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
        assert_eq!(shares[1999].bytes, SHARE_BYTES_MIN);
        let counted: usize = shares.iter().map(|share| share.bytes).filter(|bytes| *bytes > SHARE_BYTES_MIN).sum();
        assert!(counted <= 48 << 20, "{counted}");
        drop(shares);
        assert_eq!(budget.share(2 << 20).bytes, 2 << 20);
    }

    #[tokio::test]
    async fn pages_wait_for_each_other_and_one_that_is_too_large_is_alone() {
        let budget = Budget::new(8 << 20);
        let large = budget.page(1 << 30).await;
        assert!(tokio::time::timeout(std::time::Duration::ZERO, budget.page(1 << 20)).await.is_err());
        drop(large);
        let (_one, _two) = (budget.page(1 << 20).await, budget.page(1 << 20).await);
    }
}
