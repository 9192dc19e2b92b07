//! Who a server is told that we are.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use weft_remote::{Caller, RemoteError};

use crate::authority::Authority;
use crate::base64;
use crate::bearer::{self, BearerCommand};
use crate::cookies::Jar;
use crate::identity::Identity;
use crate::login::{Login, LoginMeans};
use crate::netrc;
use crate::own_file::{Others, OwnFiles};
use crate::pass::{Authorization, Pass, is_loopback};

/// The logins of local users. Each is for its user's own calls alone.
#[derive(Clone, Default)]
pub struct Credentials {
    insecure: bool,
    /// In the order of the configuration: the first that has something for a host is taken.
    rules: Arc<Vec<Rule>>,
    /// The netrc file of one user, whose id this is.
    netrc: Option<(u32, NetrcFile)>,
    users: Option<Users>,
}

/// Finds a user's home folder; may block.
pub type HomeOf = Arc<dyn Fn(u32) -> Option<PathBuf> + Send + Sync>;

/// A netrc file, read again from time to time.
type NetrcFile = Arc<OwnFiles<Vec<netrc::Login>>>;

struct Rule {
    login: Login,
    source: Source,
}

/// Where what is shown comes from.
enum Source {
    Command(Arc<BearerCommand>),
    Token(Arc<OwnFiles<HeaderValue>>),
    Certificate(Arc<OwnFiles<Identity>>),
    Cookies(Arc<OwnFiles<Jar>>),
    Netrc(NetrcFile),
}

/// The netrc files in the homes of all users.
#[derive(Clone)]
struct Users {
    home_of: HomeOf,
    /// Held for one look or one change.
    files: Arc<Mutex<HashMap<u32, NetrcFile>>>,
}

/// Never shows what is in it: options are written to logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let netrc = self.netrc.as_ref().map(|(uid, file)| (uid, file.path()));
        write!(f, "Credentials({} rules, netrc {netrc:?})", self.rules.len())
    }
}

impl Credentials {
    /// Those of a netrc file, for the user with this id: as it is now, and as it is when it is used. `insecure` has them sent
    /// in plain HTTP to this machine's own loopback addresses as well. Reads the file.
    pub fn from_netrc(path: &Path, uid: u32, insecure: bool) -> Credentials {
        let file = Arc::new(OwnFiles::new(uid, vec![(path.to_owned(), Others::Nothing)], netrc::read));
        match file.load() {
            // Most users have none.
            Err(why) if !path.exists() => tracing::info!("logins: {why}"),
            Err(why) => tracing::warn!("logins: {why}"),
            Ok(_) => {}
        }
        Credentials { insecure, netrc: Some((uid, file)), ..Credentials::default() }
    }

    /// These, and other ways to log in, which go before a netrc file. `insecure` as in [`Credentials::from_netrc`].
    pub fn with_logins(self, logins: Vec<Login>, insecure: bool) -> Credentials {
        let rules = logins.into_iter().map(Rule::new).collect();
        Credentials { insecure: self.insecure || insecure, rules: Arc::new(rules), ..self }
    }

    /// These, and for users without a login for a host the `.netrc` in their home.
    pub fn with_netrc_of_users(self, home_of: HomeOf) -> Credentials {
        Credentials { users: Some(Users { home_of, files: Arc::default() }), ..self }
    }

    /// The pass for what a caller asks of a host, if there is a login for it.
    ///
    /// # Errors
    /// `Denied` when a configured login cannot be had.
    pub(crate) async fn pass(&self, caller: &Caller, host: &Authority) -> weft_remote::Result<Option<Pass>> {
        let mut pass = Pass::new(caller.uid, host, self.insecure);
        for rule in self.rules.iter().filter(|rule| rule.covers(caller.uid, host)) {
            let shown = host.text();
            let denied = |why: String| RemoteError::Denied { detail: format!("{shown}: no login: {why}") };
            rule.show(&mut pass, host).await.map_err(denied)?;
        }
        if pass.authorization.is_none()
            && let Some((uid, file)) = &self.netrc
            && *uid == caller.uid
        {
            pass.authorization = file.login(host).await;
        }
        if pass.authorization.is_none()
            && let Some(users) = &self.users
        {
            pass.authorization = users.login(caller.uid, host).await;
        }
        let shows = pass.authorization.is_some() || pass.cookies.is_some() || pass.identity.is_some();
        Ok(shows.then_some(pass))
    }

    /// Whether the configuration has a login for a host, whoever's; those of users' own files are seen when they are used.
    pub(crate) fn has_login_for(&self, host: &Authority) -> bool {
        let rules = self.rules.iter().any(|rule| rule.login.hosts.iter().any(|hosts| hosts.covers(host)));
        rules || self.netrc.as_ref().is_some_and(|(_, file)| file.had_login_for(host))
    }

    /// What would be sent to a host, for people; nothing that is secret.
    pub(crate) fn about(&self, host: &Authority) -> Vec<String> {
        let how = if self.insecure && is_loopback(host) { "" } else { " over https" };
        let rules = self.rules.iter().filter(|rule| rule.login.hosts.iter().any(|hosts| hosts.covers(host)));
        let rules = rules.map(|rule| (rule.words(), rule.login.uid));
        let netrc = self.netrc.iter().filter(|(_, file)| file.had_login_for(host));
        let netrc = netrc.map(|(uid, file)| (format!("the login in {}", file.path().display()), *uid));
        rules.chain(netrc).map(|(what, uid)| format!("{what} is sent{how} for user id {uid} alone")).collect()
    }
}

impl Rule {
    fn new(login: Login) -> Rule {
        let uid = login.uid;
        let secret = |path: &PathBuf| vec![(path.clone(), Others::Nothing)];
        let source = match &login.means {
            LoginMeans::BearerCommand { command, run_as, lifetime } => {
                Source::Command(Arc::new(BearerCommand::new(command.clone(), run_as.clone(), *lifetime)))
            }
            LoginMeans::BearerFile(path) => {
                let header = |files: &[Vec<u8>]| bearer::header_of(files.first().map_or(&[], Vec::as_slice));
                Source::Token(Arc::new(OwnFiles::new(uid, secret(path), header)))
            }
            LoginMeans::Certificate { certificate, key } => {
                let files = vec![(certificate.clone(), Others::MayRead), (key.clone(), Others::Nothing)];
                Source::Certificate(Arc::new(OwnFiles::new(uid, files, Identity::parse)))
            }
            LoginMeans::CookieFile(path) => {
                let jar = |files: &[Vec<u8>]| Jar::parse(files.first().map_or(&[], Vec::as_slice));
                Source::Cookies(Arc::new(OwnFiles::new(uid, secret(path), jar)))
            }
            LoginMeans::Netrc(path) => Source::Netrc(Arc::new(OwnFiles::new(uid, secret(path), netrc::read))),
        };
        Rule { login, source }
    }

    fn covers(&self, uid: u32, host: &Authority) -> bool {
        self.login.uid == uid && self.login.hosts.iter().any(|hosts| hosts.covers(host))
    }

    /// Puts what it has for the host into a pass, where nothing of the kind is in it yet.
    async fn show(&self, pass: &mut Pass, host: &Authority) -> Result<(), String> {
        let free = pass.authorization.is_none();
        match &self.source {
            Source::Command(command) if free => {
                pass.authorization = Some(Authorization::Printed(command.token().await?, command.clone()));
            }
            Source::Token(file) if free => {
                pass.authorization = Some(Authorization::Written(file.get().await?, file.clone()));
            }
            Source::Netrc(file) if free => pass.authorization = basic_of(&file.get().await?, host),
            Source::Cookies(file) if pass.cookies.is_none() => pass.cookies = Some(file.get().await?),
            Source::Certificate(files) if pass.identity.is_none() => pass.identity = Some(files.get().await?),
            Source::Command(_) | Source::Token(_) | Source::Netrc(_) | Source::Cookies(_) | Source::Certificate(_) => {}
        }
        Ok(())
    }

    fn words(&self) -> String {
        match &self.source {
            Source::Command(command) => format!("the token that `{}` prints", command.program()),
            Source::Token(file) => format!("the token in {}", file.path().display()),
            Source::Certificate(files) => format!("the certificate in {}", files.path().display()),
            Source::Cookies(file) => format!("what {} has for the path", file.path().display()),
            Source::Netrc(file) => format!("the login in {}", file.path().display()),
        }
    }
}

impl Users {
    async fn login(&self, uid: u32, host: &Authority) -> Option<Authorization> {
        let file = match self.file(uid) {
            Some(file) => file,
            None => {
                let home_of = self.home_of.clone();
                let home = tokio::task::spawn_blocking(move || home_of(uid)).await.ok().flatten()?;
                self.add(uid, &home)
            }
        };
        file.login(host).await
    }

    fn file(&self, uid: u32) -> Option<NetrcFile> {
        self.files.lock().get(&uid).cloned()
    }

    fn add(&self, uid: u32, home: &Path) -> NetrcFile {
        let mut files = self.files.lock();
        if files.len() >= USERS_MAX {
            files.clear();
        }
        let new = || Arc::new(OwnFiles::new(uid, vec![(home.join(".netrc"), Others::Nothing)], netrc::read));
        files.entry(uid).or_insert_with(new).clone()
    }
}

impl OwnFiles<Vec<netrc::Login>> {
    /// The login for a host.
    async fn login(self: &Arc<Self>, host: &Authority) -> Option<Authorization> {
        // One that is not used is for its owner to find.
        let logins = self.get().await.inspect_err(|why| tracing::debug!("logins: {why}"));
        basic_of(&logins.ok()?, host)
    }

    /// Whether there was one for a host when it was read last.
    fn had_login_for(&self, host: &Authority) -> bool {
        self.last().is_some_and(|logins| netrc::login_for(&logins, host).is_some())
    }
}

/// The login of a netrc file for a host.
fn basic_of(logins: &[netrc::Login], host: &Authority) -> Option<Authorization> {
    let login = netrc::login_for(logins, host)?;
    // What cannot be said in Basic (RFC 7617 section 2).
    let sayable = !login.login.contains(':') && !login.login.bytes().chain(login.password.bytes()).any(is_control);
    let mut header = HeaderValue::try_from(basic(&login.login, &login.password)).ok().filter(|_| sayable)?;
    header.set_sensitive(true);
    Some(Authorization::Fixed(header))
}

fn is_control(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f
}

/// The value of the header (RFC 7617), in UTF-8.
pub(crate) fn basic(login: &str, password: &str) -> String {
    format!("Basic {}", base64::encode(format!("{login}:{password}").as_bytes()))
}

/// Users whose files are remembered at a time.
const USERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A netrc file with these machines, of the user who runs this.
    fn netrc_file(machines: &[Option<&str>]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&file, machines);
        file
    }

    /// `NamedTempFile` has made it the user's alone.
    fn write(file: &tempfile::NamedTempFile, machines: &[Option<&str>]) {
        let line = |machine: &Option<&str>| match machine {
            Some(machine) => format!("machine {machine} login {machine} password word\n"),
            None => "default login anyone password word\n".to_owned(),
        };
        std::fs::write(file.path(), machines.iter().map(line).collect::<String>()).unwrap();
    }

    fn own() -> Caller {
        Caller { uid: rustix::process::geteuid().as_raw(), gid: 0, pid: 1 }
    }

    fn host(text: &str) -> Authority {
        Authority::parse(text).unwrap()
    }

    /// The example of RFC 7617 section 2, and logins of which a part is empty.
    #[test]
    fn basic_is_as_the_standard_has_it() {
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
        assert_eq!(basic("", ""), "Basic Og==");
        assert_eq!(basic("a", ""), "Basic YTo=");
        assert_eq!(basic("a", "b"), "Basic YTpi");
    }

    #[tokio::test]
    async fn the_nearest_login_is_taken_and_for_its_user_alone() {
        let file = netrc_file(&[Some("a.org"), Some("a.org:8443"), None]);
        let all = Credentials::from_netrc(file.path(), own().uid, false);
        let held = netrc::read(&[std::fs::read(file.path()).unwrap()]).unwrap();
        for (name, taken) in
            [("a.org", "a.org"), ("a.org:8443", "a.org:8443"), ("a.org:1", "a.org"), ("b.org", "anyone")]
        {
            let login = netrc::login_for(&held, &host(name));
            assert_eq!(login.map(|login| login.login.as_str()), Some(taken), "{name}");
        }
        assert!(all.pass(&own(), &host("b.org")).await.unwrap().is_some() && all.has_login_for(&host("b.org")));
        for uid in [own().uid + 1, own().uid + 1001] {
            assert!(all.pass(&Caller { uid, ..own() }, &host("a.org")).await.unwrap().is_none());
        }
        // A colon would end the login early.
        assert!(all.pass(&own(), &host("a.org:8443")).await.unwrap().is_none());
        assert!(!format!("{all:?}").contains("word"));
        let one = netrc_file(&[Some("a.org")]);
        let one = Credentials::from_netrc(one.path(), own().uid, false);
        assert!(!one.has_login_for(&host("x.a.org")) && one.has_login_for(&host("a.org")));
    }

    /// Goal: a login that is written into the file while a mount lives is used.
    #[tokio::test]
    async fn a_netrc_file_is_read_again() {
        let file = netrc_file(&[]);
        let all = Credentials::from_netrc(file.path(), own().uid, false);
        assert!(all.pass(&own(), &host("a.org")).await.unwrap().is_none());
        write(&file, &[Some("a.org")]);
        all.netrc.as_ref().unwrap().1.distrust();
        assert!(all.pass(&own(), &host("a.org")).await.unwrap().is_some());
        assert!(all.about(&host("a.org")).iter().any(|told| told.contains("is sent")));
    }
}
