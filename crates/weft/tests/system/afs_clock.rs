//! AFS on a machine whose clock is wrong, or is set while a mount is there.

use std::path::Path;

use crate::afs_users::{DIARY, SECRET};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Clock, Mount, Program, Setup};

/// Programs go by this clock on the node c1, whose realm is known.
fn words(clock: &Clock, cell: &AfsCell) -> Vec<String> {
    let realm = format!("KRB5_CONFIG={}", cell.dir().join("krb/krb5.conf").display());
    [cell.words("c1"), clock.words(), vec![realm]].concat()
}

/// The cell on a mount whose daemon goes by this clock, and which looks for tickets there.
fn mounted(clock: &Clock, cell: &AfsCell, tickets: &Path) -> Option<Mount> {
    let dir = cell.client_config();
    let config =
        format!("[afs]\nconfig_dir = \"{}\"\ndns = false\nccache = \"{}\"\n", dir.display(), tickets.display());
    let mut mount = Mount::prepare(Setup { source: "afs", config, ..Setup::default() })?;
    mount.move_to(words(clock, cell));
    mount.mount();
    Some(mount)
}

/// Goal: what a server has promised does not count for longer where the clock is set back, for then nobody tells of changes any
/// more. Method: a file is read, and the clock goes on to shortly before the end of the promise, and an hour back.
#[test]
fn a_clock_that_is_set_back_makes_no_promise_longer() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(clock) = Clock::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mount) = mounted(&clock, cell, &folder.path().join("tickets")) else { return };
    let file = mount.at("weft.test/scratch/readme.txt");
    let content = std::fs::read(&file).expect("read");
    // Somebody else may have changed the folder just then: what was found in it is not noted.
    let is_known = || std::fs::read(&file).is_ok() && mount.verb("why", [&file]).code == Some(0);
    wait_until("it is known", is_known);
    let next = mount.why(&file, "next");
    let left = next.split(' ').find_map(|word| word.parse::<i64>().ok()).expect("seconds");
    assert!(left > 3600, "{next}");
    clock.set(left - 1);
    mount.why(&file, "state");
    clock.set(left - 3600);
    wait_until("the end of the promise", || mount.why(&file, "state") != "fresh");
    assert_eq!(std::fs::read(&file).expect("read"), content);
    assert_eq!(mount.why(&file, "state"), "fresh");
}

/// Goal: who logs in on a machine with a wrong clock has tickets that are good, as with MIT's programs, which remember by how
/// much it is wrong.
#[test]
fn a_login_is_good_where_the_clock_is_wrong() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(clock) = Clock::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (tickets, keytab) = (folder.path().join("tickets"), cell.keytab("alice"));
    for ahead_s in [-600, -3600, 86_400] {
        clock.set(ahead_s);
        let program = |name: &str| Program::words(&words(&clock, cell)).args([name, "-c"]).arg(&tickets);
        program("kinit").args(["-k", "-t"]).arg(&keytab).arg("alice").good();
        program("kvno").args(["-q", "afs/weft.test"]).good();
        let Some(mount) = mounted(&clock, cell, &tickets) else { return };
        assert_eq!(std::fs::read_to_string(mount.at(DIARY)).expect("read"), SECRET, "{ahead_s}");
    }
}
