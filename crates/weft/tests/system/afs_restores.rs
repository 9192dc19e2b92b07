//! Volumes of AFS that are restored from a dump while they are used: what is made since has the fids, the data versions and, where
//! a program sets them, the times of what was there before.

use std::fs::{File, FileTimes, create_dir, write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::afs::{mounted, mounted_on, read};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, names_in};

/// A volume, of which a dump was made.
struct Dumped {
    cell: AfsCell,
    dump: PathBuf,
}

impl Dumped {
    /// Writes into the volume, and makes a dump of it.
    fn new(write: impl Fn(&Path)) -> Option<Dumped> {
        let cell = AfsCell::own()?;
        let dumped = Dumped { dump: cell.dir().join("dump"), cell };
        write(&scratch(&dumped.writer()?));
        dumped.cell.on("fs1", ["vos", "dump", "scratch", "-localauth", "-file"]).arg(&dumped.dump).good();
        Some(dumped)
    }

    /// Whoever writes it, on another machine, and knows nothing of it before.
    fn writer(&self) -> Option<Mount> {
        mounted_on(&self.cell, "c2", "afs", &[])
    }

    /// Puts the dump in the place of the volume, in another second than that in which this was made: by that it is known.
    fn restore(&self) {
        let told = self.cell.on("fs1", ["vos", "examine", "scratch", "-localauth", "-format"]).run().out;
        if let Some(made) = told.lines().find_map(|line| line.strip_prefix("creationDate\t")) {
            let made_s: u64 = made.split('\t').next().and_then(|text| text.trim().parse().ok()).expect("seconds");
            let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
            wait_until("another second", || now_s() > made_s);
        }
        let restore = ["vos", "restore", "fs1", "a", "scratch", "-overwrite", "full", "-localauth", "-file"];
        self.cell.on("fs1", restore).arg(&self.dump).good();
    }
}

fn scratch(mount: &Mount) -> PathBuf {
    mount.at("weft.test/scratch")
}

/// Writes a file with a time that is always the same, as programs do that unpack an archive.
fn unpack(path: &Path, text: &str) {
    write(path, text).expect("written");
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1 << 29));
    File::options().write(true).open(path).and_then(|file| file.set_times(times)).expect("set");
}

/// Goal: files and names that are made after a volume was restored are not taken for those that were made after its dump, also
/// by who has not looked meanwhile. Method: both are made in the same order, with the same times and lengths.
#[test]
fn what_is_made_anew_is_not_what_was_made_before() {
    let Some(dumped) = Dumped::new(|dir| create_dir(dir.join("names")).expect("made")) else { return };
    let Some(mount) = mounted(&dumped.cell, "afs", &[]) else { return };
    let here = scratch(&mount);
    let fill = |text: &str| {
        let Some(writer) = dumped.writer() else { return };
        let there = scratch(&writer);
        write(there.join("names").join(text), text).expect("written");
        create_dir(there.join("package")).expect("made");
        (0..FILES).for_each(|nth| unpack(&there.join(format!("package/f{nth}")), text));
    };
    // Its server tells of what is restored when it comes to that (`BreakVolumeCallBacksLater`).
    let seen = |text: &str| {
        wait_until(&format!("it is {text}"), || {
            let texts = (0..FILES).map(|nth| std::fs::read(here.join(format!("package/f{nth}"))));
            let texts: Vec<_> = texts.filter_map(Result::ok).collect();
            names_in(&here.join("names")) == [text] && texts == vec![text.as_bytes(); FILES]
        });
    };
    fill("one");
    seen("one");
    dumped.restore();
    fill("two");
    seen("two");
    mount.remount();
    dumped.restore();
    fill("six");
    // To whom has looked with another daemon as well.
    seen("six");
}

const FILES: usize = 3;

/// Goal: a directory is empty to whoever has just made it, though it has the fid of one that was made before the volume was
/// restored, and whose names are known.
#[test]
fn a_directory_that_is_made_anew_has_no_names() {
    let Some(dumped) = Dumped::new(|_| ()) else { return };
    let Some(mount) = mounted(&dumped.cell, "afs", &[]) else { return };
    let at = scratch(&mount).join("made");
    let fid = || mount.why(&at, "fid");
    create_dir(&at).expect("made");
    ["listed", "seen"].iter().for_each(|name| write(at.join(name), name).expect("written"));
    assert_eq!(names_in(&at), ["listed", "seen"]);
    let former = fid();
    dumped.restore();
    wait_until("it is not there", || !at.exists());
    create_dir(&at).expect("made");
    write(at.join("new"), "new").expect("written");
    assert_eq!(names_in(&at), ["new"]);
    assert_eq!(fid(), former, "this is about one fid");
}

/// Goal: a mount point leads to the volume that has its name now, at once where the former one is there no more.
#[test]
fn a_volume_that_was_made_anew_under_its_name_is_found() {
    let Some(dumped) = Dumped::new(|dir| write(dir.join("file"), "as it was").expect("written")) else { return };
    let Some(mount) = mounted(&dumped.cell, "afs", &[]) else { return };
    let at = scratch(&mount).join("file");
    assert_eq!(read(&at), "as it was");
    let former = mount.why(&scratch(&mount), "volume root");
    dumped.cell.on("fs1", ["vos", "remove", "-id", "scratch", "-localauth"]).good();
    wait_until("it is gone", || std::fs::read(&at).is_err());
    dumped.restore();
    assert_eq!(read(&at), "as it was");
    assert_eq!(names_in(&scratch(&mount)), ["file", "readme.txt"]);
    assert_ne!(mount.why(&scratch(&mount), "volume root"), former);
}

/// Goal: a copy of a volume is shown from when it is there, to whom has looked for it before as well.
#[test]
fn a_copy_that_is_made_later_is_shown() {
    let Some(dumped) = Dumped::new(|dir| write(dir.join("file"), "as it was").expect("written")) else { return };
    let Some(mount) = mounted(&dumped.cell, "afs", &[]) else { return };
    let Some(admin) = mounted_on(&dumped.cell, "admin", "afs", &[]) else { return };
    let settings = admin.beside("home/config/weft");
    std::fs::create_dir_all(&settings).expect("made");
    std::fs::copy(admin.beside("weft.toml"), settings.join("weft.toml")).expect("copied");
    admin.weft().args(["fs", "mkmount"]).arg(scratch(&admin).join("yesterday")).arg("scratch.backup").good();
    let at = scratch(&mount).join("yesterday");
    assert!(std::fs::read_dir(&at).is_err(), "there is no such copy");
    dumped.cell.on("fs1", ["vos", "backup", "scratch", "-localauth"]).good();
    assert_eq!(read(&at.join("file")), "as it was");
}

/// Goal: what was made after a restore, and released, is not taken for what was released before, with the same fids, versions,
/// times and lengths. Method: both sites have it, and a file that is the same in both releases is of one version.
#[test]
fn what_is_released_of_a_restored_volume_is_seen() {
    let Some(dumped) = Dumped::new(|dir| unpack(&dir.join("old"), "the same")) else { return };
    let vos = |words: &[&str]| drop(dumped.cell.on("fs1", ["vos"]).args(words).arg("-localauth").good());
    let fill = |text: &str| {
        if let Some(writer) = dumped.writer() {
            (0..FILES).for_each(|nth| unpack(&writer.at(".weft.test/scratch").join(format!("f{nth}")), text));
        }
        vos(&["release", "scratch"]);
    };
    ["fs1", "fs2"].iter().for_each(|site| vos(&["addsite", site, "a", "scratch"]));
    fill("one");
    let Some(mount) = mounted(&dumped.cell, "afs", &[]) else { return };
    let here = scratch(&mount);
    let seen = || (0..FILES).map(|nth| read(&here.join(format!("f{nth}")))).collect::<Vec<_>>();
    assert_eq!((seen(), read(&here.join("old"))), (vec!["one".to_owned(); FILES], "the same".to_owned()));
    let version = mount.why(&here.join("old"), "version");
    dumped.restore();
    fill("two");
    wait_until("what was released is seen", || seen() == vec!["two"; FILES]);
    assert_eq!(read(&here.join("old")), "the same");
    assert_eq!(mount.why(&here.join("old"), "version"), version);
}
