//! Looking at everything that is held: whether it still is what was written.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::records::piece_length;
use crate::{NodeId, Object, PIECE_BYTES, Result, Store};

/// A walk through everything that is held, a little at a time. What comes or goes meanwhile may be missed.
#[derive(Debug)]
pub struct Check {
    store: Arc<Store>,
    /// What is damaged is given up, so that its next use fetches it again. A volume of segments gives up what it finds
    /// damaged in any case, as in every use.
    repair: bool,
    after: Option<NodeId>,
    stage: Stage,
    found: Found,
    untold: Vec<Damage>,
}

/// What is looked at now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Objects,
    Volumes,
    Done,
}

/// What was found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects that were looked at.
    pub objects: u64,
    /// Bytes of them that were read and compared.
    pub bytes: u64,
    /// Objects of which something is damaged.
    pub damaged_objects: u64,
    /// Bytes of pieces that are damaged.
    pub damaged_bytes: u64,
    /// Volumes of segments whose own tables are damaged: nothing is lost by that but time at the next start.
    pub damaged_volumes: u64,
}

/// Something that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A piece of a file's content.
    Piece {
        /// The file.
        node: NodeId,
        /// First byte of the piece.
        offset: u64,
        /// Length of the piece in bytes.
        length: u64,
        /// In words.
        cause: String,
    },
    /// Something of a volume, in words.
    Volume(String),
}

impl Store {
    /// Begins to look at everything; with `repair` what is damaged is given up.
    pub fn check(self: &Arc<Store>, repair: bool) -> Check {
        let (after, stage) = (None, Stage::Objects);
        Check { store: self.clone(), repair, after, stage, found: Found::default(), untold: Vec::new() }
    }
}

impl Check {
    /// Goes on for about as long as some megabytes take to read; whether there is more to look at.
    ///
    /// # Errors
    /// When the index or the disk cannot be read.
    pub fn step(&mut self) -> Result<bool> {
        match self.stage {
            Stage::Objects => self.objects()?,
            Stage::Volumes => {
                let (damaged, words) = self.store.check_volumes(self.repair)?;
                self.found.damaged_volumes = damaged;
                self.untold.extend(words.into_iter().map(Damage::Volume));
                self.stage = Stage::Done;
            }
            Stage::Done => {}
        }
        Ok(self.stage != Stage::Done)
    }

    /// What was found so far.
    pub fn found(&self) -> Found {
        self.found
    }

    /// The damages that were found since this was last asked.
    pub fn damages(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.untold)
    }

    fn objects(&mut self) -> Result<()> {
        let until = self.found.bytes + BYTES_AT_ONCE;
        let nodes = self.store.objects(self.after, OBJECTS_AT_ONCE)?;
        if nodes.is_empty() {
            self.stage = Stage::Volumes;
        }
        for node in nodes {
            self.after = Some(node);
            // What cannot be used at all is given up by the attempt, as in any use.
            if let Some(object) = self.store.object(node)? {
                self.object(&object)?;
            }
            if self.found.bytes >= until {
                break;
            }
        }
        Ok(())
    }

    fn object(&mut self, object: &Object) -> Result<()> {
        self.found.objects += 1;
        let mut is_damaged = false;
        object.forget_pages();
        for (piece, sum) in object.pieces_held() {
            let start = u64::from(piece) * PIECE_BYTES;
            let length = object.length().map_or(PIECE_BYTES, |length| piece_length(piece, length));
            self.found.bytes += length;
            let cause = match object.piece_from_disk(start, length)? {
                bytes if (bytes.len() as u64) < length => "it is not all there",
                bytes if xxh3_64(&bytes) != sum => "the bytes are not those that were written",
                _ => continue,
            };
            // It may have been given up, or written anew, while it was read.
            if !object.pieces_held().contains(&(piece, sum)) {
                continue;
            }
            is_damaged = true;
            self.found.damaged_bytes += length;
            self.untold.push(Damage::Piece { node: object.node(), offset: start, length, cause: cause.to_owned() });
            if self.repair {
                object.give_up(piece, cause);
            }
        }
        self.found.damaged_objects += u64::from(is_damaged);
        Ok(())
    }
}

/// How many objects are looked up at once.
const OBJECTS_AT_ONCE: usize = 256;
/// How much is read before others are let have a look.
const BYTES_AT_ONCE: u64 = 32 << 20;
