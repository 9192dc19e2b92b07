//! A suite for POSIX file systems on an AFS cell: what AFS does not have, case by case, and nothing else.

use std::collections::BTreeSet;

use crate::afs::mounted;
use crate::posix::{PJDFSTEST, SKIPPED, suite};
use crate::support::{AfsCell, Program, is_root, without};

/// Goal: of what POSIX says all holds but what is listed here. Method: the suite pauses for more than a second between changes
/// whose times it compares, for AFS has times of whole seconds.
#[test]
fn pjdfstest_finds_what_afs_does_not_have() {
    if !is_root() {
        return without("pjdfstest becomes other users, which root alone may");
    }
    let Some(suite) = suite("pjdfstest") else { return };
    let Some(cell) = AfsCell::up() else { return };
    let Some(mount) = mounted(cell, "afs", &[]) else { return };
    let place = mount.at("weft.test/scratch/pjdfstest");
    std::fs::create_dir(&place).expect("made");
    let other = tempfile::Builder::new().prefix("wt-other-").tempdir_in("/dev/shm").expect("another file system");
    let config = mount.beside("pjdfstest.toml");
    std::fs::write(&config, PJDFSTEST.replace("naptime = 0.02", "naptime = 1.05")).expect("written");
    let outcome = Program::new(&suite).arg("-c").arg(&config).arg("-s").arg(other.path()).arg("-p").arg(&place).run();
    let of = |word: &str| -> BTreeSet<&str> {
        outcome.out.lines().filter_map(|line| line.trim_end().strip_suffix(word)).map(str::trim).collect()
    };
    assert_eq!(of(" skipped"), SKIPPED.iter().map(|(name, _)| *name).collect());
    let is_of_kind = |name: &&str| KINDS.iter().any(|kind| name.ends_with(kind));
    let failed = of(" FAILED");
    let (of_kinds, others): (Vec<&str>, Vec<&str>) = failed.into_iter().partition(is_of_kind);
    let known: Vec<&str> = LACKS.iter().flat_map(|(names, _)| *names).copied().collect();
    let unknown: Vec<&&str> = others.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}\n{}", outcome.out);
    let passed: Vec<&&str> = known.iter().filter(|name| !others.contains(name)).collect();
    assert!(passed.is_empty(), "AFS has them after all: {passed:#?}");
    assert!(!of_kinds.is_empty(), "{}", outcome.out);
    let summary = outcome.out.lines().find(|line| line.starts_with("Summary:")).unwrap_or_default();
    println!("pjdfstest on AFS: {summary} {} of those that fail are of fifos, sockets and devices", of_kinds.len());
    for (names, reason) in LACKS {
        println!("{}: {reason}", names.join(", "));
    }
    std::fs::remove_dir_all(&place).expect("removed");
}

/// Cases of kinds of files that AFS does not have.
const KINDS: [&str; 4] = ["::block", "::char", "::fifo", "::socket"];

/// What AFS does not have otherwise (SEMANTICS.md, "AFS").
const LACKS: &[(&[&str], &str)] = &[
    (
        &[
            "mkfifo::changed_time_fields_success",
            "mkfifo::permission_bits_from_mode",
            "mkfifo::uid_gid_eq_euid_egid",
            "mknod::changed_time_fields_success",
            "mknod::permission_bits_from_mode",
            "mknod::uid_gid_eq_euid_egid",
            "open::fifo_nonblock_wronly",
            "open::socket_error",
        ],
        "there are no fifos, sockets and devices",
    ),
    (
        &[
            "chmod::clear_isgid_bit",
            "ftruncate::affected_create_flags_only",
            "link::share_metadata::regular",
            "mkdir::uid_gid_eq_euid_egid",
            "open::uid_gid_eq_euid_egid",
            "posix_fallocate::affected_only_create_flags",
            "rename::unchanged_ctime_failed::dir",
            "rename::unchanged_ctime_failed::regular",
            "rename::unchanged_ctime_failed::symlink",
            "unlink::unchanged_ctime_failed::regular",
        ],
        "owners are the cell's, and cannot be set",
    ),
    (
        &["rename::write_access_required_subdir", "utimensat::nobody", "utimensat::write_perm"],
        "a mount without `allow_other` lets no other user in",
    ),
    (
        &["chmod::change_perm::dir", "mkdir::permission_bits_from_mode"],
        "bits of directories mean nothing and are not shown",
    ),
    (
        &[
            "utimensat::changes_timestamps::dir",
            "utimensat::changes_timestamps::regular",
            "utimensat::follow_symlink",
            "utimensat::subsecond",
            "utimensat::utime_omit",
            "utimensat::y2038",
        ],
        "there is no time of last use; times are whole seconds until 2106",
    ),
    (
        &[
            "link::changed_ctime_success::regular",
            "rename::changed_ctime_success::dir",
            "rename::changed_ctime_success::regular",
            "rename::changed_ctime_success::symlink",
        ],
        "a server changes no time of a file when its names change",
    ),
];
