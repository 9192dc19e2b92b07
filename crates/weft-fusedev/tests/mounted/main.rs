//! A server of this crate behind real mounts, once for each transport. Needs root (mount(2)) and `/dev/fuse`; what needs
//! a kernel that offers io_uring says so when it does not.

mod crowd;
mod ends;
mod host;
mod interrupts;
mod notices;
mod plain;
mod served;

use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weft_fusedev::{RingError, Transport};

/// Runs a test over both transports.
fn over_both(test: impl Fn(Transport)) {
    if !can_mount() {
        return;
    }
    test(Transport::Classic);
    over_rings(|| test(Transport::IoUring));
}

/// Runs a test over io_uring if it can be had here.
fn over_rings(test: impl Fn()) {
    if !can_mount() {
        return;
    }
    let _switch = Switch::on();
    match RingError::check() {
        Ok(()) => test(),
        Err(why) => eprintln!("skipped over io_uring: {why}"),
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

/// Has the kernel offer io_uring while a test needs it, and leaves the switch as it was found. It is the whole machine's:
/// those who need it on share it.
struct Switch(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// The switch for one test alone, which sets it as it likes.
struct Alone(String, #[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

static SWITCH: RwLock<()> = RwLock::new(());
/// Tests that need it on, and whether it was off before the first.
static USERS: Mutex<(usize, bool)> = Mutex::new((0, false));

impl Switch {
    fn on() -> Switch {
        let guard = SWITCH.read().unwrap_or_else(PoisonError::into_inner);
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let was_off = std::fs::read_to_string(PARAMETER).is_ok_and(|text| text.trim() == "N");
        if was_off && std::fs::write(PARAMETER, "Y").is_ok() {
            users.1 = true;
        }
        users.0 += 1;
        Switch(guard)
    }

    fn alone() -> Option<Alone> {
        let guard = SWITCH.write().unwrap_or_else(PoisonError::into_inner);
        match std::fs::read_to_string(PARAMETER) {
            Ok(found) => Some(Alone(found, guard)),
            Err(why) => {
                eprintln!("skipped: {PARAMETER}: {why}");
                None
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.0 -= 1;
        if users.0 == 0 && std::mem::take(&mut users.1) {
            set_switch("N");
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        set_switch(self.0.trim());
    }
}

fn set_switch(value: &str) {
    let _ = std::fs::write(PARAMETER, value);
}

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
