//! Proxies: real ones (tinyproxy, microsocks), one that lies, lists with fail-over, and the address policy.

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use support::{Server, answer, call, fails, find, html, name, read, web_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weft_remote::{FileId, Remote, RemoteError};
use weft_web::{
    AddressPolicy, HostPattern, NoProxy, PrivateAddresses, Proxies, ProxyRule, UsualProxies, Via, Web, WebOptions,
};

/// A program of Debian's that ends when this is dropped.
struct Program {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Program {
    /// Starts it on a free port; `None`, with a line that says so, where it is not installed.
    async fn start(program: &str, arguments: impl Fn(&Path, u16) -> Vec<String>) -> Option<Program> {
        let found = ["/usr/bin", "/usr/sbin"].iter().map(|dir| Path::new(dir).join(program)).find(|path| path.exists());
        let Some(path) = found else {
            eprintln!("not tried: {program} is not installed; scripts/install-test-deps.sh installs it");
            return None;
        };
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let port = free_port();
            let mut command = Command::new(&path);
            command.args(arguments(folder.path(), port)).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            // Until it listens or has ended, for somebody else may have taken the port.
            while child.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).await.is_ok() {
                    return Some(Program { child, address, _folder: folder });
                }
                tokio::task::yield_now().await;
            }
        }
        panic!("{program} does not start");
    }

    async fn tinyproxy(extra: &str) -> Option<Program> {
        Program::start("tinyproxy", |folder, port| {
            let config = format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\nLogLevel Error\n{extra}\n");
            let file = folder.join("tinyproxy.conf");
            std::fs::write(&file, config).unwrap();
            vec!["-d".to_owned(), "-c".to_owned(), file.display().to_string()]
        })
        .await
    }

    async fn microsocks(login: &[&str]) -> Option<Program> {
        let words = |port: u16| ["-i", "127.0.0.1", "-p"].into_iter().map(str::to_owned).chain([port.to_string()]);
        let login: Vec<String> = login.iter().map(|word| (*word).to_owned()).collect();
        Program::start("microsocks", |_, port| words(port).chain(login.clone()).collect()).await
    }
}

fn via(texts: &[String]) -> Vec<Via> {
    texts.iter().map(|text| Via::parse(text).unwrap()).collect()
}

fn options(texts: &[String]) -> WebOptions {
    let rules = vec![ProxyRule { hosts: vec![HostPattern::Any], via: via(texts) }];
    WebOptions { proxies: Proxies { rules, ..Proxies::default() }, ..WebOptions::default() }
}

fn fact(web: &Web, file: &FileId, key: &str) -> String {
    web.about(file).into_iter().find(|(name, _)| name == key).map(|(_, value)| value).unwrap_or_default()
}

/// Reads `/x` of a server under a host that stands for 127.0.0.1.
async fn get(web: &Web, host: &str) -> Vec<u8> {
    let dir = FileId::new(format!("D {host}/"));
    let found = find(web, &dir, "x").await.value;
    read(found.along.unwrap().body).await.unwrap().0
}

#[tokio::test]
async fn an_http_proxy_serves_plain_and_tls() {
    let Some(proxy) = Program::tinyproxy("").await else { return };
    let url = format!("http://{}", proxy.address);
    let plain = Server::start(|_| answer(200, &[], "plain")).await;
    let web = web_with(options(std::slice::from_ref(&url)));
    for _ in 0..2 {
        assert_eq!(get(&web, &plain.address.to_string()).await, b"plain");
    }
    assert!(plain.log.lock().iter().all(|seen| seen.headers.contains_key("via")), "it came through the proxy");
    assert_eq!(fact(&web, &plain.file("/x"), "served through"), url);
    assert_eq!(fact(&web, &plain.file("/x"), "proxies"), url);
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let (server, pem) = Server::start_tls(|_| answer(200, &[], "safe"), &[protocol]).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        let web =
            web_with(WebOptions { extra_ca: Some(file.path().to_owned()), ..options(std::slice::from_ref(&url)) });
        for _ in 0..2 {
            assert_eq!(get(&web, &server.address.to_string()).await, b"safe");
        }
        assert_eq!(fact(&web, &server.file("/x"), "served through"), url);
        assert_eq!(*server.connections.lock(), 1, "kept");
        assert!(server.log.lock().iter().all(|seen| !seen.headers.contains_key("via")), "it reads nothing of TLS");
    }
    // What the proxy cannot reach is the host's fault, not the proxy's.
    let nowhere = format!("127.0.0.1:{}", free_port());
    let error = fails(&web, &web.root(), &nowhere).await;
    assert!(error.is_silence() && error.to_string().contains("the proxy"), "{error}");
    assert_eq!(get(&web, &plain.address.to_string()).await, b"plain");
}

#[tokio::test]
async fn a_proxy_gets_its_login_and_nobody_is_shown_it() {
    let server = Server::start(|_| answer(200, &[], "here")).await;
    let host = server.address.to_string();
    let mut proxies = Vec::new();
    if let Some(proxy) = Program::tinyproxy("BasicAuth me word").await {
        proxies.push(("http", proxy));
    }
    if let Some(proxy) = Program::microsocks(&["-u", "me", "-P", "word"]).await {
        proxies.push(("socks5", proxy));
    }
    for (scheme, proxy) in &proxies {
        let at = proxy.address;
        let web = web_with(options(&[format!("{scheme}://me:word@{at}")]));
        assert_eq!(get(&web, &host).await, b"here");
        assert!(server.log.lock().iter().all(|seen| !seen.headers.contains_key("proxy-authorization")));
        let facts = format!("{:?}", web.about(&server.file("/x")));
        assert!(facts.contains(&format!("{scheme}://{at}")) && !facts.contains("word"), "{facts}");
        for wrong in ["", "me:other@"] {
            let web = web_with(options(&[format!("{scheme}://{wrong}{at}")]));
            let error = web.lookup(&call(), &server.dir("/"), &name("x")).await.unwrap_err();
            assert!(!error.to_string().contains("other"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_socks_proxy_resolves_names_itself() {
    let Some(proxy) = Program::microsocks(&[]).await else { return };
    let web = web_with(options(&[format!("socks5://{}", proxy.address)]));
    let plain = Server::start(|_| answer(200, &[], "plain")).await;
    for host in [format!("localhost:{}", plain.address.port()), plain.address.to_string()] {
        assert_eq!(get(&web, &host).await, b"plain");
        assert_eq!(
            fact(&web, &FileId::new(format!("F {host}/x")), "served through"),
            format!("socks5://{}", proxy.address)
        );
    }
    let (server, pem) = Server::start_tls(|_| answer(200, &[], "safe"), &[b"h2"]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let options = options(&[format!("socks5://{}", proxy.address)]);
    let web = web_with(WebOptions { extra_ca: Some(file.path().to_owned()), ..options });
    assert_eq!(get(&web, &server.address.to_string()).await, b"safe");
}

/// A listener that counts who comes and closes at once.
async fn broken_proxy() -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let came = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = came.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.read_buf(&mut Vec::new()).await;
        }
    });
    (address, came)
}

/// A proxy that passes plain http alone, and answers it itself with what `answers` gives for a request's first line; where
/// that gives nothing it is silent, and keeps the connection. Counts who comes.
async fn raw_proxy(
    answers: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static,
) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, answers) = (listener.local_addr().unwrap(), Arc::new(answers));
    let came = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = came.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let answers = answers.clone();
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") && stream.read_buf(&mut asked).await.is_ok_and(|came| came > 0) {}
                let asked = String::from_utf8_lossy(&asked);
                let said = (*answers)(asked.lines().next().unwrap_or_default());
                match said {
                    Some(answer) => drop(stream.write_all(answer.as_bytes()).await),
                    None => std::future::pending().await,
                }
            });
        }
    });
    (address, came)
}

/// Goal: a host of which its proxy hears nothing does not take the proxy from the others. Method: a proxy that is silent when
/// it is to connect to one host; another one is asked for right after, and a proxy that has failed would be left alone.
#[tokio::test]
async fn a_silent_host_does_not_take_its_proxy_away() {
    let (proxy, came) = raw_proxy(|asked| match asked.split(' ').next() {
        _ if asked.contains("silent.invalid") => None,
        Some("CONNECT") => Some("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        _ => Some("HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nhere"),
    })
    .await;
    let patient = WebOptions {
        down_time: Duration::from_secs(3600),
        connect_timeout: Duration::from_secs(2),
        ..options(&[format!("http://{proxy}")])
    };
    let web = web_with(patient.clone());
    let error = fails(&web, &web.root(), "silent.invalid:81").await;
    assert!(matches!(&error, RemoteError::TimedOut { detail } if detail.contains("the proxy")), "{error}");
    assert_eq!(get(&web, "other.invalid:81").await, b"here");

    // Where the next way has the host, the proxy is the one that is silent.
    let server = Server::start(|_| answer(200, &[], "direct")).await;
    let (hung, visitors) = raw_proxy(|_| None).await;
    let list = [format!("http://{hung}"), "direct".to_owned()];
    let web = web_with(WebOptions { proxies: options(&list).proxies, ..patient });
    for _ in 0..2 {
        assert_eq!(get(&web, &server.address.to_string()).await, b"direct");
    }
    assert_eq!(visitors.load(std::sync::atomic::Ordering::SeqCst), 1, "left alone after that");
    assert!(came.load(std::sync::atomic::Ordering::SeqCst) > 1);
}

/// Goal: what a proxy says in the place of a host that it cannot reach is that, and nothing of a file. Method: what real ones
/// say (observed), and the same status from a host.
#[tokio::test]
async fn a_proxys_own_answer_is_not_taken_for_the_hosts() {
    const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for (answer, is_silence) in [
        ("503 Service Unavailable\r\nx-squid-error: ERR_CONNECT_FAIL 111", true),
        ("503 Service Unavailable\r\nx-squid-error: ERR_DNS_FAIL 0", true),
        ("504 Gateway Timeout\r\nx-squid-error: ERR_READ_TIMEOUT 0", true),
        ("500 Unable to connect\r\nserver: tinyproxy/1.11.1", true),
        ("404 No such domain\r\ncache-control: no-cache", true),
        ("503 Connect failed\r\ncache-control: no-cache", true),
        ("403 Forbidden\r\nx-squid-error: ERR_ACCESS_DENIED 0", false),
        ("500 Internal Server Error\r\nserver: nginx", false),
        ("502 Bad Gateway", false),
    ] {
        let whole = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let whole: &'static str = whole.leak();
        let (proxy, _) = raw_proxy(move |asked| Some(if asked.starts_with("CONNECT") { REFUSED } else { whole })).await;
        let web = web_with(options(&[format!("http://{proxy}")]));
        let error = fails(&web, &FileId::new("D gone.invalid:81/"), "x").await;
        assert_eq!(error.is_silence(), is_silence, "{answer}: {error}");
        assert!(!is_silence || error.to_string().contains("the proxy"), "{error}");
    }
}

/// Goal: the first that works serves, and one that does not is left alone for a while. Method: a list of one that
/// refuses, one that closes and the direct way; the second counts its visitors.
#[tokio::test]
async fn a_list_is_tried_in_its_order() {
    let (broken, came) = broken_proxy().await;
    let server = Server::start(|_| answer(200, &[], "here")).await;
    let list = [format!("http://127.0.0.1:{}", free_port()), format!("socks5://{broken}"), "direct".to_owned()];
    let patient = WebOptions { down_time: Duration::from_secs(3600), ..options(&list) };
    let web = web_with(patient);
    for _ in 0..3 {
        assert_eq!(get(&web, &server.address.to_string()).await, b"here");
    }
    assert_eq!(came.load(std::sync::atomic::Ordering::SeqCst), 1, "left alone after that");
    assert_eq!(fact(&web, &server.file("/x"), "served through"), "", "directly");
    assert!(fact(&web, &server.file("/x"), "proxies").contains("left alone for now"));
    // Without a last resort the error names the proxy.
    let web = web_with(options(&list[..1]));
    let error = fails(&web, &web.root(), &server.address.to_string()).await;
    assert!(matches!(&error, RemoteError::Unreachable { detail } if detail.contains(&list[0])), "{error}");
}

/// One that answers everything itself, and passes no TLS.
async fn own_proxy(text: &'static str) -> Server {
    Server::start(move |seen| match seen.method {
        hyper::Method::CONNECT => answer(403, &[], "plain http only"),
        _ => html(text),
    })
    .await
}

/// Goal: a proxy is no way around the address policy. Method: names and addresses that are refused directly are refused
/// through a proxy as well, before it hears of them; a name that only the proxy knows passes.
#[tokio::test]
async fn what_is_refused_directly_is_refused_through_a_proxy() {
    let proxy = own_proxy("the proxy itself").await;
    let private = PrivateAddresses::Deny { rule: "all".to_owned() };
    let pattern = |text: &str| HostPattern::parse(text).unwrap();
    let refuse = |deny: &[&str]| AddressPolicy {
        private: private.clone(),
        allow: vec![pattern("nas.invalid")],
        deny: deny.iter().map(|text| pattern(text)).collect(),
    };
    let through = |addresses| {
        let options = options(&[format!("http://{}", proxy.address)]);
        web_with(WebOptions { addresses, ..options })
    };
    let web = through(refuse(&["*.ads.invalid"]));
    for host in ["127.0.0.1:81", "10.1.2.3", "[::1]:81", "localhost:81", "x.ads.invalid"] {
        let error = fails(&web, &web.root(), host).await;
        assert!(matches!(&error, RemoteError::Denied { detail } if detail.contains("refused")), "{host}: {error}");
    }
    assert!(proxy.paths().is_empty(), "{:?}", proxy.paths());
    // This machine cannot resolve it; the proxy (which answers everything itself) is asked.
    let seen = get(&web, "known.invalid:81").await;
    assert_eq!(seen, b"the proxy itself");
    assert!(proxy.paths().iter().any(|path| path.contains("/x")));
}

#[tokio::test]
async fn the_environments_proxies_serve_what_no_rule_names() {
    let proxy = own_proxy("by proxy").await;
    let by = Some(Via::parse(&format!("http://{}", proxy.address)).unwrap());
    let except = NoProxy::parse("direct.invalid");
    let usual = UsualProxies { http: by.clone(), https: by, except };
    let web = web_with(WebOptions { proxies: Proxies { rules: Vec::new(), usual }, ..WebOptions::default() });
    assert_eq!(get(&web, "far.invalid:81").await, b"by proxy");
    support::absent(&web, &web.root(), "direct.invalid:81").await;
}

/// A proxy for plain http alone that says one thing in place of every host, on connections that end with the answer.
async fn says(listener: TcpListener, word: &'static str) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { break };
            asked.push(byte);
        }
        let status = if asked.starts_with(b"CONNECT") { "502 Bad Gateway" } else { "200 OK" };
        let length = word.len();
        let said = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{word}");
        let _ = stream.write_all(said.as_bytes()).await;
    }
}

/// Goal: a proxy that is left alone is tried where all others fail, for it may be back. Method: a list of two, of which the
/// first is not there at first, and the second not at last; what fails is left alone for an hour.
#[tokio::test]
async fn a_proxy_that_is_left_alone_is_tried_where_all_others_fail() {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (first, second) = (bind().await.unwrap(), bind().await.unwrap());
    let (back, there) = (first.local_addr().unwrap(), second.local_addr().unwrap());
    drop(first);
    let second = tokio::spawn(says(second, "second"));
    let list = [back, there].map(|address| format!("http://{address}"));
    let web = web_with(WebOptions { down_time: Duration::from_secs(3600), ..options(&list) });
    assert_eq!(get(&web, "far.invalid").await, b"second");
    let first = tokio::spawn(says(TcpListener::bind(back).await.unwrap(), "first"));
    second.abort();
    assert!(second.await.is_err_and(|ended| ended.is_cancelled()), "it takes nothing any more");
    assert_eq!(get(&web, "far.invalid").await, b"first");
    first.abort();
}
