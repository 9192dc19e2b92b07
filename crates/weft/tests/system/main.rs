//! The program as a whole: real mounts, real servers, real clients, made and used as a user would.

mod faults;
mod floods;
mod freshness;
mod full_disk;
mod interrupts;
mod life;
mod listings;
mod log;
mod logins;
mod long_lists;
mod mounting;
mod offline;
mod parts;
mod proxies;
mod reads;
mod space;
mod stale;
mod stats;
mod support;
mod survival;
mod tls;
mod unplugged;
mod verbs;
mod warm;
mod watch;
mod wfs;
