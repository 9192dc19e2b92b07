//! The tools of AFS under their old names: `fs`, `vos` and `pts`, which only ask.
//!
//! They talk to the servers by themselves, as the user who runs them. What a path is in AFS its mount tells
//! (`whereabouts.rs`); that something has changed mounts hear from the servers.

mod arguments;
mod fs;
mod help;
mod hosts;
mod pts;
mod session;
pub mod times;
mod vos;
mod whereabouts;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde_json::json;

use crate::exit::{Failure, Outcome};
use crate::output::say;
use arguments::{Arguments, Asked, Tool};
use session::{Session, Wishes};

/// Which of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Files, volumes and access lists, by their paths.
    Fs,
    /// Volumes and their servers.
    Vos,
    /// Users and groups.
    Pts,
}

impl Which {
    fn tool(self) -> &'static Tool {
        match self {
            Which::Fs => &fs::TOOL,
            Which::Vos => &vos::TOOL,
            Which::Pts => &pts::TOOL,
        }
    }

    /// How it is called.
    pub fn name(self) -> &'static str {
        self.tool().name
    }

    /// Its commands, as `help` lists them.
    pub fn list(self) -> String {
        self.tool().list()
    }
}

/// Whether a word of a tool wants JSON: the option of all verbs, with one dash or two.
pub fn is_json(word: &OsStr) -> bool {
    word == "--json" || word == "-json"
}

/// Does what the words after the tool's name say.
///
/// # Errors
/// What keeps it from being done.
pub fn run(which: Which, words: &[OsString], json: bool) -> Outcome {
    let tool = which.tool();
    let words: Vec<OsString> = words.iter().filter(|word| !is_json(word)).cloned().collect();
    let (command, arguments) = match tool.read(&words)? {
        Asked::Run(command, arguments) => (command, arguments),
        Asked::List => return help(&tool.list(), json),
        Asked::Help(commands) => {
            let texts: Vec<String> = commands.iter().map(|command| tool.help_of(command)).collect();
            return help(&texts.join("\n"), json);
        }
        Asked::Version => return help(concat!("weft ", env!("CARGO_PKG_VERSION")), json),
    };
    let session = Session::open(tool.name, wishes(&arguments, json)?)?;
    let outcome = (command.run)(&session, &arguments);
    session.close();
    outcome
}

/// What options that several commands have say of the session.
fn wishes(arguments: &Arguments, json: bool) -> Outcome<Wishes> {
    if arguments.has("localauth") {
        let sentence = "-localauth asks with the servers' own key, which this program does not read; `kinit` and `kvno \
            afs/CELL` as an administrator do the same";
        return Err(Failure::usage(sentence));
    }
    Ok(Wishes {
        json,
        config_dir: arguments.all("config").first().map(PathBuf::from),
        anybody: arguments.has("noauth"),
        encrypt: arguments.has("encrypt"),
        addresses: arguments.has("noresolve") || arguments.has("numeric"),
    })
}

/// What a server wrote, as it may be shown on a terminal: control characters are replaced.
fn server_text(bytes: &[u8]) -> String {
    let replaced = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    String::from_utf8_lossy(bytes).chars().map(replaced).collect()
}

fn help(text: &str, json: bool) -> Outcome {
    match json {
        true => say!("{}", json!({ "help": text })),
        false => say!("{}", text.trim_end()),
    }
    Ok(())
}
