//! The file system over a fake remote and a real store.

mod bench;
mod changes;
mod content;
mod faults;
mod names;
mod verbs;
