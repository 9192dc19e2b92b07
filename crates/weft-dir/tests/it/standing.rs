//! Listings of many names: what has changed since the last one is looked at, the rest stands.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use weft_remote::{Entry, Listing, Remote, Version};

use crate::support::{Bed, call};

/// Enough names for rows to be held.
const NAMES: usize = 200;

/// A directory with many files.
async fn many() -> Bed {
    let bed = Bed::new(&["d/sub/"]).await;
    for at in 0..NAMES {
        fs::write(bed.path(&format!("d/{at:03}")), "as it was").unwrap();
    }
    bed
}

/// The rows that are told as new or changed, and those that stand.
async fn listed(bed: &Bed) -> (Vec<Entry>, Vec<Entry>) {
    match bed.dir.entries(&call(), &bed.id("d").await, &Version::None, None).await.unwrap().value {
        Listing::Page(page, None) => (page.entries, Vec::new()),
        Listing::Changes(page, standing) => (page.entries, standing.iter().map(|entry| Entry::clone(entry)).collect()),
        other => panic!("{other:?}"),
    }
}

/// What is there, looked at anew.
async fn truth(bed: &Bed) -> Vec<Entry> {
    match bed.dir.entries(&call().anew(), &bed.id("d").await, &Version::None, None).await.unwrap().value {
        Listing::Page(page, None) => page.entries,
        other => panic!("{other:?}"),
    }
}

/// Goal: after each sort of change the listing is what a look at every name gives, and names of which nothing has changed stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_changed_is_looked_at_and_the_rest_stands() {
    let bed = many().await;
    let at = |name: &str| bed.path(&format!("d/{name}"));
    type Change<'a> = (&'a str, &'a [&'a str], Box<dyn Fn() + 'a>);
    let changes: Vec<Change<'_>> = vec![
        ("created", &["new"], Box::new(|| fs::write(at("new"), "new").unwrap())),
        ("written", &["000"], Box::new(|| fs::write(at("000"), "longer than it was").unwrap())),
        ("removed", &["001"], Box::new(|| fs::remove_file(at("001")).unwrap())),
        ("renamed", &["002", "two"], Box::new(|| fs::rename(at("002"), at("two")).unwrap())),
        ("replaced", &["003", "004"], Box::new(|| fs::rename(at("003"), at("004")).unwrap())),
        ("mode", &["005"], Box::new(|| fs::set_permissions(at("005"), fs::Permissions::from_mode(0o600)).unwrap())),
        ("linked", &["006", "six"], Box::new(|| fs::hard_link(at("006"), at("six")).unwrap())),
        ("unlinked", &["006", "six"], Box::new(|| fs::remove_file(at("six")).unwrap())),
        ("link", &["link"], Box::new(|| symlink("007", at("link")).unwrap())),
        ("directory", &["made"], Box::new(|| fs::create_dir(at("made")).unwrap())),
        (
            "of a directory",
            &["sub"],
            Box::new(|| fs::set_permissions(at("sub"), PermissionsExt::from_mode(0o700)).unwrap()),
        ),
        ("kind", &["008"], Box::new(|| fs::remove_file(at("008")).and_then(|()| fs::create_dir(at("008"))).unwrap())),
    ];
    listed(&bed).await;
    for (what, names, change) in &changes {
        change();
        let (mut told, standing) = listed(&bed).await;
        let stand: BTreeSet<String> = standing.iter().map(|entry| entry.name.to_string()).collect();
        assert!(stand.len() >= NAMES - 2 * changes.len(), "{what}: {} stand", stand.len());
        assert!(names.iter().all(|name| !stand.contains(*name)), "{what}");
        told.extend(standing);
        told.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(told, truth(&bed).await, "{what}");
    }
}
