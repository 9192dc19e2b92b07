//! What a warming would bring, and whether there is room for it.

use std::collections::HashMap;
use std::sync::Arc;

use weft_remote::{Caller, FileKind};
use weft_store::{Bound, Class, NodeId};

use crate::Result;
use crate::space::{Limit, on_disk};
use crate::vfs::Vfs;

/// What is known before the first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Files in all, and directories that were listed.
    pub files: u64,
    /// Directories that were listed.
    pub directories: u64,
    /// Files that are held and may be used without asking.
    pub fresh: u64,
    /// Files that are held and are asked about.
    pub to_check: u64,
    /// Files of which something is missing.
    pub to_fetch: u64,
    /// Bytes missing, as far as sizes are known.
    pub bytes: u64,
    /// Of those, bytes by sizes that are only rounded.
    pub estimated_bytes: u64,
    /// Files to fetch whose sizes nobody has told.
    pub unknown: u64,
    /// Bytes free on the disk of the cache.
    pub disk_free: u64,
    /// What keeps it from fitting, in sentences.
    pub misfits: Vec<String>,
}

/// What counts towards each bound.
#[derive(Default)]
struct Needs(HashMap<Bound, u64>);

impl Vfs {
    /// What fetching these files would bring; `max`: most bytes that the user wants.
    pub(crate) async fn forecast(
        self: &Arc<Self>,
        files: impl Iterator<Item = NodeId> + Send,
        caller: Caller,
        pin: bool,
        max: Option<u64>,
    ) -> Result<Forecast> {
        let call = self.call(caller).ahead();
        let mut forecast = Forecast { disk_free: self.store.usage().free_bytes, ..Forecast::default() };
        let (mut needs, mut on_disk_bytes) = (Needs::default(), 0_u64);
        for node in files {
            forecast.files += 1;
            if forecast.files.is_multiple_of(FILES_AT_ONCE) {
                // Others want this thread as well.
                tokio::task::yield_now().await;
            }
            let Ok(inode) = self.inode(node) else { continue };
            let held = self.store.object_record(inode.id)?.filter(|held| !held.is_superseded());
            let attributes = inode.record.read().attributes;
            if held.as_ref().is_some_and(|held| held.is_complete()) {
                match self.trusted_content(&call, &inode)? {
                    Some(_) => forecast.fresh += 1,
                    None => forecast.to_check += 1,
                }
                continue;
            }
            forecast.to_fetch += 1;
            let size = attributes.size.known().filter(|_| attributes.kind != FileKind::Unknown);
            let Some(size) = size else {
                forecast.unknown += 1;
                continue;
            };
            let here = held.map_or(0, |held| held.pieces.len() as u64 * weft_store::PIECE_BYTES);
            let missing = size.saturating_sub(here);
            forecast.bytes = forecast.bytes.saturating_add(missing);
            if attributes.size.exact().is_none() {
                forecast.estimated_bytes = forecast.estimated_bytes.saturating_add(missing);
            }
            let mut account = self.account_of(inode.id)?;
            if pin {
                account.class = Class::Pinned;
            }
            on_disk_bytes = on_disk_bytes.saturating_add(on_disk(missing));
            needs.add(&account, on_disk(missing));
        }
        forecast.misfits = self.misfits(&needs, on_disk_bytes);
        if let Some(max) = max.filter(|max| forecast.bytes > *max) {
            forecast.misfits.push(format!("`--max` allows {max} bytes, and {} are missing", forecast.bytes));
        }
        Ok(forecast)
    }

    fn misfits(&self, needs: &Needs, bytes: u64) -> Vec<String> {
        let mut misfits = Vec::new();
        for (bound, needed) in &needs.0 {
            let (filled, evictable, max) = self.store.standing(*bound);
            let Some(max) = max else { continue };
            let room = max.saturating_sub(filled.saturating_sub(evictable));
            if *needed > room {
                let about = match bound {
                    Bound::Tree(tree) => self.place_of(*tree).map(|place| format!("{}: ", place.text())),
                    Bound::All | Bound::Scratch | Bound::Rule(_) => Ok(String::new()),
                };
                let key = self.space.options.key(Limit::Of(*bound));
                misfits.push(format!(
                    "{}`{key}` ({max} bytes) leaves room for {room} more, and {needed} are needed",
                    about.unwrap_or_default()
                ));
            }
        }
        let free = self.store.usage().free_bytes;
        let (_, evictable, _) = self.store.standing(Bound::All);
        let room = free.saturating_add(evictable).saturating_sub(self.space.options.keep_free());
        if bytes > room {
            let key = self.space.options.keep_free.map(|_| " beyond `[cache] keep_free`").unwrap_or_default();
            misfits.push(format!("the disk of the cache has {room} bytes free{key}, and {bytes} are needed"));
        }
        misfits.sort();
        misfits
    }
}

impl Needs {
    fn add(&mut self, account: &weft_store::Account, bytes: u64) {
        let mut add = |bound| {
            let sum = self.0.entry(bound).or_default();
            *sum = sum.saturating_add(bytes);
        };
        add(Bound::All);
        add(Bound::Tree(account.tree));
        if account.class == Class::Scratch {
            add(Bound::Scratch);
        }
        (0..u64::BITS as usize).filter(|rule| account.rules >> rule & 1 == 1).for_each(|rule| add(Bound::Rule(rule)));
    }
}

/// Files that are looked at in one go.
const FILES_AT_ONCE: u64 = 256;
