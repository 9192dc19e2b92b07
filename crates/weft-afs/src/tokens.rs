//! Tokens: what a user shows to the file servers of a cell, made of what is in a credential cache.
//!
//! A cell's service has one of several names, which are tried in the order of OpenAFS's `aklog`, as far as the cache alone
//! can tell them: `afs/cell` in the user's own realm; `afs` in the realm that is named as the cell; `afs/cell` in whatever
//! realm there is a ticket of (`src/aklog/aklog.c`). Whoever gets a ticket asks for these as well ([`services`]). The ticket
//! is shown as it is; the key is derived from its session key.
//! Session keys of single DES are refused: whoever has heard such a ticket can find its key.

use std::fmt;
use std::time::{Duration, SystemTime};

use weft_rx::{Level, Rxkad, SecurityError};

use crate::ccache::{Ccache, Credential, Principal};
use crate::cell::CellName;

/// What one user shows to the file servers of one cell.
#[derive(Debug)]
pub(crate) struct Token {
    /// No other token has had this number.
    pub id: u64,
    /// Whose it is on this machine.
    pub uid: u32,
    /// For which cell.
    pub cell: CellName,
    /// Whose it is in Kerberos.
    pub client: Principal,
    /// For which service it is.
    pub service: Principal,
    /// Until when it is good.
    pub ends: SystemTime,
    /// From when on another is to be had, before it ends.
    pub soon_ends: SystemTime,
    /// Ticket and key.
    pub security: Rxkad,
    ticket: Vec<u8>,
}

/// Why a cache has no token for a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// There is no ticket for the cell.
    Missing,
    /// There is one, which has ended.
    Ended,
    /// There is one, which begins later.
    NotBegun,
    /// There is one, which cannot be used.
    Unusable(SecurityError),
    /// There is one, which a server did not take, and what it said.
    Refused(String),
}

/// What a token is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub id: u64,
    pub uid: u32,
    pub cell: &'a CellName,
    pub level: Level,
}

impl Token {
    /// The best token for a cell that a cache has now.
    ///
    /// # Errors
    /// The most that can be said of the tickets for the cell.
    pub fn of(cache: &Ccache, wanted: Wanted<'_>, now: SystemTime) -> Result<Token, NoToken> {
        let mut why = NoToken::Missing;
        for credential in in_order(cache, wanted.cell) {
            if !is_good(credential, now) {
                if why == NoToken::Missing {
                    why = if begins_later(credential, now) { NoToken::NotBegun } else { NoToken::Ended };
                }
                continue;
            }
            match Rxkad::new(credential.enctype, &credential.key, &credential.ticket, wanted.level) {
                Ok(security) => {
                    return Ok(Token {
                        id: wanted.id,
                        uid: wanted.uid,
                        cell: wanted.cell.clone(),
                        client: credential.client.clone(),
                        service: credential.server.clone(),
                        ends: time(credential.ends_s),
                        soon_ends: soon_ends(credential),
                        security,
                        ticket: credential.ticket.clone(),
                    });
                }
                Err(error) => why = NoToken::Unusable(error),
            }
        }
        Err(why)
    }

    /// Whether it shows what the other shows.
    pub fn is_same(&self, other: &Token) -> bool {
        self.ticket == other.ticket && self.client == other.client
    }
}

impl fmt::Display for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoToken::Missing => f.write_str("the credential cache has no ticket for it"),
            NoToken::Ended => f.write_str("the ticket for it has ended"),
            NoToken::NotBegun => f.write_str("the ticket for it has not begun: is this machine's clock behind?"),
            NoToken::Unusable(error) => write!(f, "the ticket for it cannot be used: {error}"),
            NoToken::Refused(why) => write!(f, "a server refuses the ticket for it: {why}"),
        }
    }
}

/// The tickets for a cell, the first to be tried first; of several for one name that which ends last.
fn in_order<'a>(cache: &'a Ccache, cell: &CellName) -> Vec<&'a Credential> {
    let realm = &cache.principal.realm;
    let own = Principal::service(&["afs", cell.as_str()], realm);
    let rank = |credential: &&Credential| match &credential.server {
        server if *server == own => 0,
        server if server.components == [b"afs"] && is_named_as(&server.realm, cell) => 1,
        server if server.components == own.components => 2,
        _ => 3,
    };
    let mut found: Vec<&Credential> = cache.credentials.iter().filter(|credential| rank(credential) < 3).collect();
    found.sort_by_key(|credential| (rank(credential), std::cmp::Reverse(credential.ends_s)));
    found
}

/// The services whose ticket is a cell's token, for a user of this realm, in the order in which they are asked for: in the
/// realm that is said; else in the user's own, and then in the one that is named as the cell, as realms are written.
pub(crate) fn services(cell: &CellName, own_realm: &str, said: Option<&str>) -> Vec<String> {
    let of_cell = cell.as_str().to_ascii_uppercase();
    let mut realms = said.map_or_else(|| vec![own_realm, &of_cell], |said| vec![said]);
    realms.dedup();
    let of_realm = |realm: &str| {
        let short = is_named_as(realm.as_bytes(), cell).then(|| format!("afs@{realm}"));
        [Some(format!("afs/{cell}@{realm}")), short]
    };
    realms.into_iter().flat_map(of_realm).flatten().collect()
}

fn is_named_as(realm: &[u8], cell: &CellName) -> bool {
    realm.eq_ignore_ascii_case(cell.as_str().as_bytes())
}

pub(crate) fn is_good(credential: &Credential, now: SystemTime) -> bool {
    !begins_later(credential, now) && now < time(credential.ends_s)
}

pub(crate) fn begins_later(credential: &Credential, now: SystemTime) -> bool {
    // Clocks differ: a ticket of this moment is good.
    time(credential.starts_s) > now + SKEW
}

pub(crate) fn time(seconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into())
}

/// A while before a ticket's end, of which a short one has less.
fn soon_ends(credential: &Credential) -> SystemTime {
    let life = Duration::from_secs(credential.ends_s.saturating_sub(credential.starts_s).into());
    time(credential.ends_s) - SOON.min(life / 4)
}

/// How long before a ticket's end another is to be had.
const SOON: Duration = Duration::from_secs(300);
/// How far the clocks of Kerberos may be apart.
const SKEW: Duration = Duration::from_secs(300);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ccache::tests::{alice, credential};

    const NOW_S: u32 = 1_750_000_000;

    fn server(components: &[&str], realm: &str) -> Principal {
        Principal::service(components, realm.as_bytes())
    }

    /// A token of this number.
    pub(crate) fn token(id: u64) -> Token {
        let cell = CellName::new(b"example.org").expect("a name");
        let afs = named(server(&["afs", "example.org"], "EXAMPLE.ORG"), "ticket");
        let cache = Ccache { principal: alice(), credentials: vec![afs] };
        let wanted = Wanted { id, uid: 1000, cell: &cell, level: Level::Crypt };
        Token::of(&cache, wanted, time(NOW_S)).expect("a good ticket")
    }

    /// The token for `example.org` from a cache with these credentials: its ticket.
    fn chosen(credentials: Vec<Credential>) -> Result<Vec<u8>, NoToken> {
        let cell = CellName::new(b"example.org").expect("a name");
        let cache = Ccache { principal: alice(), credentials };
        let wanted = Wanted { id: 1, uid: 1000, cell: &cell, level: Level::Crypt };
        Token::of(&cache, wanted, time(NOW_S)).map(|token| token.ticket)
    }

    fn named(server: Principal, ticket: &str) -> Credential {
        Credential { ticket: ticket.into(), ..credential(server, NOW_S + 100) }
    }

    #[test]
    fn services_are_tried_in_order() {
        let all = [
            named(server(&["afs", "example.org"], "ELSEWHERE.ORG"), "third"),
            named(server(&["afs", "example.com"], "EXAMPLE.ORG"), "another cell"),
            named(server(&["afs"], "ELSEWHERE.ORG"), "another realm"),
            named(server(&["krbtgt", "EXAMPLE.ORG"], "EXAMPLE.ORG"), "no service of AFS"),
            named(server(&["afs"], "EXAMPLE.ORG"), "second"),
            named(server(&["afs", "example.org"], "EXAMPLE.ORG"), "first"),
        ];
        assert_eq!(chosen(all.to_vec()), Ok(b"first".to_vec()));
        assert_eq!(chosen(all[..5].to_vec()), Ok(b"second".to_vec()));
        assert_eq!(chosen(all[..4].to_vec()), Ok(b"third".to_vec()));
        assert_eq!(chosen(all[1..4].to_vec()), Err(NoToken::Missing));
    }

    #[test]
    fn services_are_asked_for_in_order() {
        let cell = CellName::new(b"example.org").expect("a name");
        let of = |own, said| services(&cell, own, said).join(" ");
        assert_eq!(of("EXAMPLE.ORG", None), "afs/example.org@EXAMPLE.ORG afs@EXAMPLE.ORG");
        assert_eq!(of("X.ORG", None), "afs/example.org@X.ORG afs/example.org@EXAMPLE.ORG afs@EXAMPLE.ORG");
        assert_eq!(of("EXAMPLE.ORG", Some("X.ORG")), "afs/example.org@X.ORG");
        assert_eq!(of("X.ORG", Some("EXAMPLE.ORG")), "afs/example.org@EXAMPLE.ORG afs@EXAMPLE.ORG");
    }

    #[test]
    fn what_has_ended_or_is_weak_is_not_used() {
        let service = || server(&["afs", "example.org"], "EXAMPLE.ORG");
        let ended = Credential { ends_s: NOW_S, ..named(service(), "ended") };
        let later = Credential { starts_s: NOW_S + 301, ..named(service(), "later") };
        assert_eq!(chosen(vec![ended.clone()]), Err(NoToken::Ended));
        assert_eq!(chosen(vec![later]), Err(NoToken::NotBegun));
        for enctype in [1, 2, 3] {
            let des = Credential { enctype, key: vec![0x13; 8], ..named(service(), "DES") };
            assert_eq!(chosen(vec![des.clone()]), Err(NoToken::Unusable(SecurityError::WeakKey)));
            let other = named(server(&["afs"], "EXAMPLE.ORG"), "other");
            assert_eq!(chosen(vec![ended.clone(), des, other]), Ok(b"other".to_vec()));
        }
        let renewed = Credential { ends_s: NOW_S + 200, ..named(service(), "renewed") };
        assert_eq!(chosen(vec![named(service(), "old"), renewed]), Ok(b"renewed".to_vec()));
    }
}
