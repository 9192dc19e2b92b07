//! Who uses how much of the cache, and what is said of it about one path.

use std::collections::HashMap;

use weft_remote::Name;
use weft_store::{Bound, Class, NodeId, Sum};

use crate::Result;
use crate::keeper::class_word;
use crate::vfs::Vfs;
use crate::why::Why;

/// What one part of the cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// The top-level tree, as its path below the mount's root reads; or the path that was asked about.
    pub path: String,
    /// The class of its tree; single files and parts may have others.
    pub class: String,
    /// What is held.
    pub sum: Sum,
    /// Of that, bytes that are pinned, and bytes that may be evicted.
    pub pinned_bytes: u64,
    /// Bytes that may be evicted.
    pub scratch_bytes: u64,
    /// Most bytes that it may have.
    pub max: Option<u64>,
}

/// What one user's reads brought here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserUsage {
    /// The user.
    pub uid: u32,
    /// What is held.
    pub sum: Sum,
}

/// What the cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// By top-level tree, the largest first.
    pub trees: Vec<TreeUsage>,
    /// By user, the largest first.
    pub users: Vec<UserUsage>,
    /// In all.
    pub total: Sum,
    /// Bytes of class scratch.
    pub scratch_bytes: u64,
    /// Bytes that are pinned.
    pub pinned_bytes: u64,
    /// Most bytes in all.
    pub max: Option<u64>,
    /// Most bytes of class scratch.
    pub scratch_max: Option<u64>,
    /// Most bytes of a top-level tree.
    pub tree_max: Option<u64>,
    /// Bytes of the disk that are left free.
    pub keep_free: Option<u64>,
    /// Free bytes of the disk.
    pub disk_free: u64,
    /// Whether what earlier mounts left has been counted; until then the figures are too small.
    pub counted: bool,
}

impl Vfs {
    /// What the cache holds, of all or of the tree at `path`.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    pub fn cache_usage(&self, path: &[Name]) -> Result<CacheUsage> {
        let sums = if path.is_empty() { self.store.sums() } else { self.sums_below(path)? };
        let options = &self.space.options;
        let mut usage = CacheUsage {
            max: options.max,
            scratch_max: options.scratch_max,
            tree_max: options.tree_max,
            keep_free: options.keep_free,
            disk_free: self.store.usage().free_bytes,
            counted: self.space.is_counted(),
            ..CacheUsage::default()
        };
        let mut trees: HashMap<NodeId, TreeUsage> = HashMap::new();
        let mut users: HashMap<u32, Sum> = HashMap::new();
        for ((tree, class, uid), sum) in &sums {
            let (pinned, scratch) = match class {
                Class::Pinned => (sum.bytes, 0),
                Class::Kept => (0, 0),
                Class::Scratch => (0, sum.bytes),
            };
            let entry = trees.entry(*tree).or_default();
            entry.sum.join(sum);
            entry.pinned_bytes += pinned;
            entry.scratch_bytes += scratch;
            users.entry(*uid).or_default().join(sum);
            usage.total.join(sum);
            usage.pinned_bytes += pinned;
            usage.scratch_bytes += scratch;
        }
        for (tree, entry) in &mut trees {
            let place = self.place_of(*tree)?;
            let own = self.space.pins.cover(&place);
            entry.path = place.text();
            entry.class = match &place.path {
                _ if own => class_word(Class::Pinned).to_string(),
                Some(path) => class_word(options.class_at(path)).to_string(),
                None => class_word(Class::Kept).to_string(),
            };
            let rules = options.rules.iter().filter(|rule| place.path.as_ref().is_some_and(|path| *path == rule.path));
            entry.max = rules.filter_map(|rule| rule.max).chain(options.tree_max).min();
        }
        usage.trees = trees.into_values().collect();
        usage.trees.sort_by(|a, b| b.sum.bytes.cmp(&a.sum.bytes).then_with(|| a.path.cmp(&b.path)));
        usage.users = users.into_iter().map(|(uid, sum)| UserUsage { uid, sum }).collect();
        usage.users.sort_by_key(|user| (u64::MAX - user.sum.bytes, user.uid));
        Ok(usage)
    }

    /// The sums of what lies at and below a path, under that path's own node.
    fn sums_below(&self, path: &[Name]) -> Result<HashMap<(NodeId, Class, u32), Sum>> {
        let top = self.namespace.real(self.find(path)?);
        let mut sums: HashMap<_, Sum> = HashMap::new();
        self.each_file(top, |node| {
            let Some((account, bytes, used_us)) = self.store.account(node) else { return Ok(()) };
            let Some(record) = self.store.object_record(node)? else { return Ok(()) };
            sums.entry((top, account.class, record.owner_uid)).or_default().add(bytes, used_us);
            Ok(())
        })?;
        Ok(sums)
    }

    /// The class of a node's content, and where that comes from.
    pub(crate) fn class_words(&self, node: NodeId) -> Result<String> {
        Ok(class_word(self.account_of(node)?.class).to_string())
    }

    /// What `why` says about space.
    pub(crate) fn why_space(&self, why: &mut Why, node: NodeId) -> Result<()> {
        let place = self.place_of(node)?;
        let account = self.account_at(&place);
        let meaning = match account.class {
            Class::Pinned => "never evicted",
            Class::Kept => "never evicted; `weft rm -w` removes it",
            Class::Scratch => "evicted when room is needed, the longest unused first",
        };
        why.add("class", &format!("{}: {meaning}", class_word(account.class)));
        if self.space.pins.cover(&place) {
            why.add("pinned", "by `weft pin`, here or above");
        }
        let rules = (0..weft_store::Bounds::RULES_MAX).filter(|rule| account.rules >> rule & 1 == 1).map(Bound::Rule);
        let scratch = (account.class == Class::Scratch).then_some(Bound::Scratch);
        for bound in rules.chain([Bound::Tree(account.tree)]).chain(scratch).chain([Bound::All]) {
            if let (filled, Some(max)) = self.store.filled(bound) {
                let key = self.space.options.key(crate::space::Limit::Of(bound));
                why.add("quota", &format!("{key}: {filled} of {max} bytes taken"));
            }
        }
        Ok(())
    }
}
