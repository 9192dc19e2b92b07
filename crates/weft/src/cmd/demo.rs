//! `weft demo`: a tour of one minute over the sample site, in a temporary folder.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use weft_control::Mounts;

use super::show_bytes;
use crate::exit::{Failure, Outcome};
use crate::output::{complain, say};
use crate::site::Site;

/// The tour. Always cleans up after itself, and takes a minute at most.
///
/// # Errors
/// When a stop on the way fails.
pub fn run() -> Outcome {
    let stage = Stage::new()?;
    let (arrived, watch) = mpsc::channel::<()>();
    let (program, mountpoint) = (stage.program.clone(), stage.mountpoint.clone());
    let guard = std::thread::spawn(move || {
        if watch.recv_timeout(TIME_MAX) == Err(RecvTimeoutError::Timeout) {
            complain!("weft: the tour takes too long: unmounting");
            // Whatever waits on the mount gets an error now, and the tour ends there.
            let _ = Command::new(program).args(["umount", "--lazy"]).arg(mountpoint).status();
        }
    });
    let ended = tour(&stage);
    drop(stage);
    drop(arrived);
    // A panic there would have been printed; the tour has its own outcome.
    let _ = guard.join();
    ended
}

/// The temporary folder; dropping it unmounts and removes it.
struct Stage {
    program: PathBuf,
    top: PathBuf,
    mountpoint: PathBuf,
}

impl Stage {
    fn new() -> Outcome<Stage> {
        let program = std::env::current_exe().map_err(|error| Failure::failed(format!("/proc/self/exe: {error}")))?;
        let top = std::env::temp_dir().join(format!("weft-demo-{}", std::process::id()));
        let mountpoint = top.join("mount");
        let made = std::fs::DirBuilder::new().mode(0o700).create(&top);
        made.map_err(|error| Failure::failed(format!("{}: {error}", top.display())))?;
        let stage = Stage { program, top, mountpoint };
        let files = std::fs::create_dir(&stage.mountpoint)
            .and_then(|()| std::fs::write(stage.top.join("weft.toml"), "# the demo uses the defaults\n"));
        files.map_err(|error| Failure::failed(format!("{}: {error}", stage.top.display())))?;
        Ok(stage)
    }

    /// Runs one of weft's own verbs on the terminal, after showing it.
    fn weft(&self, words: &[&str], paths: &[&Path]) -> Outcome {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        say!("\n$ weft {} {}", words.join(" "), shown.join(" "));
        let status = Command::new(&self.program).args(words).args(paths).stdin(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::failed(format!("weft {}: {status}", words.join(" ")))),
            Err(error) => Err(Failure::failed(format!("{}: {error}", self.program.display()))),
        }
    }

    fn is_mounted(&self) -> bool {
        Mounts::of_this_process().is_ok_and(|mounts| mounts.has(&self.mountpoint))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.is_mounted() {
            let unmount = Command::new(&self.program).args(["umount", "--lazy"]).arg(&self.mountpoint).status();
            if let Err(error) = unmount {
                complain!("weft: {}: {error}", self.mountpoint.display());
            }
        }
        if self.is_mounted() {
            complain!("weft: {} is still mounted and is left as it is", self.mountpoint.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.top) {
            complain!("weft: {}: {error}", self.top.display());
        }
    }
}

fn tour(stage: &Stage) -> Outcome {
    say!("A tour of weft, in {}.", stage.top.display());
    let site = Arc::new(Site::new());
    let (server, address) = serve(&site)?;
    say!("A small web server inside this program serves a sample site on http://{address}/.");
    let (config, cache) = (stage.top.join("weft.toml"), stage.top.join("cache"));
    let (config, cache) = (config.display().to_string(), cache.display().to_string());
    stage.weft(&["mount", "--config", &config, "--cache", &cache], &[&stage.mountpoint])?;
    let root = stage.mountpoint.join("web").join(address.to_string());

    say!("\nCold: every file comes over HTTP.");
    let cold = read_all(&site, &root)?;
    show("cold", &cold, &site);
    stage.weft(&["ls", "-w", "--all"], &[&root])?;

    say!("\nWarm: the same files again.");
    let asked = site.requests();
    let warm = read_all(&site, &root)?;
    show("warm", &warm, &site);
    say!("  requests meanwhile: {}", site.requests() - asked);

    say!("\nThe server stops. The same files again:");
    server.shutdown_background();
    let off = read_all(&site, &root)?;
    show("server off", &off, &site);
    if (cold.bytes, cold.sum) != (off.bytes, off.sum) || cold.sum != warm.sum {
        return Err(Failure::failed("the bytes differ between the readings: that is a bug of weft"));
    }
    stage.weft(&["why"], &[&root.join("index.html")])?;
    stage.weft(&["umount"], &[&stage.mountpoint])?;
    say!("\nThat was it. Next: `mkdir -p ~/weft && weft mount ~/weft`, then `ls ~/weft/web/example.org`.");
    Ok(())
}

/// One reading of every file.
struct Reading {
    files: usize,
    bytes: u64,
    sum: u64,
    time: Duration,
}

fn read_all(site: &Site, root: &Path) -> Outcome<Reading> {
    let mut reading = Reading { files: 0, bytes: 0, sum: 0, time: Duration::ZERO };
    for path in site.files() {
        let path = root.join(path);
        let start = Instant::now();
        let bytes = std::fs::read(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        reading.time += start.elapsed();
        reading.files += 1;
        reading.bytes += bytes.len() as u64;
        reading.sum = bytes.iter().fold(reading.sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    Ok(reading)
}

fn show(name: &str, reading: &Reading, site: &Site) {
    say!(
        "  {name}: {} files, {} in {:.1} ms; the server has had {} requests",
        reading.files,
        show_bytes(reading.bytes),
        reading.time.as_secs_f64() * 1000.0,
        site.requests()
    );
}

/// Serves the site on a free port of this machine until the runtime is shut down.
fn serve(site: &Arc<Site>) -> Outcome<(Runtime, SocketAddr)> {
    let failed = |error: std::io::Error| Failure::failed(format!("the sample site's server: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let site = Arc::clone(site);
    runtime.spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(Arc::clone(&site).serve(connection));
        }
    });
    Ok((runtime, address))
}

/// Longest tour.
const TIME_MAX: Duration = Duration::from_secs(55);
