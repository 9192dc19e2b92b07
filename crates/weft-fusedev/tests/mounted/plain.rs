//! Everyday requests.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use weft_fusedev::RingLimits;

use super::over_both;
use super::served::{Mounted, NAMES, begin, check_bytes};

/// Goal: requests of every shape (no argument, a structure, a name, both, long data each way) arrive and are answered.
#[test]
fn everyday_requests_are_answered() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        assert_eq!(
            std::fs::metadata(mounted.path("nothing")).map_err(|error| error.kind()).err(),
            Some(ErrorKind::NotFound)
        );
        assert!(std::fs::metadata(mounted.path("later")).expect("answered elsewhere").is_file());
        assert_eq!(std::fs::read_link(mounted.path("link")).expect("a link").as_os_str(), "file");
        let mut names: Vec<_> = std::fs::read_dir(mounted.directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("a name").file_name())
            .collect();
        names.sort();
        let mut known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
        for name in ["file", "other", "link", "stored"] {
            check_bytes(&mounted.path(name));
        }

        let long: Vec<u8> = (0..1_000_003u32).map(|place| (place % 251) as u8).collect();
        std::fs::write(mounted.path("note"), &long).expect("written");
        assert!(std::fs::read(mounted.path("note")).expect("read") == long, "what was written is what is read");
        let note = std::fs::File::options().write(true).open(mounted.path("note")).expect("opened");
        note.write_all_at(b"short", 12).expect("written");
        assert_eq!(
            &std::fs::read(mounted.path("note")).expect("read")[10..18],
            &[10, 11, b's', b'h', b'o', b'r', b't', 17]
        );

        let mut value = [0u8; 8192];
        let length = rustix::fs::getxattr(mounted.path("note"), "user.long", &mut value[..]).expect("an attribute");
        assert_eq!(&value[..length], [b'x'; 5000]);
        let error = std::fs::create_dir(mounted.path("panic")).expect_err("the handler panics");
        assert_eq!(error.raw_os_error(), Some(5));
        let counts = mounted.serving().counts();
        assert_eq!((counts.malformed, counts.refused, counts.unknown), (0, 0, 0));
    });
}

/// Goal: many threads at once, on all CPUs, get their own answers and no other's.
#[test]
fn answers_go_to_those_who_asked() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits { entries: 16 });
        std::thread::scope(|scope| {
            for number in 0..8u64 {
                let mounted = &mounted;
                scope.spawn(move || {
                    let file = std::fs::File::open(mounted.path("other")).expect("opened");
                    for round in 0..200 {
                        let place = (number * 7919 + round * 104_729) % super::served::FILE_BYTES;
                        let mut byte = [0];
                        file.read_exact_at(&mut byte, place).expect("read");
                        assert_eq!(byte[0], super::served::byte_at(place));
                        let size = std::fs::metadata(mounted.path("later")).expect("answered elsewhere").len();
                        assert_eq!(size, super::served::FILE_BYTES);
                    }
                });
            }
        });
        assert_eq!(mounted.serving().counts().refused, 0);
    });
}

/// Goal: bytes that lie in a file go from there to the kernel, few or many, from any place; what the file does not have
/// is told, and spoils no other answer. Method: several threads, and a file that is cut in between.
#[test]
fn bytes_of_a_file_are_answered_from_it() {
    over_both(|transport| {
        let mounted = Mounted::new(transport, RingLimits::default());
        let read = |place: u64, length: usize| {
            let file = std::fs::File::open(mounted.path("stored")).expect("opened");
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, place).map(|()| bytes)
        };
        let check = |seed: u64| {
            for round in 0..40 {
                let length = [1, 4096, 16_383, 16_384, 100_001, 131_072, 1 << 20][(seed + round) as usize % 7];
                let place = (seed * 7919 + round * 104_729) % (super::served::FILE_BYTES - length);
                let bytes = read(place, length as usize).expect("read");
                assert!((place..).zip(bytes).all(|(place, byte)| byte == super::served::byte_at(place)));
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || check(seed))).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        mounted.memory.stored.set_len(1 << 20).expect("cut");
        for (place, length) in [((1 << 20) - 50_000, 100_000), (2 << 20, 5000)] {
            let error = read(place, length).expect_err("it is not there");
            assert_eq!(error.raw_os_error(), Some(super::served::NOT_STORED));
            let before = read(1000, 200_000).expect("read");
            assert!((1000..).zip(before).all(|(place, byte)| byte == super::served::byte_at(place)));
        }
        assert_eq!(mounted.serving().counts().refused, 0);
    });
}

/// Goal: who asks before anybody serves is answered when somebody does.
#[test]
fn requests_made_before_it_is_served_are_answered() {
    over_both(|transport| {
        let (directory, session) = begin(transport, RingLimits::default());
        let asked = std::thread::scope(|scope| {
            let early = scope.spawn(|| std::fs::metadata(directory.path().join("file")).map(|found| found.len()));
            let memory = super::served::Memory::new();
            let serving = session.serve(memory, 1, "test").expect("threads start");
            let asked = early.join().expect("no panic");
            weft_fusedev::unmount(directory.path(), true).expect("unmounted");
            serving.join().expect("it ends");
            asked
        });
        assert_eq!(asked.expect("answered"), super::served::FILE_BYTES);
    });
}
