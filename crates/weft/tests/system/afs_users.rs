//! Users of AFS on a live mount: as whom each is asked for, and who sees what that brought.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::interrupts::wait_until;
use crate::support::{AfsCell, Mount, Outcome, Program, Setup, is_root, without};

/// What alice alone may read.
pub const DIARY: &str = "weft.test/user/alice/private/diary.txt";
pub const SECRET: &str = "for alice alone\n";
pub const DENIED: &str = "Permission denied";

/// A local user, with a credential cache where Kerberos has it. It goes when this is dropped.
pub struct User {
    pub uid: u32,
    pub cache: PathBuf,
}

impl User {
    pub fn new(uid: u32) -> User {
        let user = User { uid, cache: PathBuf::from(format!("/tmp/krb5cc_{uid}")) };
        user.logout();
        user
    }

    /// Logs in: a ticket for the realm, and one for the cell.
    pub fn login(&self, cell: &AfsCell, name: &str, more: &[&str]) {
        self.kinit_and(cell, name, more, &["afs/weft.test"]);
    }

    /// Logs in to the realm, and gets tickets for these services as well.
    pub fn kinit_and(&self, cell: &AfsCell, name: &str, more: &[&str], services: &[&str]) {
        // Put in its place when it is whole and has its owner, as pam_krb5 does.
        let fresh = self.cache.with_extension("new");
        let keytab = cell.keytab(name);
        let kinit = ["kinit".as_ref(), "-c".as_ref(), fresh.as_os_str(), "-k".as_ref(), "-t".as_ref()];
        cell.on("c1", kinit).arg(&keytab).args(more).arg(name).good();
        for service in services {
            cell.on("c1", ["kvno".as_ref(), "-q".as_ref(), "-c".as_ref(), fresh.as_os_str(), service.as_ref()]).good();
        }
        std::os::unix::fs::chown(&fresh, Some(self.uid), Some(self.uid)).expect("root may");
        std::fs::rename(&fresh, &self.cache).expect("moved");
    }

    pub fn logout(&self) {
        let _ = std::fs::remove_file(&self.cache);
    }

    pub fn run<A: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = A>) -> Outcome {
        let (reuid, regid) = (format!("--reuid={}", self.uid), format!("--regid={}", self.uid));
        let words = [reuid.as_str(), regid.as_str(), "--clear-groups", program];
        Program::new("setpriv").args(words).args(args).dir(Path::new("/")).run()
    }

    pub fn reads(&self, path: &Path) -> Outcome {
        self.run("cat", [path])
    }

    #[track_caller]
    pub fn is_denied(&self, program: &str, path: &Path) {
        let outcome = self.run(program, [path]);
        assert!(outcome.code != Some(0) && outcome.err.contains(DENIED), "{program} by {}: {outcome:?}", self.uid);
        assert!(!outcome.out.contains(SECRET.trim()), "{outcome:?}");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.logout();
    }
}

/// Sets access lists as alice.
struct Lists<'a> {
    mount: &'a Mount,
    tickets: User,
}

impl Lists<'_> {
    fn of_alice<'a>(cell: &AfsCell, mount: &'a Mount) -> Lists<'a> {
        let own = mount.beside("home/config/weft");
        std::fs::create_dir_all(&own).expect("made");
        std::fs::copy(mount.beside("weft.toml"), own.join("weft.toml")).expect("copied");
        let tickets = User { uid: 0, cache: mount.beside("tickets") };
        tickets.login(cell, "alice", &[]);
        Lists { mount, tickets }
    }

    #[track_caller]
    fn set(&self, folder: &Path, entries: &[&str]) {
        let fs = self.mount.weft().args(["fs", "setacl"]).arg(folder).args(entries);
        let set = fs.env("KRB5CCNAME", &self.tickets.cache).run();
        assert_eq!(set.code, Some(0), "{set:?}");
    }
}

/// The cell, mounted for everybody, with these settings; root itself has not logged in.
pub fn mounted(cell: &AfsCell, settings: &str) -> Option<Mount> {
    let dir = cell.client_config();
    let config =
        format!("[afs]\nconfig_dir = \"{}\"\ndns = false\nccache = \"/nonexistent/cc\"\n{settings}\n", dir.display());
    let mut mount = Mount::prepare(Setup { source: "afs", config, ..Setup::default() }.option("allow_other"))?;
    mount.move_to(cell.words("c1"));
    mount.mount();
    Some(mount)
}

pub fn cell() -> Option<&'static AfsCell> {
    if !is_root() {
        without("only root can become another user");
        return None;
    }
    AfsCell::up()
}

pub fn log(mount: &Mount) -> String {
    std::fs::read_to_string(mount.cache().join("weft.log")).unwrap_or_default()
}

/// Whether the diary is among what was listed: another test writes beside it.
fn has_diary(listed: &str) -> bool {
    listed.lines().any(|name| name == "diary.txt")
}

/// Goal: what the token of one user brought is not shown to another, whoever comes first, whatever the cache and the kernel
/// hold. Method: alice reads and lists what is hers alone, in turns with bob and somebody without a token.
#[test]
fn what_is_one_users_alone_is_not_shown_to_others() {
    let Some(cell) = cell() else { return };
    let (alice, bob, nobody) = (User::new(64_101), User::new(64_102), User::new(64_103));
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let (diary, home) = (mount.at(DIARY), mount.at("weft.test/user/alice"));
    let private = home.join("private");
    for round in 0..3 {
        for other in [&bob, &nobody] {
            for program in ["cat", "stat"] {
                other.is_denied(program, &diary);
            }
            let listed = other.run("ls", [&private]);
            assert!(!listed.out.contains("diary"), "{round}: {listed:?}");
            assert!(other.run("ls", [&home]).out.contains("private"), "{round}: its name is everybody's");
            assert_eq!(other.reads(&home.join("notes.txt")).out, "notes of alice\n", "{round}");
        }
        assert!(has_diary(&alice.run("ls", [&private]).out), "{round}");
        assert_eq!(alice.reads(&diary).out, SECRET, "{round}");
        assert!(alice.run("stat", ["-c", "%s", &diary.to_string_lossy()]).out.starts_with("16"), "{round}");
    }
    // Also while the kernel holds it for her, and after a remount, from the cache.
    let held = File::open(&diary).err();
    assert!(
        held.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied),
        "root is nobody in the cell"
    );
    mount.remount();
    nobody.is_denied("cat", &diary);
    assert_eq!(alice.reads(&diary).out, SECRET);
    nobody.is_denied("cat", &diary);
    let visible_to = mount.why(&diary, "visible to");
    assert!(visible_to.contains("64101"), "{visible_to}");
}

/// Goal: who may look at a file and not read it is not shown what a reader has brought, by whatever way the source is asked.
#[test]
fn who_may_look_does_not_read() {
    let Some(cell) = cell() else { return };
    let (bob, nobody) = (User::new(64_151), User::new(64_152));
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let letter = mount.at("weft.test/user/bob/look/letter.txt");
    let folder = letter.parent().expect("a folder");
    assert_eq!(nobody.run("ls", [folder]).out, "letter.txt\n", "to look is allowed");
    for round in 0..3 {
        nobody.is_denied("cat", &letter);
        assert_eq!(bob.reads(&letter).out, "sealed\n", "{round}");
        // The server tells the status of a file to its readers alone.
        nobody.is_denied("stat", &letter);
        let reloaded = mount.verb("reload", [&letter]);
        assert_eq!(reloaded.code, Some(5), "{reloaded:?}");
        nobody.is_denied("cat", &letter);
    }
}

/// Goal: what a user writes is written as that user, and shown to nobody else where the cell does not.
#[test]
fn each_writes_as_oneself() {
    let Some(cell) = cell() else { return };
    let (alice, bob) = (User::new(64_141), User::new(64_142));
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let home = mount.at("weft.test/user/alice");
    let mine = home.join("private/mine.txt");
    let wrote = alice.run("sh", ["-c", "echo mine > \"$0\"", &mine.to_string_lossy()]);
    assert_eq!(wrote.code, Some(0), "{wrote:?}");
    bob.is_denied("cat", &mine);
    let wrote = bob.run("sh", ["-c", "echo bob > \"$0\"", &home.join("of-bob").to_string_lossy()]);
    assert!(wrote.code != Some(0) && wrote.err.contains(DENIED), "{wrote:?}");
    assert_eq!(alice.reads(&mine).out, "mine\n");
    bob.is_denied("cat", &mine);
    assert_eq!(alice.run("rm", [&mine]).code, Some(0));
    assert_ne!(alice.reads(&mine).code, Some(0));
}

/// Goal: what somebody wrote and its server did not take is sent as that user later, whoever asks for it. Method: the quota is
/// used up, and the daemon's own user may not write there.
#[test]
fn what_could_not_be_sent_is_sent_as_who_wrote_it() {
    let Some(cell) = AfsCell::own() else { return };
    let alice = User::new(64_191);
    alice.login(&cell, "alice", &[]);
    let Some(mount) = mounted(&cell, "") else { return };
    let quota = |blocks: &str| {
        cell.on("fs1", ["vos", "setfields", "user.alice", "-localauth", "-maxquota", blocks]).good();
    };
    let at = mount.at("weft.test/user/alice/long");
    let unsent = || mount.status()["unsent"]["files"].as_array().map(Vec::len);
    let write = |bytes| alice.run("sh", ["-c", "head -c $1 /dev/zero > \"$0\"", &at.to_string_lossy(), bytes]);
    assert_eq!(write("1").code, Some(0));
    quota("1");
    // By so much no server lets a volume go over its quota.
    let over = write("3000000");
    assert_eq!(unsent(), Some(1), "{over:?}");
    let send = || mount.verb("unsent", ["--send".as_ref(), at.as_os_str()]);
    let sent = send();
    assert!(sent.code != Some(0) && sent.err.contains("quota"), "alice may write it: {sent:?}");
    quota("0");
    let sent = send();
    // It may have been sent by itself.
    assert!(unsent() == Some(0), "{sent:?}");
    let reader = crate::afs::mounted_on(&cell, "c2", "afs", &[]).expect("as the other");
    assert_eq!(reader.at("weft.test/user/alice/long").metadata().expect("stat").len(), 3_000_000);
}

/// Goal: what was refused since a login had ended while a file was open goes out by itself after the next one, also by the
/// daemon that follows. Method: the cache goes between the open and the close, and nobody asks for anything after that but for
/// what is unsent.
#[test]
fn what_was_refused_for_want_of_a_login_is_sent_after_the_next() {
    let Some(cell) = cell() else { return };
    let alice = User::new(64_192);
    let Some(mount) = mounted(cell, "") else { return };
    let (at, diary) = (mount.at("weft.test/user/alice/refused"), mount.at(DIARY));
    let unsent = || mount.status()["unsent"]["files"].as_array().map(Vec::len);
    // Each program that is run with the descriptor closes it.
    let script = "exec 3>\"$0\"; rm \"$1\"; while stat \"$2\" >/dev/null; do :; done; echo kept >&3; exec 3>&-";
    let words = ["-c".as_ref(), script.as_ref(), at.as_os_str(), alice.cache.as_os_str(), diary.as_os_str()];
    let ends: [fn(&Mount); 3] = [|_| (), Mount::remount, Mount::kill_daemon];
    for end in ends {
        alice.login(cell, "alice", &[]);
        // By then it is known that she is nobody.
        let closed = alice.run("sh", words);
        assert_eq!(unsent(), Some(1), "{closed:?}");
        end(&mount);
        wait_until("it was refused", || mount.status()["unsent"]["files"][0]["why"].is_string());
        let told = mount.verb("unsent", [mount.dir()]).out;
        assert!(told.contains("after the next login") && told.contains("--discard"), "{told}");
        alice.login(cell, "alice", &[]);
        wait_until("it is sent", || unsent() == Some(0));
        assert_eq!(alice.reads(&at).out, "kept\n");
        assert_eq!(alice.run("rm", [&at]).code, Some(0));
    }
}

/// Goal: who may read and not write is refused when a file is opened, by the rights as they are, and nobody here sees what
/// would have been written; who was just given the right writes.
#[test]
fn who_may_not_write_is_refused_at_once() {
    let Some(cell) = cell() else { return };
    let (alice, bob, nobody) = (User::new(64_171), User::new(64_172), User::new(64_173));
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let folder = mount.at("weft.test/user/alice/read-only");
    assert_eq!(alice.run("mkdir", [&folder]).code, Some(0));
    let page = folder.join("page");
    let write = |user: &User, redirected: &str| {
        // A shell ends when it cannot open that.
        let script = format!("exec 3{redirected}\"$0\"; echo new >&3; exec 3>&-");
        user.run("sh", ["-c", &script, &page.to_string_lossy()])
    };
    assert_eq!(write(&alice, ">").code, Some(0));
    for redirected in [">", ">>", "<>"] {
        for other in [&bob, &nobody] {
            let refused = write(other, redirected);
            assert!(refused.err.contains("cannot") && refused.err.contains(DENIED), "{redirected}: {refused:?}");
            let cut = other.run("truncate", ["-s", "1", &page.to_string_lossy()]);
            assert!(cut.code != Some(0) && cut.err.contains(DENIED), "{cut:?}");
        }
        for reader in [&alice, &bob, &nobody] {
            assert_eq!(reader.reads(&page).out, "new\n", "{redirected}");
        }
    }
    assert_eq!(mount.status()["unsent"]["files"].as_array().map(Vec::len), Some(0));
    let lists = Lists::of_alice(cell, &mount);
    let give = |rights: &str| lists.set(&folder, &["bob", rights]);
    give("rlw");
    assert_eq!(write(&bob, ">>").code, Some(0));
    assert_eq!(alice.reads(&page).out, "new\nnew\n");
    give("rl");
    let refused = write(&bob, ">");
    assert!(refused.err.contains("cannot") && refused.err.contains(DENIED), "{refused:?}");
    assert_eq!(nobody.reads(&page).out, "new\nnew\n");
    assert_eq!(alice.run("rm", ["-r".as_ref(), folder.as_os_str()]).code, Some(0));
}

/// Goal: who has lost the right to read is refused at the next look, whatever is held of files that have not changed, and
/// whoever else goes on using them; who gets it back reads.
#[test]
fn who_has_lost_a_right_is_refused_at_once() {
    loses_rights("lent", 0, [64_181, 64_182, 64_183]);
}

/// Goal: so it is where only what has changed of a list is asked about.
#[test]
fn who_has_lost_a_right_is_refused_among_many_names() {
    loses_rights("lent-many", 60, [64_184, 64_185, 64_186]);
}

#[track_caller]
fn loses_rights(folder: &str, others: usize, users: [u32; 3]) {
    let Some(cell) = cell() else { return };
    let [alice, bob, nobody] = users.map(User::new);
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let (folder, lists) = (mount.at("weft.test/user/alice").join(folder), Lists::of_alice(cell, &mount));
    assert_eq!(alice.run("mkdir", [&folder]).code, Some(0));
    let page = folder.join("page");
    let others: Vec<String> = (0..others).map(|nth| format!("page{nth:03}")).collect();
    if !others.is_empty() {
        let made = alice.run("touch", others.iter().map(|name| folder.join(name)));
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    let names: String =
        std::iter::once("page").chain(others.iter().map(String::as_str)).map(|name| format!("{name}\n")).collect();
    assert_eq!(alice.run("sh", ["-c", "echo lent > \"$0\"", &page.to_string_lossy()]).code, Some(0));
    for round in 0..4 {
        let anybody_looks = round % 2 == 1;
        lists.set(&folder, &["system:anyuser", "rl", "bob", "none"]);
        for user in [&nobody, &bob, &alice] {
            assert_eq!(user.reads(&page).out, "lent\n", "{round}");
            assert_eq!(user.run("ls", [&folder]).out, names, "{round}");
        }
        lists.set(&folder, &["system:anyuser", if anybody_looks { "l" } else { "none" }, "bob", "l"]);
        // In this order: what she is told is for nobody else, and a list that is for everybody tells no more than names.
        if !anybody_looks {
            assert_eq!(alice.run("ls", ["-l".as_ref(), folder.as_os_str()]).code, Some(0));
        }
        assert_eq!(bob.run("ls", [&folder]).out, names, "{round}: to look is allowed");
        for _ in 0..2 {
            for other in [&nobody, &bob] {
                for program in ["cat", "stat"] {
                    other.is_denied(program, &page);
                }
            }
            match anybody_looks {
                true => assert_eq!(nobody.run("ls", [&folder]).out, names, "{round}"),
                false => nobody.is_denied("ls", &folder),
            }
            assert_eq!(alice.reads(&page).out, "lent\n", "{round}");
        }
    }
    assert_eq!(alice.run("rm", ["-r".as_ref(), folder.as_os_str()]).code, Some(0));
}

/// Goal: whom a cell shuts out by name is shut out as that user, although it lets anybody in.
#[test]
fn negative_rights_count() {
    let Some(cell) = cell() else { return };
    let (alice, bob, nobody) = (User::new(64_111), User::new(64_112), User::new(64_113));
    alice.login(cell, "alice", &[]);
    bob.login(cell, "bob", &[]);
    let Some(mount) = mounted(cell, "") else { return };
    let notes = mount.at("weft.test/user/bob/notes.txt");
    alice.is_denied("cat", &notes);
    alice.is_denied("ls", notes.parent().expect("a folder"));
    assert_eq!(bob.reads(&notes).out, "notes of bob\n");
    assert_eq!(nobody.reads(&notes).out, "notes of bob\n");
}

/// Goal: each level of protection is spoken, over replies of many packets.
#[test]
fn every_level_is_spoken() {
    let Some(cell) = cell() else { return };
    let alice = User::new(64_121);
    alice.login(cell, "alice", &[]);
    for level in ["clear", "auth", "crypt"] {
        let Some(mount) = mounted(cell, &format!("level = \"{level}\"")) else { return };
        assert_eq!(alice.reads(&mount.at(DIARY)).out, SECRET, "{level}");
        let compared = alice.run("cmp", [&cell.content("pub").join("large.bin"), &mount.at("weft.test/pub/large.bin")]);
        assert_eq!(compared.code, Some(0), "{level}: {compared:?}");
        let log = log(&mount);
        assert!(!log.contains("WARN"), "{level}: {log}");
    }
}

/// Goal: a cache that cannot be used makes its user anybody, is told once with what to do, and fails nothing that anybody
/// may have; when it is mended its user is somebody again, without a remount.
#[test]
fn a_bad_cache_makes_its_user_anybody_until_it_is_renewed() {
    let Some(cell) = cell() else { return };
    let (alice, other) = (User::new(64_131), User::new(64_132));
    let ended = || {
        alice.login(cell, "alice", &["-l", "4s"]);
        wait_until("the ticket ends", || {
            Program::new("klist").args(["-s", "-c"]).arg(&alice.cache).run().code != Some(0)
        });
    };
    let refused = || {
        alice.login(cell, "alice", &[]);
        // Its last ticket's last byte, before the length of a second one, which is 0.
        let file = File::options().read(true).write(true).open(&alice.cache).expect("there");
        let (at, mut last) = (file.metadata().expect("there").len() - 5, [0]);
        file.read_exact_at(&mut last, at).expect("longer");
        file.write_all_at(&[!last[0]], at).expect("written");
    };
    let cut = || {
        alice.login(cell, "alice", &[]);
        let file = File::options().write(true).open(&alice.cache).expect("there");
        file.set_len(100).expect("cut");
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("set");
    };
    let of_another = || {
        other.login(cell, "alice", &[]);
        std::fs::rename(&other.cache, &alice.cache).expect("moved");
    };
    let cases: [(&str, &dyn Fn()); 4] = [
        ("has ended", &ended),
        ("a server refuses the ticket", &refused),
        ("ends in the middle", &cut),
        ("belongs to user id", &of_another),
    ];
    for (wanted, spoil) in cases {
        let Some(mount) = mounted(cell, "") else { return };
        spoil();
        for _ in 0..3 {
            assert_eq!(alice.reads(&mount.at("weft.test/user/alice/notes.txt")).out, "notes of alice\n", "{wanted}");
            alice.is_denied("cat", &mount.at(DIARY));
        }
        let told = log(&mount);
        let warnings: Vec<&str> = told.lines().filter(|line| line.contains("WARN") && line.contains(wanted)).collect();
        assert_eq!(warnings.len(), 1, "{wanted}: {told}");
        assert!(warnings[0].contains("kinit") && warnings[0].contains("64131"), "{warnings:?}");
        alice.login(cell, "alice", &[]);
        wait_until("the new ticket is taken up", || alice.reads(&mount.at(DIARY)).out == SECRET);
    }
}

/// Goal: what a ticket brought is not shown any more to who has given it up, or is somebody else by now, whatever the cache
/// and the kernel hold; what everybody may have is. Method: alice logs out, and as bob in, between reading and reading.
#[test]
fn who_has_logged_out_is_nobody() {
    let Some(cell) = cell() else { return };
    let alice = User::new(64_161);
    let Some(mount) = mounted(cell, "") else { return };
    let (diary, home) = (mount.at(DIARY), mount.at("weft.test/user/alice"));
    let (log_out, become_bob) = (|| alice.logout(), || alice.login(cell, "bob", &[]));
    let ways: [(&str, &dyn Fn()); 2] = [("logs out", &log_out), ("becomes bob", &become_bob)];
    for (way, turn) in ways {
        alice.login(cell, "alice", &[]);
        wait_until("she is somebody", || alice.reads(&diary).out == SECRET);
        assert!(has_diary(&alice.run("ls", [home.join("private")]).out), "{way}");
        turn();
        wait_until("it is noticed", || alice.reads(&diary).err.contains(DENIED));
        for _ in 0..3 {
            alice.is_denied("cat", &diary);
            alice.is_denied("stat", &diary);
            assert!(!alice.run("ls", [home.join("private")]).out.contains("diary"), "{way}");
            assert_eq!(alice.reads(&home.join("notes.txt")).out, "notes of alice\n", "{way}");
        }
    }
}

/// Goal: the same of the one user of a mount, for whom the kernel holds everything.
#[test]
fn who_has_logged_out_of_an_own_mount_is_nobody() {
    let Some(cell) = cell() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let alice = User { uid: 0, cache: folder.path().join("cc") };
    let (dir, cache) = (cell.client_config(), &alice.cache);
    let config = format!("[afs]\nconfig_dir = \"{}\"\ndns = false\nccache = \"{}\"\n", dir.display(), cache.display());
    alice.login(cell, "alice", &[]);
    let Some(mut mount) = Mount::prepare(Setup { source: "afs", config, ..Setup::default() }) else { return };
    mount.move_to(cell.words("c1"));
    mount.mount();
    let diary = mount.at(DIARY);
    for _ in 0..3 {
        assert_eq!(std::fs::read_to_string(&diary).expect("hers"), SECRET);
    }
    alice.logout();
    let is_denied =
        |outcome: std::io::Result<()>| outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    wait_until("it is noticed", || is_denied(std::fs::read(&diary).map(drop)));
    assert!(is_denied(std::fs::metadata(&diary).map(drop)));
    assert!(is_denied(std::fs::read_dir(diary.parent().expect("a folder")).map(drop)));
    std::fs::read(mount.at("weft.test/user/alice/notes.txt")).expect("everybody's");
}

/// Goal: the user who mounts is asked for with the cache that is said to be this user's, and `weft why` says so.
#[test]
fn the_cache_of_the_daemons_own_user_has_a_name() {
    let Some(cell) = cell() else { return };
    let Some(mut mount) = Mount::prepare(Setup {
        source: "afs",
        config: format!("[afs]\nconfig_dir = \"{}\"\n", cell.client_config().display()),
        ..Setup::default()
    }) else {
        return;
    };
    let folder = mount.beside("caches");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("primary"), "tktalice\n").expect("written");
    let root = User { uid: 0, cache: folder.join("tktalice") };
    root.login(cell, "alice", &[]);
    mount.move_to([cell.words("c1"), vec!["env".to_owned(), format!("KRB5CCNAME=DIR:{}", folder.display())]].concat());
    mount.mount();
    assert_eq!(std::fs::read_to_string(mount.at(DIARY)).expect("read"), SECRET);
    let asked_as = mount.why(&mount.at(DIARY), "asked as");
    assert!(asked_as.starts_with("alice@WEFT.TEST for user id 0 until 20"), "{asked_as}");
    assert!(asked_as.contains(" UTC; level crypt: ") && asked_as.contains("fcrypt (56 bits): obsolete"), "{asked_as}");
}
