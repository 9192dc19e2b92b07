//! Which signals end a wait.
//!
//! The kernel tells that a thread which waits has a signal, not which one. Network file systems in the kernel end a
//! wait for signals that kill alone: programs do not expect EINTR from stat(2) or of files because a child ended, the
//! window changed or a clock of their own ticks (git, Go's runtime and shells do all of that). So the thread's
//! pending signals are looked at: those that kill end the wait, as do those by which a user asks a program that
//! catches them to stop. Others stay until the answer comes.

/// Whether a thread has a signal for which its wait is to end. One that cannot be looked at (a thread of another pid
/// namespace, 0) has.
pub(crate) fn end_a_wait(thread: u32) -> bool {
    if thread == 0 {
        return true;
    }
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => ends(&status),
        Err(_) => true,
    }
}

/// Reads `/proc/PID/status` (proc_pid_status(5)).
fn ends(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
    };
    let masks = (mask("SigPnd"), mask("ShdPnd"), mask("SigBlk"), mask("SigIgn"), mask("SigCgt"));
    let (Some(own), Some(shared), Some(blocked), Some(ignored), Some(caught)) = masks else { return true };
    let pending = (own | shared) & !blocked & !ignored;
    pending & (bits(&ASKING) | (!caught & !bits(&HARMLESS))) != 0
}

fn bits(signals: &[u32]) -> u64 {
    signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// HUP, INT, QUIT, KILL, TERM: what a user or the system stops a program with, caught or not.
const ASKING: [u32; 5] = [1, 2, 3, 9, 15];
/// CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH: what kills nobody (signal(7)).
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nSigQ:\t0/96173\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn what_kills_or_asks_to_stop_ends_a_wait_and_nothing_else() {
        let [int, kill, alrm, chld, winch] = [2, 9, 14, 17, 28].map(|signal| bits(&[signal]));
        assert!(ends(&status(kill, int, 0, 0, 0)), "Ctrl-C at cat");
        assert!(ends(&status(0, int, 0, 0, int)), "Ctrl-C at a program that catches it");
        assert!(ends(&status(0, alrm, 0, 0, 0)), "an alarm that kills");
        assert!(!ends(&status(0, alrm, 0, 0, alrm)), "a clock of the program's own");
        assert!(!ends(&status(0, chld | winch, 0, 0, 0)));
        assert!(!ends(&status(0, chld, 0, 0, chld)));
        assert!(!ends(&status(0, int, int, 0, 0)) && !ends(&status(0, int, 0, int, 0)));
        assert!(!ends(&status(0, 0, 0, 0, 0)), "the kernel stops threads for reasons of its own");
    }

    #[test]
    fn who_cannot_be_looked_at_is_believed() {
        assert!(end_a_wait(0) && end_a_wait(u32::MAX));
        assert!(ends("Name:\tcat\n"));
        assert!(!end_a_wait(std::process::id()), "nobody sends this process signals");
    }
}
