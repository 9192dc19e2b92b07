//! Handles of files, by which they are found without a name: open_by_handle_at(2), and NFS servers that export a mount.

use crate::support::{Pair, is_root, without};
use crate::writing_processes::works;

/// name_to_handle_at(2) and open_by_handle_at(2), which python does not have.
const CALLS: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)

class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]

def handle_of(path):
    handle, mount = Handle(size=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), path)
    return handle

def opened(handle, flags=os.O_RDONLY):
    top = os.open(".", os.O_RDONLY)
    fd = libc.open_by_handle_at(top, ctypes.byref(handle), flags)
    number = ctypes.get_errno()
    os.close(top)
    if fd < 0:
        raise OSError(number, os.strerror(number))
    return fd

def keep(path):
    with open(os.environ["source"] + "/handles/" + os.path.basename(path), "wb") as file:
        file.write(bytes(handle_of(path)))

def kept(name):
    with open(os.environ["source"] + "/handles/" + name, "rb") as file:
        return Handle.from_buffer_copy(file.read())
"#;

/// Goal: a handle leads to the file, whatever its name is by now, also in the next mount; to none when the file is gone, and never
/// to another.
#[test]
fn a_handle_leads_to_its_file_after_a_remount() {
    if !is_root() {
        return without("open_by_handle_at(2) is root's");
    }
    let Some(pair) = Pair::new() else { return };
    let Some(run) = works(&pair, &format!("{CALLS}{BEFORE}")) else { return };
    run.good();
    pair.mount.remount();
    let Some(run) = works(&pair, &format!("{CALLS}{AFTER}")) else { return };
    run.good();
}

const BEFORE: &str = r#"
os.makedirs("a/b/deep")
os.mkdir("handles")
for name in ["a/file", "a/b/moved", "a/b/gone", "a/b/deep/below"]:
    with open(name, "w") as file:
        file.write("this is " + name)
for name in ["a/file", "a/b/moved", "a/b/gone", "a/b/deep", "a/b/deep/below"]:
    keep(name)
assert os.read(opened(kept("file")), 100) == b"this is a/file"
os.rename("a/b/moved", "a/elsewhere")
os.remove("a/b/gone")
with open("a/b/gone", "w") as file:
    file.write("another")
"#;

const AFTER: &str = r#"
# Nobody has looked anything up here.
assert os.read(opened(kept("below")), 100) == b"this is a/b/deep/below"
dir = opened(kept("deep"), os.O_RDONLY | os.O_DIRECTORY)
assert os.listdir(dir) == ["below"]
assert os.readlink("/proc/self/fd/%d" % dir).endswith("/a/b/deep"), os.readlink("/proc/self/fd/%d" % dir)
assert sorted(os.listdir("/proc/self/fd/%d/.." % dir)) == ["deep", "gone"]
for name, said in [("file", b"this is a/file"), ("moved", b"this is a/b/moved")]:
    assert os.read(opened(kept(name)), 100) == said
    with os.fdopen(opened(kept(name), os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(b", and more")
assert open("a/elsewhere").read() == "this is a/b/moved, and more"
try:
    opened(kept("gone"))
    sys.exit("what is gone was opened")
except OSError as error:
    assert error.errno == 116, error
"#;
