use proptest::prelude::*;

use super::*;

/// A cache as Kerberos writes it.
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
    version: u8,
}

impl Writer {
    pub fn new(version: u8, principal: &Principal) -> Writer {
        let mut to = Writer { bytes: vec![5, version], version };
        if version == 4 {
            // One field: the clock's offset, which is 0.
            to.bytes.extend_from_slice(&[0, 12, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        to.principal(principal);
        to
    }

    /// One of somebody whose clock was so much behind Kerberos's at the login.
    pub fn with_clock_ahead(principal: &Principal, ahead_s: i32) -> Writer {
        let mut to = Writer { bytes: vec![5, 4, 0, 15, 0, 7, 0, 3, 1, 2, 3, 0, 1, 0, 4], version: 4 };
        to.bytes.extend_from_slice(&ahead_s.to_be_bytes());
        to.principal(principal);
        to
    }

    pub fn credential(mut self, credential: &Credential) -> Writer {
        self.principal(&credential.client);
        self.principal(&credential.server);
        let enctype = (credential.enctype as i16).to_be_bytes();
        for _ in 0..if self.version == 3 { 2 } else { 1 } {
            self.bytes.extend_from_slice(&enctype);
        }
        self.data(&credential.key);
        for number in [credential.starts_s, credential.starts_s, credential.ends_s, credential.ends_s] {
            self.u32(number);
        }
        self.bytes.push(0);
        self.u32(0x4050_0000);
        for of in 0..2_u16 {
            self.u32(1);
            self.bytes.extend_from_slice(&of.to_be_bytes());
            self.data(&[10, 0, 0, 1]);
        }
        self.data(&credential.ticket);
        self.data(b"");
        self
    }

    fn principal(&mut self, principal: &Principal) {
        self.u32(1);
        self.u32(principal.components.len() as u32);
        self.data(&principal.realm);
        for component in &principal.components {
            self.data(component);
        }
    }

    fn data(&mut self, data: &[u8]) {
        self.u32(data.len() as u32);
        self.bytes.extend_from_slice(data);
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }
}

pub(crate) fn alice() -> Principal {
    Principal::service(&["alice"], b"EXAMPLE.ORG")
}

pub(crate) fn credential(server: Principal, ends_s: u32) -> Credential {
    Credential {
        client: alice(),
        server,
        enctype: 18,
        key: vec![7; 32],
        starts_s: 1_700_000_000,
        ends_s,
        ticket: b"\x61\x82a ticket".to_vec(),
    }
}

fn cache(version: u8) -> (Vec<u8>, Ccache) {
    let setting = Principal::service(&["krb5_ccache_conf_data", "refresh_time"], SETTINGS_REALM);
    let (tgt, afs) = (
        credential(Principal::service(&["krbtgt", "EXAMPLE.ORG"], b"EXAMPLE.ORG"), 1_800_000_000),
        Credential {
            enctype: -128,
            ..credential(Principal::service(&["afs", "example.org"], b"EXAMPLE.ORG"), u32::MAX)
        },
    );
    let written = Writer::new(version, &alice()).credential(&credential(setting, 0)).credential(&tgt).credential(&afs);
    (written.bytes, Ccache { principal: alice(), credentials: vec![tgt, afs] })
}

/// Goal: what gets tickets is kept byte for byte, and nothing else is.
#[test]
fn what_gets_tickets_is_kept_alone() {
    let service = |components: &[&str], realm: &str| credential(Principal::service(components, realm.as_bytes()), 9);
    let own = service(&["krbtgt", "EXAMPLE.ORG"], "EXAMPLE.ORG");
    let cross = service(&["krbtgt", "X.ORG"], "EXAMPLE.ORG");
    let others =
        [service(&["afs", "example.org"], "EXAMPLE.ORG"), service(&["krb5_ccache_conf_data", "x"], "X-CACHECONF:")];
    for version in [3, 4] {
        let write = |all: &[&Credential]| {
            all.iter().fold(Writer::new(version, &alice()), |to, credential| to.credential(credential)).bytes
        };
        let kept = Ccache::granters_of(&write(&[&others[0], &own, &others[1], &cross])).expect("good");
        assert_eq!(kept, write(&[&own, &cross]));
        assert_eq!(Ccache::read(&kept).expect("good").granter(), Some(&own));
        assert_eq!(Ccache::granters_of(&write(&[&others[0]])).expect("good"), write(&[]));
    }
    let later = Credential { ends_s: 10, ..own.clone() };
    let cache = Ccache { principal: alice(), credentials: vec![cross.clone(), own.clone(), later.clone(), own] };
    assert_eq!(cache.granter(), Some(&later));
    assert_eq!(Ccache { credentials: vec![cross], ..cache }.granter(), None, "that of another realm");
}

/// Goal: whose clock is wrong has the tickets of a login good for as long as they are, as with MIT's programs.
#[test]
fn times_are_told_by_the_clock_of_this_machine() {
    let ticket = credential(Principal::service(&["afs", "example.org"], b"EXAMPLE.ORG"), 1_800_000_000);
    let always = Credential { starts_s: 0, ..ticket.clone() };
    for ahead_s in [600, -86_400] {
        let written = Writer::with_clock_ahead(&alice(), ahead_s).credential(&ticket).credential(&always).bytes;
        let read = Ccache::read(&written).expect("good").credentials;
        let times: Vec<_> = read.iter().map(|read| (i64::from(read.starts_s), i64::from(read.ends_s))).collect();
        let ends_s = 1_800_000_000 - i64::from(ahead_s);
        assert_eq!(times, [(1_700_000_000 - i64::from(ahead_s), ends_s), (0, ends_s)]);
        assert!(
            Ccache::granters_of(&written).expect("good").starts_with(&written[..19]),
            "who gets tickets by it knows"
        );
    }
}

#[test]
fn both_versions_are_read_and_settings_passed_over() {
    for version in [3, 4] {
        let (bytes, wanted) = cache(version);
        let read = Ccache::read(&bytes).expect("good");
        assert_eq!(read, wanted, "version {version}");
        assert_eq!(read.credentials[1].server.to_string(), "afs/example.org@EXAMPLE.ORG");
        assert!(!format!("{read:?}").contains("[7, 7"), "no key is shown");
    }
}

/// Goal: a cache that is half written is told from a whole one. Method: cut at every byte.
#[test]
fn a_cut_cache_is_an_error_except_between_credentials() {
    for version in [3, 4] {
        let (bytes, wanted) = cache(version);
        let whole = (0..bytes.len()).filter_map(|end| Some((end, Ccache::read(&bytes[..end]).ok()?)));
        let whole: Vec<_> = whole.collect();
        assert_eq!(whole.len(), 3, "before each of three credentials");
        assert!(whole.iter().all(|(_, cut)| wanted.credentials.starts_with(&cut.credentials)));
        let error = Ccache::read(&bytes[..bytes.len() - 1]).expect_err("cut");
        assert!(matches!(error, CcacheError::Truncated { .. }), "{error}");
    }
}

#[test]
fn what_is_too_much_is_refused_before_it_is_read() {
    let (bytes, _) = cache(4);
    for (version, wanted) in [([5, 2], CcacheError::Version), ([4, 4], CcacheError::Version)] {
        let other = [&version[..], &bytes[2..]].concat();
        assert_eq!(Ccache::read(&other), Err(wanted));
    }
    assert_eq!(Ccache::read(b""), Err(CcacheError::Version));
    assert_eq!(Ccache::read(&vec![5; CCACHE_BYTES_MAX + 1]), Err(CcacheError::TooLong));
    let mut many = Writer::new(3, &alice()).bytes;
    // The count of the principal's components.
    many[6..10].copy_from_slice(&u32::MAX.to_be_bytes());
    let error = Ccache::read(&many).expect_err("too many");
    assert_eq!(error, CcacheError::TooMany { what: "components of a name", count: u32::MAX, max: 32, at: 6 });
    let smallest = Credential { key: vec![], ticket: vec![], ..credential(Principal::service(&[], b""), 0) };
    let written = (0..=CREDENTIALS_MAX).fold(Writer::new(4, &alice()), |to, _| to.credential(&smallest));
    let error = Ccache::read(&written.bytes).expect_err("too many");
    assert!(matches!(error, CcacheError::TooMany { what: "credentials", .. }), "{error}");
}

proptest! {
    /// Goal: no bytes make the reader panic, or find more than there is.
    #[test]
    fn flipped_bytes_are_an_error_or_another_cache(flips in prop::collection::vec((0_usize..500, any::<u8>()), 1..6)) {
        let (mut bytes, _) = cache(4);
        let length = bytes.len();
        for (at, flip) in flips {
            bytes[at % length] ^= flip;
        }
        if let Ok(read) = Ccache::read(&bytes) {
            let held = |one: &Credential| one.ticket.len() + one.key.len();
            prop_assert!(read.credentials.iter().map(held).sum::<usize>() <= length);
        }
    }
}
