//! Who may do what: the rights of AFS, and the lists that give them.
//!
//! Rights are given by the list of a directory, to it and to the files in it; files have no lists. A server tells with
//! each status what the asker may do, and adds `a` to that of a file that is the asker's own. Mode bits count only on
//! files, those of the owner, for everybody. Whoever owns a file and has `i` may read and write it, also against the
//! rest, which lets one fill a file that one has put into a directory for others. (OpenAFS `src/libacl/prs_fs.h`,
//! `src/viced/afsfileprocs.c`, `Check_PermissionRights`.)
//!
//! The server decides. What is told here only saves asking where the answer is known; administrators may more.

use std::fmt;
use std::str::FromStr;

use crate::wire::pr::Principal;
use crate::wire::status::Kind;

/// Most entries of an access control list (OpenAFS `src/libacl/acl.h`).
pub const ACL_ENTRIES_MAX: usize = 20;
/// Longest text of an access control list, in bytes.
pub const ACL_BYTES_MAX: usize = 1024;

/// Some rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(pub u32);

impl Rights {
    /// `r`: read files.
    pub const READ: Rights = Rights(1);
    /// `w`: write files, lock them for writing, change their attributes.
    pub const WRITE: Rights = Rights(2);
    /// `i`: put new names into the directory.
    pub const INSERT: Rights = Rights(4);
    /// `l`: list the directory, read its list, read links; needed on the way to anything else.
    pub const LOOKUP: Rights = Rights(8);
    /// `d`: take names away.
    pub const DELETE: Rights = Rights(16);
    /// `k`: lock files for reading.
    pub const LOCK: Rights = Rights(32);
    /// `a`: change the list. In a file's status: the file is the asker's own.
    pub const ADMINISTER: Rights = Rights(64);
    /// All seven.
    pub const ALL: Rights = Rights(127);
    /// `rl`, which is also written `read`.
    pub const READING: Rights = Rights(1 | 8);
    /// `rlidwk`, which is also written `write`.
    pub const WRITING: Rights = Rights(127 & !64);

    /// Whether all of `rights` are among these.
    #[must_use]
    pub const fn has(self, rights: Rights) -> bool {
        self.0 & rights.0 == rights.0
    }
}

/// The rights in the order in which people write them; `A` to `H` mean what users agree on.
const LETTERS: &[(char, u32)] = &[
    ('r', 1),
    ('l', 8),
    ('i', 4),
    ('d', 16),
    ('w', 2),
    ('k', 32),
    ('a', 64),
    ('A', 1 << 24),
    ('B', 1 << 25),
    ('C', 1 << 26),
    ('D', 1 << 27),
    ('E', 1 << 28),
    ('F', 1 << 29),
    ('G', 1 << 30),
    ('H', 1 << 31),
];

/// Letters that mean no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: rights are letters of rlidwka and ABCDEFGH, or one of read, write, all and none")]
pub struct BadRights {
    /// What was written.
    pub text: String,
}

/// The letters; `none` for no right.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters: String = LETTERS.iter().filter(|(_, bit)| self.0 & bit != 0).map(|(letter, _)| letter).collect();
        f.write_str(if letters.is_empty() { "none" } else { &letters })
    }
}

impl FromStr for Rights {
    type Err = BadRights;

    fn from_str(text: &str) -> Result<Rights, BadRights> {
        let bit = |letter| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit);
        let of_letters = |text: &str| text.chars().try_fold(0, |rights, letter| bit(letter).map(|bit| rights | bit));
        match text {
            "read" => Ok(Rights::READING),
            "write" => Ok(Rights::WRITING),
            "all" => Ok(Rights::ALL),
            "none" => Ok(Rights(0)),
            "" => Err(BadRights { text: String::new() }),
            _ => of_letters(text).map(Rights).ok_or_else(|| BadRights { text: text.to_owned() }),
        }
    }
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To see the names of a directory, to go through it, or to read its list.
    Lookup,
    /// To read the content of a file or a link.
    Read,
    /// To write or cut a file.
    Write,
    /// To set a file's mode or times, or a directory's.
    SetAttributes,
    /// To make a name in a directory; moving one there is the same.
    Insert,
    /// To make a mount point in a directory.
    InsertMountPoint,
    /// To take a name away from a directory; moving one away is the same.
    Delete,
    /// To move a name over one that is there.
    Replace,
    /// To lock a file so that others may read it.
    LockRead,
    /// To lock a file so that others may not.
    LockWrite,
    /// To set the list of a directory.
    SetAcl,
}

/// On what, as its status has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What it is.
    pub kind: Kind,
    /// What the asker may do, by the status.
    pub rights: Rights,
    /// Mode bits.
    pub mode: u32,
}

const OWNER_READS: u32 = 0o400;
const OWNER_WRITES: u32 = 0o200;
const OWNER_EXECUTES: u32 = 0o100;

impl Operation {
    /// Whether the status says that the asker may do this.
    #[must_use]
    pub fn is_allowed(self, on: Subject) -> bool {
        let has = |rights| on.rights.has(rights);
        let is_file = on.kind == Kind::File;
        let is_own = is_file && has(Rights::ADMINISTER);
        let may_fill = is_own && has(Rights::INSERT);
        match self {
            Operation::Lookup => has(Rights::LOOKUP),
            Operation::Read if is_file => {
                let by_mode = is_own || on.mode & (OWNER_READS | OWNER_EXECUTES) != 0;
                may_fill || (has(Rights::READ) && by_mode)
            }
            Operation::Read => has(Rights::LOOKUP),
            Operation::Write => may_fill || (is_file && has(Rights::WRITE) && on.mode & OWNER_WRITES != 0),
            Operation::SetAttributes if on.kind == Kind::Directory => has(Rights::INSERT) || has(Rights::DELETE),
            Operation::SetAttributes => may_fill || has(Rights::WRITE),
            Operation::Insert => has(Rights::INSERT),
            Operation::InsertMountPoint => has(Rights::INSERT) && has(Rights::ADMINISTER),
            Operation::Delete => has(Rights::DELETE),
            Operation::Replace => has(Rights::INSERT) && has(Rights::DELETE),
            Operation::LockRead => may_fill || has(Rights::LOCK) || has(Rights::WRITE),
            Operation::LockWrite => may_fill || has(Rights::WRITE),
            Operation::SetAcl => on.kind == Kind::Directory && has(Rights::ADMINISTER),
        }
    }
}

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// Who has which rights.
    pub positive: Vec<AclEntry>,
    /// Who does not have them, whatever the others say.
    pub negative: Vec<AclEntry>,
}

/// One line of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// A user or a group; the number in digits of one that has no name any more.
    pub who: Principal,
    /// Which rights.
    pub rights: Rights,
}

/// Why a text is not an access control list, or a list has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The first two lines are not the numbers of entries.
    #[error("an access control list begins with two lines of one number each")]
    Counts,
    /// More entries than [`ACL_ENTRIES_MAX`].
    #[error("an access control list has at most {ACL_ENTRIES_MAX} entries")]
    TooMany,
    /// More bytes than [`ACL_BYTES_MAX`].
    #[error("an access control list has at most {ACL_BYTES_MAX} bytes")]
    TooLong,
    /// A line that is not a name, a tab and a number.
    #[error("entry {entry} of the access control list is not a name, a tab and a number")]
    Entry {
        /// Which, from 0.
        entry: usize,
    },
    /// Other lines than the numbers tell.
    #[error("an access control list has other entries than it says")]
    Lines,
}

impl Acl {
    /// Reads what a server sends: the number of positive and of negative entries, a line each, then the entries.
    ///
    /// # Errors
    /// All of [`AclError`].
    pub fn read(text: &[u8]) -> Result<Acl, AclError> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let text = &text[..end];
        if text.len() > ACL_BYTES_MAX {
            return Err(AclError::TooLong);
        }
        let mut lines = text.split(|byte| *byte == b'\n');
        let mut count = || number(lines.next()?).and_then(|number| usize::try_from(number).ok());
        let (Some(positive), Some(negative)) = (count(), count()) else { return Err(AclError::Counts) };
        if positive.saturating_add(negative) > ACL_ENTRIES_MAX {
            return Err(AclError::TooMany);
        }
        let mut entries = Vec::new();
        for entry in 0..positive + negative {
            let line = lines.next().filter(|line| !line.is_empty()).ok_or(AclError::Lines)?;
            entries.push(AclEntry::read(line).ok_or(AclError::Entry { entry })?);
        }
        if lines.any(|line| !line.is_empty()) {
            return Err(AclError::Lines);
        }
        let negative = entries.split_off(positive);
        Ok(Acl { positive: entries, negative })
    }

    /// What a server is sent, with the NUL that it expects at the end.
    ///
    /// # Errors
    /// `TooMany`, `TooLong`; `Entry` for a name with white space, which a server would read as another.
    pub fn write(&self) -> Result<Vec<u8>, AclError> {
        let entries = || self.positive.iter().chain(&self.negative);
        if entries().count() > ACL_ENTRIES_MAX {
            return Err(AclError::TooMany);
        }
        let mut text = format!("{}\n{}\n", self.positive.len(), self.negative.len()).into_bytes();
        for (entry, AclEntry { who, rights }) in entries().enumerate() {
            if who.as_bytes().iter().any(u8::is_ascii_whitespace) {
                return Err(AclError::Entry { entry });
            }
            text.extend_from_slice(who.as_bytes());
            text.extend_from_slice(format!("\t{}\n", rights.0.cast_signed()).as_bytes());
        }
        text.push(0);
        if text.len() > ACL_BYTES_MAX { Err(AclError::TooLong) } else { Ok(text) }
    }
}

impl AclEntry {
    fn read(line: &[u8]) -> Option<AclEntry> {
        let tab = line.iter().rposition(|byte| *byte == b'\t')?;
        let who = Principal::new(&line[..tab])?;
        // Servers write the highest right as a sign.
        let rights = number(&line[tab + 1..])?;
        let rights = u32::try_from(rights).ok().or_else(|| i32::try_from(rights).ok().map(i32::cast_unsigned))?;
        Some(AclEntry { who, rights: Rights(rights) })
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
