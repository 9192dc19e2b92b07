//! The architecture as a test: which room may know which, and under which licences the program's parts come.
//!
//! Method: what cargo itself says (`cargo metadata`), compared with the tables below. A new edge or licence is a
//! decision: it is made by changing a table here, in a commit that says why.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Which rooms each room may depend on (ARCHITECTURE.md). Absent on purpose: a kind knows neither vfs, store nor
/// kernel; the vfs knows no kind; control knows no room at all, so that its client half links nothing of them.
const ALLOWED: &[(&str, &[&str])] = &[
    ("weft-remote", &[]),
    ("weft-fusedev", &[]),
    ("weft-segment", &[]),
    ("weft-rx", &[]),
    ("weft-store", &["weft-remote", "weft-segment"]),
    ("weft-web", &["weft-remote"]),
    ("weft-dir", &["weft-remote"]),
    ("weft-afs", &["weft-remote", "weft-rx"]),
    ("weft-vfs", &["weft-store", "weft-remote"]),
    ("weft-fuse", &["weft-vfs", "weft-remote", "weft-fusedev"]),
    ("weft-control", &[]),
    (
        "weft",
        &[
            "weft-remote",
            "weft-store",
            "weft-vfs",
            "weft-fuse",
            "weft-web",
            "weft-dir",
            "weft-afs",
            "weft-control",
            "weft-log",
        ],
    ),
    ("weft-log", &[]),
    // Drives the built program as a user would; of the rooms it knows only the ground whose speed it measures alone, the
    // kernel's protocol, by which it serves the model of a disk, and the logs that it replays.
    ("weft-bench", &["weft-segment", "weft-fusedev", "weft-log"]),
];

/// Floors of the house: tests of a room may use any room on a lower floor.
const FLOORS: &[&[&str]] = &[
    &["weft-remote", "weft-fusedev", "weft-segment", "weft-rx", "weft-log"],
    &["weft-store", "weft-web", "weft-dir", "weft-afs"],
    &["weft-vfs"],
    &["weft-fuse", "weft-control"],
    &["weft", "weft-bench"],
];

/// Licences that may be in the program (SPDX identifiers). MPL-2.0 binds only changes of its own files, which we do
/// not make: taken for lol_html's parts.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
    "BSL-1.0",
    "MPL-2.0",
    "CDLA-Permissive-2.0",
];

#[test]
fn rooms_depend_downwards_only() {
    let metadata = metadata();
    let rooms = rooms(&metadata);
    let known: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for (room, package) in &rooms {
        let Some(allowed) = known.get(room) else {
            wrong.push(format!("{room} is a new room: give it a row here and in ARCHITECTURE.md"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let on = text(dependency, "name");
            if !rooms.contains_key(on) {
                continue;
            }
            let for_tests = dependency["kind"] == "dev";
            let fits = if for_tests { floor(on) < floor(room) } else { allowed.contains(&on) };
            if !fits {
                let what = if for_tests { "uses for its tests" } else { "depends on" };
                wrong.push(format!("{room} {what} {on}"));
            }
        }
    }
    assert!(rooms.len() >= ALLOWED.len(), "all rooms are seen: {:?}", rooms.keys());
    assert!(wrong.is_empty(), "the house has edges that the design does not have:\n{}", wrong.join("\n"));
}

#[test]
fn only_weft_knows_every_room() {
    // The tables agree with each other: an allowed edge always leads to a lower floor.
    for (room, allowed) in ALLOWED {
        for on in *allowed {
            assert!(floor(on) < floor(room), "{room} may depend on {on}, which is not below it");
        }
    }
}

#[test]
fn every_part_of_the_program_has_a_good_licence() {
    let metadata = metadata();
    let parts = parts(&metadata);
    assert!(parts.len() > 50, "the parts are seen: {}", parts.len());
    let mut wrong = Vec::new();
    for package in list(&metadata, "packages").filter(|package| parts.contains(text(package, "id"))) {
        let name = text(package, "name");
        match package["license"].as_str() {
            Some(licence) => {
                if let Err(why) = acceptable(licence) {
                    wrong.push(format!("{name}: {licence}: {why}"));
                }
            }
            None => wrong.push(format!("{name}: says no licence")),
        }
    }
    assert!(wrong.is_empty(), "licences to decide on:\n{}", wrong.join("\n"));
}

#[test]
fn licence_expressions_are_read_as_spdx_has_them() {
    let good = [
        "MIT",
        "MIT OR Apache-2.0",
        "MIT/Apache-2.0",
        "GPL-3.0-only OR MIT",
        "(MIT OR GPL-2.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        "MIT AND (ISC OR BSD-3-Clause)",
    ];
    for licence in good {
        assert_eq!(acceptable(licence), Ok(()), "{licence}");
    }
    let bad = [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR Apache-2.0) AND GPL-3.0-only",
        "Apache-2.0 WITH Classpath-exception-2.0",
        "",
        "MIT OR",
        "(MIT",
        "MIT Apache-2.0",
    ];
    for licence in bad {
        assert!(acceptable(licence).is_err(), "{licence}");
    }
}

/// Packages that are built into the program: reached from a room by normal and build edges.
fn parts(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes").map(|node| (text(node, "id"), node)).collect();
    let mut open: Vec<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let mut parts = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !parts.insert(id) {
            continue;
        }
        for edge in list(nodes[id], "deps") {
            if list(edge, "dep_kinds").any(|kind| kind["kind"] != "dev") {
                open.push(text(edge, "pkg"));
            }
        }
    }
    parts
}

/// Whether the licence can be had on terms that are in [`LICENCES`].
fn acceptable(expression: &str) -> Result<(), String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let fits = either(&mut words)?;
    match words.next() {
        Some(word) => Err(format!("`{word}` is not expected")),
        None if fits => Ok(()),
        None => Err("not among the licences that were decided on".to_owned()),
    }
}

type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

/// `a OR b`: one has to fit.
fn either(words: &mut Words<'_>) -> Result<bool, String> {
    let mut fits = all(words)?;
    while words.next_if_eq(&"OR").is_some() {
        fits |= all(words)?;
    }
    Ok(fits)
}

/// `a AND b`, which binds more tightly: all have to fit.
fn all(words: &mut Words<'_>) -> Result<bool, String> {
    let mut fits = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        fits &= one(words)?;
    }
    Ok(fits)
}

/// A licence, one with an exception, or an expression in parentheses.
fn one(words: &mut Words<'_>) -> Result<bool, String> {
    match words.next() {
        Some("(") => {
            let fits = either(words)?;
            words.next_if_eq(&")").map(|_| fits).ok_or_else(|| "a parenthesis is not closed".to_owned())
        }
        Some(word @ ("OR" | "AND" | "WITH" | ")")) => Err(format!("`{word}` is not expected")),
        Some(licence) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().ok_or("an exception is missing")?;
            Ok(LICENCES.contains(&format!("{licence} WITH {exception}").as_str()))
        }
        Some(licence) => Ok(LICENCES.contains(&licence)),
        None => Err("a licence is missing".to_owned()),
    }
}

fn floor(room: &str) -> usize {
    FLOORS.iter().position(|floor| floor.contains(&room)).unwrap_or(FLOORS.len())
}

/// The packages of the workspace by name.
fn rooms(metadata: &Value) -> BTreeMap<&str, &Value> {
    let members: BTreeSet<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let packages = list(metadata, "packages").filter(|package| members.contains(text(package, "id")));
    packages.map(|package| (text(package, "name"), package)).collect()
}

fn metadata() -> Value {
    let host = output(Command::new("rustc").arg("-vV"));
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc tells its host").to_owned();
    // Packages of other systems need not be on this machine.
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &host];
    serde_json::from_str(&output(Command::new(env!("CARGO")).args(arguments))).expect("cargo prints JSON")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().unwrap_or_else(|| panic!("cargo gives a list of {key}")).iter()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo gives a text for {key}"))
}
