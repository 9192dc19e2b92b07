//! Files that change within a second, as long as before: validators of seconds do not tell of that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::{Liar, Mount, Setup, answer};

/// Of the file.
const LENGTH: usize = 24 << 20;
/// The server's clock, and the time of the file: the second lasts.
const SECOND: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// As nginx makes it of [`SECOND`] and [`LENGTH`].
const TAG: &str = "\"2ebc98a1-1800000\"";
/// As civetweb does.
const TAG_WITH_A_DOT: &str = "\"2ebc98a1.25165824\"";

/// A server of one file, all of whose bytes are `content`; it goes by its validators, of which `tag` may be one.
fn serving(content: Arc<AtomicU8>, tag: Option<&'static str>) -> Liar {
    Liar::answering(move |asked| {
        let tag_line = tag.map(|tag| format!("etag: {tag}")).unwrap_or("x: y".to_owned());
        let (date, modified) = (format!("date: {SECOND}"), format!("last-modified: {SECOND}"));
        let told = [date.as_str(), &modified, &tag_line, "accept-ranges: bytes", "content-type: application/x-bin"];
        if !asked.path.ends_with(".bin") {
            return answer("404 Not Found", &[], "");
        }
        let is_same = match asked.header("if-none-match") {
            Some(known) => tag == Some(known),
            None => asked.header("if-modified-since") == Some(SECOND),
        };
        if is_same {
            return format!("HTTP/1.1 304 Not Modified\r\n{}\r\n\r\n", told.join("\r\n")).into_bytes();
        }
        let bytes = vec![content.load(Ordering::SeqCst); LENGTH];
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let range = range.filter(|_| asked.header("if-range").is_none_or(|known| tag == Some(known)));
        let Some((first, last)) = range else { return answer("200 OK", &told, bytes) };
        let first: usize = first.parse().expect("a number");
        let last = last.parse().unwrap_or(LENGTH - 1).min(LENGTH - 1);
        let said = format!("content-range: bytes {first}-{last}/{LENGTH}");
        answer("206 Partial Content", &[&told[..], &[&said]].concat(), &bytes[first..=last])
    })
}

/// Goal: one open file is one version, and who asks each time gets what is there now. Method: the file changes while it is
/// open, and a part that is far away is read.
#[test]
fn what_changes_within_a_second_is_never_mixed_and_seen() {
    for tag in [None, Some(TAG), Some(TAG_WITH_A_DOT)] {
        let content = Arc::new(AtomicU8::new(b'a'));
        let liar = serving(content.clone(), tag);
        let Some(mount) = Mount::with(Setup::default().option("freshness=always")) else { return };
        let path = mount.at(liar.site()).join("file.bin");
        let open = File::open(&path).expect("opened");
        let (mut piece, far) = ([0; 4096], LENGTH as u64 - 4096);
        open.read_exact_at(&mut piece, 0).expect("read");
        assert!(piece.iter().all(|byte| *byte == b'a'));
        content.store(b'b', Ordering::SeqCst);
        open.read_exact_at(&mut piece, far).expect("read");
        assert!(piece.iter().all(|byte| *byte == b'a'), "{tag:?}: two versions in one open file");
        for now in *b"bcd" {
            content.store(now, Ordering::SeqCst);
            let read = std::fs::read(&path).expect("read");
            assert!(read.len() == LENGTH && read.iter().all(|byte| *byte == now), "{tag:?}: not what is there now");
        }
    }
}
