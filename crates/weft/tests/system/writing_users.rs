//! Other users in a mount that is open to all.

use crate::support::{Pair, is_root, without};
use crate::writing_processes::works;

/// Goal: an ordinary user may in the mount what the modes say and no more, and what is made is that user's, by umask and
/// by directories that hand their group on; the source says the same.
#[test]
fn an_ordinary_user_may_what_the_modes_say() {
    if !is_root() {
        return without("only root can become another user");
    }
    let Some(pair) = Pair::new() else { return };
    pair.script(
        "echo root >of_root; chmod 0644 of_root; echo secret >secret; chmod 0600 secret
        echo group >of_group; chgrp 2 of_group; chmod 0660 of_group
        mkdir -m 0777 open; mkdir -m 0755 closed; mkdir -m 01777 sticky; mkdir shared; chown 0:2 shared
        chmod 02777 shared; mkdir -m 0700 shut; echo inside >shut/inside; chmod 0644 shut/inside
        echo theirs >sticky/of_root; chmod 0666 sticky/of_root",
    );
    let said = pair.script(
        "cat >$beside/nobody.sh <<'END'
        no() { if eval \"$1\" 2>>errors; then echo \"was allowed: $1\" >&2; exit 1; fi; }
        cd open; umask 022
        echo mine >file; mkdir folder; ln -s file link; mkfifo pipe; echo more >>file; test \"$(cat file)\" = \"mine
more\"
        (umask 027; echo x >by_umask; mkdir dir_by_umask); (umask 0; echo x >by_no_umask)
        chmod 0640 file; touch -d 2001-01-01 file; mv file moved; ln moved linked; chgrp 2 linked
        cat ../of_root; no 'echo x >>../of_root'; no 'cat ../secret'; no 'chmod 0666 ../of_root'
        no 'chown 65534 ../of_root'; no 'touch -d 2001-01-01 ../of_root'; no 'truncate -s 0 ../of_root'
        no 'echo x >../closed/new'; no 'mkdir ../closed/new'; no 'rm -f ../of_root'; no 'mv ../of_root ../open'
        no 'cat ../shut/inside'; no 'ls ../shut'; no 'chown 0 moved'; no 'chgrp 0 moved'
        echo x >>../sticky/of_root; no 'rm -f ../sticky/of_root'; no 'mv ../sticky/of_root ../open/'
        echo mine >../sticky/mine; rm ../sticky/mine
        echo x >>../of_group; cat ../of_group
        echo x >../shared/file; mkdir ../shared/folder; echo x >../shared/folder/file
        cp $of_suid suid; chmod 04755 suid; echo x >>suid
        cd ..; grep -vc denied open/errors | cat; grep -v denied open/errors | cut -d: -f1,3-
END
        cp open/../of_root $beside/suid; chmod 0755 $beside/suid; export of_suid=$beside/suid
        chmod 0644 $beside/nobody.sh
        setpriv --reuid=65534 --regid=65534 --groups=2 bash -eu $beside/nobody.sh",
    );
    println!("{said}");
    let facts = pair.script("cd $source; stat -c '%n %a %u:%g' open/* shared/* shared/folder/file of_root of_group");
    let wanted = "open/by_no_umask 666 65534:65534\nopen/by_umask 640 65534:65534\nopen/dir_by_umask 750 65534:65534\n\
        open/errors 644 65534:65534\nopen/folder 755 65534:65534\nopen/link 777 65534:65534\nopen/linked 640 65534:2\n\
        open/moved 640 65534:2\nopen/pipe 644 65534:65534\nopen/suid 755 65534:65534\nshared/file 644 65534:2\n\
        shared/folder 2755 65534:2\nshared/folder/file 644 65534:2\nof_root 644 0:0\nof_group 660 0:2\n";
    assert_eq!(facts, wanted);
    assert_eq!(std::fs::read_to_string(pair.there("of_root")).expect("read"), "root\n");
    pair.agree();
}

/// Goal: what is made has the group of whoever makes it, root as well, or that of a directory that hands its group on; so has
/// what is made without a name and gets one, with its own set-id bits.
#[test]
fn what_is_made_has_its_makers_group_or_the_directorys() {
    if !is_root() {
        return without("only root can be in another group");
    }
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
source = os.environ["source"]
for folder, mode in [("plain", 0o777), ("shared", 0o2777)]:
    os.mkdir(folder)
    os.chown(folder, 0, 77)
    os.chmod(folder, mode)
os.setgid(65534)
for folder, gid in [("plain", 65534), ("shared", 77)]:
    at = lambda name: folder + "/" + name
    os.mkfifo(at("pipe"))
    os.mkdir(at("folder"))
    open(at("file"), "w").close()
    os.symlink("to", at("link"))
    nameless = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o2770)
    assert os.fstat(nameless).st_gid == gid, os.fstat(nameless)
    link = libc.linkat(-100, f"/proc/self/fd/{nameless}".encode(), -100, at("named").encode(), 0x400)
    assert link == 0, os.strerror(ctypes.get_errno())
    for name in ["pipe", "folder", "file", "link", "named"]:
        for path in [at(name), source + "/" + at(name)]:
            told = os.lstat(path)
            assert (told.st_uid, told.st_gid) == (0, gid), (path, told)
    assert os.stat(source + "/" + at("named")).st_mode & 0o7777 == os.fstat(nameless).st_mode & 0o7777 == 0o2750
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: a file that is immutable in the directory is refused when it is opened, with the errno of a local disk, and one that
/// can only grow (a log, chattr +a) is opened to be appended to alone: what is added is in the directory.
#[test]
fn a_file_that_may_only_grow_grows_and_one_that_may_not_change_is_refused_at_the_open() {
    let Some(pair) = Pair::new() else { return };
    pair.script("echo begun >log; echo fixed >fixed; echo plain >plain");
    let marked = pair.script(
        "cd $source; { chattr +a log && chattr +i fixed; } 2>&1 || { chattr -a log; chattr -i fixed; echo unmarked; } 2>&1",
    );
    if !marked.is_empty() {
        return without("chattr, or a file system that has its marks, or root's rights");
    }
    let text = r#"
import errno, os
def refused(number, what, *words):
    try:
        what(*words)
    except OSError as error:
        assert error.errno == number, (what, words, error)
        return
    raise AssertionError(("allowed", what, words))
for how in [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND]:
    refused(errno.EPERM, os.open, "fixed", how)
for how in [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND | os.O_TRUNC]:
    refused(errno.EPERM, os.open, "log", how)
for name in ["fixed", "log"]:
    refused(errno.EPERM, os.truncate, name, 1)
    refused(errno.EPERM, os.unlink, name)
    refused(errno.EPERM, os.rename, name, "moved")
    refused(errno.EPERM, os.chmod, name, 0o600)
for line in ["one", "two"]:
    with open("log", "a") as log:
        log.write(line + "\n")
        log.flush()
        os.fsync(log.fileno())
        log.write("and more\n")
"#;
    let ran = works(&pair, text).map(|program| program.run());
    let state = pair.script("cat log fixed; cat $source/log");
    pair.script("cd $source; chattr -a log; chattr -i fixed");
    let Some(outcome) = ran else { return };
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let log = "begun\none\nand more\ntwo\nand more\n";
    assert_eq!(state, format!("{log}fixed\n{log}"));
    pair.agree();
}

/// Goal: set-id bits go by a chown(2) that names neither owner nor group, where the file is its caller's.
#[test]
fn set_id_bits_go_by_a_chown_that_names_nobody() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import os
def kept(mode):
    os.chmod("f", mode)
    os.chown("f", -1, -1)
    return os.stat("f").st_mode & 0o7777
open("f", "w").close()
assert kept(0o6777) == 0o777
assert kept(0o2767) == 0o2767
os.mkdir("d")
os.chmod("d", 0o6777)
os.chown("d", -1, -1)
assert os.stat("d").st_mode & 0o7777 == 0o6777
if os.getuid() == 0:
    os.chmod("f", 0o4777)
    if os.fork() == 0:
        os.setuid(1001)
        try:
            os.chown("f", -1, -1)
        finally:
            os._exit(0)
    os.wait()
    assert os.stat("f").st_mode & 0o7777 == 0o4777, "it is not theirs"
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}
