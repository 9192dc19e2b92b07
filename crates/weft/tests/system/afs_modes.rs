//! Modes and times of files in AFS that several users of a machine write: its servers decide who may set them.

use crate::afs_users::{User, cell, mounted};
use crate::support::{Outcome, Program, is_root};

/// Goal: whoever may write files in AFS may set their modes and times, though they are shown as another user's, and programs
/// work that do; who may not write may not; and what a mode says of reading, writing and running counts.
#[test]
fn who_may_write_sets_modes_and_times() {
    let Some(cell) = cell() else { return };
    assert!(is_root(), "a cell takes root");
    let (alice, bob) = (User::new(64_171), User::new(64_172));
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let home = mount.at("weft.test/user/alice/modes");
    let run = |user: &User, script: &str| -> Outcome {
        let script = format!("umask 022; cd \"$0\" && {script}");
        user.run("sh", ["-ec".as_ref(), script.as_ref(), home.as_os_str()])
    };
    let good = |user: &User, script: &str, wanted: &str| {
        let outcome = run(user, script);
        assert!(outcome.code == Some(0) && outcome.out == wanted, "{script}: {outcome:?}");
    };
    let made = alice.run("mkdir", [&home]);
    assert_eq!(made.code, Some(0), "{made:?}");

    good(&alice, "echo text >file; chmod 600 file; touch -d @1000000000 file; stat -c '%Y' file", "1000000000\n");
    good(
        &alice,
        "cp --preserve=timestamps file copy; tar cf arc file copy; rm copy; tar xf arc; stat -c %Y copy",
        "1000000000\n",
    );
    good(&alice, "printf '#!/bin/sh\\necho runs\\n' >program; chmod +x program; ./program", "runs\n");
    good(&alice, "cp program other; chmod 750 other; ./other; test -x other; mkdir -m 700 folder", "runs\n");

    good(
        &alice,
        "chmod 444 file; test -r file; ! test -w file; ! test -x file; cat file; echo x 2>&- >file || echo no",
        "text\nno\n",
    );
    good(&alice, "truncate -s 0 file 2>&- || echo no; cat file; ./file 2>&- || echo no", "no\ntext\nno\n");
    good(&alice, "chmod 200 file; echo more >>file; cat file 2>&- || echo no; ! test -r file", "no\n");
    // Others look at it as ever, also where its owner has just written it.
    for (mode, shown) in [("200", "222\nno\n"), ("000", "0\nno\n")] {
        good(&alice, &format!("chmod 600 file; echo >>file; chmod {mode} file"), "");
        good(&bob, "stat -c %a file; cat file 2>&- || echo no", shown);
    }
    good(&alice, "chmod 644 file; cat file", "text\nmore\n\n\n");
    good(&bob, "cat file", "text\nmore\n\n\n");

    for script in ["chmod 600 program", "touch -d @1 program", "echo x >>program", "rm -f program", "touch new"] {
        let outcome = run(&bob, script);
        assert!(outcome.code != Some(0) && outcome.err.contains("ermission"), "{script}: {outcome:?}");
    }
    good(&bob, "stat -c %a program; ./program", "777\nruns\n");
    assert_eq!(Program::new("rm").arg("-r").arg(&home).run().code, Some(1), "root has no ticket");
    assert_eq!(alice.run("rm", ["-r".as_ref(), home.as_os_str()]).code, Some(0));
}
