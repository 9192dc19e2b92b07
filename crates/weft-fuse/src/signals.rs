//! Which signals end a wait.
//!
//! The kernel tells that a thread which waits has a signal, not which one. Network file systems in the kernel end a
//! wait for signals that kill alone: programs do not expect EINTR from stat(2) or of files because a child ended, the
//! window changed or a clock of their own ticks (git, Go's runtime and shells do all of that). So the thread's
//! pending signals are looked at: those that kill end the wait, as do those by which a user asks a program that
//! catches them to stop. Others stay until the answer comes.
//!
//! A wait for a lock that another program has is no such wait: programs bound it by a clock of their own (`flock -w`,
//! alarm(2) before fcntl(2)), so a signal that is caught ends it, but for those that come to programs that count on no
//! EINTR (signal(7)).

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// The answer of a source.
    Source,
    /// Other programs, for as long as they like.
    Programs,
}

/// Whether a thread has a signal for which its wait is to end. One that cannot be looked at (a thread of another pid
/// namespace, 0) has.
pub(crate) fn end_a_wait(thread: u32, waits_for: WaitsFor) -> bool {
    if thread == 0 {
        return true;
    }
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => ends(&status, waits_for, || is_in_a_call(thread).unwrap_or(true)),
        Err(_) => true,
    }
}

/// Whether a thread of which nothing was told has a signal for which its wait is to end, or has ended. One that cannot be
/// looked at (`hidepid` of proc(5)) goes on.
pub(crate) fn ends_unasked(thread: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_ended(&status) || ends(&status, WaitsFor::Source, || is_in_a_call(thread).unwrap_or(false)),
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
fn ends(status: &str, waits_for: WaitsFor, is_in_a_call: impl FnOnce() -> bool) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
    };
    let masks = (mask("SigPnd"), mask("ShdPnd"), mask("SigBlk"), mask("SigIgn"), mask("SigCgt"));
    let (Some(own), Some(shared), Some(blocked), Some(ignored), Some(caught)) = masks else { return true };
    let pending = (own | shared) & !blocked & !ignored;
    let kills = pending & !caught & !bits(&HARMLESS) != 0;
    let ending = match waits_for {
        WaitsFor::Source => bits(&ASKING),
        WaitsFor::Programs => !bits(&HARMLESS) & !bits(&BUSY),
    };
    kills || (pending & ending != 0 && is_in_a_call())
}

fn bits(signals: &[u32]) -> u64 {
    signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// HUP, INT, QUIT, KILL, TERM: what a user or the system stops a program with, caught or not.
const ASKING: [u32; 5] = [1, 2, 3, 9, 15];
/// CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH: what kills nobody (signal(7)).
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
/// VTALRM, PROF: clocks that stand still for who waits, so that nobody bounds a wait by them; and glibc's SETXID (nptl(7)),
/// by which one thread has all change their user.
const BUSY: [u32; 3] = [26, 27, 33];

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
    fn what_kills_or_asks_to_stop_ends_a_wait_for_a_source_and_nothing_else() {
        let ends = |status: &str, is_in_a_call: fn() -> bool| ends(status, WaitsFor::Source, is_in_a_call);
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
    fn a_clock_of_the_program_ends_its_wait_for_a_lock() {
        let ends = |status: &str| ends(status, WaitsFor::Programs, || true);
        let caught = |signal| status(0, bits(&[signal]), 0, 0, bits(&[signal]));
        for signal in [1, 2, 10, 12, 14, 15, 29, 32, 34, 64] {
            assert!(ends(&caught(signal)), "{signal}");
        }
        for signal in [17, 18, 23, 26, 27, 28, 33] {
            assert!(!ends(&caught(signal)), "{signal}");
        }
        let alrm = bits(&[14]);
        assert!(!ends(&status(0, alrm, alrm, 0, alrm)) && !ends(&status(0, alrm, 0, alrm, 0)), "it does not come");
        assert!(ends(&status(0, alrm, 0, 0, 0)), "an alarm that kills");
    }

    #[test]
    fn who_cannot_be_looked_at_is_believed() {
        let end_a_wait = |thread| end_a_wait(thread, WaitsFor::Source);
        assert!(end_a_wait(0) && end_a_wait(u32::MAX));
        assert!(ends("Name:\tcat\n", WaitsFor::Source, || false));
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
