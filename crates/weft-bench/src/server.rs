//! The server: one nginx on free ports of 127.0.0.1, a port for each tree.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::access_log::Requests;

/// A running nginx; it ends with this value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

/// A tree as it is served.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    port: u16,
}

/// A place in the access log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Site {
    /// What listens at this port of 127.0.0.1.
    pub fn at_port(port: u16) -> Site {
        Site { port }
    }

    /// `127.0.0.1:PORT`.
    pub fn authority(self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The same under another address: one of [`CROWD_HOSTS`] hosts.
    pub fn authority_of(self, host: usize) -> String {
        format!("127.0.1.{}:{}", host + 1, self.port)
    }

    /// `http://127.0.0.1:PORT`, without a slash.
    pub fn url(self) -> String {
        format!("http://{}", self.authority())
    }
}

impl Server {
    /// Serves each folder at a port of its own, with generated lists.
    pub fn start(dir: &Path, folders: &[&Path]) -> Result<(Server, Vec<Site>)> {
        std::fs::create_dir_all(dir)?;
        // Held together until all are known, so that they differ; another process could take one in between.
        let held: Vec<TcpListener> =
            folders.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
        let ports: Vec<u16> = held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<std::io::Result<_>>()?;
        drop(held);
        let config = dir.join("nginx.conf");
        std::fs::write(&config, configuration(dir, folders, &ports)?)?;
        let mut command = Command::new(nginx()?);
        command.arg("-p").arg(dir).arg("-c").arg(&config).arg("-e").arg(dir.join("error.log"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("nginx")?;
        let mut server = Server { child, log: dir.join("access.log") };
        let sites: Vec<Site> = ports.into_iter().map(|port| Site { port }).collect();
        for site in &sites {
            wait_until_up(&mut server.child, &site.authority())?;
        }
        Ok((server, sites))
    }

    /// The end of the log, with everything in it that has been answered.
    ///
    /// nginx is one process here and logs a request before it closes its connection: a request of our own that has
    /// ended comes behind all others that have.
    pub fn mark(&self, site: Site) -> Result<Mark> {
        let mut stream = TcpStream::connect(site.authority())?;
        write!(stream, "GET {MARK_PATH} HTTP/1.0\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(Mark(std::fs::metadata(&self.log)?.len()))
    }

    /// What was asked since a mark.
    pub fn requests_since(&self, site: Site, mark: Mark) -> Result<Requests> {
        let end = self.mark(site)?;
        let mut log = File::open(&self.log)?;
        log.seek(SeekFrom::Start(mark.0))?;
        let mut bytes = Vec::new();
        log.take(end.0 - mark.0).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let ours = format!("\t{MARK_PATH}");
        Ok(Requests::of(&text.lines().filter(|line| !line.ends_with(&ours)).collect::<Vec<_>>().join("\n")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is one process: nothing is left behind. It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something listens at an authority, or the nginx that should has ended.
pub fn wait_until_up(nginx: &mut Child, authority: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(authority) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                if let Some(status) = nginx.try_wait()? {
                    bail!("nginx has ended: {status}");
                }
                std::thread::yield_now();
            }
            Err(error) => return Err(error).context("nginx does not come up"),
        }
    }
}

/// The program; Debian keeps it where ordinary users do not look.
pub fn nginx() -> Result<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&on_path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.find_map(|place| Some(place.join("nginx")).filter(|file| file.is_file())).context("nginx is not installed")
}

fn configuration(dir: &Path, folders: &[&Path], ports: &[u16]) -> Result<String> {
    let dir = dir.to_str().context("a folder in UTF-8")?;
    let mut text = String::new();
    if rustix::process::geteuid().is_root() {
        text.push_str("user root;\n");
    }
    write!(
        text,
        "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nerror_log {dir}/error.log;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  log_format sorted '$status\\t$request_method\\t$request_uri';\n  \
         access_log {dir}/access.log sorted;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000;\n  \
         autoindex on;\n  autoindex_exact_size on;\n  client_body_temp_path {dir}/body;\n  \
         proxy_temp_path {dir}/proxy;\n  fastcgi_temp_path {dir}/fastcgi;\n  uwsgi_temp_path {dir}/uwsgi;\n  \
         scgi_temp_path {dir}/scgi;\n"
    )?;
    for (number, (folder, port)) in folders.iter().zip(ports).enumerate() {
        let folder = folder.to_str().context("a folder in UTF-8")?;
        write!(text, "  server {{ listen 127.0.0.1:{port}; root {folder};")?;
        // The first is many hosts: each address is one.
        for host in 0..if number == 0 { CROWD_HOSTS } else { 0 } {
            write!(text, " listen 127.0.1.{}:{port};", host + 1)?;
        }
        text.push_str(" }\n");
    }
    text.push_str("}\n");
    Ok(text)
}

/// Hosts that the first folder is served by.
pub const CROWD_HOSTS: usize = 90;
/// Asked for by the bench itself; never counted.
const MARK_PATH: &str = "/weft-bench-mark";
/// How long an nginx may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);
