//! Processes: what they have cost, and waiting for them without waiting for ever.

use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// Processor time that a process and its threads, also those that have ended, have used: user and system, to a
/// hundredth of a second each.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    let ticks = ticks_of(&stat).with_context(|| format!("/proc/{pid}/stat: {stat}"))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// utime + stime, the 14th and 15th field (proc_pid_stat(5)). The second field may hold spaces and parentheses.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The most memory that a process has had resident, in bytes.
pub fn memory_peak_bytes(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

/// The memory that a process has resident now, in bytes.
pub fn memory_bytes(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field in status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().context("memory in status")?;
    Ok(kib * 1024)
}

/// Waits for the end of a child; `None` when it takes longer, and it has been killed then.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    let mut waited_for = [PollFd::new(&pidfd, PollFlags::IN)];
    let limit = Timespec::try_from(limit).context("limit")?;
    if poll(&mut waited_for, Some(&limit)).context("poll")? == 0 {
        child.kill().context("kill")?;
        child.wait().context("wait")?;
        return Ok(None);
    }
    Ok(Some(child.wait().context("wait")?))
}

/// Runs a program to its end with its output thrown away; how long that took.
pub fn timed(command: &mut Command, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?;
    let status = wait(&mut child, limit)?;
    let wall = start.elapsed();
    match status {
        Some(status) if status.success() => Ok(wall),
        Some(status) => bail!("{command:?}: {status}"),
        None => bail!("{command:?}: not done within {limit:?}"),
    }
}

/// Runs a program that must succeed and gives its output, both streams.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}: {text}", output.status);
    }
    Ok(text)
}

/// Waits until a file system is mounted there or the child that should do it has ended.
pub fn wait_for_mount(child: &mut Child, place: &std::path::Path, limit: Duration) -> Result<()> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("pidfd_open")?;
    let end = Instant::now() + limit;
    let table = std::fs::File::open("/proc/self/mounts").context("/proc/self/mounts")?;
    let at = format!(" {} ", place.to_str().context("a mount point in UTF-8")?);
    loop {
        if std::fs::read_to_string("/proc/self/mounts")?.contains(&at) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("the daemon for {} has ended: {status}", place.display());
        }
        // The table of mounts reports a change as an exceptional condition (proc_pid_mounts(5)).
        let mut waited_for =
            [PollFd::new(&table, PollFlags::PRI), PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).context("limit")?;
        if poll(&mut waited_for, Some(&left)).context("poll")? == 0 {
            bail!("nothing mounted at {} within {limit:?}", place.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 100 0 0 0 21 13 5 5 20 0 3 0 99 1000 200";
        assert_eq!(ticks_of(stat), Some(34));
        assert_eq!(ticks_of("17 (a"), None);
    }

    #[test]
    fn this_process_has_a_cost() {
        let pid = std::process::id();
        assert!(memory_peak_bytes(pid).unwrap() >= memory_bytes(pid).unwrap() / 2);
        cpu(pid).unwrap();
    }

    #[test]
    fn a_child_that_takes_too_long_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(1)).unwrap().is_none());
        let mut child = Command::new("true").spawn().unwrap();
        assert!(wait(&mut child, Duration::from_secs(60)).unwrap().unwrap().success());
    }
}
