//! The volume as its users see it: what it promises, under crashes, damage and want of room.

mod basics;
mod crash;
mod damage;
mod killed;
mod meddling;
mod model;
mod popular;
mod refusals;
mod room;
mod sample;
mod speed_of_reads;
