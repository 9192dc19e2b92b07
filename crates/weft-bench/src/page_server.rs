//! The server of pages: nginx with two processes that answer, in a memory group with whatever it reads through.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::memory_group::MemoryGroup;
use crate::process;
use crate::server::{nginx, wait_until_up};

/// A running nginx; it ends with this value.
#[derive(Debug)]
pub struct PageServer {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub authority: String,
}

impl PageServer {
    /// Serves a folder; its own files lie in another, which is made.
    pub fn start(group: &MemoryGroup, own: &Path, folder: &Path) -> Result<PageServer> {
        std::fs::create_dir_all(own)?;
        // Another process could take the port in between; nginx says so then.
        let authority = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let config = own.join("nginx.conf");
        std::fs::write(&config, configuration(own, folder, &authority)?)?;
        let mut command = group.command(&nginx()?);
        command.arg("-p").arg(own).arg("-c").arg(&config).arg("-e").arg(own.join("error.log"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("nginx")?;
        let mut server = PageServer { child, authority };
        wait_until_up(&mut server.child, &server.authority)?;
        Ok(server)
    }

    /// Ends it, with the processes that it has started.
    pub fn end(mut self) -> Result<()> {
        let status = self.ask_to_end()?;
        ensure!(status, "nginx did not end");
        Ok(())
    }

    fn ask_to_end(&mut self) -> Result<bool> {
        if self.child.try_wait()?.is_some() {
            return Ok(true);
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        Ok(process::wait(&mut self.child, PATIENCE)?.is_some())
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        // Its group ends whoever is left.
        let _ = self.ask_to_end();
    }
}

/// What answers a request is what is measured: nothing is remembered of files, nothing is read by other threads.
fn configuration(own: &Path, folder: &Path, authority: &str) -> Result<String> {
    let own = own.to_str().context("a folder in UTF-8")?;
    let folder = folder.to_str().context("a folder in UTF-8")?;
    Ok(format!(
        "user root;\ndaemon off;\nworker_processes 2;\npid {own}/nginx.pid;\nerror_log {own}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  aio off;\n  open_file_cache off;\n  \
         keepalive_requests 1000000;\n  client_body_temp_path {own}/body;\n  proxy_temp_path {own}/proxy;\n  \
         fastcgi_temp_path {own}/fastcgi;\n  uwsgi_temp_path {own}/uwsgi;\n  scgi_temp_path {own}/scgi;\n  \
         server {{ listen {authority} reuseport; root {folder}; }}\n}}\n"
    ))
}

const PATIENCE: Duration = Duration::from_secs(20);
