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
        Ok(status) => ends(&status, || is_in_a_call(thread).unwrap_or(true)),
        Err(_) => true,
    }
}

/// Whether a thread of which nothing was told has a signal for which its wait is to end, or has ended. One that cannot be
/// looked at (`hidepid` of proc(5)) goes on.
pub(crate) fn ends_unasked(thread: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_ended(&status) || ends(&status, || is_in_a_call(thread).unwrap_or(false)),
        Err(_) => {
            let pid = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
            pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
        }
    }
}

/// Whether a thread waits in a system call, which can come back with EINTR. Otherwise it waits for a page of a file that
/// it has mapped, and would be killed for not getting it. `None` where it cannot be seen.
fn is_in_a_call(thread: u32) -> Option<bool> {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    // "running", "-1 STACK PLACE", or the number of a call and what it was given (proc_pid_syscall(5)).
    (!call.starts_with("running")).then(|| !call.starts_with("-1 "))
}

/// Whether nothing is left of a thread but its exit code.
fn has_ended(status: &str) -> bool {
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(['Z', 'X']))
}

/// Reads `/proc/PID/status` (proc_pid_status(5)). Signals that the thread catches count when it is in a call.
fn ends(status: &str, is_in_a_call: impl FnOnce() -> bool) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
    };
    let masks = (mask("SigPnd"), mask("ShdPnd"), mask("SigBlk"), mask("SigIgn"), mask("SigCgt"));
    let (Some(own), Some(shared), Some(blocked), Some(ignored), Some(caught)) = masks else { return true };
    let pending = (own | shared) & !blocked & !ignored;
    let kills = pending & !caught & !bits(&HARMLESS) != 0;
    kills || (pending & bits(&ASKING) != 0 && is_in_a_call())
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
        assert!(ends(&status(kill, int, 0, 0, 0), || true), "Ctrl-C at cat");
        assert!(ends(&status(0, int, 0, 0, int), || true), "Ctrl-C at a program that catches it");
        assert!(ends(&status(0, int, 0, 0, 0), || false), "the same, waiting for a page of a mapped file");
        assert!(!ends(&status(0, int, 0, 0, int), || false), "it would be killed for a signal that it catches");
        assert!(ends(&status(0, alrm, 0, 0, 0), || true), "an alarm that kills");
        assert!(!ends(&status(0, alrm, 0, 0, alrm), || true), "a clock of the program's own");
        assert!(!ends(&status(0, chld | winch, 0, 0, 0), || true));
        assert!(!ends(&status(0, chld, 0, 0, chld), || true));
        assert!(!ends(&status(0, int, int, 0, 0), || true) && !ends(&status(0, int, 0, int, 0), || true));
        assert!(!ends(&status(0, 0, 0, 0, 0), || true), "the kernel stops threads for reasons of its own");
    }

    #[test]
    fn who_cannot_be_looked_at_is_believed() {
        assert!(end_a_wait(0) && end_a_wait(u32::MAX));
        assert!(ends("Name:\tcat\n", || false));
        assert!(!end_a_wait(std::process::id()), "nobody sends this process signals");
    }

    /// Goal: a thread that has ended is told from one that lives, and what is no thread is left alone.
    #[test]
    fn who_has_left_is_seen_unasked() {
        let state = |state: &str| format!("Name:\tcat\nState:\t{state}\n");
        assert!(has_ended(&state("Z (zombie)")) && !has_ended(&state("D (disk sleep)")));
        assert!(!ends_unasked(std::process::id()) && !ends_unasked(0) && !ends_unasked(u32::MAX));
        let of_thread = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let (tell, told) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(of_thread()).expect("the test listens");
            wait.recv()
        });
        let id = told.recv().expect("it lives");
        assert!(!ends_unasked(id));
        go.send(()).expect("it waits");
        thread.join().expect("no panic").expect("told to go");
        // The system may take a moment to bury it.
        let mut looks = std::iter::repeat_with(|| {
            std::thread::yield_now();
            ends_unasked(id)
        });
        assert!(looks.by_ref().take(1_000_000).any(|ended| ended), "it has ended");
    }
}
