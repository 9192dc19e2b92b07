//! The file system over a fake remote and a real store.

mod audience;
mod bench;
mod content;
mod faults;
mod names;
mod verbs;
