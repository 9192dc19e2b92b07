//! What those who ask may do with the files of directories, as servers told it with the status of these.
//!
//! A server refuses what somebody may not write when it is stored, which is when the file is closed: too late, for the writer
//! and for others here, who are shown what is written. So it is found out when the file is opened. A directory's list counts
//! for all of its files, and who changes it breaks the promises of the directory; that somebody has lost or got a right by
//! being in a group is not told. So nobody is refused by what is remembered.

use std::collections::HashMap;

use parking_lot::Mutex;
use weft_remote::{Call, RemoteError, Result};

use crate::access::{Operation, Rights};
use crate::afs::Shared;
use crate::cell::CellName;
use crate::facts;
use crate::fid::Fid;
use crate::identity::{Identity, Spot};
use crate::look::{Seen, shown};
use crate::promises::Ticket;
use crate::rows::Access;
use crate::wire::status::Kind;

/// A directory and the number of a token.
type Key = (CellName, Fid, Option<u64>);

/// Rights in directories, each as of a ticket. Held for one look or one change.
#[derive(Debug, Default)]
pub(crate) struct KnownRights(Mutex<HashMap<Key, (Access, Ticket)>>);

impl KnownRights {
    fn note(&self, key: Key, access: Access, ticket: Ticket) {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, (access, ticket));
    }

    fn get(&self, key: &Key) -> Option<(Access, Ticket)> {
        self.0.lock().get(key).copied()
    }
}

impl Shared {
    /// Remembers what whoever asked for the status of a directory may do in it.
    pub fn note_rights(&self, ticket: Ticket, spot: &Spot, seen: &Seen) {
        if seen.status.kind == Kind::Directory {
            let token = seen.teller.token.as_ref().map(|token| token.id);
            let access = Access { caller: seen.status.caller_access, anybody: seen.status.anonymous_access };
            self.rights.note((spot.cell.clone(), spot.fid, token), access, ticket);
        }
    }

    /// What whoever has this token may do in a directory, where its list is promised to be the same still.
    pub fn access_promised(&self, dir: &Spot, token: Option<u64>) -> Option<Access> {
        let (access, ticket) = self.rights.get(&(dir.cell.clone(), dir.fid, token))?;
        self.promises.lease_since(ticket, &dir.cell, dir.fid).map(|_| access)
    }

    /// Refuses who may not write a file: by its status, where its directory does not let this caller write all of its files.
    ///
    /// # Errors
    /// `Denied`; whatever keeps its server from telling.
    pub async fn may_write(&self, call: &Call, spot: &Spot, dir: Option<&Identity>) -> Result<()> {
        if let Some(Identity::File(dir)) = dir
            && (&dir.cell, dir.fid.volume) == (&spot.cell, spot.fid.volume)
            && self.may_write_all(call, dir).await
        {
            return Ok(());
        }
        let status = self.status(call, spot).await?.status;
        if facts::may(&status, Operation::Write, status.caller_access) {
            return Ok(());
        }
        Err(RemoteError::Denied {
            detail: format!("{}: the rights in its directory do not allow writing", shown(spot)),
        })
    }

    /// Whether a directory lets a caller write its files, as far as can be told: it is asked once for as long as its promise
    /// holds.
    async fn may_write_all(&self, call: &Call, dir: &Spot) -> bool {
        let token = self.files.logins.token(call, &dir.cell).await.map(|token| token.id);
        let rights = match self.access_promised(dir, token) {
            Some(access) => access.caller,
            None => match self.status(call, dir).await {
                Ok(seen) => seen.status.caller_access,
                // Who may not look at a directory may write what is in it all the same.
                Err(_) => return false,
            },
        };
        rights.has(Rights::WRITE)
    }
}

/// Most directories and askers that are remembered.
const KNOWN_MAX: usize = 10_000;
