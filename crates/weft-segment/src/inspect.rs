//! Looking at everything: what is damaged, and voiding it.

use crate::core::Shared;
use crate::group::short;
use crate::index::Place;
use crate::reading::{WHOLE_AT_ONCE, Whole};
use crate::segment::Extent;
use crate::table::Standing;
use crate::{Result, checkpoint};

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Segments that were looked at.
    pub segments: u64,
    /// Objects that are right.
    pub objects: u64,
    /// Objects of which at least one byte is not what was written.
    pub damaged_objects: u64,
    /// Whether the latest checkpoint is not what was written, so that a start would take longer.
    pub checkpoint_is_damaged: bool,
    /// The first of the damages, in words.
    pub damages: Vec<String>,
}

/// What the index has of one segment.
type InSegment = Vec<(u64, Place)>;

/// A segment as it was read, and its number in sequence before that.
struct Looked<'m> {
    segment: u32,
    sequence: u64,
    whole: Option<Whole>,
    bytes: &'m [u8],
}

impl Findings {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damaged_objects == 0 && !self.checkpoint_is_damaged
    }

    fn note(&mut self, damage: String) {
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        }
    }
}

impl Shared {
    /// See [`crate::Volume::check`].
    pub(crate) fn check(&self) -> Result<Findings> {
        let mut findings = Findings::default();
        self.look(&mut findings, &mut |_, _| {}, &mut |_, _| {})?;
        self.check_checkpoint(&mut findings)?;
        Ok(findings)
    }

    /// See [`crate::Volume::repair`].
    pub(crate) fn repair(&self) -> Result<Findings> {
        let mut findings = Findings::default();
        self.look(&mut findings, &mut |_, _| {}, &mut |hash, read| {
            self.give_up(hash, read);
        })?;
        self.check_checkpoint(&mut findings)?;
        // Twice, so that both slots are sound.
        self.checkpoint()?;
        self.checkpoint()?;
        Ok(findings)
    }

    /// See [`crate::Volume::for_each`].
    pub(crate) fn for_each(&self, tell: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.look(&mut Findings::default(), tell, &mut |_, _| {})
    }

    /// Reads every object that the index knows, a segment at a time.
    fn look(
        &self,
        findings: &mut Findings,
        tell: &mut dyn FnMut(&[u8], &[u8]),
        damaged: &mut dyn FnMut(u64, (Place, u64)),
    ) -> Result<()> {
        let mut memory = Vec::new();
        // A part at a time, so that the list of places stays small beside the index.
        for from in (0..self.block.segments).step_by(SEGMENTS_AT_ONCE) {
            for some in self.places_from(from).chunks(WHOLE_AT_ONCE) {
                let segments: Vec<u32> = some.iter().map(|(segment, _)| *segment).collect();
                // As they are numbered before they are read: one that is written anew meanwhile is not judged by them.
                let sequences: Vec<u64> = segments.iter().map(|segment| self.sequences.get(*segment)).collect();
                let wholes = self.whole_segments(&segments, &mut memory);
                for (at, (whole, (segment, places))) in wholes.into_iter().zip(some).enumerate() {
                    let read = Looked { segment: *segment, sequence: sequences[at], whole: whole?, bytes: &memory[at] };
                    self.look_at(&read, places, findings, tell, damaged);
                }
            }
        }
        memory.into_iter().for_each(|bytes| self.return_memory(bytes));
        Ok(())
    }

    fn look_at(
        &self,
        read: &Looked<'_>,
        places: &InSegment,
        findings: &mut Findings,
        tell: &mut dyn FnMut(&[u8], &[u8]),
        damaged: &mut dyn FnMut(u64, (Place, u64)),
    ) {
        let Looked { segment, sequence, whole, bytes } = read;
        let (segment, sequence) = (*segment, *sequence);
        findings.segments += 1;
        if whole.as_ref().is_none_or(|(head, _)| head.sequence != sequence) && self.is_as_it_was(segment, sequence) {
            findings.note(format!("{}: segment {segment} is not what was written", self.name));
        }
        for (hash, place) in places {
            let Extent { offset, .. } = place.extent();
            let frame = &bytes[usize::try_from(offset).expect("short")..];
            let object = self.cut(frame, place.extent(), sequence);
            match object.filter(|object| short(self.hash(&object.key)) == *hash) {
                Some(object) => {
                    findings.objects += 1;
                    tell(&object.key, &object.attributes);
                }
                None if self.is_as_it_was(segment, sequence)
                    && self.index.get(*hash).is_some_and(|now| now.is_same_place(*place)) =>
                {
                    findings.damaged_objects += 1;
                    findings.note(format!("{}: an object at {offset} of segment {segment} is damaged", self.name));
                    damaged(*hash, (*place, sequence));
                }
                // It moved, or was removed, while it was looked at.
                None => {}
            }
        }
    }

    fn is_as_it_was(&self, segment: u32, sequence: u64) -> bool {
        self.sequences.get(segment) == sequence && self.core.lock().table.standing(segment) == Standing::Live
    }

    /// What the index has of some segments.
    fn places_from(&self, from: u32) -> Vec<(u32, InSegment)> {
        let count = (self.block.segments - from).min(u32::try_from(SEGMENTS_AT_ONCE).expect("small"));
        let mut all: Vec<(u32, InSegment)> = (from..from + count).map(|segment| (segment, Vec::new())).collect();
        for shard in 0..self.index.shard_count() {
            for (hash, place) in self.index.shard_slots(shard) {
                let at = place.segment().checked_sub(from).and_then(|at| usize::try_from(at).ok());
                if let Some((_, places)) = at.and_then(|at| all.get_mut(at)) {
                    places.push((hash, place));
                }
            }
        }
        all.retain(|(_, places)| !places.is_empty());
        all
    }

    fn check_checkpoint(&self, findings: &mut Findings) -> Result<()> {
        let heads = checkpoint::heads(&*self.device, &self.block).map_err(|error| self.io(error))?;
        let Some(latest) = self.core.lock().latest_checkpoint else { return Ok(()) };
        let head = heads.into_iter().find(|head| head.number == latest);
        let loaded = head.map(|head| checkpoint::load(&*self.device, &self.block, head)).transpose();
        let is_sound = loaded.map_err(|error| self.io(error))?.flatten().is_some();
        // It may have been replaced meanwhile.
        if !is_sound && self.core.lock().latest_checkpoint == Some(latest) {
            findings.checkpoint_is_damaged = true;
            findings.note(format!("{}: the latest checkpoint is damaged", self.name));
        }
        Ok(())
    }
}

/// Damages that are told in words.
const DAMAGES_MAX: usize = 100;
const SEGMENTS_AT_ONCE: usize = 16384;
