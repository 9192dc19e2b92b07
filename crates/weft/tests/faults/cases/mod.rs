//! The table, family by family.

mod corpus;
mod headers;
mod hosts;
mod lengths;
mod names;
mod pages;
mod protocols;
pub mod ranges;
mod redirects;
mod secure;
mod stalls;
mod statuses;

use crate::row::Row;

pub use corpus::decoded;

/// Every row.
pub fn all() -> Vec<Row> {
    [
        statuses::rows(),
        lengths::rows(),
        redirects::rows(),
        headers::rows(),
        names::rows(),
        pages::rows(),
        hosts::rows(),
        ranges::rows(),
        stalls::rows(),
        secure::rows(),
        protocols::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
