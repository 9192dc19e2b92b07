//! A backing file that is on the roll for as long as the kernel has it.

use std::sync::Arc;

use weft_fusedev::Backing;

use crate::roll::{Key, Roll};

/// A backing file, and the roll that it is on.
pub(crate) struct Backed {
    backing: Backing,
    roll: Arc<Roll>,
}

impl Backed {
    /// One that was entered, or is about to be.
    pub(crate) fn new(backing: Backing, roll: Arc<Roll>) -> Backed {
        Backed { backing, roll }
    }

    /// Its number.
    pub(crate) fn id(&self) -> i32 {
        self.backing.id()
    }
}

impl Drop for Backed {
    /// Struck out before it is given back: whoever reads the roll uses what is on it.
    fn drop(&mut self) {
        self.roll.strike(Key::Backing(self.backing.id()));
    }
}
