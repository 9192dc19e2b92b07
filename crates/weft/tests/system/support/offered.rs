//! FUSE over io_uring, which the kernel offers when root has it so.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::process::{is_root, without};

/// The switch is the whole machine's: those who need it on share it, who needs it off has it alone.
static SWITCH: RwLock<()> = RwLock::new(());
/// Those who have it on, and how it was before the first.
static USERS: Mutex<(usize, String)> = Mutex::new((0, String::new()));

/// Has the kernel offer it; the last to go sets it back as it was found.
pub struct Offered(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// Has the kernel not offer it, and sets it back as it was found.
pub struct NotOffered(String, #[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

impl Offered {
    /// `None`, with a line that says so, where it cannot be had.
    pub fn now() -> Option<Offered> {
        let guard = SWITCH.read().unwrap_or_else(PoisonError::into_inner);
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        if users.0 == 0 {
            users.1 = set("Y")?;
        }
        users.0 += 1;
        Some(Offered(guard))
    }
}

impl NotOffered {
    /// `None`, with a line that says so, where nobody could ever have it.
    pub fn now() -> Option<NotOffered> {
        let guard = SWITCH.write().unwrap_or_else(PoisonError::into_inner);
        Some(NotOffered(set("N")?, guard))
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.0 -= 1;
        if users.0 == 0 {
            let _ = std::fs::write(PARAMETER, users.1.trim());
        }
    }
}

impl Drop for NotOffered {
    fn drop(&mut self) {
        let _ = std::fs::write(PARAMETER, self.0.trim());
    }
}

/// Sets the switch; how it was before.
fn set(wanted: &str) -> Option<String> {
    let Some(found) = std::fs::read_to_string(PARAMETER).ok().filter(|_| is_root()) else {
        without("the kernel has no FUSE over io_uring, or this is not root, who may switch it on");
        return None;
    };
    std::fs::write(PARAMETER, wanted).expect("root may");
    Some(found)
}

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
