//! The fault suite: a server that lies to order, a table of its lies, and what a user sees of each through a real
//! mount: cold, warm, after a remount with the server gone, and when the server is mended.

mod beside;
mod cases;
mod rivals;
mod row;
mod secure;
mod show;
#[path = "../system/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the system tests use all of it, the fault suite a part")]
mod support;
mod verdict;
mod world;

/// Goal: no lie of a server becomes a wrong byte, a hang, a panic or a dead mount. Method: every row of the table
/// goes through one mount, and each phase of each row has its own assertion; all failures are told together.
#[test]
fn every_lie_ends_in_right_bytes_or_a_named_error() {
    let rows = cases::all();
    assert!(rows.len() >= 300, "{} rows are too few", rows.len());
    let Some(told) = world::run(rows) else { return };
    show::table(&told);
    show::assert_all(&told);
}

/// What rivals do with the same lies, beside what weft does: printed, and written to docs/faults.md. Nothing is
/// asserted of the rivals. Run by `make faults`.
#[test]
#[ignore = "it takes minutes, and `make faults` runs it"]
fn beside_rivals() {
    let Some(told) = world::run(cases::all()) else { return };
    show::table(&told);
    beside::compare(&told);
    show::assert_all(&told);
}
