//! Bodies are one version, never a mix.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::StreamExt;
use weft_remote::{Lease, Piece, Remote, RemoteError, Seek, Span, Version};

use crate::support::{Bed, call, drain};

/// Goal: holes are told of the version that is there, and of no other.
#[tokio::test]
async fn holes_are_those_of_one_version() {
    let bed = Bed::new(&["sparse"]).await;
    let file = fs::OpenOptions::new().write(true).open(bed.path("sparse")).unwrap();
    file.set_len(0).unwrap();
    file.set_len(SPARSE_BYTES).unwrap();
    file.write_all_at(&[1; 4096], SPARSE_BYTES / 2).unwrap();
    let entry = bed.entry("sparse").await;
    assert!(
        entry.attributes.allocated.is_some_and(|allocated| (1..SPARSE_BYTES / 2).contains(&allocated)),
        "{entry:?}"
    );
    // Right after a change nobody can tell whether there is another one.
    let seek = async |offset, what| loop {
        match bed.dir.seek(&call(), &entry.id, &entry.version, offset, what).await {
            Err(RemoteError::VersionChanged { .. }) if bed.entry("sparse").await.version == entry.version => {
                tokio::task::yield_now().await;
            }
            outcome => return outcome,
        }
    };
    assert_eq!(seek(0, Seek::Data).await.unwrap(), Some(SPARSE_BYTES / 2));
    assert_eq!(seek(SPARSE_BYTES / 2, Seek::Hole).await.unwrap(), Some(SPARSE_BYTES / 2 + 4096));
    assert_eq!(seek(SPARSE_BYTES / 2 + 4096, Seek::Data).await.unwrap(), None);
    assert_eq!(seek(SPARSE_BYTES, Seek::Hole).await.unwrap(), None);
    file.write_all_at(&[1; 4096], 0).unwrap();
    let changed = seek(0, Seek::Data).await;
    assert!(matches!(changed, Err(RemoteError::VersionChanged { .. })), "{changed:?}");
}

/// A writer rewrites a file with one byte over and over, in single writes, while readers copy it. It is let go on
/// in turn when a copy has begun, so that it strikes in the middle, and when one has ended well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ends_well_is_never_a_mix() {
    let bed = Arc::new(Bed::new(&["file"]).await);
    let path = bed.path("file");
    fs::write(&path, vec![0; LENGTH]).unwrap();
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let running = Arc::new(AtomicBool::new(true));
    let writer = {
        let (begun, ended, running) = (begun.clone(), ended.clone(), running.clone());
        std::thread::spawn(move || {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let mut round = 0u8;
            while running.load(Ordering::Acquire) {
                round = round.wrapping_add(1);
                file.write_all_at(&vec![round; LENGTH], 0).unwrap();
                let turn = if round.is_multiple_of(2) { &begun } else { &ended };
                let before = turn.load(Ordering::Acquire);
                while turn.load(Ordering::Acquire) == before && running.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
        })
    };
    let (mut well, mut changed) = (0, 0);
    let readers = (0..READERS).map(|_| {
        let (bed, begun, ended) = (bed.clone(), begun.clone(), ended.clone());
        tokio::spawn(async move {
            let (mut well, mut changed) = (0, 0);
            while well < COPIES {
                match copy(&bed, &begun).await {
                    Ok(bytes) => {
                        assert_eq!(bytes.len(), LENGTH);
                        let first = bytes[0];
                        let other = bytes.iter().position(|byte| *byte != first);
                        assert_eq!(other, None, "a mix: {first} and then another");
                        well += 1;
                    }
                    Err(RemoteError::VersionChanged { .. } | RemoteError::Busy { .. }) => changed += 1,
                    Err(error) => panic!("{error}"),
                }
                ended.fetch_add(1, Ordering::Release);
            }
            (well, changed)
        })
    });
    for reader in futures_util::future::join_all(readers).await {
        let (more_well, more_changed) = reader.unwrap();
        well += more_well;
        changed += more_changed;
    }
    running.store(false, Ordering::Release);
    writer.join().unwrap();
    println!("{well} copies ended well, {changed} were struck by a change");
    assert!(well >= READERS * COPIES && changed > 0, "{well} well, {changed} changed");
}

async fn copy(bed: &Bed, begun: &AtomicUsize) -> Result<Vec<u8>, RemoteError> {
    let answer = bed.dir.fetch(&call(), &bed.id("file").await, &Version::None, Span::WHOLE).await?;
    let mut stream = answer.value.body.stream;
    let mut bytes = Vec::with_capacity(LENGTH);
    while let Some(piece) = stream.next().await {
        if let Piece::Bytes(piece) = piece? {
            bytes.extend_from_slice(&piece);
        }
        begun.fetch_add(1, Ordering::Release);
    }
    Ok(bytes)
}

const SPARSE_BYTES: u64 = 1 << 20;
const LENGTH: usize = 4 << 20;
const READERS: usize = 3;
const COPIES: usize = 10;

/// One write takes longer than the clock's grain: its time is old before its bytes are all there, and nothing moves the
/// time again when it ends. What is copied meanwhile must be what the file holds under that version ever after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_write_under_way_is_waited_for() {
    let bed = Bed::new(&["file"]).await;
    let path = bed.path("file");
    fs::write(&path, vec![0; LONG]).unwrap();
    let end = Span { start: LONG as u64 - 4096, length: None };
    for round in 1..=ROUNDS {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = vec![round; LONG];
        let (begins, begun) = tokio::sync::oneshot::channel();
        let writer = std::thread::spawn(move || {
            begins.send(()).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        });
        begun.await.unwrap();
        let answer = bed.dir.fetch(&call(), &bed.id("file").await, &Version::None, end).await.unwrap();
        let version = answer.version.clone();
        let copied = drain(answer.value.body).await;
        writer.join().unwrap();
        let again = bed.dir.fetch(&call(), &bed.id("file").await, &version, end).await;
        match (copied, again) {
            (Ok(copied), Ok(answer)) => {
                let now = drain(answer.value.body).await.unwrap();
                assert_eq!((copied[0], copied.len()), (now[0], 4096), "round {round}: two contents under one version");
            }
            // The write began after the copy.
            (_, Err(RemoteError::VersionChanged { .. })) | (Err(RemoteError::VersionChanged { .. }), _) => {}
            (copied, again) => panic!("{:?}, {again:?}", copied.map(|bytes| bytes.len())),
        }
    }
}

const LONG: usize = 256 << 20;
const ROUNDS: u8 = 3;

#[tokio::test]
async fn a_change_between_two_pieces_ends_the_body() {
    let bed = Bed::new(&["file"]).await;
    fs::write(bed.path("file"), vec![1; 1 << 20]).unwrap();
    let answer = bed.dir.fetch(&call(), &bed.id("file").await, &Version::None, Span::WHOLE).await.unwrap();
    let mut stream = answer.value.body.stream;
    let first = stream.next().await;
    assert!(matches!(&first, Some(Ok(Piece::Bytes(bytes))) if bytes.iter().all(|byte| *byte == 1)));
    // The same bytes, the same length: only the times tell.
    fs::write(bed.path("file"), vec![1; 1 << 20]).unwrap();
    let second = stream.next().await;
    let second = second.map(|piece| piece.map(|_| "a piece"));
    assert!(matches!(second, Some(Err(RemoteError::VersionChanged { .. }))), "{second:?}");
    assert!(stream.next().await.is_none());
}

/// A file that another takes the name of, or that gets another mode or name, is touched and not changed.
#[tokio::test]
async fn a_copy_goes_on_with_the_file_it_began_with() {
    let bed = Bed::new(&["file", "new"]).await;
    let path = bed.path("file");
    let begun = async || {
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let answer = bed.dir.fetch(&call(), &bed.id("file").await, &Version::None, Span::WHOLE).await.unwrap();
        let mut stream = answer.value.body.stream;
        stream.next().await.unwrap().unwrap();
        stream
    };
    let touch: [fn(&Bed); 3] = [
        |bed| fs::set_permissions(bed.path("file"), fs::Permissions::from_mode(0o600)).unwrap(),
        |bed| fs::hard_link(bed.path("file"), bed.path("second")).unwrap(),
        |bed| {
            fs::write(bed.path("new"), vec![2; 1 << 20]).unwrap();
            fs::rename(bed.path("new"), bed.path("file")).unwrap();
        },
    ];
    for (nth, touch) in touch.into_iter().enumerate() {
        let mut stream = begun().await;
        let mut length = 256 << 10;
        touch(&bed);
        while let Some(piece) = stream.next().await {
            let Piece::Bytes(bytes) = piece.unwrap() else { continue };
            assert!(bytes.iter().all(|byte| *byte == 1), "{nth}");
            length += bytes.len();
        }
        assert_eq!(length, 1 << 20, "{nth}");
    }
    assert_eq!(bed.read("file").await.unwrap(), vec![2; 1 << 20]);
}

/// What was touched, and written with its time of modification set back, is found by its bytes.
#[tokio::test]
async fn a_copy_of_a_forged_time_is_no_mix() {
    let bed = Bed::new(&["file"]).await;
    fs::write(bed.path("file"), vec![1; 1 << 20]).unwrap();
    let modified = fs::metadata(bed.path("file")).unwrap().modified().unwrap();
    let answer = bed.dir.fetch(&call(), &bed.id("file").await, &Version::None, Span::WHOLE).await.unwrap();
    let mut stream = answer.value.body.stream;
    stream.next().await.unwrap().unwrap();
    let file = fs::OpenOptions::new().write(true).open(bed.path("file")).unwrap();
    file.write_all_at(&[2; 1 << 20], 0).unwrap();
    file.set_modified(modified).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    let second = stream.next().await.unwrap().map(|_| "a piece");
    assert!(matches!(second, Err(RemoteError::VersionChanged { .. })), "{second:?}");
}

#[tokio::test]
async fn a_span_starts_where_it_was_asked_for_and_a_version_is_kept_to() {
    let bed = Bed::new(&["file"]).await;
    let content: Vec<u8> = (0..700_001u32).map(|at| (at % 251) as u8).collect();
    fs::write(bed.path("file"), &content).unwrap();
    let version = bed.entry("file").await.version;
    for (start, length) in [(0, Some(1)), (262_143, Some(2)), (262_144, None), (700_000, Some(9)), (700_001, None)] {
        let answer = bed.dir.fetch(&call(), &bed.id("file").await, &version, Span { start, length }).await.unwrap();
        let body = answer.value.body;
        assert_eq!((body.start, body.file_length, body.resumable), (start, Some(700_001), true));
        let end = length.map_or(content.len(), |length| content.len().min((start + length) as usize));
        assert_eq!(drain(body).await.unwrap(), content[start as usize..end]);
    }
    fs::write(bed.path("file"), "other").unwrap();
    let refused = bed.dir.fetch(&call(), &bed.id("file").await, &version, Span::WHOLE).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_file_with_holes_and_an_empty_one() {
    let bed = Bed::new(&["hole", "empty"]).await;
    fs::OpenOptions::new().write(true).open(bed.path("hole")).unwrap().set_len(3 << 20).unwrap();
    fs::write(bed.path("empty"), "").unwrap();
    let hole = bed.read("hole").await.unwrap();
    assert_eq!(hole.len(), 3 << 20);
    assert!(hole[5..].iter().all(|byte| *byte == 0));
    assert!(bed.read("empty").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_has_the_lease_of_its_file() {
    let mut bed = Bed::new(&["d/file"]).await;
    let answer = bed.dir.fetch(&call(), &bed.id("d/file").await, &Version::None, Span::WHOLE).await.unwrap();
    assert!(matches!(answer.lease, Lease::UntilBroken(_)), "{:?}", answer.lease);
    fs::write(bed.path("d/file"), "changed").unwrap();
    bed.broken(&["d/file"]).await;
}
