use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::uuid::Uuid;

const SERVER: ServerId = ServerId::Uuid(Uuid([1; 16]));
const PROMISE: Promise = Promise { version: 1, expires_s: 3600, kind: 2 };

fn written(data_version: u64) -> Written {
    Written { data_version, modified_s: 0 }
}

fn cell() -> CellName {
    CellName::new(b"example.org").expect("a name")
}

fn door() -> Identity {
    Identity::Cell { cell: cell(), writable: false }
}

fn spot(vnode: u32) -> Spot {
    Spot { cell: cell(), fid: Fid { volume: VolumeId(7), vnode, unique: 1 }, way: door().way_in() }
}

/// Promises, and what is told.
fn promises(max: usize) -> (Promises, impl FnMut() -> Vec<Event>) {
    let news = Arc::new(News::new(10_000));
    let mut stream = news.stream();
    assert_eq!(stream.next().now_or_never(), Some(Some(Event::AllBroken)));
    let told = move || std::iter::from_fn(|| stream.next().now_or_never().flatten()).collect();
    (Promises::new(max, news), told)
}

fn holds(lease: Lease) -> bool {
    matches!(lease, Lease::UntilBroken(_))
}

#[test]
fn what_is_changed_here_is_told_on_the_other_ways() {
    let (promises, mut told) = promises(100);
    promises.note_door(&door(), &cell(), spot(1).fid);
    promises.enter(promises.ticket(), SERVER, &spot(2), PROMISE);
    let name = Name::new("lib@sys").expect("a name");
    assert!(promises.changed_here(&spot(2), &[]).is_none(), "there is one way");
    assert!(promises.changed_here(&spot(1), std::slice::from_ref(&name)).is_some());
    assert_eq!(told(), [Event::NameBroken { dir: door().file_id(), name: name.clone(), file: None }]);
    let other = Spot { way: Identity::Mount(spot(8)).way_in(), ..spot(3) };
    promises.enter(promises.ticket(), SERVER, &other, PROMISE);
    assert!(promises.changed_here(&spot(2), &[]).is_some());
    assert_eq!(told(), [Event::Broken(Identity::File(Spot { way: other.way, ..spot(2) }).file_id())]);
    assert!(promises.changed_here(&other, std::slice::from_ref(&name)).is_some());
    let here = Identity::File(other.clone()).file_id();
    let there = Identity::File(Spot { way: spot(3).way, ..other }).file_id();
    assert_eq!(told(), [Event::NamesBroken(there), Event::NameBroken { dir: here, name, file: None }]);
}

#[test]
fn a_break_is_told_of_under_every_identity() {
    let (promises, mut told) = promises(100);
    promises.note_door(&door(), &cell(), spot(1).fid);
    for vnode in [1, 2, 3] {
        let lease = promises.enter(promises.ticket(), SERVER, &spot(vnode), PROMISE);
        assert!(holds(lease) && promises.lease(&cell(), spot(vnode).fid) == Some(lease));
    }
    let other = Spot { way: Identity::Mount(spot(8)).way_in(), ..spot(3) };
    assert!(holds(promises.enter(promises.ticket(), SERVER, &other, PROMISE)));
    promises.broken(SERVER, &cell(), &[spot(1).fid, spot(2).fid, spot(3).fid, spot(9).fid]);
    let (file, mount) = (Identity::File, Identity::Mount);
    let on_other = Spot { way: other.way, ..spot(1) };
    let wanted = [
        Event::NamesBroken(door().file_id()),
        Event::NamesBroken(file(on_other).file_id()),
        Event::Broken(mount(spot(2)).file_id()),
        Event::Broken(file(spot(2)).file_id()),
        Event::Broken(mount(Spot { way: other.way, ..spot(2) }).file_id()),
        Event::Broken(file(Spot { way: other.way, ..spot(2) }).file_id()),
        Event::NamesBroken(file(spot(3)).file_id()),
        Event::NamesBroken(file(other).file_id()),
    ];
    assert_eq!(told(), wanted, "and nothing of what was not promised");
    assert_eq!(promises.lease(&cell(), spot(2).fid), None);
    assert_eq!(promises.count(), 0);
}

#[test]
fn a_break_that_overtakes_the_answer_wins() {
    let (promises, mut told) = promises(100);
    let ticket = promises.ticket();
    promises.broken(SERVER, &cell(), &[spot(2).fid]);
    assert_eq!(promises.enter(ticket, SERVER, &spot(2), PROMISE), Lease::Spent);
    assert!(holds(promises.enter(ticket, SERVER, &spot(4), PROMISE)), "another file");
    promises.broken(SERVER, &cell(), &[Fid { volume: VolumeId(7), vnode: 0, unique: 0 }]);
    assert_eq!(promises.enter(ticket, SERVER, &spot(6), PROMISE), Lease::Spent, "the whole volume");
    promises.forgotten(SERVER);
    let elsewhere = Spot { fid: Fid { volume: VolumeId(8), ..spot(2).fid }, ..spot(2) };
    assert_eq!(promises.enter(ticket, SERVER, &elsewhere, PROMISE), Lease::Spent, "all of the server");
    told();
    for _ in 0..=RECENT_MAX {
        promises.broken(SERVER, &cell(), &[spot(2).fid]);
    }
    let now = promises.ticket();
    let late = Ticket { breaks: now.breaks - RECENT_MAX as u64 - 1, ..now };
    assert_eq!(promises.enter(late, SERVER, &spot(8), PROMISE), Lease::Spent, "not remembered any more");
    assert!(holds(promises.enter(promises.ticket(), SERVER, &spot(8), PROMISE)));
}

#[test]
fn a_change_of_ours_that_overtakes_the_answer_wins() {
    let (promises, mut told) = promises(100);
    let (ticket, dir) = (promises.ticket(), spot(1));
    promises.made(&cell(), dir.fid, 5);
    assert_eq!(promises.enter_of(ticket, SERVER, &dir, PROMISE, written(4)), Lease::Spent, "of before it");
    assert!(promises.lease(&cell(), dir.fid).is_none());
    assert!(holds(promises.enter_of(ticket, SERVER, &dir, PROMISE, written(5))), "of after it");
    assert!(holds(promises.enter_of(ticket, SERVER, &spot(3), PROMISE, written(4))), "another directory");
    assert!(
        holds(promises.enter_of(promises.ticket(), SERVER, &dir, PROMISE, written(4))),
        "an older volume was restored"
    );
    (0..=RECENT_MAX as u64).for_each(|version| promises.made(&cell(), spot(3).fid, version));
    assert_eq!(promises.enter_of(ticket, SERVER, &dir, PROMISE, written(5)), Lease::Spent, "not remembered any more");
    assert!(told().is_empty());
}

#[test]
fn what_may_have_changed_is_told_of() {
    let (promises, mut told) = promises(100);
    promises.note_door(&door(), &cell(), spot(1).fid);
    let ticket = promises.ticket();
    assert!(holds(promises.enter(ticket, SERVER, &spot(2), PROMISE)));
    promises.doubt(&cell(), spot(2).fid);
    assert!(promises.lease(&cell(), spot(2).fid).is_none());
    assert!(told().contains(&Event::Broken(Identity::File(spot(2)).file_id())));
    assert_eq!(promises.enter(ticket, SERVER, &spot(2), PROMISE), Lease::Spent, "asked before");
    promises.doubt(&cell(), spot(1).fid);
    assert_eq!(told(), [Event::NamesBroken(door().file_id())]);
}

#[test]
fn only_the_server_that_promised_breaks() {
    let (promises, mut told) = promises(100);
    promises.enter(promises.ticket(), SERVER, &spot(2), PROMISE);
    let other = ServerId::Uuid(Uuid([2; 16]));
    promises.broken(other, &cell(), &[spot(2).fid]);
    promises.forgotten(other);
    assert!(promises.lease(&cell(), spot(2).fid).is_some() && told().is_empty());
    let since = promises.ticket();
    promises.broken(SERVER, &cell(), &[spot(4).fid]);
    promises.forgotten(other);
    assert!(promises.was_forgotten_since(since, other) && !promises.was_forgotten_since(since, SERVER));
    promises.forgotten(SERVER);
    assert!(promises.was_forgotten_since(since, SERVER) && !promises.was_forgotten_since(promises.ticket(), SERVER));
    assert!(promises.lease(&cell(), spot(2).fid).is_none() && told().len() == 2);
}

#[test]
fn what_was_promised_in_one_cell_ends() {
    let (promises, mut told) = promises(100);
    let of_other = Spot { cell: CellName::new(b"example.net").expect("a name"), ..spot(2) };
    promises.enter(promises.ticket(), SERVER, &spot(2), PROMISE);
    promises.enter(promises.ticket(), SERVER, &of_other, PROMISE);
    let ticket = promises.ticket();
    promises.end_in(&cell());
    assert!(
        promises.lease(&cell(), spot(2).fid).is_none() && told().len() == 2,
        "the file, and a mount point in its place"
    );
    assert!(promises.lease(&of_other.cell, spot(2).fid).is_some());
    assert_eq!(promises.enter(ticket, SERVER, &spot(4), PROMISE), Lease::Spent, "asked before, as whoever that was");
    assert!(holds(promises.enter(ticket, SERVER, &of_other, PROMISE)));
}

#[test]
fn ways_that_are_too_many_end_all_promises() {
    let (promises, mut told) = promises(10_000);
    let by = |mount: u32| Spot { way: Identity::Mount(spot(mount)).way_in(), ..spot(2) };
    let enter = |spot: &Spot| assert!(holds(promises.enter(promises.ticket(), SERVER, spot, PROMISE)));
    enter(&spot(4));
    // The way of that one is one of them.
    (1..WAYS_OF_ONE_MAX as u32).for_each(|mount| enter(&by(2 * mount)));
    assert!(told().is_empty() && promises.count() == 2);
    let before = promises.ticket();
    let last = by(2 * WAYS_OF_ONE_MAX as u32);
    enter(&last);
    assert_eq!(told(), [Event::AllBroken]);
    assert_eq!((promises.count(), promises.lease(&cell(), spot(4).fid)), (1, None));
    assert_eq!(promises.enter(before, SERVER, &spot(4), PROMISE), Lease::Spent, "asked before");
    promises.broken(SERVER, &cell(), &[last.fid]);
    let file = Event::Broken(Identity::File(last.clone()).file_id());
    assert_eq!(told(), [Event::Broken(Identity::Mount(last).file_id()), file]);
}

#[test]
fn there_are_no_more_than_the_maximum() {
    let (promises, mut told) = promises(3);
    let enter = |vnode| holds(promises.enter(promises.ticket(), SERVER, &spot(vnode), PROMISE));
    assert!(enter(2) && enter(4) && enter(6) && !enter(8));
    let none = Promise { expires_s: 0, ..PROMISE };
    assert_eq!(promises.enter(promises.ticket(), SERVER, &spot(2), none), Lease::Spent);
    promises.broken(SERVER, &cell(), &[Fid { volume: VolumeId(7), vnode: 0, unique: 0 }]);
    assert_eq!((promises.count(), told().len()), (0, 6));
    assert!(enter(8));
}

/// Goal: what was promised of a file that is there no more is not remembered, unless its volume was entered by another way too.
#[test]
fn what_is_there_no_more_takes_no_room() {
    let (promises, mut told) = promises(2);
    let enter = |spot: &Spot| holds(promises.enter(promises.ticket(), SERVER, spot, PROMISE));
    let (one, other) = (spot(2), spot(4));
    assert!(enter(&one) && enter(&other) && !enter(&spot(6)));
    promises.forget(&cell(), one.fid);
    assert_eq!((promises.count(), promises.lease(&cell(), one.fid)), (1, None));
    assert!(told().is_empty(), "nobody knows the file");
    assert!(enter(&spot(6)) && promises.lease(&cell(), other.fid).is_some());
    promises.note_door(&Identity::Mount(spot(8)), &cell(), other.fid);
    promises.forget(&cell(), other.fid);
    assert!(promises.lease(&cell(), other.fid).is_some(), "another way leads to it");
}

#[test]
fn many_are_as_they_were_told_until_something_is_said_of_them() {
    let (promises, _told) = promises(100);
    let other_server = ServerId::Uuid(Uuid([2; 16]));
    let ticket = promises.ticket();
    let at = |nth: u32, data_version| (spot(nth).fid, ticket, written(data_version));
    for nth in 1..=6 {
        let server = if nth == 6 { other_server } else { SERVER };
        assert!(holds(promises.enter_of(ticket, server, &spot(nth), PROMISE, written(9))));
    }
    let counts = |files: &[(Fid, Ticket, Written)]| -> Vec<bool> {
        promises
            .leases_since(&cell(), files.iter().copied())
            .into_iter()
            .map(|lease| lease.is_some_and(holds))
            .collect()
    };
    let all = [at(1, 9), at(2, 9), at(3, 8), at(4, 9), at(5, 9), at(6, 9), at(7, 9)];
    assert_eq!(counts(&all), [true, true, false, true, true, true, false], "other bytes, and no promise");
    promises.broken(SERVER, &cell(), &[spot(2).fid]);
    promises.enter_of(promises.ticket(), SERVER, &spot(2), PROMISE, written(9));
    assert_eq!(counts(&all), [true, false, false, true, true, true, false], "promised anew, and told of before");
    assert_eq!(counts(&[(spot(2).fid, promises.ticket(), written(9))]), [true]);
    let another_cell = CellName::new(b"example.net").expect("a name");
    assert!(promises.leases_since(&another_cell, all.into_iter()).iter().all(Option::is_none));
    promises.forgotten(SERVER);
    let again = promises.ticket();
    for nth in 1..=5 {
        promises.enter_of(again, SERVER, &spot(nth), PROMISE, written(9));
    }
    assert_eq!(counts(&all), [false, false, false, false, false, true, false], "another server has forgotten nothing");
    for _ in 0..=RECENT_MAX {
        promises.broken(SERVER, &cell(), &[spot(50).fid]);
    }
    assert_eq!(counts(&[at(6, 9)]), [false], "not remembered any more");
}
