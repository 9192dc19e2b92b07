//! Hosts that forbid io_uring in part or as a whole.

use std::os::unix::process::CommandExt;
use std::process::Command;

use weft_fusedev::{RingError, RingLimits, Session, Transport, Wanted, unmount};

use super::served::{FILE_BYTES, Memory, mounted_device};
use super::{can_mount, over_rings};

/// Words that run a program without some system calls: each fails with this error. (By a filter of seccomp(2), which
/// this Perl writes in a few instructions: it needs no more rights than root's.) `None` on machines whose numbers are not
/// known here.
fn without_calls(errno: i32, calls: &[u32]) -> Option<Vec<String>> {
    let prctl = match std::env::consts::ARCH {
        "x86_64" => "157",
        "aarch64" => "167",
        _ => return None,
    };
    let calls: Vec<_> = calls.iter().map(u32::to_string).collect();
    Some(["perl", "-e", FILTER, prctl, &errno.to_string(), &calls.join(",")].map(str::to_owned).to_vec())
}

const FILTER: &str = r#"
my ($prctl, $errno, $calls, @program) = @ARGV;
my @calls = split /,/, $calls;
my $filter = pack("SCCL", 0x20, 0, 0, 0);
for (0 .. $#calls) { $filter .= pack("SCCL", 0x15, $#calls - $_ + 1, 0, $calls[$_]) }
$filter .= pack("SCCL", 0x06, 0, 0, 0x7fff0000) . pack("SCCL", 0x06, 0, 0, 0x00050000 | $errno);
my $program = pack("S x6 P", @calls + 3, $filter);
syscall($prctl + 0, 22, 2, $program) == 0 or die "no filter: $!";
exec @program or die $!;
"#;

/// Goal: where io_uring is forbidden, from its first call on or from one of those that come after the kernel is told of
/// rings, and where locked memory does not suffice, requests come over the device, the
/// reason is told with what to do, and nobody waits. Method: processes with such limits, each of which mounts.
#[test]
fn rings_that_cannot_be_had_leave_the_device() {
    over_rings(|| {
        let this = std::env::current_exe().expect("this program");
        let forbidden = |calls: &[u32], errno| without_calls(errno, calls);
        // The capability goes by which locked memory is not counted.
        let poor = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit", "--memlock=0:0"];
        let cases = [
            (forbidden(&[IO_URING_SETUP], EPERM), "kernel.io_uring_disabled"),
            (forbidden(&[IO_URING_SETUP], ENOSYS), "has no io_uring"),
            (forbidden(&[IO_URING_ENTER], EPERM), "io_uring_enter"),
            (forbidden(&[IO_URING_REGISTER], EPERM), "io_uring_register"),
            (Some(poor.map(str::to_owned).to_vec()), "LimitMEMLOCK"),
        ];
        for (words, why) in cases {
            let Some(words) = words else {
                eprintln!("skipped: the numbers of system calls of this machine are not known here");
                continue;
            };
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&this).args(["--exact", "host::mounts_here", "--ignored", "--nocapture"]);
            let output = command.env("FUSEDEV_WHY", why).process_group(0).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
            said.lines().filter(|line| line.contains(why)).for_each(|line| println!("{line}"));
        }
    });
}

/// In a process with limits: mounts, with rings if they can be had, which they cannot.
#[test]
#[ignore = "is started by another test, in a process of its own"]
fn mounts_here() {
    let why = std::env::var("FUSEDEV_WHY").expect("it is told what to expect");
    let refused = RingError::check().expect_err("there are no rings here").to_string();
    assert!(refused.contains(&why), "{refused}");
    println!("{refused}");

    let (directory, device) = mounted_device();
    let begun = Session::begin_over(device, &Wanted::default(), Transport::IoUring, RingLimits::default());
    unmount(directory.path(), true).expect("unmounted");
    let error = begun.expect_err("it is to be io_uring and cannot").to_string();
    assert!(error.contains(&why), "{error}");

    let (directory, device) = mounted_device();
    let session = Session::begin_over(device, &Wanted::default(), Transport::Auto, RingLimits::default());
    let session = session.expect("it begins without rings");
    let missing = session.rings_missing().map(ToString::to_string);
    let serving = session.serve(Memory::new(), 1, "test").expect("threads start");
    let length = std::fs::metadata(directory.path().join("file")).map(|file| file.len());
    unmount(directory.path(), true).expect("unmounted");
    assert_eq!(length.expect("it is answered"), FILE_BYTES);
    assert!(missing.is_some_and(|missing| missing.contains(&why)) && !serving.has_rings());
    serving.join().expect("it ends");
}

/// Goal: a switch that is set back after a connection began does not take its rings away.
#[test]
fn rings_stay_when_they_are_no_longer_offered() {
    if !can_mount() {
        return;
    }
    let Some(_switch) = super::Switch::alone() else { return };
    super::set_switch("Y");
    if let Err(why) = RingError::check() {
        return eprintln!("skipped: {why}");
    }
    let (directory, device) = mounted_device();
    let begun = Session::begin_over(device, &Wanted::default(), Transport::IoUring, RingLimits::default());
    super::set_switch("N");
    let outcome = begun.map(|session| {
        let serving = session.serve(Memory::new(), 1, "test").expect("threads start");
        let length = std::fs::metadata(directory.path().join("file")).map(|file| file.len());
        (serving.has_rings(), length, serving)
    });
    unmount(directory.path(), true).expect("unmounted");
    let (has_rings, length, serving) = outcome.expect("it begins");
    assert!(has_rings && length.is_ok_and(|length| length == FILE_BYTES));
    serving.join().expect("it ends");
}

const IO_URING_SETUP: u32 = 425;
const IO_URING_ENTER: u32 = 426;
const IO_URING_REGISTER: u32 = 427;
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
