//! `weft warm`: fetches trees ahead.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::json;
use weft_control::{
    Code, ControlError, Located, PathBytes, Refusal, WarmForecast, WarmOrder, WarmProgress, Warmed, Warmth,
};

use super::path_list::{self, Against};
use super::status::show_time;
use super::{find, next_of, only_mount, show_bytes};
use crate::cli::WarmArgs;
use crate::config::Source;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{complain, say};

/// Fetches what is at and below the paths, and tells what happens. Where the daemon is replaced meanwhile the next one is asked
/// for the same: what came is there.
///
/// # Errors
/// When not all of it came; when the paths are in no mount, or in several.
pub fn run(args: &WarmArgs, json: bool) -> Outcome {
    let (mut located, order, bad_lines) = order(args)?;
    let mut shown = Shown::new(json);
    for line in bad_lines {
        shown.bad_line(&line.why, line.number);
    }
    if order.paths.is_empty() {
        return Err(shown.none_came("no path in the list is in the mount"));
    }
    for _ in 0..DAEMONS_MAX {
        if let Some(progress) = told_by(located.client.warm(order.clone()), &mut shown)? {
            return shown.end(&progress, args);
        }
        let Some(next) = next_of(&located.mount, &located.hello) else { break };
        located = next;
        shown.begin_again();
    }
    Err(Failure::failed("the daemon ended before all had come; what came stays, and the same command goes on"))
}

/// Shows what one daemon tells. How far it has come in the end; `None` when the daemon ended before.
fn told_by(warmth: Result<Warmth, ControlError>, shown: &mut Shown) -> Outcome<Option<WarmProgress>> {
    let lines = match warmth {
        Err(ControlError::Ended) => return Ok(None),
        lines => lines?,
    };
    let mut done = None;
    for line in lines {
        let line = match line {
            Err(ControlError::Ended) => break,
            line => line?,
        };
        if let Warmed::Done(progress) = &line {
            done = Some(progress.clone());
        }
        shown.line(line);
    }
    Ok(done)
}

/// What is asked for, and of which mount.
fn order(args: &WarmArgs) -> Outcome<(Located, WarmOrder, Vec<path_list::BadLine>)> {
    let list = args
        .list
        .as_deref()
        .map(|file| path_list::read(file).map_err(|error| Failure::failed(format!("{}: {error}", file.display()))));
    let list = list.transpose()?;
    let place = args.paths.first().cloned().or_else(|| list.as_deref().and_then(path_list::first_absolute));
    let mut located = match place {
        Some(place) => find(&place)?,
        None => find(&only_mount()?)?,
    };
    let mountpoint = located.hello.mountpoint.clone();
    let mut paths = Vec::new();
    for path in &args.paths {
        let other = find(path)?;
        if other.hello.mountpoint != mountpoint {
            let sentence =
                format!("{}: in another mount than {}; one mount at a time", path.display(), args.paths[0].display());
            return Err(Failure::usage(sentence));
        }
        paths.push(other.path);
    }
    let mut bad = Vec::new();
    if let Some(list) = list {
        let source = Source::parse(&located.client.status()?.source).map_err(Failure::failed)?;
        let (listed, bad_lines) =
            path_list::paths(&list, &Against { mountpoint: mountpoint.as_path(), source: &source });
        if matches!(source, Source::Everything | Source::Web | Source::Dirs) {
            // The mount itself says which one the list is about: as a whole it is not gone through.
            paths.retain(|path: &PathBytes| !path.0.is_empty());
        }
        paths.extend(listed);
        bad = bad_lines;
    }
    let order = WarmOrder {
        paths,
        depth: args.depth,
        matching: args.matching.clone(),
        excluding: args.exclude.clone(),
        max_bytes: args.max,
        pin: args.pin,
        dry_run: args.dry_run,
        force: args.force,
        ignore_robots: args.ignore_robots,
        jobs: args.jobs as usize,
        pause_ms: args.rate.map_or(0, |pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
    };
    Ok((located, order, bad))
}

/// How often a rate may be, as the pause between two requests: `5/s`, `30/m`, or a number for one second.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_rate(text: &str) -> Result<Duration, String> {
    let allowed = || format!("`{text}` is no rate: write a number from 1 to 1000 per time, as in 5/s, 30/m or 100/h");
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(allowed()),
    };
    let number: u32 = number.parse().ok().filter(|number| (1..=1000).contains(number)).ok_or_else(allowed)?;
    Ok(Duration::from_secs(seconds) / number)
}

/// What people, or programs, are shown.
struct Shown {
    json: bool,
    /// Whether there is a bar on standard error.
    bar: bool,
    /// When the first byte was asked for, and when progress was last told.
    began: Option<Instant>,
    told: Instant,
    fits: bool,
    /// The first thing that went wrong, and how many of what kind did.
    first_failure: Option<(Code, String)>,
    bad_lines: u64,
}

impl Shown {
    fn new(json: bool) -> Shown {
        let bar = !json && std::io::stderr().is_terminal();
        Shown { json, bar, began: None, told: Instant::now(), fits: true, first_failure: None, bad_lines: 0 }
    }

    /// Another daemon begins with all of it.
    fn begin_again(&mut self) {
        self.line(Warmed::Note { text: "the daemon was replaced: the next one goes on".to_owned() });
        (self.began, self.fits) = (None, true);
        if self.bad_lines == 0 {
            self.first_failure = None;
        }
    }

    fn bad_line(&mut self, why: &str, number: usize) {
        self.bad_lines += 1;
        if self.json {
            say!("{}", json!({ "event": "bad_line", "line": number, "why": why }));
        } else {
            complain!("weft: line {number}: {why}");
        }
        self.first_failure.get_or_insert((Code::Invalid, why.to_owned()));
    }

    fn line(&mut self, line: Warmed) {
        match &line {
            Warmed::Failed { path, why, code, .. } => {
                self.first_failure.get_or_insert((*code, about(path, why)));
            }
            Warmed::Forbidden { path, why } => {
                self.first_failure.get_or_insert((Code::Denied, about(path, why)));
            }
            Warmed::Forecast(forecast) => {
                self.fits = forecast.misfits.is_empty();
                self.began = Some(Instant::now());
            }
            _ => {}
        }
        if self.json {
            say!("{}", serde_json::to_string(&line).expect("plain data"));
            return;
        }
        match line {
            Warmed::Walking { directories, files } => {
                self.progress(&format!("listing: {directories} directories, {files} files"));
            }
            Warmed::Note { text } => self.tell(&text),
            Warmed::Forbidden { path, why } => self.tell(&about(&path, &format!("left out: {why}"))),
            Warmed::Failed { path, why, others, .. } => {
                let others = if others > 0 { format!("; {others} more are not tried") } else { String::new() };
                self.tell(&format!("{}{others}", about(&path, &why)));
            }
            Warmed::Forecast(forecast) => {
                self.clear();
                if forecast.files > 0 || self.first_failure.is_none() {
                    say!("{}", forecast_line(&forecast));
                }
                forecast.misfits.iter().for_each(|why| complain!("weft: does not fit: {why}"));
            }
            Warmed::Progress(progress) => {
                let elapsed = self.began.map_or(Duration::ZERO, |began| began.elapsed());
                self.progress(&progress_line(&progress, elapsed, self.bar));
            }
            Warmed::File { .. } | Warmed::Done(_) => {}
        }
    }

    /// A line that stays.
    fn tell(&self, text: &str) {
        self.clear();
        complain!("weft: {text}");
    }

    /// A line that the next takes the place of, on a terminal; elsewhere one now and then.
    fn progress(&mut self, text: &str) {
        if self.bar {
            let width = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
            // A terminal that does not tell is as wide as most.
            let width = usize::from(if width == 0 { 80 } else { width });
            let text: String = text.chars().filter(|char| !char.is_control()).take(width.saturating_sub(1)).collect();
            eprint!("\r{text}\x1b[K");
            // What a terminal does not take is not missed.
            let _ = std::io::stderr().flush();
        } else if self.told.elapsed() >= QUIET {
            self.told = Instant::now();
            complain!("{text}");
        }
    }

    fn clear(&self) {
        if self.bar {
            eprint!("\r\x1b[K");
        }
    }

    fn end(self, progress: &WarmProgress, args: &WarmArgs) -> Outcome {
        self.clear();
        let stopped_short = !self.fits && !args.force;
        if args.dry_run || stopped_short {
            if !self.fits {
                let next = "make room (`weft cache` shows who uses it), or add --force to go as far as it fits";
                return Err(Failure::failed(format!("it does not fit, and nothing was fetched; {next}")));
            }
            return match self.missing(progress) {
                0 => Ok(()),
                missing if progress.files > 0 => Err(partly(missing, "paths are not in the forecast")),
                _ => Err(self.none_came("nothing can be fetched")),
            };
        }
        if !self.json && progress.files > 0 {
            say!("{}", end_line(progress));
        }
        match (self.missing(progress), progress.files_done) {
            (0, _) => Ok(()),
            (_, 0) => Err(self.none_came("nothing came")),
            (missing, _) => Err(partly(missing, "paths did not come")),
        }
    }

    fn missing(&self, progress: &WarmProgress) -> u64 {
        progress.failed + progress.forbidden + self.bad_lines
    }

    fn none_came(&self, what: &str) -> Failure {
        let Some((code, first)) = &self.first_failure else { return Failure::failed(what) };
        let sentence =
            if self.json { format!("{what}: {first}") } else { format!("{what}; the causes are told above") };
        Failure::from(ControlError::Refused(Refusal::new(*code, sentence)))
    }
}

fn partly(missing: u64, what: &str) -> Failure {
    Failure::new(Exit::Partly, format!("{missing} {what}; the causes are told above, and the same command goes on"))
}

fn about(path: &PathBytes, why: &str) -> String {
    let path = path.to_string();
    if path.is_empty() || why.starts_with(&path) { why.to_owned() } else { format!("{path}: {why}") }
}

/// `12 files in 3 directories: 10 to fetch, 3.4 MiB (of that 1.2 MiB is an estimate; 2 of unknown size), 1 to check, 1
/// here; 20.0 GiB free`.
fn forecast_line(forecast: &WarmForecast) -> String {
    let mut doubts = Vec::new();
    if forecast.estimated_bytes > 0 {
        doubts.push(format!("of that {} is an estimate", show_bytes(forecast.estimated_bytes)));
    }
    if forecast.unknown > 0 {
        doubts.push(format!("{} of unknown size not counted", forecast.unknown));
    }
    let doubts = if doubts.is_empty() { String::new() } else { format!(" ({})", doubts.join("; ")) };
    format!(
        "{} files in {} directories: {} to fetch, {}{doubts}; {} to check, {} here; {} free",
        forecast.files,
        forecast.directories,
        forecast.to_fetch,
        show_bytes(forecast.bytes),
        forecast.to_check,
        forecast.fresh,
        show_bytes(forecast.disk_free_bytes)
    )
}

/// `[=====     ] 12/24 files, 3.4 MiB of 7.0 MiB, 1.2 MiB/s, 3 s left: web/example.org/a`.
fn progress_line(progress: &WarmProgress, elapsed: Duration, bar: bool) -> String {
    let rate = progress.bytes_done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = progress.bytes.saturating_sub(progress.bytes_done);
    let left = if rate >= 1.0 && left > 0 {
        format!(", {} left", show_time((left as f64 / rate) as u64))
    } else {
        String::new()
    };
    let filled = (BAR_WIDTH as u64 * progress.files_done).checked_div(progress.files).unwrap_or(0) as usize;
    let filled = filled.min(BAR_WIDTH);
    let bar = if bar { format!("[{}{}] ", "=".repeat(filled), " ".repeat(BAR_WIDTH - filled)) } else { String::new() };
    format!(
        "{bar}{}/{} files, {} of {}, {}/s{left}: {}",
        progress.files_done,
        progress.files,
        show_bytes(progress.bytes_done),
        show_bytes(progress.bytes.max(progress.bytes_done)),
        show_bytes(rate as u64),
        progress.current
    )
}

fn end_line(progress: &WarmProgress) -> String {
    let mut line = format!(
        "{} of {} files are here: {} fetched, {}",
        progress.files_done,
        progress.files,
        progress.fetched,
        show_bytes(progress.bytes_done)
    );
    if progress.failed > 0 {
        line.push_str(&format!("; {} failed", progress.failed));
    }
    if progress.forbidden > 0 {
        line.push_str(&format!("; {} left out", progress.forbidden));
    }
    line
}

/// How often progress is told where there is no terminal.
const QUIET: Duration = Duration::from_secs(5);
const BAR_WIDTH: usize = 20;
/// How many daemons are asked for the same, one after the other.
const DAEMONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_pauses() {
        assert_eq!(parse_rate("5/s"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_rate("4"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_rate("30/m"), Ok(Duration::from_secs(2)));
        for text in ["", "0/s", "-1/s", "5/d", "1001/s", "x"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bar_never_overflows() {
        let progress = WarmProgress { files: 4, files_done: 2, bytes: 100, bytes_done: 400, ..WarmProgress::default() };
        let line = progress_line(&progress, Duration::from_secs(4), true);
        assert!(line.starts_with("[==========          ] 2/4 files, 400 B of 400 B, 100 B/s: "), "{line}");
        let none = progress_line(&WarmProgress::default(), Duration::ZERO, true);
        assert!(none.contains("0/0 files"), "{none}");
    }
}
