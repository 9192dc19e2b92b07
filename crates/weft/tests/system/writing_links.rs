//! Files that lose one of several names, or their last one, while they are open.

use crate::support::Pair;
use crate::writing_processes::works;

/// Goal: who takes a lock by link(2) and gives it back by unlink(2) has it each time, and the number of names is right.
#[test]
fn a_lock_file_is_taken_and_given_back() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import os
open("mine", "w").close()
for _ in range(40):
    os.link("mine", "lock")
    assert os.stat("mine").st_nlink == 2 == os.stat("lock").st_nlink
    os.unlink("lock")
    assert os.stat("mine").st_nlink == 1
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: an open file that has lost the name by which it was opened, and has another, bears all that is done by its descriptor,
/// at once and at its source; and when it has lost all, what is done stays with who has it open.
#[test]
fn an_open_file_loses_its_names_one_by_one() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import os
source = os.environ["source"]
open("a", "w").write("abc")
os.link("a", "b")
file = os.open("a", os.O_RDWR)
os.unlink("a")
os.fchmod(file, 0o601)
os.utime(file, (5, 6))
os.setxattr(file, "user.k", b"v")
assert os.getxattr(file, "user.k") == b"v"
assert "user.k" in os.listxattr(file)
os.removexattr(file, "user.k")
os.ftruncate(file, 2)
os.write(file, b"ZZ")
os.fsync(file)
os.close(file)
told = os.stat(source + "/b")
assert told.st_mode & 0o7777 == 0o601 and told.st_nlink == 1, told
assert open(source + "/b").read() == "ZZ"

for known in [False, True]:
    file = os.open("b", os.O_RDWR)
    os.write(file, b"11")
    os.link("b", "c")
    if known:
        os.stat("c")
    os.unlink("b")
    os.unlink("c")
    assert os.fstat(file).st_nlink == 0, os.fstat(file)
    os.write(file, b"22")
    os.fsync(file)
    assert os.pread(file, 9, 0) == b"1122"
    os.close(file)
    open("b", "w").write("abc")
os.unlink("b")
assert os.listdir(source) == []
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    assert!(pair.mount.verb("unsent", [pair.mount.dir()]).out.contains("is at its source"));
    pair.agree();
}

/// Goal: the extended attributes of an open file stay with it when it has lost its last name, by a removal or because another
/// has taken it; those of a directory are none then.
#[test]
fn an_open_file_without_a_name_keeps_its_attributes() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import errno, os
for how in ["removed", "replaced"]:
    open("f", "w").write("abc")
    os.setxattr("f", "user.k", b"v")
    file = os.open("f", os.O_RDWR)
    if how == "removed":
        os.unlink("f")
    else:
        open("other", "w").close()
        os.rename("other", "f")
    assert os.getxattr(file, "user.k") == b"v"
    os.setxattr(file, "user.more", b"w")
    assert {"user.k", "user.more"} <= set(os.listxattr(file))
    os.removexattr(file, "user.k")
    try:
        os.getxattr(file, "user.k")
        raise AssertionError("it was taken away")
    except OSError as error:
        assert error.errno == errno.ENODATA, error
    os.close(file)
os.unlink("f")
os.mkdir("d")
file = os.open("d", os.O_RDONLY)
os.rmdir("d")
assert not [name for name in os.listxattr(file) if not name.startswith("user.weft.")]
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: who is in a directory that was removed here lists it: it is empty.
#[test]
fn a_directory_that_was_removed_is_listed_by_who_is_in_it() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import os
os.mkdir("d")
open("d/f", "w").close()
os.chdir("d")
assert os.listdir(".") == ["f"]
os.unlink("f")
os.rmdir("../d")
assert os.listdir(".") == []
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: weft's own attributes are not set or removed, and one that there is none of is not there.
#[test]
fn wefts_own_attributes_are_nobodys_to_change() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import errno, os
open("f", "w").close()
def fails(error, act):
    try:
        act()
        raise AssertionError("it was done")
    except OSError as failed:
        assert failed.errno == error, failed
fails(errno.EACCES, lambda: os.setxattr("f", "user.weft.none", b"v"))
fails(errno.EACCES, lambda: os.removexattr("f", "user.weft.freshness"))
fails(errno.ENODATA, lambda: os.removexattr("f", "user.weft.none"))
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}

/// Goal: a change that leaves no other bytes and no other length sets the times all the same, here and at the source.
#[test]
fn what_is_cut_to_the_length_that_it_has_is_changed() {
    let Some(pair) = Pair::new() else { return };
    let text = r#"
import os
source = os.environ["source"]
def by_descriptor(name, length):
    file = os.open(name, os.O_RDWR)
    os.ftruncate(file, length)
    os.close(file)
ways = [
    (0, lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
    (0, lambda: os.truncate("f", 0)),
    (3, lambda: os.truncate("f", 3)),
    (3, lambda: by_descriptor("f", 3)),
]
for length, change in ways:
    open("f", "wb").write(b"x" * length)
    os.utime("f", (1000, 1000))
    assert os.stat("f").st_mtime == 1000
    change()
    for path in ["f", source + "/f"]:
        told = os.stat(path)
        assert told.st_mtime > 1000000 and told.st_size == length, (length, path, told)
file = os.open("f", os.O_RDWR)
os.write(file, b"y")
written = os.fstat(file).st_mtime_ns
os.ftruncate(file, 3)
assert os.fstat(file).st_mtime_ns >= written
"#;
    let Some(program) = works(&pair, text) else { return };
    program.good();
    pair.agree();
}
