//! Content over the mount.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom as At, fallocate, seek};
use rustix::io::Errno as E;

use crate::{Place, over_both};

/// Longest request or answer over rings in bytes.
const RING_BYTES_MAX: u64 = 256 << 10;

impl Place {
    /// What was asked of open files since this was called last.
    fn asked(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.memory.files().asked)
    }

    /// The same by name alone, when all files are closed: that comes after close(2) has ended.
    pub fn asked_until_closed(&self) -> Vec<&'static str> {
        let asked = std::mem::take(&mut self.memory.files_when_closed().asked);
        asked.iter().map(|(what, _)| *what).collect()
    }
}

/// Goal: what is written is read back byte for byte, and no request is longer than its transport carries. Method: more
/// bytes than one request has, at once and at places that do not fit them.
#[test]
fn bytes_that_are_written_are_read_back() {
    over_both(|place| {
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|place| (place ^ place >> 9) as u8).collect();
        let path = place.path("file");
        let mut file = File::create_new(&path).expect("made");
        file.write_all(&bytes).expect("written");
        file.write_all_at(&bytes[..1_000_000], 1_234_567).expect("written");
        drop(file);
        let mut wanted = bytes.clone();
        wanted[1_234_567..2_234_567].copy_from_slice(&bytes[..1_000_000]);
        assert!(fs::read(&path).expect("read") == wanted);

        let writes: Vec<u64> = place.asked().iter().filter(|(what, _)| *what == "write").map(|asked| asked.1).collect();
        assert_eq!(writes.iter().sum::<u64>(), 4_000_001);
        let over_rings =
            place.mounted.as_ref().is_some_and(|mounted| mounted.transport() == weft_fuse::Transport::IoUring);
        let longest = writes.into_iter().max().expect("some");
        assert!(longest > 128 << 10, "long writes come in long requests: {longest}");
        assert!(!over_rings || longest <= RING_BYTES_MAX, "{longest}");

        let mut file = File::options().append(true).open(&path).expect("opened");
        file.write_all(b"more").expect("written");
        let mut file = File::options().read(true).write(true).open(&path).expect("opened");
        file.seek(SeekFrom::Start(3_000_001)).expect("a place");
        let mut end = String::new();
        file.read_to_string(&mut end).expect("read");
        assert_eq!(end, "more");
        place.asked();
        drop(File::create(&path).expect("cut"));
        assert!(place.asked().contains(&("truncate", 0)));
        assert_eq!(fs::read(&path).expect("read"), b"");
    });
}

/// Goal: whoever closes a file that it wrote is told when the bytes did not arrive, and whoever only read asks nothing.
/// Method: a program that looks at what its close(2) gives.
#[test]
fn close_tells_what_the_flush_ended_with() {
    over_both(|place| {
        let path = place.path("file");
        let source = tempfile::NamedTempFile::new().expect("a file");
        fs::write(source.path(), "text").expect("written");
        let write = || {
            let output = Command::new("cp").arg(source.path()).arg(&path).output().expect("cp runs");
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert!(write().0);
        place.asked_until_closed();
        for (errno, words) in [(E::DQUOT, "Disk quota exceeded"), (E::IO, "Input/output error")] {
            place.memory.files().flush_fails = Some(errno);
            let (succeeded, said) = write();
            assert!(!succeeded && said.contains(words), "{said}");
        }
        place.asked_until_closed();
        let file = File::options().write(true).open(&path).expect("opened");
        file.sync_all().expect("synced");
        assert_eq!(place.asked(), [("sync", 0)]);
        drop(file);
        assert_eq!(place.asked_until_closed(), ["flush", "close"]);
        drop(File::open(&path).expect("opened"));
        assert_eq!(place.asked_until_closed(), ["close"]);
        File::open(place.path("")).expect("the root").sync_all().expect("synced");
        assert_eq!(place.asked(), [("sync directory", 1)]);
    });
}

#[test]
fn room_and_holes_are_made_and_found() {
    over_both(|place| {
        let path = place.path("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("made");
        file.write_all_at(&[1; 100], 0).expect("written");
        let length = || fs::metadata(&path).expect("there").len();
        let keep = FallocateFlags::KEEP_SIZE;
        fallocate(&file, keep, 50, 100).expect("reserved");
        assert_eq!(length(), 100);
        fallocate(&file, FallocateFlags::empty(), 50, 100).expect("extended");
        assert_eq!(length(), 150);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 10, 10).expect("punched");
        fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 30, 10).expect("zeroed");
        fallocate(&file, FallocateFlags::ZERO_RANGE, 149, 51).expect("zeroed");
        assert_eq!(length(), 200);
        assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(E::OPNOTSUPP));
        let mut wanted = [vec![1; 100], vec![0; 100]].concat();
        wanted[10..20].fill(0);
        wanted[30..40].fill(0);
        assert_eq!(fs::read(&path).expect("read"), wanted);

        let found = [At::Hole(0), At::Data(10), At::Hole(20), At::Hole(199)].map(|at| seek(&file, at));
        assert_eq!(found, [Ok(10), Ok(20), Ok(30), Ok(199)]);
        assert_eq!([At::Data(100), At::Data(5000), At::Hole(5000)].map(|at| seek(&file, at)), [Err(E::NXIO); 3]);
    });
}

/// Goal: who may not keep set-id bits takes them off by writing and by cutting. Method: a program without the right.
#[test]
fn set_id_bits_go_with_a_write_of_somebody_without_rights() {
    over_both(|place| {
        let path = place.path("file");
        let mode = || std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).expect("there")) & 0o7777;
        for script in ["echo x >> \"$0\"", ": > \"$0\""] {
            fs::write(&path, "text").expect("a file");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o6777)).expect("set");
            let shell = ["--bounding-set", "-fsetid", "sh", "-c", script];
            let Ok(output) = Command::new("setpriv").args(shell).arg(&path).output() else {
                return eprintln!("skipped: there is no setpriv");
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(mode(), 0o777, "{script}");
        }
    });
}
