//! How many packets of a call may be under way at once: slow start, then one more for each window that arrives whole.
//!
//! Transmissions are counted (*order*). A packet is lost when one that was sent three or more transmissions later has
//! arrived; what was lost of one window shrinks it once (*recovery*), and a wait in vain shrinks it to one packet.
//! Where what was taken for lost had only been overtaken, the window is what it was, and more overtaking is borne.
//! Source: OpenAFS `rxi_ReceiveAckPacket` for the sizes; the rule of loss is that of RFC 9002, 6.1.1.

/// Transmissions after which one that has not arrived is lost, on a way that is not known to do otherwise.
pub(crate) const REORDERING: u64 = 3;

/// The same on any way.
pub(crate) const REORDERING_MAX: u64 = 48;

/// The most packets under way: an acknowledgement tells of 255.
pub(crate) const WINDOW_MAX: u32 = 255;

/// Packets under way in the beginning (RFC 6928).
const WINDOW_INITIAL: u32 = 10;

/// The least that a loss leaves, in packets.
const WINDOW_LOSS_MIN: u32 = 2;

/// The congestion window of one direction of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    packets: u32,
    /// Above it the window grows slowly.
    threshold: u32,
    /// Arrivals that count towards the next packet of slow growth.
    credit: u32,
    /// Losses of transmissions before this one are known of already.
    recovered_at: u64,
    /// What the last loss took away: the packets and the threshold before it.
    before: Option<(u32, u32)>,
}

impl Window {
    pub(crate) fn new() -> Window {
        Window { packets: WINDOW_INITIAL, threshold: WINDOW_MAX, credit: 0, recovered_at: 0, before: None }
    }

    /// How many packets may be under way.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets arrived, the latest of them sent as `order`.
    pub(crate) fn arrived(&mut self, count: u32, order: u64) {
        if order < self.recovered_at {
            return;
        }
        if self.packets < self.threshold {
            self.packets = (self.packets + count).min(WINDOW_MAX);
            return;
        }
        self.credit += count;
        if self.credit >= self.packets {
            self.credit -= self.packets;
            self.packets = (self.packets + 1).min(WINDOW_MAX);
        }
    }

    /// The transmission was lost, and `next` will be the next one. True if this is the first loss of its window.
    pub(crate) fn lost(&mut self, order: u64, next: u64) -> bool {
        if order < self.recovered_at {
            return false;
        }
        self.before = Some((self.packets, self.threshold));
        self.threshold = (self.packets / 2).max(WINDOW_LOSS_MIN);
        self.packets = self.threshold;
        self.credit = 0;
        self.recovered_at = next;
        true
    }

    /// What was taken for lost last had arrived.
    pub(crate) fn regain(&mut self) {
        if let Some((packets, threshold)) = self.before.take() {
            self.packets = self.packets.max(packets);
            self.threshold = self.threshold.max(threshold);
        }
    }

    /// Nothing was heard of so many packets under way, and `next` will be the next transmission.
    pub(crate) fn silent(&mut self, under_way: u32, next: u64) {
        self.threshold = (under_way.min(self.packets) / 2).max(WINDOW_LOSS_MIN);
        self.packets = 1;
        self.before = None;
        self.credit = 0;
        self.recovered_at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_fast_and_after_a_loss_slowly() {
        let mut window = Window::new();
        window.arrived(10, 9);
        assert_eq!(window.packets(), 20);
        assert!(window.lost(12, 30));
        assert_eq!(window.packets(), 10);
        assert!(!window.lost(15, 40));
        assert_eq!(window.packets(), 10, "the window was shrunk for this one already");
        window.arrived(100, 29);
        assert_eq!(window.packets(), 10, "what was sent before the loss does not tell of the time after it");
        for order in 30..40 {
            window.arrived(1, order);
        }
        assert_eq!(window.packets(), 11);
        window.silent(11, 41);
        assert_eq!(window.packets(), 1);
        window.arrived(4, 41);
        assert_eq!(window.packets(), 5, "up to half of what there was it grows fast again");
    }

    #[test]
    fn a_loss_that_was_none_takes_nothing_away() {
        let mut window = Window::new();
        window.lost(3, 10);
        window.regain();
        assert_eq!(window.packets(), WINDOW_INITIAL);
        window.lost(11, 20);
        window.silent(5, 21);
        window.regain();
        assert_eq!(window.packets(), 1, "of silence nothing is said");
    }

    #[test]
    fn a_window_has_its_bounds() {
        let mut window = Window::new();
        (0..100).for_each(|order| window.arrived(50, order));
        assert_eq!(window.packets(), WINDOW_MAX);
        (0..100).for_each(|loss| assert!(window.lost(200 + loss, 201 + loss)));
        assert_eq!(window.packets(), WINDOW_LOSS_MIN);
    }
}
