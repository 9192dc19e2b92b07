//! One run of a tool: the configuration, the servers, and what is told.

use std::cell::{OnceCell, RefCell};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::runtime::Runtime;
use weft_afs::cell::{Cell, CellName};
use weft_afs::{AfsOptions, As, Client, Level, Place};
use weft_remote::RemoteError;

use super::hosts::Hosts;
use super::whereabouts::{Link, Whereabouts, no_rights, no_such_file};
use crate::cells::{Cells, this_cell};
use crate::config::{AfsSettings, Environment, Given, MountOptions, Source, resolve};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{complain, say};
use crate::wire_up::asked_afs;

/// What a tool works with.
pub struct Session {
    /// The tool's name.
    pub tool: &'static str,
    json: bool,
    settings: AfsSettings,
    options: AfsOptions,
    /// Names of servers.
    pub hosts: Hosts,
    runtime: Runtime,
    who: As,
    client: OnceCell<Client>,
    told: RefCell<Vec<Value>>,
}

/// What is told of one thing: for people and for programs.
pub struct Told {
    /// Lines, as OpenAFS's tools write them.
    pub text: String,
    /// The same in fields.
    pub fields: Value,
}

/// What the command line says of the session itself.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Whether what is told is JSON.
    pub json: bool,
    /// Another folder of cells.
    pub config_dir: Option<PathBuf>,
    /// To ask as anybody.
    pub anybody: bool,
    /// To have all protected that is said with a token.
    pub encrypt: bool,
    /// To show addresses of servers, not names.
    pub addresses: bool,
}

impl Session {
    /// Reads the configuration. Asks nobody.
    ///
    /// # Errors
    /// `Usage` for a mistake in the configuration.
    pub fn open(tool: &'static str, wishes: Wishes) -> Outcome<Session> {
        let environment = Environment::of_this_process();
        let options = MountOptions::default();
        let given =
            Given { source: Source::Everything, mountpoint: PathBuf::from("/"), cache: None, config: None, options };
        let resolved = resolve(given, &environment).map_err(Failure::usage)?;
        let mut settings = resolved.afs;
        settings.config_dir = wishes.config_dir.or(settings.config_dir);
        // This user's own, whoever mounts.
        settings.ccache = environment.ccache.or(settings.ccache);
        if wishes.encrypt {
            settings.level = Some(Level::Crypt);
        }
        let cells = Cells::read(&settings).map_err(|error| Failure::usage(format!("{error:#}")))?;
        let options = asked_afs(cells, &settings, &resolved.kvno);
        let hosts = Hosts::new(&options.cells);
        if wishes.addresses {
            hosts.show_addresses();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Session {
            tool,
            json: wishes.json,
            settings,
            options,
            hosts,
            runtime: runtime.map_err(|error| Failure::failed(format!("the runtime cannot be started: {error}")))?,
            who: if wishes.anybody { As::Anybody } else { As::TheUser },
            client: OnceCell::new(),
            told: RefCell::default(),
        })
    }

    /// The settings of AFS.
    pub fn settings(&self) -> &AfsSettings {
        &self.settings
    }

    /// How what is said with a token is protected.
    pub fn level(&self) -> Level {
        self.options.level
    }

    /// What `@sys` at the end of a name stands for.
    pub fn sysnames(&self) -> &[String] {
        &self.options.sysnames
    }

    /// All cells, in the order of their file.
    pub fn cells(&self) -> &[Cell] {
        &self.options.cells
    }

    /// Further names of cells.
    pub fn aliases(&self) -> impl Iterator<Item = (&CellName, &CellName)> {
        self.options.aliases.iter().map(|alias| (&alias.alias, &alias.cell))
    }

    /// What asks servers.
    ///
    /// # Errors
    /// When it has no socket.
    pub fn client(&self) -> Outcome<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let _entered = self.runtime.enter();
        let client = Client::open(self.options.clone(), self.who).map_err(Failure::failed)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Waits for something that servers are asked.
    pub fn wait<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.block_on(asked)
    }

    /// Waits for an answer of servers of a cell.
    ///
    /// # Errors
    /// What the servers say; one who was refused is told as whom the cell was asked.
    pub fn answer<T>(&self, cell: &CellName, asked: impl Future<Output = weft_remote::Result<T>>) -> Outcome<T> {
        self.wait(asked).map_err(|error| self.failure(cell, &error))
    }

    /// What a server's refusal comes to.
    pub fn failure(&self, cell: &CellName, error: &RemoteError) -> Failure {
        let exit = match error {
            RemoteError::NotFound { .. } => Exit::NotFound,
            RemoteError::Denied { .. } | RemoteError::ReadOnly { .. } => Exit::Denied,
            RemoteError::Unreachable { .. } | RemoteError::TimedOut { .. } => Exit::Unreachable,
            _ => Exit::Failed,
        };
        match (error, self.client.get()) {
            (RemoteError::Denied { .. }, Some(client)) if self.who == As::TheUser => {
                Failure::new(exit, format!("{error}; asked as {}", client.asked_as(cell)))
            }
            _ => Failure::new(exit, error),
        }
    }

    /// Waits for an answer about what a path leads to.
    ///
    /// # Errors
    /// As of [`Session::answer`].
    pub fn answer_of<T>(
        &self,
        (path, place): (&Path, &Place),
        asked: impl Future<Output = weft_remote::Result<T>>,
    ) -> Outcome<T> {
        self.wait(asked).map_err(|error| self.failure_of((path, place), &error))
    }

    /// What a refusal comes to that is about what a path leads to; with the words by which scripts know it.
    pub fn failure_of(&self, (path, place): (&Path, &Place), error: &RemoteError) -> Failure {
        let Failure { exit, sentence } = self.failure(&place.cell, error);
        let words = match error {
            RemoteError::NotFound { .. } => no_such_file(path),
            RemoteError::Denied { .. } => no_rights(path),
            RemoteError::ReadOnly { .. } => "You can not change a backup or readonly volume".to_owned(),
            _ => return Failure::new(exit, sentence),
        };
        Failure::new(exit, format!("{words}: {sentence}"))
    }

    /// The cell that a command is about: the one that is named, else that of ThisCell, else the only one.
    ///
    /// # Errors
    /// `Usage` when that is none, `NotFound` when the cell is not known.
    pub fn chosen_cell(&self, named: Option<&str>) -> Outcome<Cell> {
        if let Some(name) = named {
            return self.cell(name);
        }
        match (self.this_cell()?, self.cells()) {
            (Some(own), _) => self.cell(own.as_str()),
            (None, [cell]) => Ok(cell.clone()),
            (None, cells) => {
                let dir = self.settings.config_dir();
                let known = cells.len();
                let sentence = format!("which cell? {known} are known; name one with -cell, or in {}", dir.display());
                Err(Failure::usage(format!("{sentence}/ThisCell")))
            }
        }
    }

    /// A cell by its name or alias, or by a beginning that one name alone has.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn cell(&self, name: &str) -> Outcome<Cell> {
        let unknown = || {
            let file = self.settings.config_dir().join("CellServDB");
            Failure::new(Exit::NotFound, format!("{name}: no cell of this name is in {}", file.display()))
        };
        let found = self.wait(self.client()?.cell(self.whole_name(name)));
        found.map_err(|error| Failure::new(Exit::Unreachable, error))?.ok_or_else(unknown)
    }

    /// The name of the one cell that is meant (`afsconf_GetCellInfo` of OpenAFS's `cellconfig.c`); what is given, where that is
    /// an alias, or begins none or several.
    fn whole_name<'a>(&'a self, given: &'a str) -> &'a str {
        let small = given.to_ascii_lowercase();
        let mut begun = self.cells().iter().map(|cell| cell.name.as_str()).filter(|name| name.starts_with(&small));
        match (begun.next(), begun.next()) {
            (Some(name), None) if self.aliases().all(|(alias, _)| alias.as_str() != small) => name,
            _ => given,
        }
    }

    /// The own cell; `None` where nobody has said which that is.
    ///
    /// # Errors
    /// `Usage` when what is there is no cell.
    pub fn this_cell(&self) -> Outcome<Option<CellName>> {
        this_cell(&self.settings).map_err(|error| Failure::usage(format!("{error:#}")))
    }

    /// What a path leads to in a volume: through a mount point, if it is one.
    ///
    /// # Errors
    /// As of [`Whereabouts::of`]; what keeps a mount point from being followed.
    pub fn place(&self, path: &Path) -> Outcome<Place> {
        self.place_of(path, Whereabouts::of(path, Link::Follow)?)
    }

    /// The same, of what is known of it.
    ///
    /// # Errors
    /// `Usage` for the directory of cells; what keeps a mount point from being followed.
    pub fn place_of(&self, path: &Path, at: Whereabouts) -> Outcome<Place> {
        match at {
            Whereabouts::Cells => {
                let sentence = format!("{}: the directory of all cells is in no volume", path.display());
                Err(Failure::usage(sentence))
            }
            Whereabouts::Cell { cell, writable } => {
                let cell = self.cell(cell.as_str())?.name;
                self.answer(&cell, self.client()?.root_of(&cell, writable))
            }
            Whereabouts::MountPoint(cell, fid) => {
                let cell = self.cell(cell.as_str())?.name;
                self.answer(&cell.clone(), self.client()?.target_of(&Place { cell, fid }))
            }
            Whereabouts::File(cell, fid) => Ok(Place { cell: self.cell(cell.as_str())?.name, fid }),
        }
    }

    /// Does something for each of several things and tells what comes of it. The first failure decides how the tool
    /// ends; the others are told on standard error.
    ///
    /// # Errors
    /// The first failure.
    pub fn each<T>(&self, things: &[T], mut act: impl FnMut(&T) -> Outcome<Told>) -> Outcome {
        let mut first = None;
        for thing in things {
            match act(thing) {
                Ok(told) => self.tell(told),
                Err(failure) if first.is_none() => first = Some(failure),
                Err(failure) => self.warn(&failure.sentence),
            }
        }
        let told = self.told.take();
        // Where nothing is told, the failure is all that there is to read.
        if self.json && !(told.is_empty() && first.is_some()) {
            say!("{}", Value::Array(told));
        }
        first.map_or(Ok(()), Err)
    }

    /// Tells the one thing that there is to tell.
    pub fn tell_all(&self, told: Told) {
        match self.json {
            true => say!("{}", told.fields),
            false => print(&told.text),
        }
    }

    /// A line for people alone.
    pub fn heading(&self, line: impl Display) {
        if !self.json {
            say!("{line}");
        }
    }

    /// A word on standard error.
    pub fn warn(&self, sentence: &str) {
        complain!("{}: {sentence}", self.tool);
    }

    /// Ends: servers need not remember this run.
    pub fn close(self) {
        let Session { runtime, client, .. } = self;
        if let Some(client) = client.into_inner() {
            runtime.block_on(client.close());
        }
    }

    fn tell(&self, told: Told) {
        match self.json {
            true => self.told.borrow_mut().push(told.fields),
            false => print(&told.text),
        }
    }
}

impl Told {
    /// Lines and fields.
    pub fn new(text: impl Into<String>, fields: Value) -> Told {
        Told { text: text.into(), fields }
    }
}

/// Lines, without the end of the last one.
fn print(text: &str) {
    if !text.is_empty() {
        say!("{text}");
    }
}
