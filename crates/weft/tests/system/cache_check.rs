//! `weft cache check` and `weft cache repair`.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::support::{Liar, Mount, answer, damage_small, noise, page, run};

/// A server of some files, and a mount that has read them and was mounted again since.
fn read_and_remounted() -> Option<(Liar, Mount)> {
    let lengths = [("a.bin", 700_000), ("b.bin", 5000)];
    let liar = Liar::answering(move |asked| match lengths.iter().find(|(name, _)| asked.path == format!("/{name}")) {
        Some((_, length)) => answer("200 OK", &["etag: \"1\"", "cache-control: max-age=3600"], noise(*length)),
        None => page(&lengths.iter().map(|(name, _)| format!("<a href='{name}'>x</a>")).collect::<String>()),
    });
    let mount = Mount::new()?;
    for (name, length) in lengths {
        assert!(std::fs::read(mount.at(liar.site()).join(name)).expect("read") == noise(length));
    }
    mount.remount();
    Some((liar, mount))
}

/// The file of the large content.
fn object(mount: &Mount) -> PathBuf {
    let found = run("find", [mount.cache().join("objects").as_os_str(), "-type".as_ref(), "f".as_ref()]);
    PathBuf::from(found.lines().next().expect("a large content has a file"))
}

/// Goal: a cache that is what was written is called sound, in words and in JSON.
#[test]
fn a_sound_cache_is_called_so() {
    let Some((_liar, mount)) = read_and_remounted() else { return };
    let checked = mount.verb("cache check", [mount.dir()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.out.contains("files compared: all is what was written"), "{checked:?}");
    let checked = mount.verb("--json cache check", [mount.dir()]);
    let last: serde_json::Value =
        checked.out.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("JSON");
    assert_eq!((&last["event"], &last["damaged_files"]), (&"done".into(), &0.into()));
    assert!(last["bytes"].as_u64() >= Some(705_000), "{last}");
}

/// Goal: damage is told with its path and left as it is by a check; a repair gives it up, and the next read fetches it.
#[test]
fn damage_is_told_by_path_and_repaired() {
    let Some((liar, mount)) = read_and_remounted() else { return };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(object(&mount)).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 600_000).expect("read");
    file.write_all_at(&[byte[0] ^ 0x40], 600_000).expect("written");
    damage_small(&mount.cache(), &noise(5000));
    let checked = mount.verb("cache check", [mount.dir()]);
    assert_eq!(checked.code, Some(7), "{checked:?}");
    assert!(checked.err.contains("`weft cache repair` gives up all of it"), "{checked:?}");
    for (name, at) in [("a.bin", 524_288), ("b.bin", 0)] {
        let told = |line: &str| line.contains(name) && line.contains(&format!(" at {at}: "));
        assert!(checked.out.lines().any(told), "{name}: {checked:?}");
    }
    assert_eq!((liar.times("/a.bin"), liar.times("/b.bin")), (1, 1), "a check asks nobody");
    let repaired = mount.verb("cache repair", [mount.dir()]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.out.contains("files damaged; given up"), "{repaired:?}");
    let checked = mount.verb("cache check", [mount.dir()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for (name, length) in [("a.bin", 700_000), ("b.bin", 5000)] {
        assert!(std::fs::read(mount.at(liar.site()).join(name)).expect("read") == noise(length));
        assert_eq!(liar.times(&format!("/{name}")), 2, "{name}");
    }
}
