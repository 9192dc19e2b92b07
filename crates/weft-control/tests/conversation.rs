//! Client and server over a real socket. Goal: every verb arrives as asked and its answer comes back whole, and
//! what is not a request gets a sentence, not a hang-up of the daemon.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use weft_control::{
    Access, CacheReport, Cached, Change, ChangeKind, CheckProgress, Checked, Client, Code, ControlError, Copied,
    Covered, Daemon, Decision, Depth, Eviction, Fact, Family, FamilyKind, Grouped, Hello, LINE_BYTES_MAX, Lines,
    Measures, NameInfo, NameKind, OfPinned, PathBytes, Refusal, Reloaded, Removed, Sample, Server, Status, UnsentFile,
    UnsentReport, Value, WarmForecast, WarmOrder, Warmed, Watched, Why, daemons, find_for_path,
};

struct Answering {
    mountpoint: PathBuf,
    /// What a watch of `told` is told.
    told: Mutex<Option<Lines<Watched>>>,
    /// Lines made for a watch of `full`.
    made: Arc<AtomicU64>,
}

#[async_trait]
impl Daemon for Answering {
    fn hello(&self) -> Hello {
        let mountpoint = PathBytes::from(self.mountpoint.as_path());
        Hello {
            version: "test".to_owned(),
            daemon_pid: std::process::id(),
            mountpoint,
            uid: 0,
            connection: None,
            is_ending: false,
        }
    }

    async fn status(&self, _uid: u32) -> Result<Status, Refusal> {
        Ok(Status { source: "web".to_owned(), uptime_s: 7, ..Status::default() })
    }

    async fn names(&self, path: &[u8], _uid: u32) -> Result<Vec<NameInfo>, Refusal> {
        let name = |number: usize| NameInfo {
            name: PathBytes([path, b"\xff", number.to_string().as_bytes()].concat()),
            kind: NameKind::File,
            cached: Cached::Part,
            size: Some(number as u64),
            modified_unix_s: Some(-1),
            learnt_unix_s: None,
        };
        Ok((0..2500).map(name).collect())
    }

    async fn remove(&self, path: &[u8], depth: Depth, of_pinned: OfPinned, _uid: u32) -> Result<Removed, Refusal> {
        if of_pinned == OfPinned::Goes {
            return Err(Refusal::new(Code::Failed, "pinned as well"));
        }
        match depth {
            Depth::Below => Ok(Removed { files: path.len() as u64, bytes: 5 }),
            Depth::This => Err(Refusal::new(Code::Busy, "in use")),
        }
    }

    async fn reload(&self, _path: &[u8], _depth: Depth, _uid: u32) -> Result<Reloaded, Refusal> {
        Ok(Reloaded { checked: 3, changed: 2, failed: 1 })
    }

    async fn why(&self, path: &[u8], _uid: u32) -> Result<Why, Refusal> {
        let value = String::from_utf8_lossy(path).into_owned();
        Ok(Why { facts: vec![Fact { name: "path".to_owned(), value }] })
    }

    async fn take_offline(&self, path: &[u8], fetch_only: bool, _uid: u32) -> Result<(), Refusal> {
        assert_eq!((path, fetch_only), (&b"web/a"[..], true));
        Ok(())
    }

    async fn bring_online(&self, _path: &[u8], _uid: u32) -> Result<(), Refusal> {
        Err(Refusal::new(Code::NotFound, "nothing there is offline"))
    }

    async fn pin(&self, path: &[u8], _uid: u32) -> Result<Covered, Refusal> {
        Ok(Covered { files: path.len() as u64, ..Covered::default() })
    }

    async fn unpin(&self, _path: &[u8], _uid: u32) -> Result<Covered, Refusal> {
        Err(Refusal::new(Code::NotFound, "nothing there is pinned"))
    }

    async fn cache(&self, path: &[u8], _uid: u32) -> Result<CacheReport, Refusal> {
        Ok(CacheReport { more_trees: path.len() as u64, counted: true, ..CacheReport::default() })
    }

    async fn evictions(&self, limit: usize, _uid: u32) -> Result<Vec<Eviction>, Refusal> {
        let eviction = |nth: usize| Eviction {
            at_unix_s: nth as u64,
            path: "x".repeat(3000),
            bytes: 1,
            class: "scratch".to_owned(),
            reason: "[cache] max".to_owned(),
        };
        Ok((0..limit).map(eviction).collect())
    }

    async fn unmount(&self, _lazy: bool) -> Result<(), Refusal> {
        Ok(())
    }

    async fn replace(&self) -> Result<(), Refusal> {
        Ok(())
    }

    async fn watch(&self, path: &[u8], every: Option<Duration>, _uid: u32) -> Result<Lines<Watched>, Refusal> {
        match path {
            b"told" => Ok(self.told.lock().expect("no panic").take().expect("watched once")),
            b"full" => {
                let lines = std::iter::repeat_with(|| Ok(Watched::Lost { lost: 1 }));
                let made = self.made.clone();
                let counted = lines.inspect(move |_| {
                    made.fetch_add(1, Ordering::SeqCst);
                });
                Ok(futures_util::stream::iter(counted).boxed())
            }
            _ if every.is_some() => Err(Refusal::new(Code::Invalid, "too fast")),
            _ => Ok(futures_util::stream::pending().boxed()),
        }
    }

    async fn unsent(&self, path: &[u8], _uid: u32) -> Result<UnsentReport, Refusal> {
        Ok(UnsentReport { files: vec![UnsentFile { path: path.into(), ..UnsentFile::default() }], more: 3 })
    }

    async fn decide(&self, path: &[u8], decision: Decision, _uid: u32) -> Result<u64, Refusal> {
        match decision {
            Decision::Send => Err(Refusal::new(Code::Failed, "changed")),
            Decision::SendOver => Ok(path.len() as u64),
            Decision::Discard => Err(Refusal::new(Code::Busy, "open for writing")),
        }
    }

    async fn copy_source(&self, path: &[u8], _uid: u32) -> Result<Lines<Copied>, Refusal> {
        Ok(futures_util::stream::iter([Ok(Copied::Done { bytes: path.len() as u64 })]).boxed())
    }

    async fn copy_unsent(&self, _path: &[u8], _uid: u32) -> Result<Lines<Copied>, Refusal> {
        let worst = Copied::Bytes(PathBytes(vec![1; Copied::BYTES_MAX]));
        Ok(futures_util::stream::iter([Ok(worst), Ok(Copied::Done { bytes: Copied::BYTES_MAX as u64 })]).boxed())
    }

    async fn group(&self, groups: Vec<Vec<PathBytes>>, _linked: bool, _uid: u32) -> Result<Grouped, Refusal> {
        let files = groups.iter().flatten().count() as u64;
        Ok(Grouped { groups: groups.len() as u64, files, unknown: 0 })
    }

    async fn check(&self, repair: bool, _uid: u32) -> Result<Lines<Checked>, Refusal> {
        let done = CheckProgress { files: u64::from(repair), ..CheckProgress::default() };
        Ok(futures_util::stream::iter([Ok(Checked::Done(done))]).boxed())
    }

    async fn warm(&self, order: WarmOrder, _uid: u32) -> Result<Lines<Warmed>, Refusal> {
        let files = order.paths.len() as u64;
        let first = order.paths.first().map_or(0, |path| path.0.len() as u64);
        let forecast = WarmForecast { files, bytes: first, ..WarmForecast::default() };
        Ok(futures_util::stream::iter([Ok(Warmed::Forecast(forecast))]).boxed())
    }

    async fn stats(&self, _uid: u32) -> Result<Measures, Refusal> {
        let sample = Sample { labels: vec![("a".to_owned(), "b".to_owned())], value: Value::Number(7) };
        let (name, help) = ("weft_x_total".to_owned(), "X.".to_owned());
        Ok(Measures { families: vec![Family { name, help, kind: FamilyKind::Counter, samples: vec![sample] }] })
    }
}

/// A served daemon; the runtime ends, and with it the connections, when this is dropped.
struct Served {
    _runtime: tokio::runtime::Runtime,
    /// Tells whoever watches `told`.
    tell: tokio::sync::mpsc::Sender<Result<Watched, Refusal>>,
    made: Arc<AtomicU64>,
    stop: tokio::sync::oneshot::Sender<()>,
    socket: PathBuf,
    dir: tempfile::TempDir,
    mountpoint: PathBuf,
}

fn served(allow_other: bool) -> Served {
    let dir = tempfile::tempdir().expect("a folder");
    let mountpoint = dir.path().canonicalize().expect("there").join("mount");
    std::fs::create_dir(&mountpoint).expect("made");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("built");
    let owner_uid = rustix::process::geteuid().as_raw();
    let sockets = dir.path().join("sockets");
    let server = {
        let _inside = runtime.enter();
        Server::bind(&sockets, Access { owner_uid, allow_other }).expect("bound")
    };
    let socket = server.socket().to_owned();
    let (tell, told) = tokio::sync::mpsc::channel(1);
    let told = futures_util::stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) });
    let made = Arc::<AtomicU64>::default();
    let told = Mutex::new(Some(told.boxed()));
    let answering = Answering { mountpoint: mountpoint.clone(), told, made: made.clone() };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    runtime.spawn(server.serve(Arc::new(answering), stopped));
    Served { _runtime: runtime, tell, made, stop, socket, dir, mountpoint }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn every_verb_is_answered() {
    let served = served(false);
    let mut client = Client::connect(&served.socket).expect("connected");
    assert_eq!(client.hello().expect("answered").version, "test");
    assert_eq!(client.status().expect("answered").uptime_s, 7);
    let names = client.names(b"d").expect("answered");
    assert_eq!(names.len(), 2500);
    assert_eq!(names[2499].name.0, b"d\xff2499");
    let removed = client.remove(b"a/b", Depth::Below, OfPinned::Stays).expect("answered");
    assert_eq!(removed, Removed { files: 3, bytes: 5 });
    assert!(client.remove(b"a/b", Depth::Below, OfPinned::Goes).is_err());
    assert_eq!(client.pin(b"web/a").expect("answered").files, 5);
    assert!(client.unpin(b"web/a").is_err());
    assert_eq!(client.cache(b"web").expect("answered").more_trees, 3);
    assert_eq!(client.evictions(2).expect("answered").len(), 2);
    let evictions = client.evictions(usize::MAX).expect("as many as fit");
    assert_eq!(evictions.last().map(|last| last.at_unix_s + 1), Some(Eviction::COUNT_MAX as u64));
    assert_eq!(client.reload(b"", Depth::This).expect("answered").checked, 3);
    client.take_offline(b"web/a", true).expect("answered");
    assert!(client.bring_online(b"web/a").is_err(), "refused");
    assert_eq!(client.why("\u{fc}".as_bytes()).expect("answered").facts[0].value, "\u{fc}");
    assert_eq!(client.stats().expect("answered").sum("weft_x_total"), 7);
    assert_eq!(client.unsent(b"a").expect("answered").files[0].path.0, b"a");
    assert_eq!(client.decide(b"a/b", Decision::SendOver).expect("answered"), 3);
    assert!(client.decide(b"a/b", Decision::Send).is_err());
    let refused = client.decide(b"a/b", Decision::Discard).expect_err("refused");
    assert!(matches!(refused, ControlError::Refused(Refusal { code: Code::Busy, .. })), "{refused}");
    let copied = Client::connect(&served.socket).expect("connected").copy_unsent(b"a").expect("begun");
    assert_eq!(copied.filter(|line| line.is_ok()).count(), 2, "a line of the worst bytes fits");
    let copied = Client::connect(&served.socket).expect("connected").copy_source(b"a/b").expect("begun");
    assert_eq!(copied.flatten().collect::<Vec<_>>(), [Copied::Done { bytes: 3 }]);
    let refused = client.remove(b"a", Depth::This, OfPinned::Stays).expect_err("refused");
    assert!(matches!(refused, ControlError::Refused(Refusal { code: Code::Busy, .. })), "{refused}");
}

/// Goal: a stream's lines come as they are told, in order; its error or its end ends it; a client that goes away ends
/// it at once; a client that does not read holds no more than the socket's buffer; streams have their own limit.
#[test]
fn a_stream_is_told_line_by_line_and_ends_with_either_side() {
    let served = served(false);
    let watch = |path: &[u8], every| Client::connect(&served.socket).expect("connected").watch(path, every);
    let mut watching = watch(b"told", None).expect("begun");
    let change = |size| {
        let (path, change) = (PathBytes::from(&b"told/\xff"[..]), ChangeKind::MovedToDirectory);
        Watched::Change(Change { at: 1.25, path, change, from: None, to: Some("W/a".to_owned()), size: Some(size) })
    };
    for size in 0..3 {
        served.tell.blocking_send(Ok(change(size))).expect("watched");
        assert_eq!(watching.next().expect("a line").expect("good"), change(size));
    }
    served.tell.blocking_send(Ok(Watched::Lost { lost: 9 })).expect("watched");
    assert_eq!(watching.next().expect("a line").expect("good"), Watched::Lost { lost: 9 });
    drop(watching);
    // The receiving half goes when the server has noticed; the channel holds one more until then.
    while served.tell.blocking_send(Ok(change(0))).is_ok() {}

    let refused = watch(b"x", Some(Duration::from_millis(1))).err().expect("refused");
    assert!(matches!(refused, ControlError::Refused(Refusal { code: Code::Invalid, .. })), "{refused}");
    let open: Vec<_> = (0..32).map(|_| watch(b"x", None).expect("begun")).collect();
    let refused = watch(b"x", None).err().expect("one too many");
    assert!(matches!(refused, ControlError::Refused(Refusal { code: Code::Busy, .. })), "{refused}");
    Client::connect(&served.socket).expect("connected").hello().expect("verbs are answered all the same");
    served.stop.send(()).expect("served");
    for mut watching in open {
        assert!(watching.next().is_none(), "the daemon's end is the end of the stream");
    }
}

/// Goal: an order of more paths than a line holds arrives whole, and paths of one order are not those of the next.
#[test]
fn a_long_order_arrives_whole() {
    let served = served(false);
    let connected = || Client::connect(&served.socket).expect("connected");
    let path = PathBytes(vec![0xff; 300]);
    let order = WarmOrder { paths: vec![path; 10_000], ..WarmOrder::default() };
    for _ in 0..2 {
        let mut lines = connected().warm(order.clone()).expect("begun");
        let forecast = WarmForecast { files: 10_000, bytes: 300, ..WarmForecast::default() };
        assert_eq!(lines.next().expect("a line").expect("good"), Warmed::Forecast(forecast));
        assert!(lines.next().is_none());
    }
    let bad = WarmOrder { paths: vec![PathBytes(b"a/../b".to_vec())], ..WarmOrder::default() };
    let refused = connected().warm(bad).err().expect("refused");
    assert!(matches!(refused, ControlError::Refused(Refusal { code: Code::Invalid, .. })), "{refused}");
}

#[test]
fn a_client_that_does_not_read_holds_nothing() {
    let served = served(false);
    let watching = Client::connect(&served.socket).expect("connected").watch(b"full", None).expect("begun");
    // The server has one worker: when no line is made while it answers others, it waits for this client.
    let mut other = Client::connect(&served.socket).expect("connected");
    let (mut before, mut still) = (0, 0);
    while still < 100 {
        other.hello().expect("answered");
        let made = served.made.load(Ordering::SeqCst);
        still = if made == before && made > 0 { still + 1 } else { 0 };
        before = made;
        assert!(made < 100_000, "{made} lines were made for a client that does not read");
    }
    drop(watching);
    other.hello().expect("the daemon still answers");
}

#[test]
fn the_socket_is_the_users_alone_unless_the_mount_is_open() {
    let closed = served(false);
    assert_eq!(mode(&closed.socket), 0o600);
    assert_eq!(mode(closed.socket.parent().expect("a folder")), 0o700);
    let open = served(true);
    assert_eq!(mode(&open.socket), 0o666);
    assert_eq!(mode(open.socket.parent().expect("a folder")), 0o755);
}

#[test]
fn what_is_not_a_request_gets_a_sentence() {
    let served = served(false);
    let long = format!("{{\"v\":1,\"verb\":\"why\",\"path\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
    let cases = [
        ("hello", "not a request"),
        ("{\"v\":1,\"verb\":\"dance\"}", "not a request"),
        ("{\"v\":9,\"verb\":\"hello\",\"new\":[]}", "version 9"),
        ("{\"v\":1,\"verb\":\"why\",\"path\":\"../etc\"}", "not a path"),
        ("{\"v\":1,\"verb\":\"why\",\"path\":\"/etc\"}", "not a path"),
        (long.as_str(), "one line"),
    ];
    for (line, wanted) in cases {
        let mut stream = UnixStream::connect(&served.socket).expect("connected");
        // The server may answer and hang up before a line that is too long has been sent.
        let _ = stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(b"\n"));
        let mut answer = String::new();
        let read = BufReader::new(stream).read_line(&mut answer);
        if line.len() < 1000 {
            read.expect("answered");
            assert!(answer.contains("\"invalid\"") && answer.contains(wanted), "{answer}");
        }
    }
    Client::connect(&served.socket).expect("connected").hello().expect("the daemon still answers");
}

#[test]
fn a_daemon_is_found_by_a_path_in_its_mount() {
    let served = served(false);
    let own = served.dir.path().join("sockets");
    let located = find_for_path(&own, &served.mountpoint.join("web/example.org/a")).expect("found");
    assert_eq!(located.path.0, b"web/example.org/a");
    assert_eq!(located.hello.mountpoint.as_path(), served.mountpoint);
    let root = find_for_path(&own, &served.mountpoint).expect("found");
    assert_eq!(root.path.0, b"");
    let outside = find_for_path(&own, served.dir.path()).expect_err("outside");
    assert!(matches!(outside, ControlError::NotAMount { .. }), "{outside}");
    assert_eq!(daemons(&own).iter().filter(|(_, hello)| hello.mountpoint.as_path() == served.mountpoint).count(), 1);
}

#[test]
fn the_socket_goes_with_the_server() {
    let served = served(false);
    let socket = served.socket.clone();
    assert!(socket.exists());
    drop(served._runtime);
    assert!(!socket.exists());
}
