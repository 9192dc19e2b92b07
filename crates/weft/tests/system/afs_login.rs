//! Getting tickets for a real cell: by hand, and by the mount itself.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::afs_users::{DIARY, SECRET, User, cell, log};
use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, Outcome, Program, Setup, weft_program};

/// What users of the machine need to log in by themselves: the program and Kerberos's configuration, where they may read.
struct Desk<'a> {
    cell: &'a AfsCell,
    folder: tempfile::TempDir,
    /// Where programs are looked for.
    search: Option<String>,
}

impl Desk<'_> {
    fn new(cell: &AfsCell) -> Desk<'_> {
        let folder = tempfile::Builder::new().prefix("wt-desk-").tempdir().expect("a temporary folder");
        let open = |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("set");
        open(folder.path());
        let files = [
            (cell.dir().join("krb/krb5.conf"), "krb5.conf"),
            (cell.client_config().join("CellServDB"), "CellServDB"),
            (cell.client_config().join("ThisCell"), "ThisCell"),
            (weft_program().to_owned(), "weft"),
        ];
        for (from, name) in files {
            let path = folder.path().join(name);
            std::fs::copy(from, &path).expect("copied");
            open(&path);
        }
        let desk = Desk { cell, folder, search: None };
        desk.configure("");
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the settings that `weft` reads here.
    fn configure(&self, settings: &str) {
        let text = format!("[afs]\nconfig_dir = \"{}\"\n{settings}\n", self.folder.path().display());
        std::fs::write(self.path("weft.toml"), text).expect("written");
        std::fs::set_permissions(self.path("weft.toml"), PermissionsExt::from_mode(0o644)).expect("set");
    }

    /// The words that run a program on the node c1, with the realm known.
    fn words(&self) -> Vec<String> {
        let config = format!("KRB5_CONFIG={}", self.path("krb5.conf").display());
        let path = self.search.iter().map(|search| format!("PATH={search}"));
        let variables: Vec<String> = [config].into_iter().chain(path).collect();
        [self.cell.words("c1"), vec!["env".to_owned()], variables].concat()
    }

    /// `weft login` as a user of the machine.
    fn login(&self, user: &User, words: &[&str]) -> Outcome {
        self.login_with(user, &[], words)
    }

    fn login_with(&self, user: &User, variables: &[&str], words: &[&str]) -> Outcome {
        let become_user = [format!("--reuid={}", user.uid), format!("--regid={}", user.uid)];
        let program = Program::words(&self.words()).arg("setpriv").args(become_user).args(["--clear-groups", "env"]);
        let program = program.args(variables).arg(self.path("weft")).arg("login").arg("--config");
        program.arg(self.path("weft.toml")).args(words).dir(Path::new("/")).run()
    }

    /// From now on mounts find this script as `kvno`; `$DIR` in it is a folder in which everybody may write.
    fn stand_in(&mut self, script: &str) -> PathBuf {
        let (bin, traces) = (self.path("bin"), self.path("traces"));
        let script = format!("#!/bin/sh\nDIR={}\n{script}\n", traces.display());
        for folder in [&bin, &traces] {
            std::fs::create_dir(folder).expect("made");
        }
        std::fs::write(bin.join("kvno"), script).expect("written");
        for (path, mode) in [(bin.clone(), 0o755), (bin.join("kvno"), 0o755), (traces.clone(), 0o777)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set");
        }
        self.search = Some(format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()));
        traces
    }

    /// The cell, mounted for everybody by root, who has not logged in.
    fn mounted(&self, settings: &str) -> Option<Mount> {
        let dir = self.folder.path().display();
        let config = format!("[afs]\nconfig_dir = \"{dir}\"\nccache = \"/nonexistent/cc\"\n{settings}\n");
        let mut mount = Mount::prepare(Setup { source: "afs", config, ..Setup::default() }.option("allow_other"))?;
        mount.move_to(self.words());
        mount.mount();
        Some(mount)
    }
}

/// Goal: after `kinit` and `weft login` a mount that runs asks as that user, and what the verb prints is so.
#[test]
fn a_login_is_taken_up_by_a_mount_that_runs() {
    let Some(cell) = cell() else { return };
    let (desk, alice) = (Desk::new(cell), User::new(64_201));
    let Some(mount) = desk.mounted("") else { return };
    alice.is_denied("cat", &mount.at(DIARY));
    alice.kinit_and(cell, "alice", &["-l", "2h"], &[]);
    let outcome = desk.login(&alice, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let said = outcome.out.trim_end();
    assert!(said.starts_with("weft.test: alice@WEFT.TEST until 20") && said.contains(" UTC (1 h 59 min); "), "{said}");
    assert!(said.contains("crypt: ") && said.contains("56 bits") && said.lines().count() == 1, "{said}");
    wait_until("the ticket is taken up", || alice.reads(&mount.at(DIARY)).out == SECRET);
    let outcome = desk.login(&alice, &["--json", "WEFT.test"]);
    let told: Value = serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let login = &told["logins"][0];
    assert_eq!((&login["cell"], &login["service"]), (&"weft.test".into(), &"afs/weft.test@WEFT.TEST".into()));
    assert_eq!(login["cache"], format!("FILE:/tmp/krb5cc_{}", alice.uid));
}

/// Goal: each thing that keeps a user from logging in is told by its name with what to do, and by the exit code.
#[test]
fn what_keeps_a_user_from_logging_in_is_told() {
    let Some(cell) = cell() else { return };
    let (desk, bob) = (Desk::new(cell), User::new(64_202));
    let fails = |outcome: &Outcome, code: i32, wanted: &[&str]| {
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        assert!(wanted.iter().all(|wanted| outcome.err.contains(wanted)), "{wanted:?}: {outcome:?}");
        assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
    };
    fails(&desk.login(&bob, &[]), 5, &["no ticket of Kerberos is there: `kinit` gets one"]);
    fails(&desk.login(&bob, &["a/b"]), 2, &["`a/b`: the name of a cell has"]);
    fails(&desk.login(&bob, &["unknown"]), 4, &["unknown: neither ", "CellServDB nor DNS knows such a cell"]);
    desk.configure("resolver = \"127.0.0.1:9\"");
    fails(
        &desk.login(&bob, &["example.org"]),
        6,
        &["example.org: not in ", "CellServDB, and DNS does not say", "127.0.0.1:9"],
    );
    desk.configure("dns = false");
    fails(&desk.login(&bob, &["example.org"]), 4, &["example.org: neither "]);
    fails(&desk.login_with(&bob, &["KRB5CCNAME=KCM:"], &[]), 2, &["not from KCM:", "kinit -c FILE:"]);
    bob.kinit_and(cell, "bob", &["-l", "4s"], &[]);
    wait_until("the ticket ends", || Program::new("klist").args(["-s", "-c"]).arg(&bob.cache).run().code != Some(0));
    fails(&desk.login(&bob, &[]), 5, &["the ticket of bob@WEFT.TEST ended at", "`kinit` gets another"]);
    bob.kinit_and(cell, "bob", &[], &[]);
    fails(&desk.login_with(&bob, &["PATH=/nonexistent"], &[]), 1, &["krb5-user"]);
    fails(&desk.login(&bob, &["--realm", "OTHER.TEST"]), 4, &["afs/weft.test@OTHER.TEST", "`--realm REALM`"]);
    std::fs::write(desk.path("CellServDB"), ">other.test\n192.0.2.1 #x\n").expect("written");
    fails(&desk.login(&bob, &["other.test"]), 4, &["afs/other.test@WEFT.TEST", "afs@OTHER.TEST", "--realm"]);
    std::fs::remove_file(desk.path("ThisCell")).expect("removed");
    fails(&desk.login(&bob, &[]), 2, &["ThisCell is not there", "weft login CELL"]);
}

/// Goal: `kinit` alone is enough: the mount gets the ticket of whoever asks, as that user, and what it got goes with the login.
#[test]
fn kinit_alone_is_enough() {
    let Some(cell) = cell() else { return };
    let (desk, alice, bob) = (Desk::new(cell), User::new(64_211), User::new(64_212));
    let Some(mount) = desk.mounted("") else { return };
    let (diary, letter) = (mount.at(DIARY), mount.at("weft.test/user/bob/look/letter.txt"));
    alice.is_denied("cat", &diary);
    alice.kinit_and(cell, "alice", &[], &[]);
    bob.kinit_and(cell, "bob", &[], &[]);
    wait_until("the login is taken up", || alice.reads(&diary).out == SECRET);
    wait_until("that of the other as well", || bob.reads(&letter).out == "sealed\n");
    bob.is_denied("cat", &diary);
    alice.is_denied("cat", &letter);
    let status = mount.verb("status", [mount.dir()]).out;
    assert!(status.contains("; with a ticket: level crypt: ") && status.contains("56 bits"), "{status}");
    let tickets = Program::new("klist").arg("-c").arg(&alice.cache).run().out;
    assert!(
        tickets.contains("krbtgt/WEFT.TEST") && !tickets.contains("afs/"),
        "the user's own is as it was: {tickets}"
    );
    let owner = std::fs::metadata(&alice.cache).expect("there");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), alice.uid);
    alice.logout();
    // What was read as her stays hers while its promise holds; a change is always the server's to allow.
    wait_until("the logout is taken up", || alice.run("touch", ["-c".as_ref(), diary.as_os_str()]).code != Some(0));
    alice.is_denied("touch", &diary);
    let told = log(&mount);
    assert!(!told.contains("WARN") && !told.contains("ERROR"), "{told}");
}

/// Goal: with `tickets = "found"` nothing is got, and what the user gets counts. Method: whatever runs `kvno` for the mount
/// leaves a trace; the user asks until the daemon has looked at the new cache more than once.
#[test]
fn nothing_is_got_where_that_is_not_wanted() {
    let Some(cell) = cell() else { return };
    let (mut desk, alice) = (Desk::new(cell), User::new(64_221));
    let traces = desk.stand_in("touch \"$DIR/ran\"; exec /usr/bin/kvno \"$@\"");
    let Some(mount) = desk.mounted("tickets = \"found\"") else { return };
    desk.search = None;
    alice.kinit_and(cell, "alice", &[], &[]);
    let begun = std::time::Instant::now();
    while begun.elapsed() < 3 * LOOK_PAUSE {
        alice.is_denied("cat", &mount.at(DIARY));
    }
    assert_eq!(desk.login(&alice, &[]).code, Some(0));
    wait_until("the ticket is taken up", || alice.reads(&mount.at(DIARY)).out == SECRET);
    assert!(!traces.join("ran").exists());
}

/// Goal: what is run for a user has that user's rights, and nothing of the daemon's: user and group, no further group, no
/// terminal, no open file, no variable but two. Method: a program in the place of `kvno` writes down what it is.
#[test]
fn what_gets_tickets_has_its_users_rights_alone() {
    let Some(cell) = cell() else { return };
    let (mut desk, alice) = (Desk::new(cell), User::new(64_231));
    let told = desk.stand_in(
        "cd $DIR; id -u > uid; id -g > gid; id -G > groups; tr '\\0' '\\n' < /proc/$$/environ > environ\n\
        ls -l /proc/$$/fd > fds; cut -d' ' -f7 /proc/$$/stat > terminal; grep Cap /proc/$$/status > caps\n\
        echo \"$@\" > words; exec /usr/bin/kvno \"$@\"",
    );
    let Some(mount) = desk.mounted("") else { return };
    alice.kinit_and(cell, "alice", &[], &[]);
    wait_until("the login is taken up", || alice.reads(&mount.at(DIARY)).out == SECRET);
    let told = |name: &str| std::fs::read_to_string(told.join(name)).expect("written").trim().to_owned();
    assert_eq!((told("uid"), told("gid"), told("groups")), ("64231".into(), "65534".into(), "65534".into()));
    assert_eq!(told("words"), "-q -c FILE:/proc/self/fd/0 afs/weft.test@WEFT.TEST");
    assert_eq!(told("terminal"), "0");
    let variables = told("environ");
    let names: Vec<&str> = variables.lines().filter_map(|line| line.split('=').next()).collect();
    assert!(names.iter().all(|name| ["KRB5_CONFIG", "LC_ALL", "PATH"].contains(name)), "{variables}");
    // What whoever runs the tests has left open is not the daemon's.
    let (fds, cache) = (told("fds"), mount.cache());
    let of_daemon = ["/dev/fuse", "socket:", "anon_inode:", cache.to_str().expect("text")];
    assert!(!fds.lines().any(|fd| of_daemon.iter().any(|of| fd.contains(of))), "{fds}");
    let memory: Vec<&str> = fds.lines().filter(|fd| fd.contains("/memfd:")).collect();
    assert!(memory.len() == 1 && memory[0].contains(" 0 -> /memfd:weft-tickets"), "{fds}");
    let rights = told("caps");
    let effective = rights.lines().find(|line| line.starts_with("CapEff")).expect("there");
    assert!(effective.ends_with("0000000000000000"), "{rights}");
}

/// Goal: a ticket that ends is followed by another while the login lasts: whoever reads all the time is never refused, and
/// the mount is never a stranger to the cell. Method: the cell's ticket, got with a login that ends soon, is put beside a login
/// that does not; every change asks the server.
#[test]
fn a_ticket_is_followed_before_it_ends() {
    let Some(cell) = cell() else { return };
    let (desk, alice) = (Desk::new(cell), User::new(64_241));
    let Some(mount) = desk.mounted("") else { return };
    let diary = mount.at(DIARY);
    alice.kinit_and(cell, "alice", &["-l", "12s"], &["afs/weft.test"]);
    let short = Ticket::read(&alice.cache);
    alice.kinit_and(cell, "alice", &["-l", "2h"], &[]);
    short.add_to(&alice.cache);
    let shown = Program::new("klist").arg("-c").arg(&alice.cache).run().out;
    assert!(shown.contains("krbtgt/") && shown.contains("afs/weft.test"), "{shown}");
    wait_until("the ticket is taken up", || alice.reads(&diary).out == SECRET);
    let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(short.ends_s.into());
    while SystemTime::now() < ends + Duration::from_secs(2) {
        let wrote = alice.run("touch", ["-c".as_ref(), diary.as_os_str()]);
        assert_eq!(wrote.code, Some(0), "{wrote:?}");
        assert_eq!(alice.reads(&diary).out, SECRET);
    }
    let told = log(&mount);
    assert!(!told.contains("WARN") && !told.contains("ERROR"), "{told}");
}

/// The last credential of a cache as Kerberos writes it.
struct Ticket {
    bytes: Vec<u8>,
    ends_s: u32,
}

impl Ticket {
    /// Reads what the format has before it: a header, a principal, credentials (version 4, as MIT Kerberos documents it).
    fn read(cache: &Path) -> Ticket {
        let bytes = std::fs::read(cache).expect("there");
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
        let data = |at: usize| at + 4 + word(at) as usize;
        let principal = |at: usize| (0..=word(at + 4)).fold(at + 8, |at, _| data(at));
        let list = |at: usize| (0..word(at)).fold(at + 4, |at, _| data(at + 2));
        let mut at = principal(4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
        loop {
            let times = data(principal(principal(at)) + 2);
            let end = data(data(list(list(times + 16 + 5))));
            if end == bytes.len() {
                return Ticket { bytes: bytes[at..].to_vec(), ends_s: word(times + 8) };
            }
            at = end;
        }
    }

    fn add_to(&self, cache: &Path) {
        let mut file = std::fs::File::options().append(true).open(cache).expect("there");
        file.write_all(&self.bytes).expect("written");
    }
}

/// How often the daemon looks at a cache.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
