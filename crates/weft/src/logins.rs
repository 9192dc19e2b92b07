//! Whose logins the web may use: from the configuration's words to users and files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::{Uid, User};
use weft_web::{Credentials, Login, LoginHost, LoginMeans, RunAs};

use crate::config::{LoginBy, LoginTable, WebSettings};

/// All logins. A netrc file that cannot be used keeps nothing from being mounted.
///
/// # Errors
/// A user that does not exist; a program to be run for somebody else by a daemon that is not root's.
pub fn credentials(settings: &WebSettings) -> anyhow::Result<Credentials> {
    let own_uid = rustix::process::geteuid().as_raw();
    let insecure = settings.insecure_credentials.unwrap_or(false);
    let netrc = settings.netrc.as_ref().filter(|path| !path.as_os_str().is_empty());
    let netrc = netrc.map(|path| Credentials::from_netrc(path, own_uid, insecure)).unwrap_or_default();
    let logins = settings.logins.iter().map(|table| {
        login(table, own_uid).with_context(|| format!("the [[web.login]] for {}", table.hosts.join(", ")))
    });
    let credentials = netrc.with_logins(logins.collect::<anyhow::Result<_>>()?, insecure);
    Ok(match settings.netrc_of_users {
        Some(true) => credentials.with_netrc_of_users(Arc::new(home_of)),
        _ => credentials,
    })
}

fn login(table: &LoginTable, own_uid: u32) -> anyhow::Result<Login> {
    let uid = match &table.user {
        Some(user) => user_named(user)?.uid.as_raw(),
        None => own_uid,
    };
    let hosts = table.hosts.iter().map(|text| LoginHost::parse(text).map_err(anyhow::Error::msg));
    let hosts = hosts.collect::<anyhow::Result<_>>()?;
    let means = match table.by.clone() {
        LoginBy::BearerCommand { command, lifetime } => {
            let lifetime = lifetime.unwrap_or(BEARER_LIFETIME);
            LoginMeans::BearerCommand { command, run_as: run_as(uid, own_uid)?, lifetime }
        }
        LoginBy::BearerFile(path) => LoginMeans::BearerFile(path),
        LoginBy::Certificate { certificate, key } => LoginMeans::Certificate { certificate, key },
        LoginBy::CookieFile(path) => LoginMeans::CookieFile(path),
        LoginBy::Netrc(path) => LoginMeans::Netrc(path),
    };
    Ok(Login { hosts, uid, means })
}

/// As whom a program is run for a user; nobody else where it is the daemon's own.
fn run_as(uid: u32, own_uid: u32) -> anyhow::Result<Option<RunAs>> {
    if uid == own_uid {
        return Ok(None);
    }
    if own_uid != 0 {
        bail!("a bearer_command for user id {uid} can be run by a daemon of root's alone");
    }
    let user = User::from_uid(Uid::from_raw(uid))?.with_context(|| format!("there is no user with id {uid}"))?;
    Ok(Some(RunAs { uid, gid: user.gid.as_raw(), name: user.name, home: user.dir }))
}

fn user_named(text: &str) -> anyhow::Result<User> {
    let by_name = User::from_name(text)?;
    let by_id = || text.parse().ok().map(|uid| User::from_uid(Uid::from_raw(uid)));
    let user = match by_name {
        Some(user) => Some(user),
        None => by_id().transpose()?.flatten(),
    };
    user.with_context(|| format!("there is no user `{text}` on this machine"))
}

/// May ask the network, where users are kept there.
fn home_of(uid: u32) -> Option<PathBuf> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.dir)
}

/// For how long a printed token is used when nobody says.
const BEARER_LIFETIME: Duration = Duration::from_secs(3600);
