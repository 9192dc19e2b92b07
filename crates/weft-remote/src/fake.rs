//! An in-memory remote with faults to order.
