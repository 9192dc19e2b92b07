//! The pace at which each source is asked ahead of use, shared by all who do so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use weft_remote::Crawl;
use weft_store::BindingId;

/// One source's pace.
pub(crate) struct Pace {
    seats: Arc<Semaphore>,
    /// When the next request may begin; held for one look.
    next: Mutex<Instant>,
}

/// The paces of all sources. The lock guards the map alone and is held for one look.
#[derive(Default)]
pub(crate) struct Paces(Mutex<HashMap<(BindingId, String), Arc<Pace>>>);

impl Paces {
    /// The pace of the source that this is about.
    pub(crate) fn of(&self, binding: BindingId, crawl: &Crawl) -> Arc<Pace> {
        let mut paces = self.0.lock();
        if paces.len() >= PACES_MAX {
            paces.retain(|_, pace| Arc::strong_count(pace) > 1);
        }
        let key = (binding, crawl.source.clone());
        paces.entry(key).or_insert_with(|| Arc::new(Pace::new(crawl.at_once))).clone()
    }
}

impl Pace {
    /// With so many requests at a time; 0 is as many as anybody wants.
    pub(crate) fn new(at_once: usize) -> Pace {
        let seats = if at_once == 0 { Semaphore::MAX_PERMITS } else { at_once };
        Pace { seats: Arc::new(Semaphore::new(seats)), next: Mutex::new(Instant::now()) }
    }

    /// Waits until a request may begin, the last one at least `pause` ago; the seat is kept until it is over.
    ///
    /// # Cancel safety
    /// Dropping the future gives the seat back; the pause is spent.
    pub(crate) async fn turn(&self, pause: Duration) -> Option<OwnedSemaphorePermit> {
        // Never closed; without a seat there would be none to give back.
        let seat = self.seats.clone().acquire_owned().await.ok();
        self.pause(pause).await;
        seat
    }

    /// Waits until the last one who waited did so at least `pause` ago.
    pub(crate) async fn pause(&self, pause: Duration) {
        loop {
            let at = *self.next.lock();
            if Instant::now() < at {
                tokio::time::sleep_until(at).await;
                continue;
            }
            let mut next = self.next.lock();
            if *next == at {
                *next = Instant::now() + pause;
                return;
            }
        }
    }

    /// Has nobody begin before this time has passed.
    pub(crate) fn hold_off(&self, time: Duration) {
        let mut next = self.next.lock();
        *next = (*next).max(Instant::now() + time);
    }
}

/// Sources whose paces are remembered.
const PACES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: requests begin one pause apart however many wait, no more than the seats are under way, and a source that
    /// asks for rest has it. Under simulated time.
    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_distance() {
        let pace = Pace::new(2);
        let first = pace.turn(Duration::ZERO).await;
        let second = pace.turn(Duration::ZERO).await;
        assert!(first.is_some() && second.is_some());
        let third = tokio::time::timeout(Duration::from_secs(5), pace.turn(Duration::ZERO)).await;
        assert!(third.is_err(), "both seats are taken");
        drop((first, second));
        let began = Instant::now();
        for nth in 0..3 {
            drop(pace.turn(Duration::from_secs(2)).await);
            assert_eq!(began.elapsed().as_secs(), 2 * nth);
        }
        pace.hold_off(Duration::from_secs(60));
        drop(pace.turn(Duration::ZERO).await);
        assert!(began.elapsed().as_secs() >= 64);
    }
}
