//! What went wrong with the cache and what was done about it, kept for people to read.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The newest troubles, in plain sentences. `inner` guards only the list and is held for no other work.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    inner: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    sentences: VecDeque<String>,
    forgotten: u64,
}

impl Troubles {
    /// Remembers one sentence that names the path, the cause and what was done.
    pub(crate) fn tell(&self, sentence: String) {
        tracing::warn!("{sentence}");
        let mut told = self.inner.lock();
        if told.sentences.len() == TROUBLES_MAX {
            told.sentences.pop_front();
            told.forgotten += 1;
        }
        told.sentences.push_back(sentence);
    }

    /// All that is remembered, oldest first.
    pub(crate) fn list(&self) -> Vec<String> {
        let told = self.inner.lock();
        let earlier = (told.forgotten > 0).then(|| format!("{} earlier troubles are in the log only", told.forgotten));
        earlier.into_iter().chain(told.sentences.iter().cloned()).collect()
    }
}

/// Most sentences remembered at a time.
const TROUBLES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_remembered() {
        let troubles = Troubles::default();
        for number in 0..TROUBLES_MAX + 3 {
            troubles.tell(format!("trouble {number}"));
        }
        let list = troubles.list();
        assert_eq!(list.len(), TROUBLES_MAX + 1);
        assert_eq!(list[0], "3 earlier troubles are in the log only");
        assert_eq!(list[1], "trouble 3");
    }
}
