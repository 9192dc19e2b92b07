//! Real web servers on a folder, each on a free port of 127.0.0.1.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::certificate::Certificate;
use super::process::{find_program, without};

/// A server that ends when this is dropped. Its documents are in [`Server::root`].
pub struct Server {
    folder: tempfile::TempDir,
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    port: u16,
    marks: u32,
}

/// A request that a server has logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The status that it answered.
    pub status: u16,
    /// The protocol (`HTTP/1.1`).
    pub protocol: String,
    /// The method; empty for what was no HTTP.
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
}

impl Server {
    /// nginx with generated listings; `extra` goes into the `server` block.
    pub fn nginx(extra: &str) -> Option<Server> {
        Server::nginx_listening("", extra)
    }

    /// nginx speaking TLS with HTTP/2, for 127.0.0.1.
    pub fn nginx_tls(certificate: &Certificate, extra: &str) -> Option<Server> {
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        let extra = format!("ssl_certificate {chain}; ssl_certificate_key {key}; {extra}");
        Server::nginx_listening("ssl http2", &extra)
    }

    fn nginx_listening(how: &str, extra: &str) -> Option<Server> {
        Server::start("nginx", |top, port| {
            let config = format!(
                "daemon off; master_process off; worker_processes 1; pid {top}/pid; error_log {top}/error;
                events {{ worker_connections 512; }}
                http {{
                    log_format told '$status $server_protocol $request';
                    access_log {top}/access told;
                    types {{ text/html html; text/plain txt; }}
                    default_type application/octet-stream; keepalive_requests 100000;
                    client_body_temp_path {top}/t1; proxy_temp_path {top}/t2; fastcgi_temp_path {top}/t3;
                    uwsgi_temp_path {top}/t4; scgi_temp_path {top}/t5;
                    server {{ listen 127.0.0.1:{port} {how}; root {top}/www; autoindex on; {extra} }}
                }}"
            );
            let file = write(&top, "nginx.conf", &config);
            vec!["-e".to_owned(), format!("{top}/error"), "-c".to_owned(), file]
        })
    }

    /// Apache with the listing in columns that people use.
    pub fn apache() -> Option<Server> {
        Server::apache_listing("FancyIndexing NameWidth=*")
    }

    /// Apache with the listing that it gives when nobody says how: names alone. Those that begin with a dot are left out.
    pub fn apache_plain() -> Option<Server> {
        Server::apache_listing("None\nIndexIgnore .??*\n<Files *.html>\nForceType text/html\n</Files>")
    }

    fn apache_listing(how: &str) -> Option<Server> {
        Server::start("apache2", |top, port| {
            let modules: String = ["mpm_event", "authz_core", "dir", "autoindex", "log_config"]
                .iter()
                .map(|module| (module, format!("/usr/lib/apache2/modules/mod_{module}.so")))
                .filter(|(_, file)| Path::new(file).exists())
                .map(|(module, file)| format!("LoadModule {module}_module {file}\n"))
                .collect();
            let config = format!(
                "ServerRoot {top}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {top}/pid\n\
                ErrorLog {top}/error\n{modules}DocumentRoot {top}/www\n\
                LogFormat \"%>s %H %r\" told\nCustomLog {top}/access told\n\
                <Directory {top}/www>\nOptions +Indexes\nRequire all granted\nIndexOptions {how}\n\
                </Directory>\n"
            );
            let file = write(&top, "apache.conf", &config);
            vec!["-D".to_owned(), "FOREGROUND".to_owned(), "-f".to_owned(), file]
        })
    }

    /// Apache that shows directories by WebDAV alone.
    pub fn apache_dav() -> Option<Server> {
        Server::start("apache2", |top, port| {
            let modules: String = ["mpm_event", "authz_core", "dav", "dav_fs", "log_config"]
                .iter()
                .map(|module| (module, format!("/usr/lib/apache2/modules/mod_{module}.so")))
                .filter(|(_, file)| Path::new(file).exists())
                .map(|(module, file)| format!("LoadModule {module}_module {file}\n"))
                .collect();
            let config = format!(
                "ServerRoot {top}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {top}/pid\n\
                ErrorLog {top}/error\n{modules}DavLockDB {top}/locks\nDocumentRoot {top}/www\n\
                LogFormat \"%>s %H %r\" told\nCustomLog {top}/access told\n\
                <Directory {top}/www>\nDav On\nRequire all granted\n</Directory>\n"
            );
            let file = write(&top, "apache.conf", &config);
            vec!["-D".to_owned(), "FOREGROUND".to_owned(), "-f".to_owned(), file]
        })
    }

    /// lighttpd with its listing.
    pub fn lighttpd() -> Option<Server> {
        Server::start("lighttpd", |top, port| {
            let config = format!(
                "server.modules = (\"mod_dirlisting\")\nserver.document-root = \"{top}/www\"\n\
                server.bind = \"127.0.0.1\"\nserver.port = {port}\ndir-listing.activate = \"enable\"\n\
                dir-listing.hide-dotfiles = \"disable\"\nserver.errorlog = \"{top}/error\"\n"
            );
            let file = write(&top, "lighttpd.conf", &config);
            vec!["-D".to_owned(), "-f".to_owned(), file]
        })
    }

    /// `python3 -m http.server`.
    pub fn python() -> Option<Server> {
        Server::start("python3", |top, port| {
            ["-m", "http.server", "--bind", "127.0.0.1", "--directory", &format!("{top}/www"), &port.to_string()]
                .map(str::to_owned)
                .to_vec()
        })
    }

    /// `rclone serve`, in `http` or `webdav`, which shows at once what changes.
    pub fn rclone(protocol: &str) -> Option<Server> {
        Server::start("rclone", |top, port| {
            let config = write(&top, "rclone.conf", "");
            let (address, folder) = (format!("127.0.0.1:{port}"), format!("{top}/www"));
            ["serve", protocol, "--dir-cache-time", "0s", "--addr", &address, "--config", &config, &folder]
                .map(str::to_owned)
                .to_vec()
        })
    }

    fn start(program: &str, prepare: impl Fn(String, u16) -> Vec<String>) -> Option<Server> {
        let Some(program) = find_program(program) else {
            without(&format!("{program} is not installed; scripts/install-test-deps.sh installs it"));
            return None;
        };
        let folder = tempfile::Builder::new().prefix("wt-site-").tempdir().expect("a temporary folder");
        // Servers give up their rights and must still get in.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
        std::fs::create_dir(folder.path().join("www")).expect("made");
        let mut server = Server { folder, program, arguments: Vec::new(), child: None, port: 0, marks: 0 };
        // Between finding a free port and the server taking it somebody else may: then another one is tried.
        for _ in 0..PORT_TRIES_MAX {
            server.port = free_port();
            server.arguments = prepare(server.folder.path().display().to_string(), server.port);
            if server.begin() {
                return Some(server);
            }
        }
        panic!("the server does not start: {}", server.output());
    }

    /// Changes its configuration file for the next start: `old` is replaced by `new`.
    #[track_caller]
    pub fn configure(&mut self, old: &str, new: &str) {
        let file = PathBuf::from(self.arguments.last().expect("the configuration comes last"));
        let text = std::fs::read_to_string(&file).expect("read");
        assert!(text.contains(old), "{text}");
        std::fs::write(&file, text.replace(old, new)).expect("written");
    }

    /// Every request logged so far, of a server that has ended.
    pub fn logged(&self) -> Vec<Hit> {
        let log = std::fs::read(self.folder.path().join("access")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().map(Hit::parse).filter(|hit| !hit.target.starts_with(MARK)).collect()
    }

    /// Starts it again on the same port.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.begin(), "the server does not start again: {}", self.output());
    }

    /// Ends it; its port refuses connections from now on.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Asked to end, a server takes its workers along; killed, it leaves them behind.
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = child.wait();
    }

    /// Starts the process and waits until it listens; whether it does.
    fn begin(&mut self) -> bool {
        let log = std::fs::File::create(self.folder.path().join("output")).expect("made");
        // Should the tests be killed, their servers go with them.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(&self.program).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let mut child = command.spawn().expect("setpriv(1) runs");
        for _ in 0..UP_TRIES_MAX {
            if child.try_wait().expect("our child").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                self.child = Some(child);
                return true;
            }
            // Only between two questions to a port that nobody can be told about by its server.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    fn output(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        read("output") + &read("error")
    }

    /// The folder of its documents.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("www")
    }

    /// `127.0.0.1:PORT`, its name in the mount.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its folder in a mount of everything.
    pub fn site(&self) -> String {
        format!("web/{}", self.host())
    }

    /// Every request logged so far, but for those of this function.
    #[track_caller]
    pub fn hits(&mut self) -> Vec<Hit> {
        // The servers log a request when it has been answered: an answer to a last question of ours comes after the
        // lines of all that were answered before.
        self.marks += 1;
        let mark = format!("{MARK}{}", self.marks);
        let mut answer = Vec::new();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        write!(stream, "GET {mark} HTTP/1.1\r\nHost: mark\r\nConnection: close\r\n\r\n").expect("sent");
        stream.read_to_end(&mut answer).expect("answered");
        self.logged()
    }

    /// The paths that were asked for since the log had `from` lines; what was no HTTP (the greeting of TLS that finds
    /// out whether the port speaks it) aside.
    #[track_caller]
    pub fn asked_since(&mut self, from: usize) -> Vec<String> {
        let hits = self.hits().split_off(from);
        let http = hits.into_iter().filter(|hit| !hit.method.is_empty());
        http.map(|hit| format!("{} {}", hit.method, hit.target)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Hit {
    fn parse(line: &str) -> Hit {
        let mut words = line.splitn(3, ' ');
        let status = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let protocol = words.next().unwrap_or_default().to_owned();
        let request: Vec<&str> = words.next().unwrap_or_default().split(' ').collect();
        match request.as_slice() {
            [method, target, _] if method.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                Hit { status, protocol, method: (*method).to_owned(), target: (*target).to_owned() }
            }
            _ => Hit { status, protocol, method: String::new(), target: String::new() },
        }
    }
}

/// A port that nobody listens on right now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn write(top: &str, name: &str, text: &str) -> String {
    let file = format!("{top}/{name}");
    std::fs::write(&file, text).expect("written");
    file
}

const MARK: &str = "/.mark-of-the-tests-";
const PORT_TRIES_MAX: usize = 5;
const UP_TRIES_MAX: usize = 1000;
