//! `weft config`.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::ConfigVerb;
use crate::config::{Environment, Given, MountOptions, Resolved, Source, files_sought, load_file, resolve};
use crate::exit::{Failure, Outcome};
use crate::output::say;

/// Checks or shows.
///
/// # Errors
/// Every mistake of the first file that has any.
pub fn run(verb: ConfigVerb, json: bool) -> Outcome {
    match verb {
        ConfigVerb::Check { file } => check(file.as_deref(), json),
        ConfigVerb::Show { config } => show(config, json),
    }
}

fn check(file: Option<&Path>, json: bool) -> Outcome {
    let files = files_sought(file, &Environment::of_this_process());
    for file in &files {
        load_file(file).map_err(Failure::usage)?;
    }
    if json {
        say!("{}", json!({ "good": files }));
    } else if files.is_empty() {
        say!("there is no configuration file, and none is needed");
    } else {
        files.iter().for_each(|file| say!("{}: good", file.display()));
    }
    Ok(())
}

fn show(config: Option<PathBuf>, json: bool) -> Outcome {
    let options = MountOptions::default();
    let given = Given { source: Source::Everything, mountpoint: PathBuf::from("/"), cache: None, config, options };
    let resolved = resolve(given, &Environment::of_this_process()).map_err(Failure::usage)?;
    let value = resolved.to_json();
    if json {
        say!("{value}");
        return Ok(());
    }
    say!("{}", as_toml(&resolved, value).trim_end());
    Ok(())
}

/// As a file that would come to the same; what nobody has set is left out.
fn as_toml(resolved: &Resolved, mut value: serde_json::Value) -> String {
    let files: Vec<String> = resolved.files.iter().map(|file| file.display().to_string()).collect();
    let from = if files.is_empty() { "no file: all defaults".to_owned() } else { files.join(", ") };
    if let Some(tables) = value.as_object_mut() {
        tables.remove("files");
        for table in tables.values_mut().filter_map(serde_json::Value::as_object_mut) {
            table.retain(|_, value| !value.is_null());
        }
        let trees = tables.get_mut("tree").and_then(serde_json::Value::as_array_mut);
        for tree in trees.into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
            tree.retain(|_, value| !value.is_null());
        }
    }
    let text = toml::to_string(&value).expect("tables of plain values");
    format!("# from {from}; what is not shown is left to each kind\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let temp = tempfile::tempdir().expect("a folder");
        let file = temp.path().join("a.toml");
        let text = "[mount]\ndeadline = \"7s\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n[web]\nprobe_names = [\"x\"]\nprivate_addresses = \"auto\"\nallow_hosts = [\"*.lan\", \"10.0.0.0/8\"]\ndeny_hosts = [\"::1\"]\ndav_hosts = [\"*.lan\"]\nunlisted_hosts = [\"s3.lan\"]\nwarm_per_host = 3\nwarm_pause = \"250ms\"\nnetrc = \"/n\"\nnetrc_of_users = true\n[[web.proxy]]\nhosts = [\"a.org\"]\nvia = [\"http://p:1\", \"direct\"]\n[[web.login]]\nhosts = [\"a.org:1\"]\nbearer_command = [\"x\"]\nbearer_lifetime = \"5m\"\n[[web.login]]\nhosts = [\"a.org\"]\nuser = \"x\"\ncertificate = \"/c\"\nkey = \"/k\"\n[cache]\nclass = \"scratch\"\nmax_per_host = \"5G\"\nkeep_free = \"1000B\"\n[[tree]]\npath = \"web\"\nfreshness = \"manual\"\nstale_if_error = \"1d\"\n[[tree]]\npath = \"web/a\"\nclass = \"pinned\"\nmax = \"3K\"\n";
        std::fs::write(&file, text).expect("written");
        let resolve_from = |file: &Path| {
            let given = Given {
                source: Source::Everything,
                mountpoint: PathBuf::from("/"),
                cache: None,
                config: Some(file.to_owned()),
                options: MountOptions::default(),
            };
            resolve(given, &Environment::default()).expect("good")
        };
        let first = resolve_from(&file);
        let shown = as_toml(&first, first.to_json());
        let again = temp.path().join("b.toml");
        std::fs::write(&again, &shown).expect("written");
        assert_eq!(Resolved { files: first.files.clone(), ..resolve_from(&again) }, first, "{shown}");
    }
}
