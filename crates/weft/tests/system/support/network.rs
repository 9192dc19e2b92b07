//! Network namespaces of the tests' own, and a small server that can live in one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::process::{Program, find_program, is_root};

/// A network namespace in which nothing is up, not even loopback. It ends when this is dropped.
pub struct Network {
    holder: Child,
    _out: BufReader<ChildStdout>,
}

impl Network {
    /// A new one; `None`, with a line that says so, where the tests may not make one.
    pub fn new() -> Option<Network> {
        if !is_root() || ["unshare", "nsenter", "ip"].into_iter().any(|name| find_program(name).is_none()) {
            super::without("network namespaces need root, unshare(1), nsenter(1) and ip(8)");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", "echo up; exec sleep 1000"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("unshare(1) runs");
        let mut out = BufReader::new(holder.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        if line != "up\n" {
            let _ = holder.wait();
            super::without("this machine refuses network namespaces");
            return None;
        }
        Some(Network { holder, _out: out })
    }

    /// The words that run a program in it.
    pub fn words(&self) -> Vec<String> {
        ["nsenter", "-t", &self.holder.id().to_string(), "-n", "--"].map(str::to_owned).into()
    }

    /// Runs ip(8) in it.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        Program::words(&self.words()).arg("ip").args(words.split(' ')).good();
    }

    /// Joins two by a cable: `10.77.0.1` here, `10.77.0.2` there; both ends are called `cable`.
    #[track_caller]
    pub fn join(&self, other: &Network) {
        let there = other.holder.id().to_string();
        self.ip(&format!("link add cable type veth peer name cable netns {there}"));
        for (network, address) in [(self, "10.77.0.1/24"), (other, "10.77.0.2/24")] {
            network.ip(&format!("address add {address} dev cable"));
            network.ip("link set cable up");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A server whose files must be confirmed at each use (`max-age=0`, with entity tags), in a process of its own. It
/// writes a line for each request.
pub struct Confirming {
    child: Child,
    host: String,
    log: PathBuf,
}

impl Confirming {
    /// Serves `root` at `address`, in `network` where one is given. `None` where there is no Python.
    pub fn start(root: &Path, address: &str, network: Option<&Network>, log: &Path) -> Option<Confirming> {
        if find_program("python3").is_none() {
            super::without("python3 is missing");
            return None;
        }
        let mut words = network.map(Network::words).unwrap_or_default();
        words.extend(["python3", "-u", "-c", SCRIPT].map(str::to_owned));
        words.extend([address.to_owned(), root.display().to_string(), log.display().to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its port");
        let host = format!("{address}:{}", line.trim());
        Some(Confirming { child, host, log: log.to_owned() })
    }

    /// Its folder in a mount of everything.
    pub fn site(&self) -> String {
        format!("web/{}", self.host)
    }

    /// Requests so far.
    pub fn requests(&self) -> usize {
        std::fs::read_to_string(&self.log).map_or(0, |log| log.lines().count())
    }

    /// Stops it where it is: the kernel goes on taking connections for it.
    pub fn freeze(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a child of ours");
    }
}

impl Drop for Confirming {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SCRIPT: &str = r#"
import hashlib, http.server, os, sys
address, root, log = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def do_GET(self):
        with open(log, "a") as lines: lines.write(self.path + "\n")
        path = os.path.join(root, self.path.strip("/"))
        kind = "application/octet-stream"
        if os.path.isdir(path):
            if not self.path.endswith("/"):
                self.send_response(301); self.send_header("Location", self.path + "/")
                self.send_header("Content-Length", "0"); self.end_headers(); return
            names = [n + ("/" if os.path.isdir(os.path.join(path, n)) else "") for n in sorted(os.listdir(path))]
            body = "".join("<a href='%s'>x</a>" % n for n in names).encode(); kind = "text/html"
        elif os.path.isfile(path):
            body = open(path, "rb").read()
        else:
            self.send_response(404); self.send_header("Content-Length", "0"); self.end_headers(); return
        tag = '"%s"' % hashlib.sha256(body).hexdigest()[:16]
        same = self.headers.get("If-None-Match") == tag
        self.send_response(304 if same else 200)
        self.send_header("ETag", tag); self.send_header("Cache-Control", "max-age=0"); self.send_header("Content-Type", kind)
        if not same: self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not same: self.wfile.write(body)
server = http.server.ThreadingHTTPServer((address, 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;
