//! The table, family by family.

mod headers;
mod lengths;
mod redirects;
mod statuses;

use crate::row::Row;

/// Every row.
pub fn all() -> Vec<Row> {
    [statuses::rows(), lengths::rows(), redirects::rows(), headers::rows()].into_iter().flatten().collect()
}
