//! `weft completions` and `weft man`: made from the same definition as `--help`.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Prints completions.
///
/// # Errors
/// None.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weft", &mut script);
    output::bytes(&script);
    Ok(())
}

/// Prints the man page of `weft`, or writes those of all verbs into `dir`.
///
/// # Errors
/// When a page cannot be written.
pub fn man(dir: Option<&Path>) -> Outcome {
    match dir {
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir)
            .map_err(|error| Failure::failed(format!("{}: {error}", dir.display()))),
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|error| Failure::failed(format!("the man page: {error}")))?;
            output::bytes(&page);
            Ok(())
        }
    }
}
