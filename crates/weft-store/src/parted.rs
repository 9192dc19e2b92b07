//! Small contents that are read part by part.
//!
//! The kernel asks for several parts of a file at the same time, or soon one after another. A content is read from its
//! segment as a whole, so that it is kept for those who come for the rest, and while it comes they wait for it.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::small::SmallKey;

/// Contents of which a part was read, bounded.
#[derive(Debug, Default)]
pub(crate) struct Parted {
    /// Held for one look or one change.
    state: Mutex<State>,
    /// A content has come, or does not.
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    held: VecDeque<(SmallKey, Bytes)>,
    bytes: usize,
    /// Those that somebody has come.
    coming: Vec<SmallKey>,
}

/// Whoever has a content come; what others wait for, a panic included, ends with this.
struct Coming<'p> {
    parted: &'p Parted,
    key: SmallKey,
}

impl Parted {
    /// A content, of which the bytes before `end` are read now: from here, or by `bring`, which one calls at a time.
    ///
    /// # Errors
    /// Those of `bring`.
    pub(crate) fn read(
        &self,
        key: SmallKey,
        end: u64,
        bring: impl FnOnce() -> io::Result<Option<Bytes>>,
    ) -> io::Result<Option<Bytes>> {
        let goes_on = |content: &Bytes| end < content.len() as u64;
        {
            let mut state = self.state.lock();
            while state.coming.contains(&key) {
                self.came.wait(&mut state);
            }
            if let Some(content) = state.find(key) {
                if !goes_on(&content) {
                    state.forget(key);
                }
                return Ok(Some(content));
            }
            state.coming.push(key);
        }
        let coming = Coming { parted: self, key };
        let content = bring()?;
        if let Some(content) = content.as_ref().filter(|content| goes_on(content)) {
            self.state.lock().put(key, content.clone());
        }
        drop(coming);
        Ok(content)
    }

    /// The content is another one from now on, or none.
    pub(crate) fn forget(&self, key: SmallKey) {
        self.state.lock().forget(key);
    }
}

impl State {
    fn find(&self, key: SmallKey) -> Option<Bytes> {
        self.held.iter().find(|(other, _)| *other == key).map(|(_, content)| content.clone())
    }

    fn forget(&mut self, key: SmallKey) {
        if let Some((_, content)) =
            self.held.iter().position(|(other, _)| *other == key).and_then(|at| self.held.remove(at))
        {
            self.bytes -= content.len();
        }
    }

    fn put(&mut self, key: SmallKey, content: Bytes) {
        self.forget(key);
        self.bytes += content.len();
        self.held.push_back((key, content));
        while self.bytes > BYTES_MAX {
            let Some((_, oldest)) = self.held.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.parted.state.lock().coming.retain(|key| *key != self.key);
        self.parted.came.notify_all();
    }
}

/// Memory for all of them: some dozens that are read at the same time.
const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::NodeId;

    fn key(number: u64) -> SmallKey {
        SmallKey { node: NodeId(number), generation: 1 }
    }

    fn content(byte: u8) -> Bytes {
        vec![byte; 10_000].into()
    }

    fn not_brought() -> io::Result<Option<Bytes>> {
        panic!("it is here")
    }

    #[test]
    fn a_content_is_kept_until_its_end_is_read() {
        let parted = Parted::default();
        let read = |end| parted.read(key(1), end, not_brought).unwrap();
        assert_eq!(parted.read(key(1), 4096, || Ok(Some(content(1)))).unwrap(), Some(content(1)));
        assert_eq!((read(8192), read(10_000)), (Some(content(1)), Some(content(1))));
        assert_eq!(parted.read(key(1), 10_000, || Ok(Some(content(2)))).unwrap(), Some(content(2)), "it was let go");
        assert_eq!(parted.state.lock().bytes, 0, "who reads all at once leaves nothing");
        parted.read(key(1), 1, || Ok(Some(content(3)))).unwrap();
        parted.forget(key(1));
        assert_eq!(parted.read(key(1), 1, || Ok(None)).unwrap(), None);
        assert!(parted.read(key(1), 1, || Err(io::ErrorKind::Other.into())).is_err());
        assert!(parted.state.lock().coming.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let parted = Parted::default();
        for number in 0..500 {
            parted.read(key(number), 1, || Ok(Some(content(1)))).unwrap();
            let state = parted.state.lock();
            assert!(state.bytes <= BYTES_MAX && state.bytes == state.held.iter().map(|(_, c)| c.len()).sum());
        }
        parted.read(key(499), 1, not_brought).unwrap();
        assert_eq!(parted.read(key(0), 1, || Ok(None)).unwrap(), None, "the oldest went");
    }

    /// Two ask for parts of a content at the same time, and it is brought once; others do not wait for it.
    #[test]
    fn who_comes_meanwhile_waits_for_what_another_has_come() {
        let parted = Parted::default();
        let (begin, begun) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let parted = &parted;
        std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                parted.read(key(1), 1, || {
                    begin.send(()).unwrap();
                    gate.recv().unwrap();
                    Ok(Some(content(1)))
                })
            });
            begun.recv().unwrap();
            let second = scope.spawn(|| parted.read(key(1), 2, not_brought));
            assert_eq!(parted.read(key(2), 1, || Ok(Some(content(2)))).unwrap(), Some(content(2)));
            open.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), second.join().unwrap().unwrap());
        });
    }
}
