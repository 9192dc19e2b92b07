//! Logging in to a cell, as `aklog` does: its ticket is got into the user's own credential cache, where every client of AFS
//! that reads such caches finds it.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use weft_rx::Level;

use crate::cache_file::{BadCacheName, CacheName, Looked, cache_of, look};
use crate::ccache::Ccache;
use crate::cell::CellName;
use crate::kvno::{Kvno, NoTicket};
use crate::tokens::{Token, Wanted, begins_later, is_good, services, time};
use crate::utc::utc;

/// Who is to be logged in where.
#[derive(Clone, Debug)]
pub struct LoginOrder {
    /// The cell.
    pub cell: CellName,
    /// The realm whose ticket it takes; by itself the user's own is asked, then the one that is named as the cell.
    pub realm: Option<String>,
    /// The name of the credential cache, as `$KRB5CCNAME` has it; without it `/tmp/krb5cc_UID` of whoever runs this.
    pub ccache: Option<String>,
    /// How what is said with the token is to be protected.
    pub level: Level,
    /// The program that gets tickets.
    pub kvno: Kvno,
    /// How long it may take in all.
    pub patience: Duration,
}

/// What a cache has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The cache, as `$KRB5CCNAME` has it.
    pub cache: String,
    /// As whom.
    pub client: String,
    /// For which service the ticket is.
    pub service: String,
    /// Until when.
    pub ends: SystemTime,
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The cache is of a kind that is not read.
    #[error(transparent)]
    CacheName(#[from] BadCacheName),
    /// The name of a realm is none.
    #[error("`{realm}`: the name of a realm has letters, digits, '.', '-' and '_', as in EXAMPLE.ORG")]
    Realm {
        /// As it was given.
        realm: String,
    },
    /// Nobody has logged in to Kerberos.
    #[error(
        "{cache}: no ticket of Kerberos is there: `kinit` gets one. Where `klist` shows one in another place, \
        `kinit -c {cache}` puts it here, where it is found"
    )]
    NoCache {
        /// The cache.
        cache: String,
    },
    /// The file cannot be used, and why.
    #[error("{0}")]
    BadCache(String),
    /// There is nothing to get other tickets with.
    #[error("{cache}: {client} has no ticket there that gets others: `kinit` gets one")]
    NoGranter {
        /// The cache.
        cache: String,
        /// Whose it is.
        client: String,
    },
    /// What gets other tickets is of the past.
    #[error(
        "{cache}: the ticket of {client} ended at {ends}, and this machine's clock says {now}: `kinit` gets another"
    )]
    Ended {
        /// The cache.
        cache: String,
        /// Whose it is.
        client: String,
        /// The moment.
        ends: String,
        /// This moment.
        now: String,
    },
    /// What gets other tickets is of the future.
    #[error(
        "{cache}: the ticket of {client} begins at {starts}, and this machine's clock says {now}: is it set right?"
    )]
    NotBegun {
        /// The cache.
        cache: String,
        /// Whose it is.
        client: String,
        /// The moment.
        starts: String,
        /// This moment.
        now: String,
    },
    /// No realm knows the cell.
    #[error(
        "no realm that was asked has a ticket for the cell {cell} ({tried}); `--realm REALM` names the cell's realm"
    )]
    Unknown {
        /// Which cell.
        cell: CellName,
        /// Which tickets, and what became of each.
        tried: String,
    },
    /// The program does not get the ticket.
    #[error(transparent)]
    NoTicket(#[from] NoTicket),
    /// It got one, which is of no use.
    #[error("{cell}: {why}")]
    Useless {
        /// Which cell.
        cell: CellName,
        /// What is wrong with it.
        why: String,
    },
}

/// Gets the ticket of a cell into the cache of whoever runs this, and sees that it is there and of use. Within a runtime.
///
/// # Errors
/// All of [`LoginError`].
pub async fn log_in(order: &LoginOrder) -> Result<LoggedIn, LoginError> {
    let LoginOrder { cell, realm, ccache, level, kvno, patience } = order;
    if let Some(realm) = realm.as_ref().filter(|realm| !is_realm(realm)) {
        return Err(LoginError::Realm { realm: realm.clone() });
    }
    let uid = rustix::process::geteuid().as_raw();
    let name = cache_of(uid, ccache.as_deref())?;
    let shown = name.to_text().to_string_lossy().into_owned();
    let token = |cache: &Ccache| {
        let wanted = Wanted { id: 0, uid, cell, level: *level };
        Token::of(cache, wanted, SystemTime::now())
    };
    let logged_in = |token: Token| LoggedIn {
        cache: shown.clone(),
        client: token.client.to_string(),
        service: token.service.to_string(),
        ends: token.ends,
    };
    let cache = read(&name, uid).await?.ok_or_else(|| LoginError::NoCache { cache: shown.clone() })?;
    if let Err(error) = check_granter(&cache, &shown) {
        // A token can be there all the same, and count.
        return token(&cache).map(logged_in).map_err(|_| error);
    }
    let own_realm = String::from_utf8_lossy(&cache.principal.realm).into_owned();
    if !is_realm(&own_realm) {
        return Err(LoginError::Realm { realm: own_realm.escape_default().to_string() });
    }
    let until = Instant::now() + *patience;
    let mut tried = Vec::new();
    for service in services(cell, &own_realm, realm.as_deref()) {
        match kvno.get(&service, (&name.to_text(), Stdio::null()), None, until).await {
            Ok(()) => {
                let cache = read(&name, uid).await?.ok_or_else(|| LoginError::NoCache { cache: shown.clone() })?;
                let useless = |why: String| LoginError::Useless { cell: cell.clone(), why };
                return token(&cache).map(logged_in).map_err(|why| useless(why.to_string()));
            }
            Err(error @ NoTicket::Unknown { .. }) => tried.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(LoginError::Unknown { cell: cell.clone(), tried: tried.join("; ") })
}

fn check_granter(cache: &Ccache, shown: &str) -> Result<(), LoginError> {
    let (client, at) = (cache.principal.to_string(), SystemTime::now());
    let (cache_name, now) = (shown.to_owned(), utc(at));
    match cache.granter() {
        None => Err(LoginError::NoGranter { cache: cache_name, client }),
        Some(granter) if is_good(granter, at) => Ok(()),
        Some(granter) if begins_later(granter, at) => {
            Err(LoginError::NotBegun { cache: cache_name, client, starts: utc(time(granter.starts_s)), now })
        }
        Some(granter) => Err(LoginError::Ended { cache: cache_name, client, ends: utc(time(granter.ends_s)), now }),
    }
}

/// The cache as it is now; what is being written just now is read again.
async fn read(name: &CacheName, uid: u32) -> Result<Option<Ccache>, LoginError> {
    for _ in 0..READS_MAX {
        match look(name, uid, None) {
            Looked::Cache(_, cache) => return Ok(Some(cache)),
            Looked::Absent => return Ok(None),
            Looked::Bad(_, why) => return Err(LoginError::BadCache(why)),
            Looked::Same | Looked::Unfinished => tokio::time::sleep(READ_PAUSE).await,
        }
    }
    Err(LoginError::BadCache(format!(
        "{}: this credential cache makes no sense: `kinit` makes another",
        name.path().display()
    )))
}

/// Whether this can be a realm, and stands for itself in the name of a principal.
pub(crate) fn is_realm(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !text.is_empty() && text.len() <= REALM_BYTES_MAX && text.bytes().all(allowed)
}

const REALM_BYTES_MAX: usize = 255;
/// How often a cache that is being written is read, and how long nobody does in between.
const READS_MAX: u32 = 30;
const READ_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ccache::Principal;
    use crate::ccache::tests::{Writer, alice, credential};
    use crate::kvno::tests::stand_in;

    /// The cache of alice, with tickets for these services.
    fn write(path: &Path, tickets: &[(&[&str], u32)]) {
        use std::os::unix::fs::PermissionsExt;
        let add = |to: Writer, (components, ends_s): &(&[&str], u32)| {
            to.credential(&credential(Principal::service(components, b"EXAMPLE.ORG"), *ends_s))
        };
        let bytes = tickets.iter().fold(Writer::new(4, &alice()), add).bytes;
        std::fs::write(path, bytes).expect("written");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("set");
    }

    const TGT: &[&str] = &["krbtgt", "EXAMPLE.ORG"];
    const AFS: &[&str] = &["afs", "example.org"];

    /// A login of alice's with a program that this script is.
    struct Login {
        folder: tempfile::TempDir,
        order: LoginOrder,
    }

    impl Login {
        fn with(script: &str) -> Login {
            let folder = tempfile::tempdir().expect("a folder");
            write(&folder.path().join("other"), &[(TGT, u32::MAX), (AFS, u32::MAX)]);
            let kvno = stand_in(folder.path(), &script.replace("DIR", &folder.path().display().to_string()));
            let order = LoginOrder {
                cell: CellName::new(b"example.org").expect("a name"),
                realm: None,
                ccache: Some(format!("FILE:{}/cc", folder.path().display())),
                level: Level::Crypt,
                kvno,
                patience: Duration::from_secs(60),
            };
            Login { folder, order }
        }

        async fn log_in(&self, tickets: &[(&[&str], u32)]) -> Result<LoggedIn, LoginError> {
            write(&self.folder.path().join("cc"), tickets);
            log_in(&self.order).await
        }
    }

    /// Goal: what is told is what lies in the cache afterwards.
    #[tokio::test]
    async fn the_ticket_is_in_the_cache() {
        let login = Login::with("cat DIR/other > DIR/cc");
        let found = login.log_in(&[(TGT, u32::MAX)]).await.expect("logged in");
        assert_eq!(
            (found.client.as_str(), found.service.as_str()),
            ("alice@EXAMPLE.ORG", "afs/example.org@EXAMPLE.ORG")
        );
        assert_eq!((found.ends, Some(found.cache)), (time(u32::MAX), login.order.ccache.clone()));
        let forgetful = Login::with("true");
        let error = forgetful.log_in(&[(TGT, u32::MAX)]).await.expect_err("nothing came");
        assert!(matches!(error, LoginError::Useless { .. }), "{error}");
    }

    /// Goal: what keeps a user from logging in is told by its cause, and nothing is asked that cannot be answered.
    #[tokio::test]
    async fn what_is_missing_is_told() {
        let login = Login::with("echo asked >> DIR/asked");
        let absent = log_in(&login.order).await.expect_err("no cache");
        assert!(
            absent.to_string().contains("no ticket of Kerberos") && absent.to_string().contains("`kinit`"),
            "{absent}"
        );
        let error = login.log_in(&[(&["imap", "example.org"], u32::MAX)]).await.expect_err("no granter");
        assert!(matches!(error, LoginError::NoGranter { .. }), "{error}");
        let error = login.log_in(&[(TGT, 1_700_000_000)]).await.expect_err("ended");
        let told = error.to_string();
        assert!(told.contains("ended at 2023-11-14 22:13 UTC") && told.contains("`kinit` gets another"), "{told}");
        assert!(login.log_in(&[(TGT, 7), (AFS, u32::MAX)]).await.is_ok(), "it is there already");
        let of = |ccache: &str| LoginOrder { ccache: Some(ccache.to_owned()), ..login.order.clone() };
        for kind in ["KCM:", "KEYRING:persistent:1000"] {
            let error = log_in(&of(kind)).await.expect_err("no file").to_string();
            assert!(error.contains("not from") && error.contains("kinit -c FILE:"), "{error}");
        }
        for realm in ["", "A@B", "-x y", "A\0"] {
            let order = LoginOrder { realm: Some(realm.to_owned()), ..login.order.clone() };
            assert!(matches!(log_in(&order).await, Err(LoginError::Realm { .. })), "{realm:?}");
        }
        assert!(!login.folder.path().join("asked").exists(), "Kerberos was asked all the same");
    }

    /// Goal: each service that may be the cell's is asked for, and all are told where there is none.
    #[tokio::test]
    async fn realms_are_asked_in_order() {
        let login = Login::with("echo \"kvno: Server $4 not found in Kerberos database while x\" >&2; exit 1");
        let error = login.log_in(&[(TGT, u32::MAX)]).await.expect_err("unknown").to_string();
        let (one, two) = (error.find("afs/example.org@EXAMPLE.ORG"), error.find("afs@EXAMPLE.ORG"));
        assert!(one < two && one.is_some() && error.contains("--realm"), "{error}");
        let third = Login::with(
            "echo $4 >> DIR/asked; test $4 = afs@EXAMPLE.ORG || { echo 'kvno: not found in Kerberos database' >&2; exit 1; }; cat DIR/other > DIR/cc",
        );
        assert!(third.log_in(&[(TGT, u32::MAX)]).await.is_ok());
        let asked = std::fs::read_to_string(third.folder.path().join("asked")).expect("asked");
        assert_eq!(asked, "afs/example.org@EXAMPLE.ORG\nafs@EXAMPLE.ORG\n");
    }
}
