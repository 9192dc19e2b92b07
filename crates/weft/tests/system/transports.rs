//! Requests over io_uring, where the kernel offers it.

use crate::support::{Liar, Mount, NotOffered, Offered, Setup, answer, page};

/// Goal: what a mount gives over io_uring is what it gives otherwise, by many readers at once, cold, kept and when a host
/// is silent; and where it cannot be had, the sentence says what to do.
#[test]
fn a_mount_over_io_uring_gives_the_same() {
    let Some(offered) = Offered::now() else { return };
    let text = |nth: usize| format!("{nth} ").repeat(40 * nth + 1);
    let liar = Liar::answering(move |asked| match asked.path.as_str() {
        "/" => page(&(0..60).map(|nth| format!("<a href='{nth}.txt'>x</a>")).collect::<String>()),
        path => match path.trim_start_matches('/').trim_end_matches(".txt").parse::<usize>() {
            Ok(nth) if nth < 60 => answer("200 OK", &["etag: \"1\"", "cache-control: max-age=9999"], text(nth)),
            _ => answer("404 Not Found", &[], ""),
        },
    });
    let setup = Setup::default().option("transport=io_uring").option("no_passthrough");
    let Some(mount) = Mount::with(setup) else { return };
    assert_eq!(mount.status()["transport"], "io_uring");
    let dir = mount.at(liar.site());
    let read_all = || {
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let dir = &dir;
                scope.spawn(move || {
                    for step in 0..60 {
                        let nth = (step * 7 + reader * 11) % 60;
                        let read = std::fs::read_to_string(dir.join(format!("{nth}.txt"))).expect("read");
                        assert!(read == text(nth), "{nth}: {} bytes", read.len());
                    }
                    assert_eq!(std::fs::read_dir(dir).expect("listed").count(), 61);
                    std::fs::metadata(dir.join("none.txt")).expect_err("absent");
                });
            }
        });
    };
    read_all();
    mount.remount();
    let before = mount.figure("requests");
    read_all();
    assert!(mount.figure("requests") <= before + 1, "only the absent name may be asked for again");
    mount.umount();

    drop(offered);
    let Some(_off) = NotOffered::now() else { return };
    let refused = mount.try_mount();
    assert!(refused.code != Some(0) && refused.err.contains("enable_uring"), "{refused:?}");
    assert!(!mount.is_mounted());
}
