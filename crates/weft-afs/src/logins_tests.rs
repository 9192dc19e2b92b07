use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures_util::FutureExt;

use super::*;
use crate::ccache::tests::{Writer, alice, credential};
use crate::ccache::{Credential, Principal};
use crate::kvno::tests::stand_in;
use crate::tokens::time;

/// Users whose caches are in a folder.
fn logins(folder: &Path) -> Logins {
    let others = format!("{}/cc_", folder.display());
    Logins { others, ..Logins::new(rustix::process::geteuid().as_raw(), None, Level::Crypt, None) }
}

fn cell() -> CellName {
    CellName::new(b"example.org").expect("a name")
}

fn own() -> Call {
    Call::within(Caller { uid: rustix::process::geteuid().as_raw(), gid: 0, pid: 7 }, Duration::from_secs(60))
}

/// Puts a cache with this ticket in the place of the user's, and has the next call look.
fn login(logins: &Logins, ticket: &str) {
    let afs = credential(Principal::service(&["afs", "example.org"], b"EXAMPLE.ORG"), u32::MAX);
    login_with(logins, &[Credential { ticket: ticket.into(), ..afs }]);
}

/// The same with these tickets.
fn login_with(logins: &Logins, credentials: &[Credential]) {
    login_as(logins, &alice(), credentials);
}

fn login_as(logins: &Logins, who: &Principal, credentials: &[Credential]) {
    let path = format!("{}{}", logins.others, logins.own_uid);
    let bytes = credentials.iter().fold(Writer::new(4, who), Writer::credential).bytes;
    let fresh = format!("{path}.new");
    std::fs::write(&fresh, bytes).expect("written");
    std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o600)).expect("set");
    std::fs::rename(&fresh, &path).expect("moved");
    look_again(logins);
}

fn look_again(logins: &Logins) {
    logins.users.lock().values().for_each(|user| user.state.lock().looked = None);
}

#[tokio::test]
async fn a_token_is_kept_while_its_ticket_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = logins(folder.path());
    assert!(logins.token(&own(), &cell()).await.is_none());
    login(&logins, "one");
    let first = logins.token(&own(), &cell()).await.expect("a token");
    assert!(logins.shown(&cell()).starts_with("alice@EXAMPLE.ORG for user id"));
    login(&logins, "one");
    let again = logins.token(&own(), &cell()).await.expect("a token");
    assert!(Arc::ptr_eq(&first, &again), "another cache with the same ticket");
    let daemon = Call { caller: Caller::DAEMON, ..own() };
    let daemons = logins.token(&daemon, &cell()).await.expect("a token");
    assert!(Arc::ptr_eq(&first, &daemons), "the daemon is its user");
    login(&logins, "another");
    let second = logins.token(&own(), &cell()).await.expect("a token");
    assert_ne!(second.id, first.id);
    assert_eq!(Arc::strong_count(&first), 3, "nobody but this test has it any more");
    std::fs::remove_file(format!("{}{}", logins.others, logins.own_uid)).expect("removed");
    look_again(&logins);
    assert!(logins.token(&own(), &cell()).await.is_none(), "logged out");
}

#[tokio::test]
async fn who_is_somebody_else_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = logins(folder.path());
    let is_turned = async || {
        look_again(&logins);
        let turned = logins.turned().await;
        assert!(turned.iter().all(|turned| *turned == cell()), "{turned:?}");
        !turned.is_empty()
    };
    let log_out = || std::fs::remove_file(format!("{}{}", logins.others, logins.own_uid)).expect("removed");
    login(&logins, "one");
    assert!(!is_turned().await, "nobody has asked anything");
    log_out();
    assert!(!is_turned().await, "and nothing was brought");
    login(&logins, "one");
    logins.token(&own(), &cell()).await.expect("a token");
    for ticket in ["one", "another", "a third"] {
        login(&logins, ticket);
        assert!(!is_turned().await, "the same principal, whether it asks meanwhile or not");
    }
    log_out();
    assert!(is_turned().await && !is_turned().await, "once");
    login(&logins, "one");
    logins.token(&own(), &cell()).await.expect("a token");
    let bob = Principal::service(&["bob"], b"EXAMPLE.ORG");
    login_as(&logins, &bob, &[afs("one", u32::MAX)]);
    assert!(is_turned().await);
}

/// Goal: the mark of a login is another one after each login and logout, also of who has asked for nothing.
#[tokio::test]
async fn another_login_has_another_mark() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = logins(folder.path());
    let mark = async || {
        look_again(&logins);
        logins.mark(&own()).await
    };
    let mut marks = vec![mark().await];
    for ticket in ["one", "another"] {
        login(&logins, ticket);
        marks.push(mark().await);
        assert_eq!(mark().await, marks[marks.len() - 1], "the same until then");
    }
    std::fs::remove_file(format!("{}{}", logins.others, logins.own_uid)).expect("removed");
    assert_eq!(mark().await, marks[0], "nobody");
    assert!(marks[0] != marks[1] && marks[1] != marks[2] && marks[2] != marks[0], "{marks:?}");
}

#[tokio::test]
async fn what_a_server_refuses_is_not_shown_again_before_the_cache_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = logins(folder.path());
    login(&logins, "one");
    let token = logins.token(&own(), &cell()).await.expect("a token");
    logins.refused(&token, "no");
    logins.refused(&token, "no");
    look_again(&logins);
    assert!(logins.token(&own(), &cell()).await.is_none());
    assert!(logins.shown(&cell()).contains("a server refuses the ticket for it: no"));
    let told = logins.user(logins.own_uid).expect("known").state.lock().told.len();
    assert_eq!(told, 1, "said once");
    login(&logins, "another");
    let renewed = logins.token(&own(), &cell()).await.expect("a token");
    logins.refused(&token, "late");
    assert!(logins.token(&own(), &cell()).await.is_some_and(|token| token.id == renewed.id), "that was the former");
}

#[tokio::test]
async fn only_roots_daemon_reads_what_is_another_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let of_user = Logins { own_uid: 1000, ..logins(folder.path()) };
    assert!(of_user.user(0).is_none() && of_user.user(1001).is_none() && of_user.user(1000).is_some());
    let of_root = Logins { own_uid: ROOT, ..logins(folder.path()) };
    for uid in 0..USERS_MAX as u32 + 10 {
        assert!(of_root.user(uid).is_some());
    }
    assert_eq!(of_root.users.lock().len(), 10, "those who do nothing are forgotten when there are too many");
}

#[tokio::test]
async fn a_cache_that_is_no_file_is_told_once() {
    let kcm = Logins::new(rustix::process::geteuid().as_raw(), Some("KCM:".to_owned()), Level::Crypt, None);
    for _ in 0..3 {
        assert!(kcm.token(&own(), &cell()).await.is_none());
        look_again(&kcm);
    }
    let user = kcm.user(kcm.own_uid).expect("known");
    let told = user.state.lock().told.clone();
    assert!(told.len() == 1 && told.iter().all(|told| told.contains("not from KCM:")), "{told:?}");
}

/// Users whose missing tickets are got by a program that this script is; `DIR` in it is their folder. It has its cache as its
/// standard input, and the service as its fourth argument.
fn getting(folder: &Path, script: &str) -> Logins {
    let logins = logins(folder);
    let kvno = stand_in(folder, &script.replace("DIR", &folder.display().to_string()));
    let getter = Some(Arc::new(Getter::new(kvno, logins.own_uid)));
    Logins { getter, get_patience: Duration::from_secs(60), ..logins }
}

fn service(components: &[&str], ticket: &str, ends_s: u32) -> Credential {
    let server = Principal::service(components, b"EXAMPLE.ORG");
    Credential { ticket: ticket.into(), ..credential(server, ends_s) }
}

fn granter(ticket: &str) -> Credential {
    service(&["krbtgt", "EXAMPLE.ORG"], ticket, u32::MAX)
}

fn afs(ticket: &str, ends_s: u32) -> Credential {
    service(&["afs", "example.org"], ticket, ends_s)
}

/// Puts a ticket where the program finds it.
fn offer(folder: &Path, credential: &Credential) {
    let whole = Writer::new(4, &alice()).credential(credential).bytes;
    let head = Writer::new(4, &alice()).bytes.len();
    std::fs::write(folder.join("offered"), &whole[head..]).expect("written");
}

fn now_s() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.as_secs().try_into().expect("before 2106")
}

/// What the program was asked for so far.
fn asked(folder: &Path) -> Vec<String> {
    let asked = std::fs::read_to_string(folder.join("asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

const GIVES: &str = "echo $4 >> DIR/asked; cat DIR/offered >> /proc/self/fd/0";
const REFUSES: &str = "echo $4 >> DIR/asked; echo 'kvno: Server x not found in Kerberos database while x' >&2; exit 1";

/// Goal: who has a ticket of Kerberos has a token, which is kept while that ticket is in the cache, and no longer.
#[tokio::test]
async fn a_missing_ticket_is_got() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), GIVES);
    offer(folder.path(), &afs("got", u32::MAX));
    assert!(logins.token(&own(), &cell()).await.is_none() && asked(folder.path()).is_empty(), "without Kerberos");
    login_with(&logins, &[granter("one")]);
    let token = logins.token(&own(), &cell()).await.expect("a token");
    assert_eq!(asked(folder.path()), ["afs/example.org@EXAMPLE.ORG"]);
    let cache = std::fs::read(format!("{}{}", logins.others, logins.own_uid)).expect("there");
    assert_eq!(cache, Writer::new(4, &alice()).credential(&granter("one")).bytes, "the user's own is as it was");
    login_with(&logins, &[granter("one"), service(&["imap", "x"], "mail", u32::MAX)]);
    let again = logins.token(&own(), &cell()).await.expect("a token");
    assert!(Arc::ptr_eq(&token, &again) && asked(folder.path()).len() == 1, "another ticket changes nothing");
    offer(folder.path(), &afs("got later", u32::MAX));
    login_with(&logins, &[granter("two")]);
    let later = logins.token(&own(), &cell()).await.expect("a token");
    assert!(later.id != token.id && asked(folder.path()).len() == 2, "another login");
    login_with(&logins, &[afs("of aklog", u32::MAX)]);
    let of_cache = logins.token(&own(), &cell()).await.expect("a token");
    assert!(of_cache.id != later.id && asked(folder.path()).len() == 2, "it is there already");
    login_with(&logins, &[service(&["imap", "x"], "mail", u32::MAX)]);
    assert!(logins.token(&own(), &cell()).await.is_none(), "nothing gets one any more");
}

/// Goal: who is refused is not asked for again and again, but as soon as the cache is another.
#[tokio::test]
async fn an_attempt_in_vain_is_not_repeated_soon() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), REFUSES);
    login_with(&logins, &[granter("one")]);
    for _ in 0..3 {
        assert!(logins.token(&own(), &cell()).await.is_none());
        look_again(&logins);
    }
    assert_eq!(asked(folder.path()), ["afs/example.org@EXAMPLE.ORG", "afs@EXAMPLE.ORG"]);
    let shown = logins.shown(&cell());
    assert!(shown.starts_with("anybody: ") && shown.contains("weft could not get one: afs/example.org@"), "{shown}");
    login_with(&logins, &[granter("two")]);
    assert!(logins.token(&own(), &cell()).await.is_none());
    assert_eq!(asked(folder.path()).len(), 4);
}

/// Goal: while Kerberos is silent the calls of a program wait for it together, not one after the other.
#[tokio::test]
async fn an_attempt_is_waited_for_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let silent = getting(folder.path(), "exec sleep 60");
    let logins = Logins { get_patience: Duration::from_millis(10), ..silent };
    login_with(&logins, &[granter("one")]);
    assert!(logins.token(&own(), &cell()).await.is_none());
    let user = logins.user(logins.own_uid).expect("known");
    user.state.lock().looked = Some(Instant::now() + Duration::from_secs(3600));
    assert!(logins.token(&own(), &cell()).now_or_never().is_some_and(|token| token.is_none()));
}

/// Goal: one attempt at a time, whoever waits; and what came of it does not count when the user has logged out meanwhile.
#[tokio::test]
async fn many_who_ask_wait_for_one_attempt() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), &format!("{GIVES}; read line < DIR/go"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join("go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("made");
    offer(folder.path(), &afs("got", u32::MAX));
    login_with(&logins, &[granter("one")]);
    let go = async |text: &str| {
        let (path, text) = (folder.path().join("go"), text.to_owned());
        tokio::task::spawn_blocking(move || std::fs::write(path, text)).await.expect("ends").expect("written");
    };
    let (call, cell) = (own(), cell());
    let (one, other, ()) = tokio::join!(logins.token(&call, &cell), logins.token(&call, &cell), go("on\n"));
    assert!(one.is_some_and(|one| other.is_some_and(|other| Arc::ptr_eq(&one, &other))));
    assert_eq!(asked(folder.path()).len(), 1);
    login_with(&logins, &[granter("two")]);
    let logging_out = async {
        while asked(folder.path()).len() < 2 {
            tokio::task::yield_now().await;
        }
        std::fs::remove_file(format!("{}{}", logins.others, logins.own_uid)).expect("removed");
        look_again(&logins);
        assert!(logins.token(&call, &cell).await.is_none(), "logged out");
        go("on\n").await;
    };
    let (token, ()) = tokio::join!(logins.token(&call, &cell), logging_out);
    assert!(token.is_none(), "what came afterwards is nobody's");
    let user = logins.user(logins.own_uid).expect("known");
    assert!(user.state.lock().gains.is_empty());
}

/// Goal: a token that ends soon goes on while another is got, which then takes its place; an ended one is followed at once.
#[tokio::test]
async fn a_token_is_followed_before_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), GIVES);
    offer(folder.path(), &afs("next", u32::MAX));
    let starts_s = now_s() - 3600;
    let soon = Credential { starts_s, ..afs("soon", now_s() + 250) };
    login_with(&logins, &[granter("one"), soon.clone()]);
    let first = logins.token(&own(), &cell()).await.expect("it is good still");
    assert_eq!(first.ends, time(soon.ends_s));
    let next = loop {
        let token = logins.token(&own(), &cell()).await.expect("never nobody");
        if token.id != first.id {
            break token;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((next.ends, asked(folder.path()).len()), (time(u32::MAX), 1));
    login_with(&logins, &[granter("two"), afs("ended", now_s() - 1)]);
    assert!(logins.token(&own(), &cell()).await.is_some_and(|token| token.ends == next.ends));
    let as_long = Credential { starts_s, ..afs("as long", now_s() + 100) };
    let granter = Credential { ends_s: as_long.ends_s, ..granter("three") };
    login_with(&logins, &[granter, as_long]);
    assert!(logins.token(&own(), &cell()).await.is_some_and(|token| token.ends != next.ends));
    assert_eq!(asked(folder.path()).len(), 2, "what could be got ends no later");
}

/// Goal: a ticket that a server refuses is followed by one that is got, once.
#[tokio::test]
async fn a_refused_ticket_is_followed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), GIVES);
    offer(folder.path(), &afs("got", u32::MAX));
    login_with(&logins, &[granter("one"), afs("of aklog", u32::MAX)]);
    let first = logins.token(&own(), &cell()).await.expect("a token");
    logins.refused(&first, "no");
    let second = logins.token(&own(), &cell()).await.expect("another");
    assert_ne!(first.id, second.id);
    logins.refused(&second, "no");
    for _ in 0..3 {
        assert!(logins.token(&own(), &cell()).await.is_none());
    }
    assert_eq!(asked(folder.path()).len(), 1);
}

/// Goal: nothing is run for a cache that is not used: of another user, a link, one that others may write.
#[tokio::test]
async fn nothing_is_run_for_a_cache_that_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let logins = getting(folder.path(), GIVES);
    offer(folder.path(), &afs("got", u32::MAX));
    login_with(&logins, &[granter("one")]);
    let path = format!("{}{}", logins.others, logins.own_uid);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("set");
    look_again(&logins);
    assert!(logins.token(&own(), &cell()).await.is_none());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    std::fs::rename(&path, folder.path().join("real")).expect("moved");
    std::os::unix::fs::symlink(folder.path().join("real"), &path).expect("made");
    look_again(&logins);
    assert!(logins.token(&own(), &cell()).await.is_none());
    assert_eq!(asked(folder.path()), [""; 0]);
    std::fs::rename(folder.path().join("real"), &path).expect("moved");
    look_again(&logins);
    assert!(logins.token(&own(), &cell()).await.is_some());
}

/// Goal: whatever the program leaves in its cache is borne, and only the ticket that was asked for counts.
#[tokio::test]
async fn what_was_got_is_checked() {
    let scripts = [
        "printf garbage >> /proc/self/fd/0",
        "head -c 3000000 /dev/zero >> /proc/self/fd/0",
        ": > /proc/self/fd/0",
        "true",
        "cat DIR/offered >> /proc/self/fd/0",
    ];
    for script in scripts {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = getting(folder.path(), script);
        offer(folder.path(), &service(&["afs", "example.com"], "of another cell", u32::MAX));
        login_with(&logins, &[granter("one")]);
        assert!(logins.token(&own(), &cell()).await.is_none(), "{script}");
        assert!(logins.shown(&cell()).contains("weft could not get one"), "{script}");
    }
}
