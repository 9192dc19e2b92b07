//! What is served after its lease, and how that shows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::support::{Liar, Mount, Setup, answer, fails_with};
use crate::unplugged::attribute;

/// A server of one text under every path, with these headers, that can be told to fail.
fn failing(headers: &'static [&'static str]) -> (Liar, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let told = fails.clone();
    let liar = Liar::answering(move |asked| match told.load(Ordering::SeqCst) {
        true => answer("500 Oh", &[], "an error page"),
        false if asked.path.ends_with("kept") => answer("301 Moved", &["location: /kept/"], ""),
        false if asked.header("if-none-match").is_some() => {
            let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n").into_bytes()
        }
        false => answer("200 OK", &[headers, &["content-type: text/plain"]].concat(), "text"),
    });
    (liar, fails)
}

#[track_caller]
fn reads(file: &Path) {
    assert_eq!(std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())), b"text");
}

/// Goal: an error of the source is hidden only where the answer or the configuration says so, and then it shows in the
/// attributes, the figures and `why`.
#[test]
fn errors_are_hidden_only_as_far_as_somebody_said() {
    let (plain, plain_fails) = failing(&["etag: \"1\"", "cache-control: max-age=0"]);
    let (kind, kind_fails) = failing(&["etag: \"1\"", "cache-control: max-age=0, stale-if-error=3600"]);
    let (strict, strict_fails) = failing(&["etag: \"1\"", "cache-control: no-cache"]);
    let config = format!("[[tree]]\npath = \"{}/kept\"\nstale_if_error = \"1h\"\n", plain.site());
    let Some(mount) = Mount::with(Setup::default().config(&config)) else { return };
    let file = |liar: &Liar, path: &str| mount.at(liar.site()).join(path);
    let (hidden, policy, shown, no_cache) =
        (file(&kind, "a.txt"), file(&plain, "kept/a.txt"), file(&plain, "a.txt"), file(&strict, "a.txt"));
    for file in [&hidden, &policy, &shown, &no_cache] {
        reads(file);
    }
    assert!(matches!(attribute(&hidden, "user.weft.state").as_str(), "unchecked" | "fresh"));
    for fails in [&plain_fails, &kind_fails, &strict_fails] {
        fails.store(true, Ordering::SeqCst);
    }
    for file in [&hidden, &policy] {
        reads(file);
        assert_eq!(attribute(file, "user.weft.state"), "stale");
        assert!(attribute(file, "user.weft.error").contains("500"));
        assert!(mount.why(file, "served stale").contains("500"), "{}", mount.why(file, "served stale"));
    }
    assert!(mount.why(&policy, "policy for errors").contains("3600 s"));
    for file in [&shown, &no_cache] {
        fails_with(std::fs::read(file), Errno::IO);
        assert_eq!(mount.why(file, "state"), "unchecked", "what is refused is not served");
        assert_eq!(mount.why(file, "served stale"), "", "{}", file.display());
    }
}

/// Goal: silence is bridged, but not for content whose source wants it confirmed; the user's word goes before that.
#[test]
fn silence_is_bridged_but_where_the_answer_forbids_it() {
    let (gone, _) = failing(&["etag: \"1\"", "cache-control: max-age=0"]);
    let (strict, _) = failing(&["etag: \"1\"", "cache-control: max-age=0, must-revalidate"]);
    let Some(mount) = Mount::new() else { return };
    let (bridged, kept) = (mount.at(gone.site()).join("a.txt"), mount.at(strict.site()).join("a.txt"));
    reads(&bridged);
    reads(&kept);
    drop((gone, strict));
    reads(&bridged);
    assert_eq!(attribute(&bridged, "user.weft.state"), "offline");
    assert_eq!(std::fs::metadata(&kept).expect("its length is known").len(), 4);
    fails_with(std::fs::read(&kept), Errno::HOSTUNREACH);
    assert!(mount.why(&kept, "next").contains("weft offline"), "{}", mount.why(&kept, "next"));
    assert_eq!(mount.verb("offline", [&kept]).code, Some(0));
    reads(&kept);
}

/// Goal: fetch-only checks nothing and fetches what is missing, by the server's own count, remounts included.
#[test]
fn fetch_only_fetches_what_is_missing_and_checks_nothing() {
    let (liar, _) = failing(&["etag: \"1\"", "cache-control: max-age=0"]);
    let Some(mount) = Mount::new() else { return };
    let (held, missing) = (mount.at(liar.site()).join("a.txt"), mount.at(liar.site()).join("b.txt"));
    reads(&held);
    assert_eq!(mount.verb("offline --fetch-only", [mount.at(liar.site())]).code, Some(0));
    let asked = liar.times("/a.txt");
    mount.remount();
    reads(&held);
    reads(&held);
    assert_eq!(liar.times("/a.txt"), asked, "nothing was checked");
    assert_eq!(attribute(&held, "user.weft.state"), "stale");
    reads(&missing);
    assert_eq!(mount.status()["fetch_only"].as_array().map(Vec::len), Some(1));
    assert_eq!(mount.verb("online", [mount.dir()]).code, Some(0));
    reads(&held);
    assert!(liar.times("/a.txt") > asked, "checked again");
}

/// Goal: a confirmation that says nothing of freshness repeats what the answer said, and adds no trust of its own.
#[test]
fn a_bare_confirmation_repeats_what_was_said() {
    let liar = Liar::answering(|asked| match asked.header("if-none-match") {
        Some(_) => b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(),
        None => answer("200 OK", &["etag: \"1\"", "cache-control: no-cache", "content-type: text/plain"], "text"),
    });
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("a.txt");
    reads(&file);
    for _ in 0..4 {
        let asked = liar.times("/a.txt");
        reads(&file);
        assert!(liar.times("/a.txt") > asked, "confirmed at each use");
    }
}

/// Goal: what can be confirmed only by fetching it again is not fetched for every small question of one `cat`.
#[test]
fn without_a_validator_a_cat_costs_at_most_two_fetches() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let liar = Liar::answering(move |asked| {
        count.fetch_add(usize::from(asked.path == "/a.txt"), Ordering::SeqCst);
        answer("200 OK", &["cache-control: max-age=0", "content-type: text/plain"], "text")
    });
    let Some(mount) = Mount::new() else { return };
    let file = mount.at(liar.site()).join("a.txt");
    for nth in 0..4 {
        let before = served.load(Ordering::SeqCst);
        assert_eq!(crate::support::run("cat", [&file]), "text");
        let cost = served.load(Ordering::SeqCst) - before;
        assert!((1..=2).contains(&cost), "cat {nth} cost {cost} fetches");
    }
}
