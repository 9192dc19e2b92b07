//! Signals to those who wait for what is never answered.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use weft_fusedev::RingLimits;

use super::over_both;
use super::served::Mounted;

/// What waits, and the name that it waits for.
const WAITS: [(&str, &str); 6] = [
    ("lookup", "dead"),
    ("open", "stuck-open"),
    ("read", "stuck-read"),
    ("readdir", "stuck-list"),
    ("write", "stuck-write"),
    ("fsync", "stuck-sync"),
];

/// A program that Ctrl-C ends, also where these tests were started by something that ignores it (which is inherited).
pub fn interruptible(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program]);
    command
}

/// A process that does one thing with a path, and says with which error it came back. It catches SIGINT, so that its
/// call comes back, or leaves it as it is. (In Perl, whose handlers do not have calls begin anew.)
fn caller(what: &str, path: &Path, catches: bool) -> Option<Child> {
    let mut command = interruptible("perl");
    command.args(["-e", CALLER, what]).arg(path).arg(if catches { "catch" } else { "" });
    match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => Some(child),
        Err(why) => {
            eprintln!("skipped: perl does not run: {why}");
            None
        }
    }
}

const CALLER: &str = r#"
use Fcntl; use IO::Handle;
my ($what, $path, $catches) = @ARGV;
$SIG{INT} = sub {} if $catches;
my ($file, $bytes);
my %begin = (read => O_RDONLY, write => O_WRONLY, fsync => O_RDONLY);
if (exists $begin{$what}) { sysopen($file, $path, $begin{$what}) or die }
if ($what eq "readdir") { opendir($file, $path) or die }
$! = 0;
if ($what eq "lookup") { stat($path) }
if ($what eq "open") { sysopen($file, $path, O_RDONLY) }
if ($what eq "read") { sysread($file, $bytes, 100) }
if ($what eq "readdir") { my $name = readdir($file) }
if ($what eq "write") { syswrite($file, "x") }
if ($what eq "fsync") { $file->sync }
print $! + 0;
"#;

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("a child of ours");
}

/// Goal: in both transports, who waits for any of these comes back with EINTR when it catches a signal, and ends by it
/// when it does not, with no answer but that to the interrupt.
#[test]
fn a_signal_ends_every_wait() {
    over_both(|transport| {
        for (what, name) in WAITS {
            for catches in [true, false] {
                let mounted = Mounted::new(transport, RingLimits::default());
                let Some(child) = caller(what, &mounted.path(name), catches) else { return };
                mounted.memory.wait_for_waiting(1);
                let begun = Instant::now();
                interrupt(&child);
                let output = child.wait_with_output().expect("a child of ours");
                println!("{transport}, {what}, caught: {catches}: {:?}", begun.elapsed());
                match catches {
                    true => assert_eq!(output.stdout, EINTR.as_bytes(), "{transport}, {what}: {output:?}"),
                    false => assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{transport}, {what}"),
                }
                assert_eq!((mounted.memory.interrupted(), mounted.memory.release()), (1, 0), "{transport}, {what}");
            }
        }
    });
}

/// Goal: known, since others rest on it: the kernel does not tell of signals of those who wait for pages that are being
/// read. A process that is killed by one ends all the same, and its request stays.
#[test]
fn a_signal_that_kills_ends_a_wait_for_pages_and_nobody_is_told() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        let Some(child) = caller("read", &mounted.path("stuck-pages"), false) else { return };
        mounted.memory.wait_for_waiting(1);
        interrupt(&child);
        let output = child.wait_with_output().expect("a child of ours");
        assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{transport}: {output:?}");
        assert_eq!(mounted.memory.interrupted(), 0);
        assert!(mounted.memory.release() > 0, "{transport}: what it asked for waits on");
    });
}

const EINTR: &str = "4";
