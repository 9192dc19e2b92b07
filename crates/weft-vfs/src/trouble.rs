//! The last things that went wrong, for `weft status` and `weft why`.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Something that went wrong and was survived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When.
    pub at: SystemTime,
    /// What it was about: a path below the mount, or empty.
    pub about: String,
    /// What happened, the cause and what was done.
    pub text: String,
}

/// The most recent troubles, oldest dropped first.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<VecDeque<Trouble>>);

impl Troubles {
    pub(crate) fn tell(&self, about: String, text: String) {
        tracing::warn!(text, "trouble");
        let mut kept = self.0.lock();
        if kept.back().is_some_and(|last| last.about == about && last.text == text) {
            kept.pop_back();
        } else if kept.len() == TROUBLES_MAX {
            kept.pop_front();
        }
        kept.push_back(Trouble { at: SystemTime::now(), about, text });
    }

    pub(crate) fn recent(&self) -> Vec<Trouble> {
        self.0.lock().iter().cloned().collect()
    }
}

/// How many troubles are remembered.
const TROUBLES_MAX: usize = 64;
