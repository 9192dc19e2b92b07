//! Read-only volumes of AFS whose sites are at different releases.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::afs::{mounted, mounted_on, read};
use crate::support::{AfsCell, Mount};

/// A volume with two read-only sites, of which that of `fs2` stays at the release before.
struct Released {
    cell: AfsCell,
    /// Whoever writes it.
    writer: Mount,
}

impl Released {
    fn new(write: impl Fn(&Path)) -> Option<Released> {
        let cell = AfsCell::own()?;
        let writer = mounted_on(&cell, "admin", "afs", &[])?;
        let released = Released { cell, writer };
        write(&released.writer.at(".weft.test/replicated"));
        assert!(released.release());
        Some(released)
    }

    fn release(&self) -> bool {
        self.cell.on("fs1", ["vos", "release", "replicated", "-localauth"]).run().code == Some(0)
    }

    /// Another release, which one site does not get.
    fn release_to_one(&self, write: impl Fn(&Path)) {
        self.cell.kill("fs2", "davolserver");
        write(&self.writer.at(".weft.test/replicated"));
        assert!(!self.release(), "a volume server is missing");
    }
}

/// Goal: where a release has come to one site alone, nobody sees a volume go back or files of both releases, although the site
/// with the newer one is slow for a while. Method: a file server is stopped, so that the other one is asked first from then on.
#[test]
fn a_release_that_is_broken_off_is_not_mixed_with_the_one_before() {
    let write = |text: &'static str| {
        move |dir: &Path| (0..FILES).for_each(|nth| std::fs::write(dir.join(format!("f{nth}")), text).expect("written"))
    };
    let Some(released) = Released::new(write("one")) else { return };
    let Some(mount) = mounted(&released.cell, "afs", &[]) else { return };
    let at = |nth: usize| mount.at(format!("weft.test/replicated/f{nth}"));
    assert_eq!(read(&at(0)), "one");
    released.release_to_one(write("two"));
    crate::interrupts::wait_until("the release is seen", || read(&at(0)) == "two");
    released.cell.freeze("fs1", "dafileserver", true);
    let meanwhile = read(&at(1));
    assert!(["one", "two"].contains(&meanwhile.as_str()), "{meanwhile}");
    released.cell.freeze("fs1", "dafileserver", false);
    let seen: Vec<String> = (0..FILES).map(|nth| read(&at(nth))).collect();
    assert_eq!(seen, ["two"; FILES], "they are of one release, which is not the older one");
}

const FILES: usize = 6;

/// Goal: what is open is read to its end in its version for as long as any site has that. Method: most of a large file is asked
/// for when one site alone has the release that it is of.
#[test]
fn what_is_open_is_read_to_its_end_of_the_site_that_has_it() {
    let write = |byte: u8| {
        move |dir: &Path| {
            std::fs::write(dir.join("mark"), [byte]).expect("written");
            std::fs::write(dir.join("large"), vec![byte; LARGE]).expect("written");
        }
    };
    let Some(released) = Released::new(write(b'1')) else { return };
    let Some(mount) = mounted(&released.cell, "afs", &[]) else { return };
    let (mark, at) = (mount.at("weft.test/replicated/mark"), mount.at("weft.test/replicated/large"));
    assert_eq!(read(&mark), "1");
    let open = File::open(&at).expect("opened");
    let mut piece = vec![0; PIECE];
    open.read_exact_at(&mut piece, 0).expect("read");
    released.release_to_one(write(b'2'));
    crate::interrupts::wait_until("the release is seen", || read(&mark) == "2");
    for start in (0..LARGE).step_by(PIECE) {
        open.read_exact_at(&mut piece, start as u64).unwrap_or_else(|error| panic!("at {start}: {error}"));
        assert!(piece.iter().all(|byte| *byte == b'1'), "at {start}");
    }
}

const LARGE: usize = 64 << 20;
const PIECE: usize = 1 << 16;
