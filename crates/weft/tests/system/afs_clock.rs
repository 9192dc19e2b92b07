//! AFS on a machine whose clock is wrong, or is set while a mount is there.

use std::path::PathBuf;

use crate::afs_users::{DIARY, SECRET};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, Program, Setup, without};

/// A clock for programs, which is as wrong as it is set to be (libfaketime); what they measure time with goes on.
struct Clock {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl Clock {
    fn new() -> Option<Clock> {
        let folders = std::fs::read_dir("/usr/lib").expect("a folder").flatten().map(|folder| folder.path());
        let library = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.exists());
        let Some(library) = library else {
            without("libfaketime is not installed");
            return None;
        };
        let clock = Clock { library, folder: tempfile::tempdir().expect("a folder") };
        clock.set(0);
        Some(clock)
    }

    fn set(&self, ahead_s: i64) {
        let (new, path) = (self.folder.path().join("new"), self.folder.path().join("offset"));
        std::fs::write(&new, format!("{ahead_s:+}\n")).expect("written");
        std::fs::rename(new, path).expect("moved");
    }

    /// The words that run a program by this clock on the node c1, whose realm is known.
    fn words(&self, cell: &AfsCell) -> Vec<String> {
        let own = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.folder.path().join("offset").display()),
            format!("KRB5_CONFIG={}", cell.dir().join("krb/krb5.conf").display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        [cell.words("c1"), own.to_vec()].concat()
    }

    /// The cell on a mount whose daemon goes by this clock.
    fn mounted(&self, cell: &AfsCell) -> Option<Mount> {
        let (dir, tickets) = (cell.client_config(), self.tickets());
        let config =
            format!("[afs]\nconfig_dir = \"{}\"\ndns = false\nccache = \"{}\"\n", dir.display(), tickets.display());
        let mut mount = Mount::prepare(Setup { source: "afs", config, ..Setup::default() })?;
        mount.move_to(self.words(cell));
        mount.mount();
        Some(mount)
    }

    fn tickets(&self) -> PathBuf {
        self.folder.path().join("tickets")
    }
}

/// Goal: what a server has promised does not count for longer where the clock is set back, for then nobody tells of changes any
/// more. Method: a file is read, and the clock goes two hours on, by which something else is asked, and one hour back.
#[test]
fn a_clock_that_is_set_back_makes_no_promise_longer() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(clock) = Clock::new() else { return };
    let Some(mount) = clock.mounted(cell) else { return };
    let file = mount.at("weft.test/scratch/readme.txt");
    let content = std::fs::read(&file).expect("read");
    clock.set(7200);
    std::fs::read_dir(mount.at("weft.test/pub")).expect("listed");
    assert_eq!(mount.why(&file, "state"), "fresh", "the server has promised more than that");
    clock.set(3600);
    wait_until("it is asked for again", || mount.why(&file, "state") != "fresh");
    assert_eq!(std::fs::read(&file).expect("read"), content);
    assert_eq!(mount.why(&file, "state"), "fresh");
}

/// Goal: who logs in on a machine with a wrong clock has tickets that are good, as with MIT's programs, which remember by how
/// much it is wrong.
#[test]
fn a_login_is_good_where_the_clock_is_wrong() {
    let Some(cell) = AfsCell::up() else { return };
    let Some(clock) = Clock::new() else { return };
    for ahead_s in [-600, -3600, 86_400] {
        clock.set(ahead_s);
        let (tickets, keytab) = (clock.tickets(), cell.keytab("alice"));
        let program = |name: &str| Program::words(&clock.words(cell)).args([name, "-c"]).arg(&tickets);
        program("kinit").args(["-k", "-t"]).arg(&keytab).arg("alice").good();
        program("kvno").args(["-q", "afs/weft.test"]).good();
        let Some(mount) = clock.mounted(cell) else { return };
        assert_eq!(std::fs::read_to_string(mount.at(DIARY)).expect("read"), SECRET, "{ahead_s}");
    }
}
