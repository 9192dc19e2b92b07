//! The command line of the tools of AFS, as their users and scripts have it: a command, and options after one dash.
//!
//! Commands and options may be cut to what is still theirs alone. Values need no option while none was named that takes
//! one: the first goes to the first option that takes values, and so on, and the last of those gets the rest. After an
//! option was named, values are its own. What begins with a dash and a digit is a value (OpenAFS `src/cmd/cmd.c`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::session::Session;
use crate::exit::{Failure, Outcome};

/// One of the tools.
pub struct Tool {
    /// How it is called.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What it can do.
    pub commands: &'static [Command],
    /// Options of all its commands.
    pub common: &'static [Parameter],
    /// Commands of OpenAFS's tool that it does not have.
    pub left_out: &'static [LeftOut],
}

/// Something that a tool can do.
pub struct Command {
    /// How it is called.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// What it does.
    pub about: &'static str,
    /// What it takes, in order.
    pub parameters: &'static [Parameter],
    /// Does it.
    pub run: fn(&Session, &Arguments) -> Outcome,
}

/// Something that a command takes.
#[derive(Debug)]
pub struct Parameter {
    /// Its option, without the dash.
    pub name: &'static str,
    /// Another, which cannot be cut; empty if there is none.
    pub alias: &'static str,
    /// What its value is, or what it means.
    pub about: &'static str,
    /// How many values it takes.
    pub form: Form,
    /// Whether there has to be one.
    pub needed: bool,
}

/// How many values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// None.
    Flag,
    /// One.
    One,
    /// One or several.
    Several,
}

/// Commands that a tool does not have, and why.
pub struct LeftOut {
    /// Their names.
    pub names: &'static [&'static str],
    /// A sentence: why, and what to do instead.
    pub why: &'static str,
}

/// What a command line asks for.
pub enum Asked {
    /// The list of commands.
    List,
    /// The help of some commands.
    Help(Vec<&'static Command>),
    /// The version.
    Version,
    /// A command, with its arguments.
    Run(&'static Command, Arguments),
}

/// The values of a command's parameters.
#[derive(Debug, Default)]
pub struct Arguments {
    given: Vec<(&'static str, Vec<OsString>)>,
}

/// A parameter that has to be given.
pub const fn needed(name: &'static str, form: Form, about: &'static str) -> Parameter {
    Parameter { name, alias: "", about, form, needed: true }
}

/// A parameter that may be given.
pub const fn may(name: &'static str, form: Form, about: &'static str) -> Parameter {
    Parameter { name, alias: "", about, form, needed: false }
}

impl Arguments {
    /// Whether it was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Its values.
    pub fn all(&self, name: &str) -> &[OsString] {
        self.given.iter().find(|(given, _)| *given == name).map_or(&[], |(_, values)| values)
    }

    /// Its value, as text.
    ///
    /// # Errors
    /// `Usage` when it is not UTF-8.
    pub fn text(&self, name: &str) -> Outcome<Option<&str>> {
        self.all(name).first().map(|value| utf8(name, value)).transpose()
    }

    /// The value of one that has to be given, as text.
    ///
    /// # Errors
    /// `Usage` when it is not UTF-8.
    pub fn needed(&self, name: &str) -> Outcome<&str> {
        self.text(name)?.ok_or_else(|| Failure::usage(format!("-{name} is missing")))
    }

    /// Its values, as texts.
    ///
    /// # Errors
    /// `Usage` when one is not UTF-8.
    pub fn texts(&self, name: &str) -> Outcome<Vec<&str>> {
        self.all(name).iter().map(|value| utf8(name, value)).collect()
    }

    /// Its values as paths; the current directory when there are none.
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        match self.all(name) {
            [] => vec![PathBuf::from(".")],
            paths => paths.iter().map(PathBuf::from).collect(),
        }
    }

    /// Its value as a path.
    ///
    /// # Errors
    /// `Usage` when there is none.
    pub fn path(&self, name: &str) -> Outcome<&Path> {
        self.all(name).first().map(Path::new).ok_or_else(|| Failure::usage(format!("-{name} is missing")))
    }

    fn add(&mut self, name: &'static str, value: Option<OsString>) {
        let at = self.given.iter().position(|(given, _)| *given == name).unwrap_or_else(|| {
            self.given.push((name, Vec::new()));
            self.given.len() - 1
        });
        self.given[at].1.extend(value);
    }
}

impl Tool {
    /// Reads a command line, without the tool's own name.
    ///
    /// # Errors
    /// `Usage`, with what would be right.
    pub fn read(&'static self, words: &[OsString]) -> Outcome<Asked> {
        let Some((first, rest)) = words.split_first() else { return Ok(Asked::List) };
        match first.to_str().unwrap_or_default() {
            "help" | "-help" | "--help" | "-h" => {
                let topics = rest.iter().filter(|word| *word != "-topic");
                let found: Vec<&Command> = topics.map(|topic| self.command(topic)).collect::<Outcome<_>>()?;
                return Ok(if found.is_empty() { Asked::List } else { Asked::Help(found) });
            }
            "version" | "-version" | "--version" => return Ok(Asked::Version),
            _ => {}
        }
        let command = self.command(first)?;
        match self.arguments(command, rest)? {
            Some(arguments) => Ok(Asked::Run(command, arguments)),
            None => Ok(Asked::Help(vec![command])),
        }
    }

    /// The parameters of a command, its own first.
    pub fn parameters(&self, command: &Command) -> Vec<&'static Parameter> {
        command.parameters.iter().chain(self.common).collect()
    }

    fn command(&'static self, word: &OsStr) -> Outcome<&'static Command> {
        let word = utf8("command", word)?;
        let is_named = |command: &&Command| command.name == word || command.aliases.contains(&word);
        if let Some(command) = self.commands.iter().find(is_named) {
            return Ok(command);
        }
        let left_out = self.left_out.iter().find(|left_out| left_out.names.contains(&word));
        let tool = self.name;
        if let Some(LeftOut { why, .. }) = left_out {
            return Err(Failure::usage(format!("`{tool} {word}` is not among what this program does: {why}")));
        }
        let begins = |command: &&Command| command.name.starts_with(word);
        let found: Vec<&Command> = self.commands.iter().filter(begins).collect();
        let all_named = || found.iter().map(|command| command.name).collect::<Vec<_>>().join(", ");
        match found[..] {
            [command] => Ok(command),
            [] => Err(Failure::usage(format!("there is no command `{word}`; `{tool} help` lists them"))),
            _ => Err(Failure::usage(format!("`{word}` may be any of {}", all_named()))),
        }
    }

    /// What a command is given; `None` when its help is asked for.
    fn arguments(&self, command: &Command, words: &[OsString]) -> Outcome<Option<Arguments>> {
        let parameters = self.parameters(command);
        let mut arguments = Arguments::default();
        let wrong =
            |why: String| Failure::usage(format!("{why}; `{} help {}` tells what it takes", self.name, command.name));
        // The place of the parameter that gets the next value; whether values go on to the next.
        let (mut at, mut positional) = (0, true);
        let mut last_named: Option<&Parameter> = None;
        for word in words {
            if let Some((option, value)) = option(word) {
                if is_help(option, &parameters) {
                    return Ok(None);
                }
                let place = find(option, &parameters).map_err(&wrong)?;
                let parameter = parameters[place];
                match (parameter.form, value) {
                    (Form::Flag, Some(_)) => return Err(wrong(format!("-{} takes no value", parameter.name))),
                    (Form::Flag, None) => arguments.add(parameter.name, None),
                    (Form::One | Form::Several, value) => {
                        (at, positional) = (place, false);
                        no_value_missing(last_named, &arguments).map_err(&wrong)?;
                        last_named = Some(parameter);
                        if let Some(value) = value {
                            arguments.add(parameter.name, Some(value.to_owned()));
                        }
                    }
                }
                continue;
            }
            let takes = |place: &usize| parameters[*place].form != Form::Flag;
            let Some(place) = (at..parameters.len()).find(takes) else {
                return Err(wrong(format!("`{}` is one word too many", word.to_string_lossy())));
            };
            let parameter = parameters[place];
            let is_full = parameter.form == Form::One && !arguments.all(parameter.name).is_empty();
            if is_full || (positional && place >= command.parameters.len()) {
                return Err(wrong(format!("`{}` is one word too many", word.to_string_lossy())));
            }
            arguments.add(parameter.name, Some(word.clone()));
            at = place;
            if positional {
                // The last one that takes values gets the rest.
                at = (place + 1..command.parameters.len()).find(takes).unwrap_or(place);
            }
        }
        no_value_missing(last_named, &arguments).map_err(&wrong)?;
        let is_missing = |parameter: &&&Parameter| parameter.needed && !arguments.has(parameter.name);
        match parameters.iter().find(is_missing) {
            Some(missing) => Err(wrong(format!("-{} ({}) is missing", missing.name, missing.about))),
            None => Ok(Some(arguments)),
        }
    }
}

/// The name of an option, and what follows `=`; `None` for a value.
fn option(word: &OsStr) -> Option<(&str, Option<&OsStr>)> {
    let bytes = word.as_bytes().strip_prefix(b"-")?;
    if bytes.is_empty() || bytes[0].is_ascii_digit() {
        return None;
    }
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let name = &bytes[..equals.unwrap_or(bytes.len())];
    let name = std::str::from_utf8(name).unwrap_or("?");
    Some((name, equals.map(|at| OsStr::from_bytes(&bytes[at + 1..]))))
}

/// Whether it can only be `-help`.
fn is_help(option: &str, parameters: &[&Parameter]) -> bool {
    let begins = |parameter: &&Parameter| parameter.name.starts_with(option);
    option == "help" || (!option.is_empty() && "help".starts_with(option) && !parameters.iter().any(begins))
}

fn find(option: &str, parameters: &[&Parameter]) -> Result<usize, String> {
    let is_named = |parameter: &&Parameter| parameter.name == option || parameter.alias == option;
    if let Some(place) = parameters.iter().position(is_named).filter(|_| !option.is_empty()) {
        return Ok(place);
    }
    let begins = |parameter: &&Parameter| parameter.name.starts_with(option);
    let mut found = (0..parameters.len()).filter(|place| begins(&parameters[*place]));
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(place),
        (None, _) => Err(format!("there is no option -{option}")),
        (Some(one), Some(other)) => {
            Err(format!("-{option} may be -{} or -{}", parameters[one].name, parameters[other].name))
        }
    }
}

fn no_value_missing(named: Option<&Parameter>, arguments: &Arguments) -> Result<(), String> {
    match named {
        Some(named) if arguments.all(named.name).is_empty() => Err(format!("-{} needs a value", named.name)),
        _ => Ok(()),
    }
}

fn utf8<'v>(name: &str, value: &'v OsStr) -> Outcome<&'v str> {
    value.to_str().ok_or_else(|| Failure::usage(format!("{name}: `{}` is not UTF-8", value.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &Session, _: &Arguments) -> Outcome {
        Ok(())
    }

    static TOOL: Tool = Tool {
        name: "tool",
        about: "Something",
        commands: &[
            Command {
                name: "setacl",
                aliases: &["sa"],
                about: "Sets",
                parameters: &[
                    needed("dir", Form::Several, "directories"),
                    needed("acl", Form::Several, "entries"),
                    may("clear", Form::Flag, "first nobody"),
                    may("negative", Form::Flag, "rights that are taken"),
                ],
                run: nothing,
            },
            Command {
                name: "setquota",
                aliases: &["sq"],
                about: "Sets",
                parameters: &[may("path", Form::One, "a file"), needed("max", Form::One, "how much")],
                run: nothing,
            },
            Command {
                name: "listquota",
                aliases: &[],
                about: "Lists",
                parameters: &[may("path", Form::Several, "files"), may("human", Form::Flag, "in words")],
                run: nothing,
            },
        ],
        common: &[Parameter { alias: "c", ..may("cell", Form::One, "a cell") }, may("config", Form::One, "a folder")],
        left_out: &[LeftOut { names: &["monitor"], why: "nobody wants it" }],
    };

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// The command, and what it is given.
    fn read(line: &str) -> (&'static str, Vec<(&'static str, Vec<OsString>)>) {
        match TOOL.read(&words(line)) {
            Ok(Asked::Run(command, arguments)) => (command.name, arguments.given),
            Ok(_) => panic!("{line}: no command"),
            Err(failure) => panic!("{line}: {}", failure.sentence),
        }
    }

    /// Goal: values find their options in order, the last gets the rest, flags may stand anywhere.
    #[test]
    fn values_find_their_options_in_order() {
        let wanted = |dir: &str, acl: &str| vec![("dir", words(dir)), ("acl", words(acl))];
        assert_eq!(read("setacl d u rl v none"), ("setacl", wanted("d", "u rl v none")));
        assert_eq!(read("sa -dir d e -acl u rl"), ("setacl", wanted("d e", "u rl")));
        let (_, mut given) = read("sa d -clear u rl -neg");
        given.retain(|(name, values)| !values.is_empty() || ["clear", "negative"].contains(name));
        assert_eq!(given, vec![("dir", words("d")), ("clear", vec![]), ("acl", words("u rl")), ("negative", vec![])]);
        assert_eq!(read("sq p 7"), ("setquota", vec![("path", words("p")), ("max", words("7"))]));
        assert_eq!(read("sq -max 7"), ("setquota", vec![("max", words("7"))]));
        assert_eq!(read("listquota a b c"), ("listquota", vec![("path", words("a b c"))]));
        assert_eq!(read("sq p -max -7"), ("setquota", vec![("path", words("p")), ("max", words("-7"))]));
    }

    /// Goal: commands and options are found by what is theirs alone.
    #[test]
    fn names_may_be_cut() {
        assert_eq!(read("listq -h a").1, vec![("human", vec![]), ("path", words("a"))]);
        assert_eq!(read("l --path=a").1, vec![("path", words("a"))]);
        assert_eq!(read("l -c x").1, vec![("cell", words("x"))], "an alias is not cut from anything");
        assert_eq!(read("l -ce x -co y").1, vec![("cell", words("x")), ("config", words("y"))]);
    }

    /// Goal: what cannot be is refused, with what would be right.
    #[test]
    fn mistakes_are_told() {
        for (line, wanted) in [
            ("set x", "may be any of setacl, setquota"),
            ("what", "there is no command `what`; `tool help` lists them"),
            ("monitor x", "nobody wants it"),
            ("sa d", "-acl (entries) is missing; `tool help setacl`"),
            ("sa -acl", "-acl needs a value"),
            ("sa -dir -acl u rl", "-dir needs a value"),
            ("sq a 1 2", "`2` is one word too many"),
            ("sq a 1 -path b", "too many"),
            ("sa d u rl -x", "there is no option -x"),
            ("l a -co=1 2", "too many"),
            ("l -clear", "there is no option -clear"),
            ("l -human=yes", "-human takes no value"),
            ("l -", ""),
        ] {
            match TOOL.read(&words(line)) {
                Err(failure) => assert!(failure.sentence.contains(wanted), "{line}: {}", failure.sentence),
                Ok(_) => assert!(wanted.is_empty(), "{line}"),
            }
        }
    }

    #[test]
    fn help_is_never_missing() {
        assert!(matches!(TOOL.read(&[]), Ok(Asked::List)));
        assert!(matches!(TOOL.read(&words("help")), Ok(Asked::List)));
        assert!(matches!(TOOL.read(&words("--help")), Ok(Asked::List)));
        for line in ["help sa", "help -topic sa", "sa -help", "sa --help", "sa d -hel", "sa -h"] {
            let asked = TOOL.read(&words(line));
            assert!(matches!(&asked, Ok(Asked::Help(found)) if found[0].name == "setacl"), "{line}");
        }
        assert!(matches!(TOOL.read(&words("version")), Ok(Asked::Version)));
        assert!(TOOL.read(&words("help monitor")).is_err());
    }
}
