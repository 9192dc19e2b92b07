//! Trees behind real servers read like trees on disk.

use std::ffi::OsStr;

use crate::support::{Mount, Program, Server, big_tree, compare, names_in, odd_names, run, small_tree, write_aged};

#[test]
fn a_tree_behind_nginx_is_the_tree_on_disk() {
    let (Some(mut server), Some(mount)) = (Server::nginx(""), Mount::new()) else { return };
    big_tree(&server.root());
    odd_names(&server.root().join("odd"), false);
    let site = mount.at(server.site());
    compare(&server.root(), &site);

    let grep = |root: &std::path::Path| {
        let mut lines: Vec<String> =
            Program::new("grep").args(["-r", "-c", "file 7"]).arg(".").dir(root).run().out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(grep(&site), grep(&server.root()));
    let heads = server.hits().iter().filter(|hit| hit.method == "HEAD").count();
    assert_eq!(heads, 0);
}
