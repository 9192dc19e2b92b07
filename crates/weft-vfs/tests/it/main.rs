//! The file system over a fake remote and a real store.

mod bench;
mod content;
mod faults;
mod names;
mod space;
mod verbs;
