//! How long the way to the other side and back takes, and so how long to wait before something is sent again.
//!
//! Source: `rxi_ComputeRoundTripTime` in OpenAFS `src/rx/rx.c`, after Jacobson; RFC 6298 for the beginning.

use std::time::Duration;

/// Waited before anything was measured.
const UNMEASURED: Duration = Duration::from_secs(1);

/// The least that is taken for the way and its variation.
const WAY_MIN: Duration = Duration::from_millis(20);

/// Waited beyond the way: the other side may delay what it has to say.
const GRACE: Duration = Duration::from_millis(200);

/// The longest wait: several fit into the time after which silence is death. OpenAFS waits up to a minute.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Doublings after which the longest wait is reached from the shortest.
const DOUBLINGS_MAX: u32 = 6;

/// What is taken for the way and its variation before anything was measured, where little is lost by being wrong.
const WAY_UNMEASURED: Duration = Duration::from_millis(100);

/// What was measured of one way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    /// The smoothed time and its mean deviation.
    measured: Option<(Duration, Duration)>,
    /// The least time after which a request was replied to: no longer is the way.
    fastest: Option<Duration>,
}

impl Rtt {
    /// A request was replied to so much later.
    pub(crate) fn replied(&mut self, after: Duration) {
        self.fastest = Some(self.fastest.map_or(after, |fastest| fastest.min(after)));
    }

    /// The way and its variation, as far as is known.
    fn known_way(&self) -> Option<Duration> {
        let measured = self.measured.map(|(smoothed, deviation)| smoothed + deviation * 4);
        measured.or(self.fastest.map(|fastest| fastest * 2)).map(|way| way.max(WAY_MIN))
    }

    /// The way and its variation: who waits longer for what is on its way waits in vain.
    pub(crate) fn way(&self) -> Duration {
        self.known_way().unwrap_or(WAY_UNMEASURED).min(WAIT_MAX)
    }

    /// How long to wait before what was sent last is sent once more, to learn what came of the rest (RFC 8985, 7.2); `None`
    /// before anything was measured.
    pub(crate) fn probe(&self) -> Option<Duration> {
        self.known_way().map(|way| (way * 2).min(WAIT_MAX))
    }

    /// Something sent at one time was answered so much later.
    pub(crate) fn measure(&mut self, sample: Duration) {
        self.measured = Some(match self.measured {
            None => (sample, sample / 2),
            Some((smoothed, deviation)) => {
                let off = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (deviation * 3 + off) / 4)
            }
        });
    }

    /// How long to wait for an answer after so many waits in vain.
    pub(crate) fn wait(&self, in_vain: u32) -> Duration {
        let once = self.known_way().map_or(UNMEASURED, |way| way + GRACE);
        (once * (1 << in_vain.min(DOUBLINGS_MAX))).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_way_is_waited_for_a_little_longer_than_it_takes() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.wait(0), UNMEASURED);
        for _ in 0..50 {
            rtt.measure(Duration::from_millis(100));
        }
        assert!((Duration::from_millis(300)..Duration::from_millis(302)).contains(&rtt.wait(0)), "{rtt:?}");
        rtt.measure(Duration::from_millis(900));
        assert!(rtt.wait(0) > Duration::from_millis(1100), "{rtt:?}");
    }

    #[test]
    fn a_reply_tells_how_long_the_way_is_at_most() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.way(), rtt.probe()), (WAY_UNMEASURED, None));
        rtt.replied(Duration::from_millis(30));
        rtt.replied(Duration::from_millis(400));
        assert_eq!((rtt.way().as_millis(), rtt.probe().map(|probe| probe.as_millis())), (60, Some(120)));
        assert_eq!(rtt.wait(0).as_millis(), 260);
        (0..50).for_each(|_| rtt.measure(Duration::from_millis(10)));
        assert_eq!(rtt.way(), WAY_MIN);
    }

    #[test]
    fn a_wait_in_vain_doubles_up_to_the_longest() {
        let mut rtt = Rtt::default();
        rtt.measure(Duration::ZERO);
        let waits: Vec<u128> = [0, 1, 2, 5, 6, u32::MAX].map(|in_vain| rtt.wait(in_vain).as_millis()).to_vec();
        assert_eq!(waits, [220, 440, 880, 7040, 10_000, 10_000]);
        rtt.measure(Duration::MAX / 16);
        assert_eq!(rtt.wait(0), WAIT_MAX);
    }
}
