//! A cell: an administrative part of AFS, with database servers of its own.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Longest name of a cell, in bytes: that of a DNS name.
pub const CELL_NAME_BYTES_MAX: usize = 253;
/// Most database servers of a cell.
pub const CELL_SERVERS_MAX: usize = 64;

/// The name of a cell, in lower case: a name below `/afs`, and in mount points.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellName(Arc<str>);

/// Why some bytes are not a [`CellName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCellName {
    /// No bytes at all.
    #[error("the name of a cell cannot be empty")]
    Empty,
    /// More than [`CELL_NAME_BYTES_MAX`] bytes.
    #[error("the name of a cell cannot be longer than {CELL_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// It begins with a dot, which below `/afs` means the cell's read-write side.
    #[error("the name of a cell cannot begin with a dot")]
    Dot,
    /// A byte that no such name has.
    #[error("the name of a cell has letters, digits, '.', '-' and '_' only")]
    ForbiddenByte,
}

/// A cell and its database servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its name.
    pub name: CellName,
    /// A cell in which volumes are looked for that this one does not have.
    pub linked: Option<CellName>,
    /// What its administrators say of it; may be empty.
    pub comment: String,
    /// Its database servers; none if DNS shall be asked.
    pub servers: Vec<CellServer>,
}

/// A database server of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellServer {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its host name, as the file has it; may be empty, and is not what it is reached by.
    pub host: String,
    /// Whether it votes.
    pub role: ServerRole,
}

/// What a database server does in elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// It votes, and may become the one that takes changes.
    Voter,
    /// It only follows. It answers questions.
    Clone,
}

impl CellName {
    /// Checks the bytes and wraps them, in lower case.
    ///
    /// # Errors
    /// [`BadCellName`] says which rule the bytes break.
    pub fn new(bytes: &[u8]) -> Result<CellName, BadCellName> {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
        match std::str::from_utf8(bytes) {
            Ok("") => Err(BadCellName::Empty),
            _ if bytes.len() > CELL_NAME_BYTES_MAX => Err(BadCellName::TooLong),
            _ if bytes.starts_with(b".") => Err(BadCellName::Dot),
            Ok(text) if bytes.iter().all(allowed) => Ok(CellName(text.to_ascii_lowercase().into())),
            _ => Err(BadCellName::ForbiddenByte),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_cell_has_are_refused() {
        assert_eq!(CellName::new(b""), Err(BadCellName::Empty));
        assert_eq!(CellName::new(&[b'a'; 254]), Err(BadCellName::TooLong));
        for name in [&b"."[..], b"..", b".example.org"] {
            assert_eq!(CellName::new(name), Err(BadCellName::Dot), "{name:?}");
        }
        for name in [&b"a/b"[..], b"@cell", b"a:b", b"a b", b"a\0", b"a#b", b"\xff", "\u{e5}.se".as_bytes()] {
            assert_eq!(CellName::new(name), Err(BadCellName::ForbiddenByte), "{name:?}");
        }
        assert!(CellName::new(&[b'a'; 253]).is_ok());
    }

    #[test]
    fn names_that_differ_in_case_are_one_cell() {
        let name = CellName::new(b"Grand.Central.ORG").expect("a name");
        assert_eq!(name.to_string(), "grand.central.org");
        assert_eq!(CellName::new(b"grand.central.org"), Ok(name));
    }
}
