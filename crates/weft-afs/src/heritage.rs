//! What a daemon leaves to the next of its socket: the port, at which file servers look for it, and the connections whose calls
//! they go on with when it was killed.

use std::sync::Arc;

use weft_remote::{Notes, NotesError};
use weft_rx::ConnectionName;

/// What is kept of a socket in the notes.
#[derive(Clone)]
pub(crate) struct Heritage(Arc<dyn Notes>);

impl Heritage {
    pub fn of(notes: Arc<dyn Notes>) -> Heritage {
        Heritage(notes)
    }

    /// The port of the former daemon.
    ///
    /// # Errors
    /// When the notes cannot be read.
    pub fn port(&self) -> Result<Option<u16>, NotesError> {
        Ok(self.0.get(PORT_KEY)?.and_then(|bytes| Some(u16::from_be_bytes(bytes.try_into().ok()?))))
    }

    /// # Errors
    /// When the notes cannot be written.
    pub fn keep_port(&self, port: u16) -> Result<(), NotesError> {
        self.0.put(PORT_KEY, Some(&port.to_be_bytes()))
    }

    /// The connections that a daemon had that did not end in good order.
    ///
    /// # Errors
    /// When the notes cannot be read.
    pub fn connections(&self) -> Result<Vec<ConnectionName>, NotesError> {
        let text = self.0.get(CONNECTIONS_KEY)?.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// These are the connections now.
    pub fn keep_connections(&self, names: impl Iterator<Item = ConnectionName>) {
        let lines: Vec<String> = names.take(CONNECTIONS_MAX).map(|name| name.to_string()).collect();
        let text = lines.join("\n");
        if let Err(error) = self.0.put(CONNECTIONS_KEY, Some(text.as_bytes()).filter(|text| !text.is_empty())) {
            tracing::warn!(%error, "open connections cannot be noted");
        }
    }
}

/// Where the port is in the notes.
const PORT_KEY: &[u8] = b"port";
/// Where the connections are, a line each.
const CONNECTIONS_KEY: &[u8] = b"connections";
/// Connections that are kept; as many are ended at once.
const CONNECTIONS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use weft_remote::MemoryNotes;

    use super::*;

    #[test]
    fn the_next_one_has_what_was_kept() {
        let notes: Arc<dyn Notes> = Arc::new(MemoryNotes::default());
        let (former, next) = (Heritage::of(notes.clone()), Heritage::of(notes.clone()));
        assert_eq!((next.port().expect("read"), next.connections().expect("read")), (None, Vec::new()));
        former.keep_port(7001).expect("kept");
        let names =
            ["10.0.0.1:7000 80000001 4 1 2", "10.0.0.2:7003 80000001 8 52 0"].map(|text| text.parse().expect("a name"));
        former.keep_connections(names.into_iter());
        assert_eq!((next.port().expect("read"), next.connections().expect("read")), (Some(7001), names.to_vec()));
        former.keep_connections(std::iter::empty());
        assert!(notes.get(CONNECTIONS_KEY).expect("read").is_none());
        for wrong in [&b"\xff"[..], b"10.0.0.1:7000 1", b"\n\n"] {
            notes.put(CONNECTIONS_KEY, Some(wrong)).expect("noted");
            assert!(next.connections().expect("read").is_empty());
        }
    }
}
