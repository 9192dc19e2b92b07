//! The suite that every kind runs.
