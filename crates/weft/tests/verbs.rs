//! The program from outside. Goal: whoever types something wrong gets a plain sentence and the documented code.

use std::path::Path;
use std::process::{Command, Output};

fn weft(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(words).args(paths).output().expect("the program runs")
}

fn fails(output: &Output, code: i32, wanted: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_bad_mount_point_gets_a_plain_sentence() {
    let temp = tempfile::tempdir().expect("a folder");
    let top = temp.path();
    let (file, full, empty) = (top.join("file"), top.join("full"), top.join("empty"));
    std::fs::write(&file, "").expect("written");
    std::fs::create_dir_all(full.join("something")).expect("made");
    std::fs::create_dir(&empty).expect("made");
    fails(&weft(&["mount"], &[&top.join("absent")]), 4, "make it with `mkdir -p");
    fails(&weft(&["mount"], &[&file]), 1, "not a directory");
    fails(&weft(&["mount"], &[&full]), 1, "not empty");
    fails(&weft(&["mount", "--cache"], &[&empty.join("cache"), &empty]), 2, "cannot lie inside the mount point");
    fails(&weft(&["mount", "webb"], &[&empty]), 2, "did you mean `web`?");
    fails(&weft(&["mount", "-o", "allow_othr"], &[&empty]), 2, "did you mean `allow_other`?");
}

#[test]
fn a_path_outside_has_its_own_code() {
    let temp = tempfile::tempdir().expect("a folder");
    for verb in [&["why"][..], &["ls", "-w"], &["rm", "-w"], &["reload"], &["umount"], &["status"]] {
        fails(&weft(verb, &[temp.path()]), 3, "not inside a weft mount");
    }
    let output = weft(&["why", "--json"], &[temp.path()]);
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(error["error"]["code"], "no_mount");
}

/// Goal: how a verb ends does not depend on whether somebody reads what it complains of (`weft fs examine ... 2>&1 | head -1`).
#[test]
fn a_complaint_that_nobody_reads_changes_nothing() {
    let temp = tempfile::tempdir().expect("a folder");
    for (verb, code) in [(&["why"][..], 3), (&["fs", "examine"], 3), (&["fs", "dance"], 2), (&["umount"], 3)] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let status = command.args(verb).arg(temp.path()).stderr(writer).status().expect("the program runs");
        assert_eq!(status.code(), Some(code), "{verb:?}");
    }
}

#[test]
fn wrong_usage_is_code_two() {
    fails(&weft(&["ls", "."], &[]), 2, "lsw");
    fails(&weft(&["rm", "."], &[]), 2, "rmw");
    fails(&weft(&["dance"], &[]), 2, "dance");
    fails(&weft(&[], &[]), 2, "Usage");
}

#[test]
fn a_configuration_is_checked_by_line() {
    let temp = tempfile::tempdir().expect("a folder");
    let file = temp.path().join("weft.toml");
    std::fs::write(&file, "[mount]\ndeadlin = \"1s\"\n").expect("written");
    fails(
        &weft(&["config", "check"], &[&file]),
        2,
        "weft.toml:2: unknown key `deadlin` in [mount]: did you mean `deadline`?",
    );
    std::fs::write(&file, "[mount]\ndeadline = \"1s\"\n").expect("written");
    assert!(weft(&["config", "check"], &[&file]).status.success());
}

#[test]
fn every_verb_explains_itself_with_examples() {
    for verb in [
        "mount",
        "umount",
        "upgrade",
        "status",
        "ls",
        "rm",
        "reload",
        "offline",
        "online",
        "why",
        "demo",
        "doctor",
        "completions",
        "man",
    ] {
        let output = weft(&[verb, "--help"], &[]);
        assert!(output.status.success(), "{verb}");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(help.contains("Examples:") && help.contains("--json"), "{verb}: {help}");
    }
}
