//! Versions of files that are told apart by their bytes: each is its number, again and again.

use std::sync::Mutex;

/// All versions so far, by number: how long each is.
#[derive(Debug, Default)]
pub struct Versions(Mutex<Vec<usize>>);

impl Versions {
    /// The number of another one of so many bytes.
    pub fn add(&self, length: usize) -> usize {
        let mut lengths = self.0.lock().expect("no panic");
        lengths.push(length);
        lengths.len() - 1
    }

    /// The bytes of a version.
    pub fn content(&self, number: usize) -> Vec<u8> {
        let length = self.0.lock().expect("no panic")[number];
        format!("{number} ").into_bytes().into_iter().cycle().take(length).collect()
    }

    /// Which version these bytes are, from the first to the last.
    pub fn which(&self, bytes: &[u8]) -> Option<usize> {
        let word = bytes.split(|byte| *byte == b' ').next()?;
        let number = std::str::from_utf8(word).ok()?.parse().ok()?;
        let is_known = number < self.0.lock().expect("no panic").len();
        (is_known && self.content(number) == bytes).then_some(number)
    }

    /// Whether these bytes are all of some version. What is shorter than a number says of itself only that it is short.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let is_short = bytes.len() < SHORT && self.0.lock().expect("no panic").contains(&bytes.len());
        is_short || self.which(bytes).is_some()
    }
}

/// What bytes consist of, for whoever has to find out what they are: each run of one word, and how often it is there.
pub fn runs(bytes: &[u8]) -> Vec<(String, usize)> {
    let words: Vec<_> = bytes.split(|byte| *byte == b' ').collect();
    let runs = words.chunk_by(|one, next| one == next);
    let told = |word: &[u8]| {
        let zeros = word.iter().filter(|byte| **byte == 0).count();
        if zeros > 0 { format!("{zeros} zeros") } else { String::from_utf8_lossy(word).into_owned() }
    };
    runs.map(|run| (told(run[0]), run.len())).take(6).collect()
}

/// A version that is as long says of itself which one it is, in bytes.
pub const SHORT: usize = 8;
