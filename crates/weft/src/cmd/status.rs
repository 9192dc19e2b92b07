//! `weft status`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use weft_control::{Client, Hello, Mounts, SourceStatus, Status, daemons};

use super::{find, show_bytes};
use crate::config::Environment;
use crate::exit::Outcome;
use crate::output::say;

/// Shows the mount that `dir` lies in, or all mounts. With `--json`: one object for one mount, a list for all.
///
/// # Errors
/// When `dir` is in no mount.
pub fn run(dir: Option<&Path>, json: bool) -> Outcome {
    if let Some(dir) = dir {
        let status = find(dir)?.client.status()?;
        match json {
            true => say!("{}", serde_json::to_string(&status).expect("plain data")),
            false => show(&status),
        }
        return Ok(());
    }
    let live = daemons(&Environment::of_this_process().socket_dir());
    // A daemon may end, or refuse another user, between the greeting and the question.
    let status = |(mut client, hello): (Client, Hello)| Some((client.status().ok()?, hello.connection));
    let all: Vec<(Status, Option<u32>)> = live.into_iter().filter_map(status).collect();
    if json {
        let all: Vec<&Status> = all.iter().map(|(status, _)| status).collect();
        say!("{}", serde_json::to_string(&all).expect("plain data"));
        return Ok(());
    }
    let of_kernel = Mounts::of_this_process()?;
    let is_here = |own: &Option<u32>| own.is_none_or(|own| of_kernel.place_of(own).is_some());
    let answers = |place: &Path| {
        all.iter().any(|(status, connection)| status.mountpoint.as_path() == place && is_here(connection))
    };
    for silent in of_kernel.iter().filter(|place| !answers(place)) {
        let shown = silent.display();
        say!("{shown}: mounted, but no daemon answers you; if it is gone, `weft umount --lazy {shown}` clears it away");
    }
    if all.is_empty() && of_kernel.iter().next().is_none() {
        say!("no weft mounts; `weft mount DIR` makes one");
    }
    for (status, connection) in &all {
        show(status);
        if !is_here(connection) {
            say!("             not mounted here: unmounted while it was in use, or in another mount namespace");
        }
    }
    Ok(())
}

fn show(status: &Status) {
    let source = if status.source.is_empty() { "everything" } else { &status.source };
    say!("{} on {}", source, status.mountpoint);
    say!("  daemon     {} (weft {}), up {}", status.daemon_pid, status.version, show_time(status.uptime_s));
    if status.transport == weft_fuse::Transport::IoUring.name() {
        say!("  transport  io_uring; the mount ends with its daemon");
    }
    say!("  cache      {}", status.cache_dir);
    let figures = &status.figures;
    say!(
        "  holds      {} of {} files, {} names known",
        show_bytes(figures.object_bytes),
        figures.objects,
        figures.names
    );
    say!("  asked      {} requests, {} received", figures.requests, show_bytes(figures.received_bytes));
    say!("  served     {} hits, {} misses", figures.hits, figures.misses);
    if let Some(metrics) = &status.metrics {
        say!("  metrics    {metrics}");
    }
    for path in &status.offline {
        let path = if path.0.is_empty() { "everything".to_owned() } else { path.to_string() };
        say!("  offline    {path}");
    }
    for path in &status.fetch_only {
        let path = if path.0.is_empty() { "everything".to_owned() } else { path.to_string() };
        say!("  fetch-only {path}");
    }
    for source in status.sources.iter().filter(|source| source.state != "connected") {
        say!("  {:<10} {}", source.name, source_line(source));
    }
    for path in &status.pinned {
        let path = if path.is_empty() { "everything" } else { path };
        say!("  pinned     {path}");
    }
    for warm in &status.warms {
        let others = if warm.others > 0 { format!(" and {} more", warm.others) } else { String::new() };
        let progress = &warm.progress;
        let (done, came) = (progress.files_done, show_bytes(progress.bytes_done));
        say!("  warming    {}{others}: {done} of {} files, {came} came", warm.path, progress.files);
    }
    for file in &status.unsent.files {
        say!("  unsent     {}: {}", file.path, super::unsent::line(file));
    }
    match (status.unsent.files.is_empty(), status.unsent.more) {
        (true, _) => {}
        (false, 0) => say!("  unsent     `weft unsent` says what can be done"),
        (false, more) => say!("  unsent     and {more} more; `weft unsent` lists them and says what can be done"),
    }
    for binding in &status.bindings {
        say!("  {:<10} {} {}", binding.path.to_string(), binding.kind, binding.state);
    }
    for trouble in &status.troubles {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(trouble.at_unix_s);
        let ago = SystemTime::now().duration_since(at).unwrap_or_default().as_secs();
        say!("  trouble    {} ago: {}", show_time(ago), trouble.sentence);
    }
}

/// `disconnected for 5 min: 127.0.0.1:80: connection refused; last answer 2 h 3 min ago`
fn source_line(source: &SourceStatus) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let error = source.last_error.as_deref().unwrap_or("no error known");
    let contact = match source.last_contact_unix_s {
        Some(at) => format!("last answer {} ago", show_time(now.saturating_sub(at))),
        None => "no answer to this daemon yet".to_owned(),
    };
    format!("{} for {}: {error}; {contact}", source.state, show_time(now.saturating_sub(source.since_unix_s)))
}

/// A time for people, in two units.
pub(super) fn show_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
