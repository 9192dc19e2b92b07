//! The weft program: verbs, configuration, and `wire_up`, the one place that knows every room.
#![forbid(unsafe_code)]

mod called;
mod cells;
mod checking;
mod cli;
mod cmd;
mod config;
mod daemon;
mod elsewhere;
mod exit;
mod globs;
mod handover;
mod holders;
mod logins;
mod metrics;
mod output;
mod ready;
mod site;
mod space;
mod supervisor;
mod tools;
mod unsent;
mod users;
mod warming;
mod watching;
mod wire_up;
mod words;

use std::process::ExitCode;

use clap::Parser;

use called::Called;
use cli::{Cli, Verb};
use exit::{Failure, Outcome};
use output::{complain, say};
use tools::Which;

fn main() -> ExitCode {
    let cli = match called::by_name(std::env::args_os().collect()) {
        Ok(Called::Weft(args)) => Cli::parse_from(args),
        Ok(Called::Nothing) => return ExitCode::SUCCESS,
        Err(sentence) => return fail("weft", &Failure::usage(sentence), false),
    };
    let (name, json) = (cli.name(), cli.wants_json());
    match run(cli, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(name, &failure, json),
    }
}

fn run(cli: Cli, json: bool) -> Outcome {
    match cli.verb {
        Verb::Mount(args) => cmd::mount::run(&args, json),
        Verb::Umount { dir, lazy } => cmd::umount::run(&dir, lazy, json),
        Verb::Upgrade { dir } => cmd::upgrade::run(dir.as_deref(), json),
        Verb::Status { dir } => cmd::status::run(dir.as_deref(), json),
        Verb::Ls { weft, all, paths } => cmd::ls::run(weft, all, &paths, json),
        Verb::Rm { weft, recursive, pinned, paths } => cmd::rm::run(weft, recursive, pinned, &paths, json),
        Verb::Reload { recursive, paths } => cmd::reload::run(recursive, &paths, json),
        Verb::Offline { fetch_only, paths } => cmd::offline::take_offline(fetch_only, &paths, json),
        Verb::Online { paths } => cmd::offline::bring_online(&paths, json),
        Verb::Pin { paths } => cmd::pin::pin(&paths, json),
        Verb::Unpin { paths } => cmd::pin::unpin(&paths, json),
        Verb::Cache(args) => cmd::cache::run(&args, json),
        Verb::Warm(args) => cmd::warm::run(&args, json),
        Verb::Group { from, format, path } => cmd::group::run(&from, format, &path, json),
        Verb::Unsent(args) => cmd::unsent::run(&args, json),
        Verb::Fs(args) => tools::run(Which::Fs, &args.words, json),
        Verb::Vos(args) => tools::run(Which::Vos, &args.words, json),
        Verb::Pts(args) => tools::run(Which::Pts, &args.words, json),
        Verb::Why { path } => cmd::why::run(&path, json),
        Verb::Stats { every, prometheus, dir } => {
            cmd::stats::run(dir.as_deref(), cmd::stats::Shown { json, prometheus, every })
        }
        Verb::Watch { validate, path } => cmd::watch::run(&path, validate, json),
        Verb::Login(args) => cmd::login::run(&args, json),
        Verb::Config { verb } => cmd::config::run(verb, json),
        Verb::Demo => cmd::demo::run(),
        Verb::Doctor => cmd::doctor::run(json),
        Verb::Completions { shell } => cmd::definition::completions(shell),
        Verb::Man { dir } => cmd::definition::man(dir.as_deref()),
    }
}

fn fail(name: &str, failure: &Failure, json: bool) -> ExitCode {
    if json {
        let object = serde_json::json!({ "error": { "code": failure.exit.word(), "sentence": failure.sentence } });
        say!("{object}");
    } else {
        complain!("{name}: {}", failure.sentence);
    }
    ExitCode::from(failure.exit as u8)
}
