//! The cache's disk: full, damaged, or lost.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::{Liar, Mount, Program, Setup, answer, damage_small, is_root, noise, page, run, without};

/// A small file system in memory; it is taken away when this is dropped.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Of so many bytes, as mount(8) takes them. `None`, with a line that says so, for who is not root.
    pub fn of(size: &str) -> Option<SmallDisk> {
        if !is_root() {
            without("only root can mount a small file system");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("wt-disk-").tempdir().expect("a temporary folder");
        let mounted = Program::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        let mounted = mounted.arg(folder.path()).run();
        assert_eq!(mounted.code, Some(0), "{mounted:?}");
        Some(SmallDisk(folder))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Program::new("umount").arg("-l").arg(self.0.path()).run();
    }
}

/// A server of files of these lengths, and of a listing of them.
fn files(lengths: &'static [(&'static str, usize)]) -> Liar {
    Liar::answering(|asked| match lengths.iter().find(|(name, _)| asked.path == format!("/{name}")) {
        Some((_, length)) => answer("200 OK", &["etag: \"1\"", "cache-control: max-age=3600"], noise(*length)),
        None => page(&lengths.iter().map(|(name, _)| format!("<a href='{name}'>x</a>")).collect::<String>()),
    })
}

#[test]
fn what_does_not_fit_is_served_through() {
    let liar = files(&[("small.bin", 100_000), ("huge.bin", 30 << 20), ("other.bin", 200_000)]);
    let Some(disk) = SmallDisk::of("12m") else { return };
    let Some(mount) = Mount::with(Setup { cache: Some(disk.0.path().join("cache")), ..Default::default() }) else {
        return;
    };
    let top = mount.at(liar.site());
    assert!(std::fs::read(top.join("small.bin")).expect("read") == noise(100_000));
    assert!(std::fs::read(top.join("huge.bin")).expect("read") == noise(30 << 20), "right although it does not fit");
    let troubles = mount.status()["troubles"].to_string();
    assert!(troubles.contains("huge.bin"), "{troubles}");
    assert!(troubles.contains("full") || troubles.contains("space"), "{troubles}");
    assert!(std::fs::read(top.join("other.bin")).expect("read") == noise(200_000));
    assert!(std::fs::read(top.join("huge.bin")).expect("read") == noise(30 << 20), "a second time");
    mount.remount();
    assert!(std::fs::read(top.join("small.bin")).expect("read") == noise(100_000), "the cache is sound after it");
    assert_eq!(liar.times("/small.bin"), 1);
}

/// Goal: content leaves the index room to grow: one that cannot be written may not be opened again, and read, after that.
#[test]
fn content_leaves_room_to_the_index() {
    let liar =
        files(&[("a.bin", 3 << 20), ("b.bin", 3 << 20), ("c.bin", 3 << 20), ("d.bin", 3 << 20), ("e.bin", 3 << 20)]);
    let Some(disk) = SmallDisk::of("16m") else { return };
    let Some(mount) = Mount::with(Setup { cache: Some(disk.0.path().join("cache")), ..Default::default() }) else {
        return;
    };
    let top = mount.at(liar.site());
    for name in ["a.bin", "b.bin", "c.bin", "d.bin", "e.bin"] {
        assert!(std::fs::read(top.join(name)).expect("read") == noise(3 << 20), "{name}");
    }
    let space = rustix::fs::statvfs(disk.path()).expect("it is mounted");
    let free = space.f_bavail * space.f_frsize;
    assert!(free > 2 << 20, "{free} bytes are free");
    let troubles = mount.status()["troubles"].to_string();
    assert!(troubles.contains("left to its index"), "{troubles}");
}

/// Goal: so much of the disk is left free; scratch goes for it, the longest unused first, and what is kept stays.
#[test]
fn a_part_of_the_disk_is_kept_free() {
    let liar = files(&[
        ("kept.bin", 1 << 20),
        ("a.bin", 2 << 20),
        ("b.bin", 2 << 20),
        ("c.bin", 2 << 20),
        ("d.bin", 2 << 20),
        ("e.bin", 2 << 20),
        ("f.bin", 2 << 20),
    ]);
    let Some(disk) = SmallDisk::of("16m") else { return };
    let config = format!(
        "[cache]\nclass = \"scratch\"\nkeep_free = \"4M\"\n[[tree]]\npath = \"{}/kept.bin\"\nclass = \"kept\"\n",
        liar.site()
    );
    let setup = Setup { cache: Some(disk.0.path().join("cache")), ..Default::default() }.config(&config);
    let Some(mount) = Mount::with(setup) else { return };
    let top = mount.at(liar.site());
    let read = |name: &str, length| assert!(std::fs::read(top.join(name)).expect("read") == noise(length), "{name}");
    read("kept.bin", 1 << 20);
    for name in ["a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin"] {
        read(name, 2 << 20);
        // The kernel reads it itself now where it may, and holds its file.
        read(name, 2 << 20);
    }
    let free = || {
        // Asking makes evictions durable, and so the files go.
        mount.figure("objects");
        let stat = rustix::fs::statvfs(disk.0.path()).expect("a disk");
        stat.f_bavail * stat.f_frsize
    };
    while free() < 4 << 20 {
        std::thread::yield_now();
    }
    assert!(mount.why(&top.join("kept.bin"), "cached").starts_with("whole"));
    assert!(mount.why(&top.join("a.bin"), "cached").starts_with("no"));
    let journal = mount.json("cache --journal", [mount.dir()]);
    assert!(journal[0]["path"].as_str().is_some_and(|path| path.ends_with("a.bin")), "{journal}");
    assert_eq!(journal[0]["reason"], "[cache] keep_free");
}

/// Every object in a cache.
fn objects(cache: &Path) -> Vec<PathBuf> {
    let found = run("find", [cache.join("objects").as_os_str(), "-type".as_ref(), "f".as_ref()]);
    found.lines().map(PathBuf::from).collect()
}

/// Reads a file, unmounts, lets `damage` loose on the cache, mounts, and reads again: the bytes must be right.
fn survives(damage: impl Fn(&Path)) -> Option<(Liar, Mount)> {
    let liar = files(&[("a.bin", 700_000), ("b.bin", 5000), ("c.bin", 300_000)]);
    let mount = Mount::new()?;
    let top = mount.at(liar.site());
    let read = |name, length| assert!(std::fs::read(top.join(name)).expect("read") == noise(length), "{name}");
    let read_all =
        || [("a.bin", 700_000), ("b.bin", 5000), ("c.bin", 300_000)].map(|(name, length)| read(name, length));
    read_all();
    mount.umount();
    damage(&mount.cache());
    mount.mount();
    read_all();
    read_all();
    mount.remount();
    read_all();
    Some((liar, mount))
}

#[test]
fn a_damaged_object_is_fetched_again() {
    let Some((liar, _mount)) = survives(|cache| {
        for object in objects(cache) {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&object).expect("opened");
            let at = file.metadata().expect("there").len() / 2;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
        }
        damage_small(cache, &noise(5000));
    }) else {
        return;
    };
    for name in ["/a.bin", "/b.bin", "/c.bin"] {
        assert_eq!(liar.times(name), 2, "{name}: once, and once for what was damaged");
    }
}

#[test]
fn a_cut_object_is_fetched_again() {
    let Some((liar, _mount)) = survives(|cache| {
        for object in objects(cache) {
            let file = std::fs::OpenOptions::new().write(true).open(&object).expect("opened");
            let length = file.metadata().expect("there").len();
            file.set_len(length / 2).expect("cut");
        }
    }) else {
        return;
    };
    assert_eq!(liar.times("/c.bin"), 2);
}

/// Goal: what is answered from a file of the cache without being read into memory before is as safe as the rest. Method:
/// the file is cut under the daemon, which had seen that it was right.
#[test]
fn an_object_that_is_cut_while_it_is_in_use_is_fetched_again() {
    let liar = files(&[("a.bin", 700_000)]);
    let Some(mount) = Mount::with(Setup::default().option("no_passthrough")) else { return };
    let file = mount.at(liar.site()).join("a.bin");
    assert!(std::fs::read(&file).expect("read") == noise(700_000));
    for object in objects(&mount.cache()) {
        std::fs::OpenOptions::new().write(true).open(&object).and_then(|file| file.set_len(300_000)).expect("cut");
    }
    let reader = std::fs::File::open(&file).expect("opened");
    rustix::fs::fadvise(&reader, 0, None, rustix::fs::Advice::DontNeed).expect("no pages of it are left");
    assert!(std::fs::read(&file).expect("read again") == noise(700_000));
    assert!(liar.times("/a.bin") >= 2, "what was missing was asked for");
}

#[test]
fn cut_and_lost_volumes_are_begun_anew() {
    for length in [None, Some(0), Some(1 << 20), Some(63 << 20)] {
        let Some((liar, _mount)) = survives(|cache| {
            let volume = cache.join("segments/volume-0000");
            match length {
                Some(length) => std::fs::File::options().write(true).open(volume).expect("a volume").set_len(length),
                None => std::fs::remove_file(volume),
            }
            .expect("harmed");
        }) else {
            return;
        };
        assert_eq!(liar.times("/a.bin"), 1, "{length:?}");
        assert!(liar.times("/b.bin") <= 2, "{length:?}");
    }
}

#[test]
fn lost_objects_are_fetched_again() {
    let Some((liar, _mount)) = survives(|cache| {
        std::fs::remove_dir_all(cache.join("objects")).expect("removed");
        std::fs::remove_dir_all(cache.join("segments")).expect("removed");
    }) else {
        return;
    };
    assert_eq!((liar.times("/a.bin"), liar.times("/b.bin")), (2, 2));
}

#[test]
fn a_damaged_database_is_set_aside() {
    let Some((liar, mount)) = survives(|cache| {
        std::fs::write(cache.join("index.redb"), noise(200_000)).expect("written");
    }) else {
        return;
    };
    assert_eq!(liar.times("/a.bin"), 2);
    assert!(mount.cache().join("index.damaged-1").exists(), "the old one is kept for whoever wants to look");
}

#[test]
fn a_cut_database_is_set_aside() {
    let Some((liar, _mount)) = survives(|cache| {
        let file = std::fs::OpenOptions::new().write(true).open(cache.join("index.redb")).expect("opened");
        let length = file.metadata().expect("there").len();
        file.set_len(length / 2 + 13).expect("cut");
    }) else {
        return;
    };
    assert!(liar.times("/a.bin") <= 2);
}
