//! The program as a whole: real mounts, real servers, real clients, made and used as a user would.

mod freshness;
mod listings;
mod reads;
mod support;
