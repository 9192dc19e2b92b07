//! A server whose every byte the test decides.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A server on a free port of 127.0.0.1 that answers by a function of the test. It speaks no TLS, and says so by
/// closing the connection. It ends when this is dropped.
pub struct Liar {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

type Script = Box<dyn Fn(&Asked, &mut TcpStream) + Send + Sync>;

struct Shared {
    script: Script,
    asked: Mutex<Vec<Asked>>,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Asked {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl Liar {
    /// A server that answers each request with the bytes that `script` makes for it.
    pub fn answering(script: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Liar {
        Liar::talking(move |asked, stream| {
            // Whoever hangs up early does not want the answer.
            let _ = stream.write_all(&script(asked));
        })
    }

    /// A server whose `script` talks to the client itself. The connection stays open after it.
    pub fn talking(script: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            asked: Mutex::default(),
            open: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = of_thread.clone();
                lock(&shared.open).push(stream.try_clone().expect("a descriptor"));
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Liar { address, shared, accepting: Some(accepting) }
    }

    /// `127.0.0.1:PORT`, its name in the mount.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Its folder in a mount of everything.
    pub fn site(&self) -> String {
        format!("web/{}", self.address)
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// How often `path` was asked for so far.
    pub fn times(&self, path: &str) -> usize {
        lock(&self.shared.asked).iter().filter(|asked| asked.path == path).count()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(shared: &Shared, mut stream: TcpStream) {
    while let Some(asked) = read_request(&mut stream) {
        lock(&shared.asked).push(asked.clone());
        (shared.script)(&asked, &mut stream);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// The next request; `None` at the end of the connection, and for what is not HTTP.
fn read_request(stream: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX || stream.read(&mut byte).ok()? == 0 || (head.is_empty() && byte[0] == TLS) {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let asked = Asked { method, path, headers };
    // What is sent along with a question belongs to it, not to the next one.
    let length = asked.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; usize::min(length, HEAD_BYTES_MAX)]).ok()?;
    Some(asked)
}

/// An answer with its length announced. `status` is as in `404 Not Found`; `headers` are lines without their ends.
pub fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A page in HTML.
pub fn page(body: &str) -> Vec<u8> {
    answer("200 OK", &["content-type: text/html"], body)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no script panics under this lock")
}

/// The first byte of a greeting in TLS (RFC 8446 section 5.1: a handshake record).
const TLS: u8 = 0x16;
const HEAD_BYTES_MAX: usize = 64 << 10;
