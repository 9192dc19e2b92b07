//! The tools of AFS under their old names, on a real cell: what they say is what OpenAFS's own say where those can be
//! asked, and what they change mounts show at the next look.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::Value;

use crate::support::{AfsCell, Mount, Outcome, Program, Setup, fails_with, names_in, weft_program};

/// A mount of a cell, and tools that find the cell where it does. Neither has a ticket of its own.
struct Tools {
    cell: &'static AfsCell,
    mount: Mount,
}

impl Tools {
    fn new() -> Option<Tools> {
        let cell = AfsCell::up()?;
        let dir = cell.client_config();
        let config = format!("[afs]\nconfig_dir = \"{}\"\nccache = \"/nonexistent/cc\"\n", dir.display());
        let mut mount = Mount::prepare(Setup { source: "afs", config: config.clone(), ..Setup::default() })?;
        let own = mount.beside("home/config/weft");
        std::fs::create_dir_all(&own).expect("made");
        std::fs::write(own.join("weft.toml"), config).expect("written");
        mount.move_to(cell.words("c1"));
        mount.mount();
        Some(Tools { cell, mount })
    }

    /// A path in the cell's tree.
    fn at(&self, path: &str) -> PathBuf {
        self.mount.at("weft.test").join(path)
    }

    fn shown(&self, path: &str) -> String {
        self.at(path).display().to_string()
    }

    /// Runs a tool with these words; `{}` is the cell's tree.
    fn run(&self, line: &str) -> Outcome {
        self.program(line).run()
    }

    fn program(&self, line: &str) -> Program {
        let tree = self.mount.at("weft.test").display().to_string();
        self.mount.weft().args(line.split(' ').map(|word| word.replace("{}", &tree)))
    }

    /// The same as a user of the cell.
    fn run_as(&self, user: &str, line: &str) -> Outcome {
        let tickets = self.mount.beside(&format!("tickets-{user}"));
        if !tickets.exists() {
            let (keytab, tickets) = (self.cell.keytab(user), tickets.to_str().expect("text"));
            let keytab = keytab.to_str().expect("text");
            self.cell.on("c1", ["kinit", "-c", tickets, "-k", "-t", keytab, user]).good();
            self.cell.on("c1", ["kvno", "-q", "-c", tickets, "afs/weft.test"]).good();
        }
        self.program(line).env("KRB5CCNAME", tickets).run()
    }

    /// What it prints, which must end well.
    #[track_caller]
    fn good(&self, line: &str) -> String {
        good(line, self.run(line))
    }

    #[track_caller]
    fn good_as(&self, user: &str, line: &str) -> String {
        good(line, self.run_as(user, line))
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let out = self.good(&format!("{line} --json"));
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}: {out}"))
    }

    /// It ends with this code, and says this.
    #[track_caller]
    fn refused(&self, line: &str, code: i32, wanted: &str) {
        refused(line, self.run(line), code, wanted);
    }

    #[track_caller]
    fn refused_as(&self, user: &str, line: &str, code: i32, wanted: &str) {
        refused(line, self.run_as(user, line), code, wanted);
    }

    /// A directory that is only this test's.
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.at("scratch").join(name);
        std::fs::create_dir(&folder).expect("made");
        folder
    }
}

#[track_caller]
fn good(line: &str, outcome: Outcome) -> String {
    assert_eq!(outcome.code, Some(0), "{line}: {outcome:?}");
    outcome.out
}

#[track_caller]
fn refused(line: &str, outcome: Outcome, code: i32, wanted: &str) {
    assert_eq!(outcome.code, Some(code), "{line}: {outcome:?}");
    assert!(outcome.err.contains(wanted), "{line}: {outcome:?}");
}

/// Goal: what `fs` tells of files and volumes is so, for directories, files, mount points and the names of cells.
#[test]
fn files_and_volumes_are_told() {
    let Some(tools) = Tools::new() else { return };
    let pub_id = tools.json("fs getfid {}/pub")[0]["fid"].as_str().expect("a text").to_owned();
    assert!(pub_id.ends_with(".1.1"), "through the mount point: {pub_id}");
    let volume = pub_id.strip_suffix(".1.1").expect("a root").to_owned();
    let by_vos = tools.cell.on("c1", ["vos", "examine", "pub", "-noauth"]).good();
    assert!(by_vos.contains(&format!("RWrite: {volume} ")), "{by_vos}");

    let at = tools.shown("pub/empty");
    assert!(tools.at("pub/empty").exists(), "`weft why` tells of what was looked at");
    let why = tools.mount.why(&tools.at("pub/empty"), "fid");
    assert_eq!(tools.good("fs getfid {}/pub/empty"), format!("File {at} ({why}) located in cell weft.test\n"));
    assert_eq!(tools.good("fs whichcell {}/pub/empty"), format!("File {at} lives in cell 'weft.test'\n"));
    assert_eq!(tools.good("fs whereis {}/pub/empty"), format!("File {at} is on host fs1.weft.test \n"));
    let hosts = &tools.json("fs whereis {}/replicated")[0]["hosts"];
    assert_eq!(hosts.as_array().map(Vec::len), Some(2), "{hosts}");

    let examined = tools.good("fs examine {}/pub");
    for wanted in
        ["contained in volume", &format!("Volume status for vid = {volume} named pub\n"), "Current blocks used"]
    {
        assert!(examined.contains(wanted), "{examined}");
    }
    assert_eq!(without_room(&tools.good("fs ex {}/pub")), without_room(&examined));
    let size =
        |out: &str| out.lines().find_map(|line| line.strip_prefix("Current blocks used are ")?.parse::<u64>().ok());
    let [listed, quota, free] =
        ["listquota", "quota", "diskfree"].map(|verb| tools.good(&format!("fs {verb} {{}}/pub")));
    let used = size(&examined).expect("a number").to_string();
    assert!(listed.starts_with("Volume Name") && listed.contains(&used) && listed.contains("no limit"), "{listed}");
    assert_eq!(quota, " 0% of quota used.\n");
    assert!(free.starts_with("Volume Name") && free.lines().count() == 2, "{free}");
    assert!(tools.good("fs df {}/pub -human").contains('G'));
    // The name of a cell, and the way in by the read-write side.
    let roots = tools.json("fs getfid {} {}/../.weft.test");
    assert_ne!(roots[0]["fid"], roots[1]["fid"], "{roots}");
    assert_eq!(
        tools.good("fs getcalleraccess {}/scratch"),
        format!("Callers access to {} is rlidwk\n", tools.shown("scratch"))
    );
}

/// Goal: the path is where the user stands when none is named, and several are told one by one.
#[test]
fn paths_are_those_of_the_user() {
    let Some(tools) = Tools::new() else { return };
    let here = tools.program("fs whichcell").dir(&tools.at("pub")).good();
    assert_eq!(here, "File . lives in cell 'weft.test'\n");
    let outcome = tools.run("fs whichcell {}/pub /tmp {}/replicated {}/nothing");
    assert_eq!((outcome.code, outcome.out.lines().count()), (Some(3), 2), "{outcome:?}");
    assert!(
        outcome.err.contains("possible that /tmp is not in AFS.") && outcome.err.contains("nothing' doesn't exist"),
        "{outcome:?}"
    );
    tools.refused("fs examine /", 3, "not in AFS");
    // Scripts look for these words.
    let nothing = format!("fs: File '{}' doesn't exist\n", tools.at("nothing").display());
    tools.refused("fs examine {}/nothing", 4, &nothing);
    tools.refused("fs la {}/nothing/below", 4, &nothing.replace("nothing", "nothing/below"));
    tools.refused("fs lq {}/pub/empty/below", 4, "below: Not a directory\n");
    let no_rights = format!("fs: You don't have the required access rights on '{}'", tools.at("pub").display());
    tools.refused("fs sa {}/pub system:anyuser rl", 5, &no_rights);
    tools.refused("fs sq {}/pub 100", 5, &no_rights);
    tools.refused("fs examine {}/..", 2, "in no volume");
    let out = tools.run("fs examine --json /tmp").out;
    let error: Value = serde_json::from_str(&out).expect("nothing but the failure");
    assert_eq!(error["error"]["code"], "no_mount");
}

/// Goal: access lists are shown and changed, mounts show who may come in at the next look, and whoever may not change a list
/// is told so. Method: a directory of an administrator, which the mount sees as anybody.
#[test]
fn access_lists_are_changed_and_mounts_see_it() {
    let Some(tools) = Tools::new() else { return };
    let folder = tools.folder("acl");
    std::fs::write(folder.join("file"), "x").expect("written");
    let shown = folder.display().to_string();
    let before = tools.good("fs listacl {}/scratch/acl");
    assert!(before.starts_with(&format!("Access list for {shown} is\nNormal rights:\n")), "{before}");
    assert!(before.contains("  system:anyuser rlidwk\n"), "{before}");
    assert_eq!(names_in(&folder), ["file"]);

    tools.good_as("admin", "fs setacl {}/scratch/acl system:anyuser none alice read");
    fails_with(std::fs::read_dir(&folder), Errno::ACCESS);
    let closed = tools.good_as("admin", "fs la {}/scratch/acl");
    assert!(closed.contains("  alice rl\n") && !closed.contains("anyuser"), "{closed}");
    tools.refused("fs la {}/scratch/acl", 5, "asked as anybody");
    tools.good_as("alice", "fs la {}/scratch/acl");
    tools.refused_as("alice", "fs sa {}/scratch/acl alice all", 5, "asked as alice@WEFT.TEST");

    tools.good_as("admin", "fs sa -dir {}/scratch/acl -acl system:anyuser l bob write -negative");
    tools.good_as("admin", "fs sa {}/scratch/acl alice d+ system:anyuser mail");
    let list = tools.good_as("admin", "fs la {}/scratch/acl");
    for wanted in ["  alice rld\n", "  system:anyuser lik\n", "Negative rights:\n", "  bob rlidwk\n"] {
        assert!(list.contains(wanted), "{wanted}: {list}");
    }
    fails_with(std::fs::read_dir(&folder), Errno::ACCESS);
    tools.good_as("admin", "fs sa {}/scratch/acl system:anyuser write -clear");
    let cleared = tools.good_as("admin", "fs la {}/scratch/acl");
    assert_eq!(cleared, format!("Access list for {shown} is\nNormal rights:\n  system:anyuser rlidwk\n"));
    assert_eq!(names_in(&folder), ["file"], "and it is open again");

    for (line, code, wanted) in [
        ("fs sa {}/scratch/acl bob rx", 2, "rights are letters"),
        ("fs sa {}/scratch/acl bob", 2, "in pairs"),
        ("fs sa {}/scratch/acl", 2, "-acl"),
        ("fs sa {}/scratch/acl nobody.here rl", 1, "does not know"),
        ("fs sa {}/scratch/acl/file bob rl", 1, "of its directory"),
        ("fs sa /tmp bob rl", 3, "not in AFS"),
        ("fs sa {}/replicated bob rl", 5, "fs: You can not change a backup or readonly volume"),
    ] {
        tools.refused_as("admin", line, code, wanted);
    }
    assert_eq!(tools.good("fs la {}/scratch/acl"), cleared, "what is refused changes nothing");

    std::fs::create_dir(folder.join("copy")).expect("made");
    tools.good_as("admin", "fs sa {}/scratch/acl alice rl");
    tools.good_as("admin", "fs copyacl {}/scratch/acl {}/scratch/acl/copy -clear");
    let [of, copied] =
        ["", "/copy"].map(|path| tools.json(&format!("fs la {{}}/scratch/acl{path}"))[0]["positive"].clone());
    assert_eq!(of, copied);
    let commands = tools.good("fs la {}/scratch/acl -cmd");
    assert!(
        commands.starts_with(&format!("fs setacl -dir {shown} -acl ")) && commands.contains("  alice rl"),
        "{commands}"
    );
    assert_eq!(tools.good("fs cleanacl {}/scratch/acl"), format!("Access list for {shown} is fine.\n"));
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Goal: mount points are made, told and removed, and each is in the mount, and out of it, at the next look.
#[test]
fn mount_points_come_and_go_in_the_mount() {
    let Some(tools) = Tools::new() else { return };
    let folder = tools.folder("mounts");
    assert!(names_in(&folder).is_empty());
    let to_pub = folder.join("to-pub");
    for turn in 0..3 {
        assert!(!to_pub.exists());
        tools.good_as("admin", "fs mkmount {}/scratch/mounts/to-pub pub");
        assert_eq!(names_in(&folder), ["to-pub"], "{turn}");
        assert_eq!(names_in(&to_pub), names_in(&tools.at("pub")), "{turn}");
        let listed = tools.good("fs lsmount {}/scratch/mounts/to-pub");
        assert_eq!(listed, format!("'{}' is a mount point for volume '#pub'\n", to_pub.display()));
        tools.good_as("admin", "fs rmmount {}/scratch/mounts/to-pub");
        assert!(names_in(&folder).is_empty() && !to_pub.exists(), "{turn}");
    }
    tools.good_as("admin", "fs mkm -dir {}/scratch/mounts/rw -vol replicated -rw -cell weft.test");
    assert!(tools.good("fs lsm {}/scratch/mounts/rw").ends_with("'%weft.test:replicated'\n"));
    let outcome = tools.run_as("admin", "fs mkm {}/scratch/mounts/none no.such.volume");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("warning, volume no.such.volume does not exist in cell weft.test"), "{outcome:?}");
    assert!(tools.good("fs lsm {}/scratch/mounts/none").ends_with("'#no.such.volume'\n"), "although it leads nowhere");
    let none = folder.join("none");
    for _ in 0..2 {
        let made = std::fs::write(none.join("file"), "text").map(drop);
        for refused in [std::fs::read_dir(&none).map(drop), std::fs::read(none.join("file")).map(drop), made] {
            assert_eq!(refused.expect_err("there is nothing").kind(), std::io::ErrorKind::NotFound);
        }
        assert_eq!(names_in(&folder), ["none", "rw"]);
    }
    let link = tools.mount.beside("link");
    std::os::unix::fs::symlink(folder.join("rw"), &link).expect("made");
    let listed = tools.good(&format!("fs lsmount {}", link.display()));
    assert!(listed.contains("is a symbolic link, leading to a mount point for volume"), "{listed}");
    for (line, code, wanted) in [
        ("fs mkm {}/scratch/mounts/rw pub", 1, "exists already"),
        ("fs mkm {}/scratch/mounts/x weft.test:pub -cell other", 2, "another cell"),
        ("fs mkm {}/scratch/mounts/x nosuchcell:pub", 4, "no cell of this name"),
        ("fs mkm {}/scratch/mounts/x a/b", 2, "the name of a volume"),
        ("fs mkm {}/replicated/x pub", 5, "read-only"),
        ("fs mkm /tmp/x pub", 3, "not in AFS"),
        ("fs rmm {}/scratch/mounts", 1, "is not a mount point."),
        ("fs lsm {}/pub/empty", 1, "is not a mount point."),
        ("fs rmm {}/scratch/mounts/x", 4, "mounts/x' doesn't exist\n"),
    ] {
        tools.refused_as("admin", line, code, wanted);
    }
    tools.refused_as("alice", "fs mkm {}/scratch/mounts/mine pub", 5, "permission denied");
    tools.good_as("admin", "fs rmm {}/scratch/mounts/rw {}/scratch/mounts/none");
    assert!(names_in(&folder).is_empty());
    std::fs::remove_dir(&folder).expect("removed");
}

/// Goal: quotas are set by whoever may, and counted by the server.
#[test]
fn quotas_are_set() {
    let Some(tools) = Tools::new() else { return };
    tools.refused_as("alice", "fs setquota {}/user/alice 7000", 5, "permission denied");
    tools.refused_as("admin", "fs sq {}/user/alice -max many", 2, "number of kilobytes");
    tools.refused_as("admin", "fs sq {}/user/alice", 2, "-max");
    tools.good_as("admin", "fs sq {}/user/alice 7000");
    let listed = tools.good("fs lq {}/user/alice");
    let by_vos = tools.cell.on("c1", ["vos", "examine", "user.alice", "-noauth"]).good();
    tools.good_as("admin", "fs sq -path {}/user/alice -max 0");
    assert!(
        listed.lines().nth(1).is_some_and(|line| line.starts_with("user.alice ") && line.contains(" 7000 ")),
        "{listed}"
    );
    assert!(by_vos.contains("MaxQuota       7000 K"), "{by_vos}");
    assert!(tools.good("fs lq {}/user/alice").contains("no limit"));
    let quota = || tools.json("fs lq {}/user/alice")[0]["quota_max_kib"].clone();
    tools.cell.on("fs1", ["vos", "setfields", "user.alice", "-maxquota", "20G", "-localauth"]).good();
    let by_theirs = quota();
    tools.good_as("admin", "fs sq {}/user/alice -max 0");
    assert_ne!(quota(), by_theirs);
    tools.good_as("admin", "fs sq {}/user/alice -max 20G");
    assert_eq!(quota(), by_theirs);
    tools.good_as("admin", "fs sq {}/user/alice -max 0");
}

/// Goal: what is dropped from the cache is dropped, and fetched again.
#[test]
fn what_is_flushed_is_fetched_again() {
    let Some(tools) = Tools::new() else { return };
    let names = ["pub/d00/a/f000.txt", "pub/d01/b/f001.txt"];
    let texts = names.map(|name| std::fs::read(tools.at(name)).expect("read"));
    let held = |name: &str| {
        let cached = tools.mount.why(&tools.at(name), "cached");
        cached.starts_with("whole")
    };
    assert!(names.iter().all(|name| held(name)));
    tools.good("fs flush {}/pub/d00/a/f000.txt {}/pub/d00");
    assert!(!held(names[0]) && held(names[1]));
    assert_eq!(std::fs::read(tools.at(names[0])).expect("read"), texts[0]);
    let flushed = tools.json("fs flushvolume {}/pub/d00/a");
    assert!(flushed[0]["files"].as_u64() >= Some(2), "{flushed}");
    assert!(!names.iter().any(|name| held(name)));
    assert_eq!(names.map(|name| std::fs::read(tools.at(name)).expect("read")), texts);
    tools.refused("fs flush /tmp", 3, "not in AFS");
    assert_eq!(tools.good("fs checkvolumes {}"), "All volumeID/name mappings checked.\n");
    assert!(tools.good("fs getcacheparms").contains("AFS using "));
}

/// Goal: cells are told as they are configured, and what is the configuration's is not pretended to be set.
#[test]
fn cells_and_settings_are_told() {
    let Some(tools) = Tools::new() else { return };
    assert_eq!(tools.good("fs wscell"), "This workstation belongs to cell 'weft.test'\n");
    assert_eq!(tools.good("fs listcells -numeric"), "Cell weft.test on hosts 10.77.0.1.\n");
    assert_eq!(tools.good("fs listcells"), "Cell weft.test on hosts fs1.weft.test.\n");
    assert_eq!(tools.good("fs listaliases"), "");
    assert_eq!(tools.good("fs checkservers"), "All servers are running.\n");
    assert_eq!(tools.json("fs checkservers -cell weft.test")["asked"], 3);
    tools.refused("fs checkservers -cell nosuchcell", 4, "no cell of this name");
    assert_eq!(tools.good("fs getcrypt"), "Security level is currently crypt (data security).\n");
    assert_eq!(tools.good("fs setcrypt on"), "");
    assert!(tools.good("fs sysname").starts_with("Current sysname is '"));
    for (line, code, wanted) in [
        ("fs setcrypt off", 2, "nothing was changed"),
        ("fs setcrypt perhaps", 2, "`on` or `off`"),
        ("fs newcell x.org db.x.org", 2, "nothing was changed"),
        ("fs setcachesize 1000", 2, "nothing was changed"),
        ("fs sysname -newsys plan9", 2, "nothing was changed"),
        ("fs storebehind", 2, "close(2)"),
        ("fs exportafs nfs", 2, "not among"),
        ("fs nothing", 2, "no command `nothing`"),
        ("fs la -nothing", 2, "no option -nothing"),
        ("vos create fs1 a x", 2, "only asks"),
        ("pts createuser x", 2, "only asks"),
        ("vos examine pub -localauth", 2, "kinit"),
    ] {
        tools.refused(line, code, wanted);
    }
}

/// Goal: a server that is gone is named, and the tool ends; when it is back all is well.
#[test]
fn servers_that_are_gone_are_named() {
    let Some(cell) = AfsCell::own() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("weft");
    std::fs::create_dir(&config).expect("made");
    let text = format!("[afs]\nconfig_dir = \"{}\"\n", cell.client_config().display());
    std::fs::write(config.join("weft.toml"), text).expect("written");
    let check = || {
        let program = Program::words(&cell.words("c1")).arg(weft_program()).args(["fs", "checkservers"]);
        program.env("XDG_CONFIG_HOME", folder.path()).run()
    };
    assert_eq!(check().out, "All servers are running.\n");
    cell.kill("fs2", "dafileserver");
    let outcome = check();
    assert_eq!(outcome.code, Some(6), "{outcome:?}");
    assert!(outcome.out.contains("unavailable due to network or server problems:  10.77.0.2."), "{outcome:?}");
    cell.restart("fs2", "dafileserver");
    crate::interrupts::wait_until("the server is back", || check().code == Some(0));
}

/// What OpenAFS's `vos` on c1, or `pts` on fs1, says, with addresses for names.
fn theirs(tools: &Tools, node: &str, line: &str, more: &[&str]) -> String {
    let words: Vec<&str> = line.split(' ').chain(more.iter().copied()).collect();
    let outcome = tools.cell.on(node, words).run();
    (1..=2).fold(outcome.out, |text, last| {
        text.replace(&format!("fs{last}.weft.test"), &Ipv4Addr::new(10, 77, 0, last).to_string())
    })
}

/// Without the room that is free on the host's own disk, which others use as well.
fn without_room(text: &str) -> String {
    let lines = text.lines().map(|line| match OF_ROOM.iter().find_map(|words| line.split_once(words)) {
        Some((free, size)) => {
            format!("{}? out of{size}\n", free.trim_end_matches(" KB").trim_end_matches(|at: char| at.is_ascii_digit()))
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// What stands between the room that is free and all that there is.
const OF_ROOM: [&str; 3] = [" K blocks out of", " free out of", " blocks available out of"];

/// Goal: `vos` says what OpenAFS's says, to the letter. Method: both are asked; what changes meanwhile, in a cell that others
/// use as well, is asked again.
#[test]
fn vos_says_what_openafs_says() {
    let Some(tools) = Tools::new() else { return };
    tools.cell.on("fs1", ["vos", "create", "fs2", "b", "locked", "-localauth"]).good();
    tools.cell.on("fs1", ["vos", "lock", "locked", "-localauth"]).good();
    for line in [
        "vos listvldb",
        "vos listvldb -quiet -nosort",
        "vos listvldb -name pub",
        "vos listvldb -name root.cell.readonly",
        "vos listvldb -server 10.77.0.2 -partition a",
        "vos listvldb -locked",
        "vos examine pub",
        "vos examine replicated.readonly",
        "vos examine pub -extended",
        "vos examine user.bob -format",
        "vos examine replicated.readonly -format",
        "vos examine locked",
        "vos examine locked -format",
        "vos examine locked -extended",
        "vos listvol 10.77.0.1",
        "vos listvol 10.77.0.1 -partition b",
        "vos listvol 10.77.0.2 a -fast",
        "vos listvol 10.77.0.2 -long",
        "vos listvol 10.77.0.2 -extended",
        "vos listvol 10.77.0.2 -format",
        "vos listvol 10.77.0.2 -quiet",
        "vos partinfo 10.77.0.1",
        "vos partinfo 10.77.0.2 vicepb -summary",
        "vos status 10.77.0.1",
        "vos listaddrs",
        "vos listaddrs -printuuid",
        "vos listaddrs -host 10.77.0.2 -printuuid",
        "vos listvldb -name pub -verbose",
        "vos listvldb -name pub -cell WEFT",
    ] {
        let ours = || without_room(&tools.good(&format!("{line} -noauth -noresolve")));
        crate::interrupts::wait_until(line, || {
            let wanted = || without_room(&theirs(&tools, "c1", line, &["-noauth", "-noresolve"]));
            let (before, wanted, after) = (ours(), wanted(), ours());
            assert!(before != after || before == wanted, "{line}:\n{before}\n{wanted}");
            before == after
        });
    }
    tools.cell.on("fs1", ["vos", "unlock", "locked", "-localauth"]).good();
    tools.cell.on("fs1", ["vos", "remove", "-id", "locked", "-localauth"]).good();
    let uuids = tools.json("vos listaddrs");
    let uuid = uuids[0]["uuid"].as_str().expect("a text");
    assert_eq!(tools.json(&format!("vos listaddrs -uuid {uuid}"))[0], uuids[0]);
    assert_eq!(tools.json("vos examine pub")["entry"]["name"], "pub");
    assert_eq!(tools.json("vos listvldb -name pub -cell weft.test")["sites"][0]["type"], "RW");
}

/// Goal: what is not there is not there, in the tool's own words.
#[test]
fn vos_refuses_what_is_not_there() {
    let Some(tools) = Tools::new() else { return };
    for (line, code, wanted) in [
        ("vos examine no.such.volume", 4, "vos: VLDB: no such entry: volume no.such.volume"),
        ("vos listvldb -name no.such.volume", 4, "vos: VLDB: no such entry"),
        ("vos examine pub.backup", 4, "does not exist"),
        ("vos listvldb -name pub -locked", 2, "-name goes with none"),
        ("vos listvol 10.77.0.1 c", 4, "does not exist on the server"),
        ("vos listvol 10.77.0.1 -partition 9x", 2, "a partition is"),
        ("vos partinfo 10.77.0.2 zz", 2, "a partition is"),
        ("vos listaddrs -host 10.77.0.99", 4, "no such server"),
        ("vos listaddrs -uuid x", 2, "hexadecimal"),
        ("vos status 10.77.0.11", 6, "10.77.0.11"),
        ("vos examine pub -cell nosuchcell", 4, "no cell of this name"),
        ("vos examine pub -cell weft-test", 4, "no cell of this name"),
    ] {
        tools.refused(line, code, wanted);
    }
}

/// Goal: `pts` says what OpenAFS's says, to whoever may ask.
#[test]
fn pts_says_what_openafs_says() {
    let Some(tools) = Tools::new() else { return };
    for line in [
        "pts examine alice",
        "pts examine system:administrators",
        "pts examine 1001 -204",
        "pts membership alice bob",
        "pts membership system:administrators",
        "pts membership system:administrators -supergroups",
        "pts listentries",
        "pts listentries -groups",
        "pts listentries -users -groups",
        "pts listowned system:administrators",
        "pts listowned 0",
        "pts examine Alice System:Administrators",
        "pts membership ALICE -force",
        "pts listowned SYSTEM:administrators",
    ] {
        assert_eq!(tools.good_as("admin", line), theirs(&tools, "fs1", line, &["-localauth"]), "{line}");
    }
    tools.good_as("alice", "pts membership alice -auth");
    tools.refused_as("alice", "pts membership bob", 5, "asked as alice@WEFT.TEST");
    tools.refused_as("alice", "pts membership alice -noauth", 5, "permission denied");
    tools.refused("pts examine nobody.here", 4, "pts: User or group doesn't exist: nobody.here");
    tools.refused("pts examine 99999", 4, "no user and no group");
    tools.refused("pts listentries", 5, "permission denied");
    let alice = tools.json("pts examine alice");
    assert_eq!((alice[0]["id"].as_i64(), alice[0]["flags"].as_str()), (Some(1001), Some("S----")));
}

/// Goal: the tools answer to their old names, and tell what they can do.
#[test]
fn tools_answer_to_their_old_names() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["fs", "vos", "pts"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(weft_program(), &link).expect("made");
        let run = |words: &[&str]| Program::new(&link).args(words).good();
        let help = run(&["help"]);
        assert_eq!(help, run(&["-help"]));
        assert!(help.contains("examine") && help.contains(&format!("{name} help COMMAND")), "{help}");
        let usage = run(&["examine", "-help"]);
        assert!(usage.starts_with(&format!("{name} examine:")) && usage.contains("Usage:"), "{usage}");
        let outcome = Program::new(&link).arg("nonsense").run();
        assert!(outcome.code == Some(2) && outcome.err.starts_with(&format!("{name}: ")), "{outcome:?}");
    }
    let pages = folder.path().join("pages");
    std::fs::create_dir(&pages).expect("made");
    Program::new(weft_program()).arg("man").arg(&pages).good();
    let page = std::fs::read_to_string(pages.join("weft-fs.1")).expect("a page");
    assert!(page.contains("listacl") && page.contains("storebehind"), "{page}");
}

/// Goal: what a mount tells of a place counts only if the mount is of this user or of root: the word of others could send
/// changes elsewhere. Method: the same attributes on files that anybody may write.
#[test]
fn nobody_elses_word_on_places_counts() {
    let Some(tools) = Tools::new() else { return };
    let fid = tools.json("fs getfid {}/scratch")[0]["fid"].as_str().expect("a text").to_owned();
    let forged = tools.mount.beside("forged");
    std::fs::create_dir(&forged).expect("made");
    for (name, value) in [("user.weft.cell", "weft.test"), ("user.weft.fid", fid.as_str())] {
        // Where the file system has no attributes nothing can be forged, and the outcome is the same.
        let _ = rustix::fs::setxattr(&forged, name, value.as_bytes(), rustix::fs::XattrFlags::empty());
    }
    let at: &Path = &forged;
    for line in ["fs la", "fs getfid", "fs examine"] {
        tools.refused(&format!("{line} {}", at.display()), 3, "not in AFS");
    }
    tools.refused_as("admin", &format!("fs sa {} system:anyuser all", at.display()), 3, "not in AFS");
}
