//! The file system over a fake remote and a real store.

mod access_lists;
mod audience;
mod bench;
mod breaks;
mod catch_up;
mod changes;
mod conflicts;
mod content;
mod ended;
mod faults;
mod lanes;
mod links;
mod locks;
mod nameless;
mod names;
mod one_use;
mod orphans;
mod space;
mod standing;
mod superseded;
mod told_all;
mod unsent;
mod verbs;
mod walks;
mod writing;
