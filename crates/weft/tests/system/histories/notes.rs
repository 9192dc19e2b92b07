//! What happened in a history, and when.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Notes of one history: of what was done, and of what happened meanwhile.
pub struct Notes {
    seed: u64,
    begun: Instant,
    all: Mutex<Vec<String>>,
}

impl Notes {
    /// Begins.
    pub fn of(seed: u64) -> Notes {
        Notes { seed, begun: Instant::now(), all: Mutex::default() }
    }

    /// Notes that something happened.
    pub fn add(&self, what: &str) {
        self.all.lock().expect("no panic").push(format!("{} ms: {what}", self.begun.elapsed().as_millis()));
    }

    /// The last of them, for whoever has to find out why.
    pub fn told(&self) -> String {
        let all = self.all.lock().expect("no panic");
        format!("seed {}, lately:\n{}", self.seed, all[all.len().saturating_sub(TOLD)..].join("\n"))
    }

    /// How long it took so far.
    pub fn took(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// What is told when something is wrong.
const TOLD: usize = 60;
