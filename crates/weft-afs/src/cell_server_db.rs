//! The files in which an AFS client's cells are: CellServDB, ThisCell and CellAlias.
//!
//! CellServDB has for each cell a line `>name [linked cell] #comment` and then a line `address #host` for each database
//! server; an address in brackets is that of a clone. A cell without servers is one that DNS knows. A cell that comes
//! again is the later one, as OpenAFS has it. Beyond what OpenAFS reads (`src/auth/cellconfig.c`), lines that begin
//! with `#` are comments, and a server needs no host name. Comments may be in any character set.
//!
//! ThisCell is one line with the name of the own cell. CellAlias has a line `cell alias` for each further name below
//! `/afs`.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::cell::{BadCellName, CELL_SERVERS_MAX, Cell, CellName, CellServer, ServerRole};

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Most cells.
pub const CELLS_MAX: usize = 10_000;
/// Most aliases.
pub const ALIASES_MAX: usize = 10_000;

/// A line that cannot be read, of whichever of the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct LineError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: LineTrouble,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineTrouble {
    /// The name of a cell is none.
    #[error(transparent)]
    Name(#[from] BadCellName),
    /// No IPv4 address where one should be.
    #[error("`{text}` is not an IPv4 address: write a.b.c.d #host, or [a.b.c.d] #host for a clone")]
    Address {
        /// What is there.
        text: String,
    },
    /// A server before the first cell.
    #[error("a server before the first line with a cell (>name)")]
    NoCell,
    /// Other words than the line should have.
    #[error("the line should be: {form}")]
    Form {
        /// How it should be.
        form: &'static str,
    },
    /// More than fits.
    #[error("more than {max} {what}")]
    TooMany {
        /// The maximum.
        max: usize,
        /// Of what.
        what: &'static str,
    },
}

/// Cells, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellServerDb {
    cells: Vec<Cell>,
    places: HashMap<CellName, usize>,
}

/// A further name of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAlias {
    /// The further name.
    pub alias: CellName,
    /// The cell's own.
    pub cell: CellName,
}

impl CellServerDb {
    /// Reads the file.
    ///
    /// # Errors
    /// The first line that cannot be read.
    pub fn read(bytes: &[u8]) -> Result<CellServerDb, LineError> {
        let mut db = CellServerDb::default();
        let mut current = None;
        for (line, text) in lines(bytes)? {
            let wrong = |why| LineError { line, why };
            match text.strip_prefix('>') {
                Some(cell) => {
                    let cell = read_cell(cell).map_err(wrong)?;
                    current = Some(db.put(cell).map_err(wrong)?);
                }
                None => {
                    let server = read_server(&text).map_err(wrong)?;
                    let servers = &mut db.cells[current.ok_or_else(|| wrong(LineTrouble::NoCell))?].servers;
                    if servers.len() == CELL_SERVERS_MAX {
                        return Err(wrong(LineTrouble::TooMany { max: CELL_SERVERS_MAX, what: "servers of a cell" }));
                    }
                    servers.push(server);
                }
            }
        }
        Ok(db)
    }

    /// The cell of that name.
    #[must_use]
    pub fn get(&self, name: &CellName) -> Option<&Cell> {
        self.places.get(name).map(|place| &self.cells[*place])
    }

    /// All cells, in the order in which their names first came.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter()
    }

    /// Adds a cell, or takes it for the one that had its name. Tells its place.
    fn put(&mut self, cell: Cell) -> Result<usize, LineTrouble> {
        if let Some(place) = self.places.get(&cell.name) {
            self.cells[*place] = cell;
            return Ok(*place);
        }
        if self.cells.len() == CELLS_MAX {
            return Err(LineTrouble::TooMany { max: CELLS_MAX, what: "cells" });
        }
        self.places.insert(cell.name.clone(), self.cells.len());
        self.cells.push(cell);
        Ok(self.cells.len() - 1)
    }
}

/// Reads ThisCell: the name of the own cell.
///
/// # Errors
/// `Form` for no line or several, `Name` for one that is no name.
pub fn read_this_cell(bytes: &[u8]) -> Result<CellName, LineError> {
    const FORM: LineTrouble = LineTrouble::Form { form: "the name of the cell, and no other line" };
    let mut names = lines(bytes)?.into_iter();
    let (line, name) = names.next().ok_or(LineError { line: 1, why: FORM })?;
    match names.next() {
        Some((line, _)) => Err(LineError { line, why: FORM }),
        None => CellName::new(name.as_bytes()).map_err(|error| LineError { line, why: error.into() }),
    }
}

/// Reads CellAlias.
///
/// # Errors
/// The first line that cannot be read.
pub fn read_aliases(bytes: &[u8]) -> Result<Vec<CellAlias>, LineError> {
    let lines = lines(bytes)?;
    if let Some((line, _)) = lines.get(ALIASES_MAX) {
        let why = LineTrouble::TooMany { max: ALIASES_MAX, what: "aliases" };
        return Err(LineError { line: *line, why });
    }
    lines.into_iter().map(|(line, text)| read_alias(&text).map_err(|why| LineError { line, why })).collect()
}

/// The lines that say something, with their numbers from 1. Of bytes that are not UTF-8 only comments may have some.
fn lines(bytes: &[u8]) -> Result<Vec<(usize, String)>, LineError> {
    if bytes.len() > FILE_BYTES_MAX {
        let why = LineTrouble::TooMany { max: FILE_BYTES_MAX, what: "bytes" };
        return Err(LineError { line: 1, why });
    }
    let text = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).trim().to_owned());
    Ok((1..).zip(text).filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect())
}

/// `name [linked] #comment`.
fn read_cell(text: &str) -> Result<Cell, LineTrouble> {
    const FORM: LineTrouble = LineTrouble::Form { form: ">name [linked cell] #comment" };
    let (names, comment) = text.split_once('#').unwrap_or((text, ""));
    let mut names = names.split_whitespace();
    let (name, linked) = (names.next().ok_or(FORM)?, names.next());
    if names.next().is_some() {
        return Err(FORM);
    }
    Ok(Cell {
        name: CellName::new(name.as_bytes())?,
        linked: linked.map(|linked| CellName::new(linked.as_bytes())).transpose()?,
        comment: comment.trim().to_owned(),
        servers: Vec::new(),
    })
}

/// `address #host` or `[address] #host`.
fn read_server(text: &str) -> Result<CellServer, LineTrouble> {
    let (address, host) = text.split_once('#').unwrap_or((text, ""));
    let told = address.trim();
    let (address, role) = match told.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => (address, ServerRole::Clone),
        None => (told, ServerRole::Voter),
    };
    let address: Ipv4Addr = address.parse().map_err(|_| LineTrouble::Address { text: told.to_owned() })?;
    Ok(CellServer { address, host: host.split_whitespace().next().unwrap_or_default().to_owned(), role })
}

/// `cell alias`.
fn read_alias(text: &str) -> Result<CellAlias, LineTrouble> {
    let mut names = text.split_whitespace();
    match (names.next(), names.next(), names.next()) {
        (Some(cell), Some(alias), None) => {
            Ok(CellAlias { alias: CellName::new(alias.as_bytes())?, cell: CellName::new(cell.as_bytes())? })
        }
        _ => Err(LineTrouble::Form { form: "cell alias" }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> CellName {
        CellName::new(text.as_bytes()).expect("a name")
    }

    fn trouble(text: &str) -> (usize, LineTrouble) {
        let error = CellServerDb::read(text.as_bytes()).expect_err("a bad line");
        (error.line, error.why)
    }

    const SAMPLE: &[u8] = b"\
# cells of ours
>example.org            #Example, \xc5bo
192.0.2.1                       #db1.example.org
[192.0.2.2]                     #db2.example.org

>Linked.Example.org example.org #with a linked cell\r
  198.51.100.7 # db.linked.example.org and more\r
203.0.113.9
>dns.example.net
";

    #[test]
    fn cells_and_their_servers_are_read() {
        let db = CellServerDb::read(SAMPLE).expect("as people write it");
        assert_eq!(db.cells().count(), 3);
        let first = db.get(&name("EXAMPLE.org")).expect("the first");
        assert_eq!((first.comment.as_str(), &first.linked), ("Example, \u{fffd}bo", &None));
        let server =
            |address: [u8; 4], host: &str, role| CellServer { address: address.into(), host: host.to_owned(), role };
        let wanted = [
            server([192, 0, 2, 1], "db1.example.org", ServerRole::Voter),
            server([192, 0, 2, 2], "db2.example.org", ServerRole::Clone),
        ];
        assert_eq!(first.servers, wanted);
        let second = db.get(&name("linked.example.org")).expect("the second");
        assert_eq!((second.comment.as_str(), &second.linked), ("with a linked cell", &Some(name("example.org"))));
        let wanted = [
            server([198, 51, 100, 7], "db.linked.example.org", ServerRole::Voter),
            server([203, 0, 113, 9], "", ServerRole::Voter),
        ];
        assert_eq!(second.servers, wanted);
        assert_eq!(db.get(&name("dns.example.net")).map(|cell| cell.servers.len()), Some(0));
        assert_eq!(db.get(&name("example.net")), None);
        assert_eq!(CellServerDb::read(b""), Ok(CellServerDb::default()));
    }

    #[test]
    fn a_cell_that_comes_again_is_the_later_one() {
        let db = CellServerDb::read(b">a.b #1\n192.0.2.1 #x\n>c.d\n>A.b #2\n192.0.2.2 #y\n").expect("a file");
        let cells: Vec<_> = db.cells().map(|cell| (cell.name.as_str(), cell.comment.as_str())).collect();
        assert_eq!(cells, [("a.b", "2"), ("c.d", "")]);
        let servers: Vec<_> =
            db.get(&name("a.b")).expect("there").servers.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(servers, ["y"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(trouble("\n192.0.2.1 #x"), (2, LineTrouble::NoCell));
        assert_eq!(trouble(">a/b"), (1, LineTrouble::Name(BadCellName::ForbiddenByte)));
        assert_eq!(trouble(">a.b .c"), (1, LineTrouble::Name(BadCellName::Dot)));
        assert!(matches!(trouble("> #x"), (1, LineTrouble::Form { .. })));
        assert!(matches!(trouble(">a b c"), (1, LineTrouble::Form { .. })));
        for bad in ["192.0.2", "192.0.2.256 #x", "[192.0.2.1 #x", "host.example.org", "192.0.2.1 db #x", "::1 #x"] {
            let (line, why) = trouble(&format!(">a.b\n# fine\n{bad}\n"));
            assert!(line == 3 && matches!(why, LineTrouble::Address { .. }), "{bad}: {line}: {why}");
        }
        let error = CellServerDb::read(b">a.b\nx #y").expect_err("a bad line").to_string();
        assert_eq!(error, "line 2: `x` is not an IPv4 address: write a.b.c.d #host, or [a.b.c.d] #host for a clone");
    }

    #[test]
    fn limits_are_kept() {
        let servers = "192.0.2.1 #x\n".repeat(CELL_SERVERS_MAX);
        assert!(CellServerDb::read(format!(">a.b\n{servers}").as_bytes()).is_ok());
        let (line, why) = trouble(&format!(">a.b\n{servers}192.0.2.1 #x"));
        assert!(line == CELL_SERVERS_MAX + 2 && matches!(why, LineTrouble::TooMany { max: CELL_SERVERS_MAX, .. }));
        let cells: String = (0..=CELLS_MAX).map(|n| format!(">c{n}\n")).collect();
        assert!(matches!(trouble(&cells), (_, LineTrouble::TooMany { max: CELLS_MAX, .. })));
        let aliases = "cell alias\n".repeat(ALIASES_MAX + 1);
        let error = read_aliases(aliases.as_bytes()).expect_err("too many");
        assert_eq!(error.line, ALIASES_MAX + 1);
        assert!(CellServerDb::read(&vec![b'\n'; FILE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn the_own_cell_is_one_line() {
        assert_eq!(read_this_cell(b"  example.org \r\n\n"), Ok(name("example.org")));
        assert!(matches!(read_this_cell(b"\n").map_err(|error| error.why), Err(LineTrouble::Form { .. })));
        assert_eq!(read_this_cell(b"a.b\nc.d\n").map_err(|error| error.line), Err(2));
        assert!(matches!(read_this_cell(b"a b").map_err(|error| error.why), Err(LineTrouble::Name(_))));
    }

    #[test]
    fn aliases_are_read() {
        let aliases = read_aliases(b"# names\nexample.org\texample\n\nprod.example.com prod\n").expect("a file");
        let alias = |alias, cell| CellAlias { alias: name(alias), cell: name(cell) };
        assert_eq!(aliases, [alias("example", "example.org"), alias("prod", "prod.example.com")]);
        for bad in ["example.org", "example.org a b", "example.org .a", "example.org a/b"] {
            assert_eq!(read_aliases(format!("\n{bad}").as_bytes()).map_err(|error| error.line), Err(2), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(lines in prop::collection::vec("[>\\[\\]0-9a-c.# \\n\\r/:-]{0,40}", 0..20)) {
            let text = lines.join("\n");
            if let Ok(db) = CellServerDb::read(text.as_bytes()) {
                for cell in db.cells() {
                    prop_assert_eq!(db.get(&cell.name), Some(cell));
                }
            }
            let _ = read_this_cell(text.as_bytes());
            let _ = read_aliases(text.as_bytes());
        }
    }
}
