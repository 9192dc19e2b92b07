//! POSIX access lists of a directory that is mounted for several users.
//!
//! The same is done in a directory of the same file system and in the mount: whatever somebody may, may not, or finds set,
//! must be the same in both.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

use crate::interrupts::wait_until;
use crate::support::{Pair, Program, is_root, without};

/// What is tried by whom, as lines of `who what: outcome`.
const TRIALS: &str = r#"
    as() { who=$1; shift; setpriv --reuid=$who --regid=$who --groups=$groups "$@"; }
    try() {
        if as $1 bash -c "umask 022; $2" >/dev/null 2>$told/errors; then said=yes; else said=no; fi
        echo "$1 ($groups) $2: $said"
    }
    # Of everybody: the user and the group that a list names, one in the owning group, one that no list names.
    everybody() { for by in 1001:1001 1002:2002 1003:2003 1004:1004; do groups=${by#*:}; try ${by%:*} "$1"; done; }
    lists() { find "$1" -print0 | LC_ALL=C sort -z | xargs -0 getfacl -P -n -p; }
"#;

fn pair() -> Option<Pair> {
    if !is_root() {
        without("only root can become other users");
        return None;
    }
    if Program::new("setfacl").arg("--version").run().code != Some(0) {
        without("there is no setfacl (scripts/install-test-deps.sh)");
        return None;
    }
    Pair::new()
}

/// Runs a script in a folder of the mount and in one beside it, and asserts that both say the same. Returns what they said.
fn same(pair: &Pair, script: &str) -> String {
    let reference = pair.there("reference");
    std::fs::create_dir(&reference).expect("made");
    let run = |place: &str| {
        let text = format!("told=$(mktemp -d)\nchmod 0777 $told\n{TRIALS}\nmkdir -p {place}\ncd {place}\n{script}");
        pair.script(&text)
    };
    let (there, here) = (run("$source/reference/work"), run("shown/work"));
    let other = there.lines().zip(here.lines()).find(|(there, here)| there != here);
    assert!(there == here, "the directory itself and the mount: {other:?}\n{here}");
    assert!(there.lines().count() > 3, "{there}");
    here
}

/// Goal: who is named by a list may what it says, and the owning group no more than its own entry: not what stands in the mode,
/// which is the mask.
#[test]
fn a_list_says_who_may() {
    let Some(pair) = pair() else { return };
    let said = same(
        &pair,
        "echo text >file; chown 0:2003 file; chmod 0600 file; setfacl -m u:1001:rw,g:2002:r file
        mkdir dir; chown 0:2003 dir; chmod 0700 dir; echo text >dir/in; setfacl -m u:1001:rwx,g:2002:rx dir
        echo text >masked; setfacl -m u:1001:rw,m::r masked
        echo text >others; chmod 0604 others; chown 0:2003 others; setfacl -m u:1001:- others
        mkfifo pipe; chmod 0600 pipe; setfacl -m u:1001:r pipe
        everybody 'cat file'; everybody 'echo x >>file'; everybody 'ls dir'; everybody 'cat dir/in'
        everybody 'echo x >dir/new$EUID'; everybody 'cat masked'; everybody 'echo x >>masked'; everybody 'cat others'
        everybody 'test -r pipe'; everybody 'chmod 0666 file'; everybody 'setfacl -m u:1003:rw file'
        everybody 'getfacl -n file'; lists .; ls -l | cut -c1-11,53-",
    );
    for (what, is_allowed) in [
        ("1001 (1001) cat file", true),
        ("1002 (2002) cat file", true),
        ("1003 (2003) cat file", false),
        ("1004 (1004) cat file", false),
        ("1001 (1001) echo x >>masked", false),
        ("1003 (2003) cat others", false),
    ] {
        let line = format!("{what}: {}", if is_allowed { "yes" } else { "no" });
        assert!(said.lines().any(|told| told == line), "{line}\n{said}");
    }
}

/// Goal: what is made in a directory with a default list gets that, and none of what it does not allow; elsewhere the umask
/// counts.
#[test]
fn what_is_made_gets_the_default_list() {
    let Some(pair) = pair() else { return };
    same(
        &pair,
        "mkdir plain shared closed; chmod 0777 plain shared closed
        setfacl -d -m u:1001:rwx,g:2002:rx,g::-,o::- shared; setfacl -d -m u::rw,g::r,o::- closed
        for dir in plain shared closed; do for mask in 022 077 000; do
            (umask $mask; echo x >$dir/file$mask; mkdir $dir/dir$mask; mkfifo $dir/pipe$mask; install -m 0751 /dev/null $dir/set$mask
            echo x >$dir/dir$mask/inner)
        done; done
        groups=1001; as 1001 bash -c 'umask 027; echo x >shared/by; mkdir shared/bydir; echo x >plain/by; mkdir plain/bydir'
        cp plain/by shared/copied; mv plain/file022 shared/moved; cp -a shared/file022 plain/kept
        everybody 'cat shared/file022'; everybody 'cat closed/file022'; everybody 'echo x >>shared/dir022/inner'
        lists .; find . | LC_ALL=C sort | xargs stat -c '%n %a %u:%g'",
    );
    // The same holds for what is made without a name, and gets one.
    let named = |place: &Path, dir: &str| {
        let dir = place.join(dir);
        let made = rustix::fs::open(&dir, OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o666)).expect("made");
        let held = format!("/proc/self/fd/{}", made.as_raw_fd());
        linkat(CWD, held, CWD, dir.join("nameless"), AtFlags::SYMLINK_FOLLOW).expect("named");
        std::fs::metadata(dir.join("nameless")).expect("it is there").permissions().mode() & 0o7777
    };
    for (dir, mode) in [("closed", 0o640), ("shared", 0o660), ("plain", 0o644)] {
        let modes = [pair.there("reference/work"), pair.at("shown/work")].map(|place| named(&place, dir));
        assert_eq!(modes, [mode; 2], "{dir}");
    }
}

/// Goal: lists are set, changed and taken away through the mount as in the directory, by whom it belongs to, and the mode and
/// the mask are one.
#[test]
fn lists_are_set_through_the_mount() {
    let Some(pair) = pair() else { return };
    same(
        &pair,
        "chmod 0777 .; groups=1001; as 1001 bash -c 'umask 022; echo x >file; mkdir dir; echo x >dir/in'
        modes() { stat -c '%n %a' file dir; lists .; }
        as 1001 setfacl -m u:1002:rw file; as 1001 setfacl -d -m g:2002:rwx dir; modes; as 1001 chmod 0640 file; modes
        as 1001 chmod g+w file; as 1001 setfacl -m m::r file; modes; everybody 'echo x >>file'
        as 1001 setfacl -x u:1002 file; modes; as 1001 setfacl -b file; as 1001 setfacl -k dir; modes; as 1001 setfacl -b file
        cp /bin/true run; chown 1001:2003 run; chmod 02755 run; as 1001 setfacl -m u:1002:rx run; stat -c '%n %a' run
        mkdir set; chown 1001:2003 set; chmod 02775 set; as 1001 setfacl -m u:1002:rx set; stat -c '%n %a' set
        cp run by; chown 1001:2003 by; chmod 02644 by; groups=1001,2003; as 1001 setfacl -m u:1002:rx by; stat -c '%n %a' by
        try 1001 'setfacl -d -m u:1002:rw file'; try 1001 'setfacl -m u:1002:rw nothing'; ln -s file link
        try 1001 'setfacl -m u:1003:r link'; modes; rm -r dir",
    );
}

/// Goal: a list that is set in the directory itself counts in the mount at once, also for what the kernel knows already.
#[test]
fn a_list_that_is_set_beside_the_mount_counts() {
    let Some(pair) = pair() else { return };
    pair.script("echo text >file; chmod 0644 file; mkdir dir; echo text >dir/in; chmod 0755 dir");
    let may = |path: &str| {
        let read = format!("setpriv --reuid=1001 --regid=1001 --clear-groups cat {path}");
        pair.try_script(&read).code == Some(0)
    };
    for path in ["file", "dir/in"] {
        assert!(may(path), "{path}");
        let listed = path.split('/').next().expect("a name");
        let set = |words: &str| Program::new("setfacl").args(words.split(' ')).arg(pair.there(listed)).good();
        set("-m u:1001:-");
        wait_until("what the list says", || !may(path));
        set("-b");
        wait_until("what the mode says", || may(path));
    }
}
