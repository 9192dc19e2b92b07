//! Whether a read takes one object or its neighbours too: from what reads have cost on this device, and from how many
//! neighbours were used after earlier reads of the segment.

use std::time::Duration;

/// What a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Object,
    /// The object and the neighbours that belong with it: all of the segment where nothing tells which do.
    Neighbours,
}

/// What is known of a segment's use, in a byte: see the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UseRecord(pub(crate) u8);

/// What reads cost, and what came of reading neighbours.
#[derive(Debug)]
pub(crate) struct Costs {
    object: Mean,
    neighbours: Mean,
    /// Bytes of a segment.
    segment: f64,
    /// Neighbours used after the first read with neighbours of segments packed as friends, and of others.
    prior_friends: f64,
    prior_strangers: f64,
    /// Lately, after reads with neighbours of segments that had been read so before: neighbours that their records told
    /// of, and those that were used.
    told: f64,
    found: f64,
    since_probe: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mean {
    bytes: f64,
    ns: f64,
}

impl UseRecord {
    /// Of a segment that was just written.
    pub(crate) fn new(friends: bool) -> UseRecord {
        UseRecord(UNTRIED | if friends { FRIENDS } else { 0 })
    }

    /// Some of it is read with neighbours once more; the first time so many are expected to be used, which counts as
    /// much as what that shows.
    pub(crate) fn after_read(self, expected: f64) -> UseRecord {
        let mean = match self.0 & UNTRIED {
            // At most 62: as a number it is small.
            UNTRIED => FIRST_TRIAL | (expected * 4.0 / 2.0).clamp(0.0, f64::from(MEAN_MAX - 1)) as u8,
            state => (state & MEAN_MAX) / 4 * 3 + (state & MEAN_MAX) % 4 * 3 / 4,
        };
        UseRecord(self.0 & FRIENDS | mean)
    }

    /// A neighbour that came along was used.
    pub(crate) fn after_use(self) -> UseRecord {
        let state = self.0 & UNTRIED;
        if state == UNTRIED {
            return self;
        }
        // A quarter of the weight is the last read's; half of it is the first one's.
        let (gain, most) = if state & FIRST_TRIAL != 0 { (2, MEAN_MAX - 1) } else { (1, MEAN_MAX) };
        UseRecord(self.0 & !MEAN_MAX | ((state & MEAN_MAX) + gain).min(most))
    }

    fn is_of_friends(self) -> bool {
        self.0 & FRIENDS != 0
    }

    fn is_first_trial(self) -> bool {
        self.0 & UNTRIED != UNTRIED && self.0 & FIRST_TRIAL != 0
    }

    /// Mean number of neighbours used after a read with them.
    fn mean(self) -> Option<f64> {
        (self.0 & UNTRIED != UNTRIED).then(|| f64::from(self.0 & MEAN_MAX) / 4.0)
    }
}

impl Costs {
    /// Before anything was measured: a disk without moving parts.
    pub(crate) fn new(segment_bytes: u32) -> Costs {
        Costs {
            object: Mean { bytes: 16384.0, ns: 100_000.0 },
            neighbours: Mean { bytes: segment_bytes.into(), ns: 190_000.0 },
            segment: segment_bytes.into(),
            prior_friends: PRIOR_FRIENDS,
            prior_strangers: PRIOR_STRANGERS,
            told: PRIOR_FRIENDS,
            found: PRIOR_FRIENDS,
            since_probe: 0,
        }
    }

    /// Forgets the assumption: these are the first values measured.
    pub(crate) fn begin(&mut self, object: (usize, Duration), segment: (usize, Duration)) {
        let mean = |(bytes, took): (usize, Duration)| Mean { bytes: bytes as f64, ns: took.as_nanos().max(1) as f64 };
        (self.object, self.neighbours) = (mean(object), mean(segment));
    }

    /// Which read is expected to cost less in the end: of an object of `bytes`, or of `all` with its neighbours.
    pub(crate) fn choose(&mut self, record: UseRecord, bytes: usize, all: usize) -> Take {
        let object = self.estimate(bytes);
        let extra = (self.estimate(all) - object).max(0.0);
        if self.expected(record) * self.object.ns > extra {
            return Take::Neighbours;
        }
        // Now and then it is tried all the same, so seldom that it costs little even when nothing comes of it.
        self.since_probe += 1;
        if f64::from(self.since_probe) >= (extra / object / PROBE_SHARE).clamp(PROBE_EVERY_MIN, PROBE_EVERY_MAX) {
            self.since_probe = 0;
            return Take::Neighbours;
        }
        Take::Object
    }

    /// A read took that long.
    pub(crate) fn note(&mut self, take: Take, bytes: usize, took: Duration) {
        let mean = match take {
            Take::Object => &mut self.object,
            Take::Neighbours => &mut self.neighbours,
        };
        // One that waited for something else tells nothing of the device.
        let ns = (took.as_nanos().max(1) as f64).min(mean.ns * OUTLIER);
        mean.bytes += (bytes as f64 - mean.bytes) / COST_WINDOW;
        mean.ns += (ns - mean.ns) / COST_WINDOW;
    }

    /// How many neighbours are expected to be used after a read with them of a segment with this record: what it tells,
    /// as far as records tell the truth of what is going on now.
    pub(crate) fn expected(&self, record: UseRecord) -> f64 {
        let prior = if record.is_of_friends() { self.prior_friends } else { self.prior_strangers };
        let truth = (self.found / self.told.max(TOLD_MIN)).min(TRUTH_MAX);
        record.mean().map_or(prior, |mean| mean * truth)
    }

    /// An object of a segment with this record is read with its neighbours.
    pub(crate) fn read(&mut self, record: UseRecord) {
        match record.mean() {
            None => {
                let prior = self.prior(record);
                *prior -= *prior / PRIOR_WINDOW;
            }
            Some(mean) => {
                self.told += (mean - self.told) / TRUTH_WINDOW;
                self.found -= self.found / TRUTH_WINDOW;
            }
        }
    }

    /// A neighbour was used that came along from a segment with this record.
    pub(crate) fn neighbour_used(&mut self, record: UseRecord) {
        if record.is_first_trial() {
            *self.prior(record) += 1.0 / PRIOR_WINDOW;
        } else {
            self.found += 1.0 / TRUTH_WINDOW;
        }
    }

    fn prior(&mut self, record: UseRecord) -> &mut f64 {
        if record.is_of_friends() { &mut self.prior_friends } else { &mut self.prior_strangers }
    }

    /// Between the two means that were measured, a straight line.
    fn estimate(&self, bytes: usize) -> f64 {
        let span = (self.neighbours.bytes - self.object.bytes).max(self.segment / SPAN_PART);
        let slope = ((self.neighbours.ns - self.object.ns) / span).max(0.0);
        (self.object.ns + slope * (bytes as f64 - self.object.bytes)).max(self.object.ns / 4.0)
    }
}

const FRIENDS: u8 = 0x80;
/// In the low seven bits: never read with neighbours.
const UNTRIED: u8 = 0x7f;
const FIRST_TRIAL: u8 = 0x40;
const MEAN_MAX: u8 = 0x3f;
const PRIOR_FRIENDS: f64 = 4.0;
const PRIOR_STRANGERS: f64 = 0.25;
const PRIOR_WINDOW: f64 = 64.0;
const TRUTH_WINDOW: f64 = 32.0;
/// Records that tell of less say nothing of how true they are.
const TOLD_MIN: f64 = 0.25;
/// Most that records are taken to understate.
const TRUTH_MAX: f64 = 2.0;
const COST_WINDOW: f64 = 32.0;
/// Means that lie nearer to each other than that part of a segment say little of what a byte costs.
const SPAN_PART: f64 = 8.0;
const OUTLIER: f64 = 8.0;
/// What trying may cost, as a part of what reading objects alone costs.
const PROBE_SHARE: f64 = 0.03;
const PROBE_EVERY_MIN: f64 = 8.0;
const PROBE_EVERY_MAX: f64 = 4096.0;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: usize = 128 << 10;

    fn costs(object_us: u64, segment_us: u64) -> Costs {
        let mut costs = Costs::new(WHOLE as u32);
        costs.begin((16 << 10, Duration::from_micros(object_us)), (WHOLE, Duration::from_micros(segment_us)));
        costs
    }

    /// Share of whole reads among `count`, each followed by the use of `used` neighbours.
    fn share(costs: &mut Costs, record: UseRecord, count: u32, used: u32) -> f64 {
        let mut whole = 0;
        for _ in 0..count {
            // Each time another segment.
            if costs.choose(record, 16 << 10, WHOLE) == Take::Neighbours {
                whole += 1;
                costs.read(record);
                let mut tried = record.after_read(costs.expected(record));
                for _ in 0..used {
                    costs.neighbour_used(tried);
                    tried = tried.after_use();
                }
            }
        }
        f64::from(whole) / f64::from(count)
    }

    #[test]
    fn a_rotating_disk_takes_whole_segments_and_a_fast_one_only_those_of_friends() {
        let strangers = UseRecord::new(false);
        let friends = UseRecord::new(true);
        assert_eq!(costs(11_000, 11_700).choose(strangers, 16 << 10, WHOLE), Take::Neighbours);
        assert_eq!(costs(60, 113).choose(strangers, 16 << 10, WHOLE), Take::Object);
        assert_eq!(costs(60, 113).choose(friends, 16 << 10, WHOLE), Take::Neighbours);
    }

    #[test]
    fn without_locality_trying_costs_less_than_a_twentieth() {
        for (object, segment) in [(60, 113), (60, 600), (11_000, 11_700)] {
            for friends in [false, true] {
                let mut costs = costs(object, segment);
                let record = UseRecord::new(friends);
                // What it takes to learn.
                share(&mut costs, record, 4000, 0);
                let whole = share(&mut costs, record, 20_000, 0);
                let slower = whole * (segment as f64 / object as f64 - 1.0);
                assert!(slower < 0.05, "{object} {segment} {friends}: {whole} whole reads, {slower} slower");
            }
        }
    }

    #[test]
    fn locality_that_nobody_told_of_is_found() {
        let mut costs = costs(60, 113);
        let record = UseRecord::new(false);
        share(&mut costs, record, 20_000, 6);
        assert!(share(&mut costs, record, 1000, 6) > 0.99);
    }

    /// Reads of segments that are known, `count` of them, each followed by the use of `used` neighbours; the share of
    /// whole reads among the last half.
    fn share_of_known(costs: &mut Costs, records: &mut [UseRecord], count: usize, used: u32) -> f64 {
        let mut whole = 0;
        for nth in 0..count {
            let at = nth % records.len();
            let record = &mut records[at];
            if costs.choose(*record, 16 << 10, WHOLE) == Take::Neighbours {
                whole += usize::from(nth >= count / 2);
                costs.read(*record);
                *record = record.after_read(4.0);
                for _ in 0..used {
                    costs.neighbour_used(*record);
                    *record = record.after_use();
                }
            }
        }
        whole as f64 / (count - count / 2) as f64
    }

    #[test]
    fn reading_without_locality_neither_costs_much_nor_spoils_what_segments_know() {
        let mut costs = costs(100, 185);
        let mut records = vec![UseRecord::new(true); 1000];
        assert!(share_of_known(&mut costs, &mut records, 4000, 5) > 0.99);
        let singles = share_of_known(&mut costs, &mut records, 1000, 0);
        assert!(singles < 0.05, "{singles}");
        let known = records.iter().filter_map(|record| record.mean()).sum::<f64>() / 1000.0;
        assert!(known > 3.0, "{known} neighbours");
        // Who reads pages again has what they know as soon as it has turned out to be true again.
        share_of_known(&mut costs, &mut records, 400, 5);
        assert!(share_of_known(&mut costs, &mut records, 1000, 5) > 0.99);
    }

    #[test]
    fn one_read_for_a_straggler_does_not_hide_the_friends() {
        let mut costs = costs(100, 185);
        let read = UseRecord::new(true).after_read(5.0);
        assert_eq!(costs.choose(read, 16 << 10, WHOLE), Take::Neighbours, "{:?}", read.mean());
    }

    #[test]
    fn a_segment_remembers_what_its_whole_reads_were_good_for() {
        let mut record = UseRecord::new(true).after_read(2.0);
        for _ in 0..5 {
            record = record.after_use();
        }
        assert_eq!(record.mean(), Some(3.5));
        for _ in 0..20 {
            record = record.after_read(2.0);
        }
        assert!(record.mean().unwrap() < 0.6 && record.is_of_friends());
        for _ in 0..1000 {
            record = record.after_use();
        }
        assert_eq!(record.mean(), Some(15.75), "it does not run over");
        for expected in [0.0, 4.0, 1e9] {
            let first = UseRecord::new(false).after_read(expected);
            assert!((0..100).fold(first, |record, _| record.after_use()).mean().is_some());
        }
    }
}
