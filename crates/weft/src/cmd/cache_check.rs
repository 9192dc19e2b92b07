//! `weft cache check` and `weft cache repair`: whether what is held still is what was written.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use weft_control::{CheckProgress, Checked};

use super::cache::{located, only_mount};
use super::show_bytes;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::say;

/// Reads everything that the cache of a mount holds; with `repair` what is damaged is given up.
///
/// # Errors
/// When the path is in no mount, or there are several and none is named; `Partly` when something is damaged and was
/// left as it is.
pub fn run(mount: Option<&Path>, repair: bool, json: bool) -> Outcome {
    let client = match mount {
        Some(path) => located(path)?.0,
        None => only_mount()?,
    };
    let mut bar = Bar { shown: !json && std::io::stderr().is_terminal(), told: Instant::now() };
    let mut found = CheckProgress::default();
    for line in client.check(repair)? {
        let line = line?;
        if json {
            say!("{}", serde_json::to_string(&line).expect("plain data"));
        }
        match line {
            Checked::Progress(progress) => bar.show(&progress),
            Checked::Done(progress) => found = progress,
            Checked::Damage { path, offset, length, cause } if !json => {
                bar.clear();
                say!("{path}: {} at {offset}: {cause}", show_bytes(length));
            }
            Checked::Volume { cause } if !json => {
                bar.clear();
                say!("{cause}");
            }
            Checked::Damage { .. } | Checked::Volume { .. } => {}
        }
    }
    bar.clear();
    if !json {
        say!("{}", summary(&found, repair));
    }
    if repair || found.is_sound() {
        return Ok(());
    }
    Err(Failure::new(Exit::Partly, "something is damaged; `weft cache repair` gives up all of it now"))
}

fn summary(found: &CheckProgress, repair: bool) -> String {
    let looked = format!("{} in {} files compared", show_bytes(found.bytes), found.files);
    if found.is_sound() {
        return format!("{looked}: all is what was written");
    }
    let given_up = if repair { "given up, to be fetched again" } else { "the next use of each fetches it again" };
    let tables = match found.damaged_volumes {
        0 => String::new(),
        count => format!(", and the tables of {count} volumes"),
    };
    format!(
        "{looked}: {} of {} files damaged{tables}; {given_up}",
        show_bytes(found.damaged_bytes),
        found.damaged_files
    )
}

/// A line on standard error that the next takes the place of.
struct Bar {
    shown: bool,
    told: Instant,
}

impl Bar {
    fn show(&mut self, progress: &CheckProgress) {
        if self.shown && self.told.elapsed() >= PAUSE {
            self.told = Instant::now();
            let (done, all) = (show_bytes(progress.bytes), show_bytes(progress.bytes_held));
            eprint!("\r{done} of {all} compared, {} files damaged\x1b[K", progress.damaged_files);
            // What a terminal does not take is not missed.
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Between two lines.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_says_what_was_found_and_done() {
        let sound = CheckProgress { files: 3, bytes: 2048, ..CheckProgress::default() };
        assert_eq!(summary(&sound, true), "2.0 KiB in 3 files compared: all is what was written");
        let damaged = CheckProgress { damaged_files: 1, damaged_bytes: 1024, damaged_volumes: 1, ..sound };
        let said = summary(&damaged, true);
        assert!(said.contains("1.0 KiB of 1 files damaged, and the tables of 1 volumes; given up"), "{said}");
        assert!(summary(&damaged, false).ends_with("the next use of each fetches it again"));
    }
}
