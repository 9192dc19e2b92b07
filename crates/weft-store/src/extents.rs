//! Which bytes of a file were written here, and which of those its source has to be told.

use std::ops::Range;

use rangemap::RangeSet;
use weft_remote::Extent;

/// What a file is here, over the content that its source has: the *base*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Ranges whose bytes are in the file of written bytes.
    held: RangeSet<u64>,
    /// Ranges that the source has not been told.
    unsent: RangeSet<u64>,
    /// The file's length in bytes.
    length: u64,
    /// Up to here bytes that are not held are the base's; from here on they are zeros.
    base_end: u64,
    /// The file's length at the source.
    sent_length: u64,
    /// It was cut or made longer, and the source has not been told that it changed, be it as long as it was.
    touched: bool,
    /// How long the file at the source may be besides, where something was sent and it is not known what came of that.
    unsure: Option<u64>,
}

/// Where bytes of a file come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// They were written here.
    Written,
    /// They are the base's.
    Base,
    /// They are zeros.
    Zeros,
}

/// What is to be sent to a source: taken out of what is unsent, and put back if it cannot be sent.
#[derive(Debug)]
pub struct Batch {
    ranges: RangeSet<u64>,
    length: u64,
    touched: bool,
    former_length: u64,
    former_unsure: Option<u64>,
}

impl Batch {
    /// The ranges, ascending.
    pub fn extents(&self) -> Vec<Extent> {
        let extent = |range: &Range<u64>| Extent { offset: range.start, length: range.end - range.start };
        self.ranges.iter().map(extent).collect()
    }

    /// The file's length afterwards, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Extents {
    /// Of a file of which nothing was written yet.
    pub(crate) fn over(base_length: u64) -> Extents {
        Extents {
            held: RangeSet::new(),
            unsent: RangeSet::new(),
            length: base_length,
            base_end: base_length,
            sent_length: base_length,
            touched: false,
            unsure: None,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes were written.
    pub(crate) fn write(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if range.start > self.length {
            self.grow(range.start);
        }
        self.length = self.length.max(range.end);
        self.held.insert(range.clone());
        self.unsent.insert(range);
    }

    /// Bytes of the base are in the file of written bytes as well.
    pub(crate) fn fill(&mut self, range: Range<u64>) {
        self.held.insert(range);
    }

    /// The source has another file now, of this length, and is to be told all of this one. Nothing of this one may be
    /// the base's.
    pub(crate) fn replace(&mut self, source_length: u64) {
        let mut all = RangeSet::new();
        if self.length > 0 {
            all.insert(0..self.length);
        }
        (self.held, self.unsent) = (all.clone(), all);
        (self.base_end, self.sent_length, self.unsure) = (0, source_length, None);
    }

    /// How many bytes the source has not been told.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent.iter().map(|range| range.end - range.start).sum()
    }

    /// The file is given a length, which may be what it has.
    pub(crate) fn resize(&mut self, length: u64) {
        self.touched = true;
        if length >= self.length {
            self.grow(length);
            return;
        }
        self.held.remove(length..u64::MAX);
        self.unsent.remove(length..u64::MAX);
        self.base_end = self.base_end.min(length);
        self.length = length;
    }

    /// What was cut off and comes back as zeros is still there at the source, which must be told of the zeros.
    fn grow(&mut self, length: u64) {
        let stale = self.length..length.min(self.reach());
        if !stale.is_empty() {
            self.held.insert(stale.clone());
            self.unsent.insert(stale);
        }
        self.length = length;
    }

    pub(crate) fn is_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.length != self.sent_length || self.touched || self.unsure.is_some()
    }

    /// How long the file at the source may be.
    fn reach(&self) -> u64 {
        self.unsure.map_or(self.sent_length, |length| length.max(self.sent_length))
    }

    /// Takes out what the source has not been told; `None` when that is nothing.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        if !self.is_unsent() {
            return None;
        }
        let batch = Batch {
            ranges: std::mem::take(&mut self.unsent),
            length: self.length,
            touched: std::mem::take(&mut self.touched),
            former_length: self.sent_length,
            former_unsure: self.unsure.take(),
        };
        self.sent_length = self.length;
        Some(batch)
    }

    /// It could not be sent, or not all of it.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        let Batch { mut ranges, length, touched, former_length, former_unsure } = batch;
        self.touched |= touched;
        self.sent_length = former_length;
        self.unsure = Some(former_unsure.map_or(length, |former| former.max(length)));
        ranges.remove(self.length..u64::MAX);
        self.unsent.extend(ranges);
        // What grew meanwhile over what the source still has.
        let stale = self.base_end.max(length.min(self.length))..self.length.min(self.reach());
        if !stale.is_empty() {
            self.held.insert(stale.clone());
            self.unsent.insert(stale);
        }
    }

    /// Where the bytes of a range come from, in order; it ends at the end of the file.
    pub(crate) fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Origin)> {
        let end = range.end.min(self.length);
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < end {
            let (until, origin) = match self.held.get(&at) {
                Some(held) => (held.end, Origin::Written),
                None => {
                    let next = self.held.gaps(&(at..end)).next().map_or(end, |gap| gap.end);
                    match at < self.base_end {
                        true => (next.min(self.base_end), Origin::Base),
                        false => (next, Origin::Zeros),
                    }
                }
            };
            let until = until.min(end);
            parts.push((at..until, origin));
            at = until;
        }
        parts
    }

    /// Whether any byte is the base's.
    pub(crate) fn needs_base(&self) -> bool {
        self.held.gaps(&(0..self.base_end)).next().is_some()
    }

    /// The file's length at its source, in bytes.
    pub(crate) fn sent_length(&self) -> u64 {
        self.sent_length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64),
        Resize(u64),
        /// What is unsent is taken.
        Take,
        /// What was taken arrives, or not all of it.
        Send(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..60u64, 0..20u64).prop_map(|(offset, length)| Step::Write(offset, length)),
            (0..70u64).prop_map(Step::Resize),
            Just(Step::Take),
            any::<bool>().prop_map(Step::Send),
        ];
        prop::collection::vec(step, 1..40)
    }

    /// A file as it is here, and as its source has it, byte by byte.
    struct Model {
        extents: Extents,
        /// What was written, as the file of written bytes has it.
        written: Vec<u8>,
        base: Vec<u8>,
        here: Vec<u8>,
        source: Vec<u8>,
        taken: Option<Batch>,
    }

    impl Model {
        fn read(&self) -> Vec<u8> {
            let parts = self.extents.parts(0..u64::MAX);
            let bytes = |(range, origin): (Range<u64>, Origin)| {
                range.map(move |at| match origin {
                    Origin::Written => self.written.get(at as usize).copied().unwrap_or(0),
                    Origin::Base => self.base[at as usize],
                    Origin::Zeros => 0,
                })
            };
            parts.into_iter().flat_map(bytes).collect()
        }

        fn step(&mut self, number: u8, step: &Step) {
            match *step {
                Step::Write(offset, length) => {
                    let (start, end) = (offset as usize, (offset + length) as usize);
                    if length > 0 {
                        for bytes in [&mut self.here, &mut self.written] {
                            bytes.resize(bytes.len().max(end), 0);
                            bytes[start..end].fill(number);
                        }
                    }
                    self.extents.write(offset..offset + length);
                }
                Step::Resize(length) => {
                    self.here.resize(length as usize, 0);
                    self.written.truncate(length as usize);
                    self.extents.resize(length);
                }
                Step::Take if self.taken.is_none() => self.taken = self.extents.take(),
                Step::Take => {}
                Step::Send(works) => {
                    let Some(batch) = self.taken.take() else { return };
                    // What breaks off may have had nothing done, or all but the last range.
                    let extents = batch.extents();
                    let done = if works { extents.len() } else { extents.len().saturating_sub(1) };
                    if works || number.is_multiple_of(2) {
                        self.source.resize(batch.length() as usize, 0);
                        for Extent { offset, length } in extents.into_iter().take(done) {
                            for at in offset as usize..(offset + length) as usize {
                                self.source[at] = self.written.get(at).copied().unwrap_or(0);
                            }
                        }
                    }
                    if !works {
                        self.extents.put_back(batch);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_read_and_what_is_sent_are_what_was_written(base_length in 0..50usize, steps in steps()) {
            let base = vec![255; base_length];
            let mut model = Model {
                extents: Extents::over(base_length as u64),
                written: Vec::new(),
                base: base.clone(),
                here: base.clone(),
                source: base,
                taken: None,
            };
            for (number, step) in steps.iter().enumerate() {
                model.step(number as u8 + 1, step);
                prop_assert_eq!(model.read(), &model.here[..], "after step {} of {:?}", number, &steps);
            }
            // Whatever was under way ends, and then all is sent.
            [Step::Send(true), Step::Take, Step::Send(true)].iter().for_each(|step| model.step(0, step));
            prop_assert_eq!(&model.source, &model.here);
            prop_assert!(!model.extents.is_unsent());
        }
    }
}
