//! Which hosts and addresses may be connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::authority::Authority;
use crate::pattern::{HostPattern, Network};

/// What is said about addresses that are not on the public internet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// They are like any other.
    #[default]
    Allow,
    /// Nothing connects to them but hosts that are allowed by name.
    Deny {
        /// The setting that says so, as the user knows it.
        rule: String,
    },
}

/// Where a connection may lead. Asked for a host before its name is looked up, and again for each address that the
/// look-up gives: the address that passed is the one that is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Loopback, private, link-local and other addresses that lead into this machine or its network.
    pub private: PrivateAddresses,
    /// Hosts that may have such addresses.
    pub allow: Vec<HostPattern>,
    /// Hosts and addresses that are never connected to, allowed or not; `*` stands for all that are not allowed.
    pub deny: Vec<HostPattern>,
}

impl AddressPolicy {
    /// Whether anything may be asked of this host at all; its addresses are judged when they are known.
    ///
    /// # Errors
    /// The rule against it, and what to write in the configuration.
    pub(crate) fn check_host(&self, host: &Authority) -> Result<(), String> {
        let name = host.bare_host();
        if let Ok(address) = name.parse() {
            return self.check_address(host, address);
        }
        let denied = |pattern: &&HostPattern| pattern.covers_name(name) && !self.is_outdone(pattern, name, None);
        match self.deny.iter().find(denied) {
            Some(pattern) => Err(denied_words(name, pattern)),
            None => Ok(()),
        }
    }

    /// Whether this address of the host may be connected to.
    ///
    /// # Errors
    /// As [`AddressPolicy::check_host`].
    pub(crate) fn check_address(&self, host: &Authority, address: IpAddr) -> Result<(), String> {
        let (name, address) = (host.bare_host(), address.to_canonical());
        let carried = carried_by(address);
        let denied = |pattern: &&HostPattern| {
            let covers = pattern.covers_address(address) || carried.is_some_and(|inner| pattern.covers_address(inner));
            covers && !self.is_outdone(pattern, name, Some(address))
        };
        if let Some(pattern) = self.deny.iter().find(denied) {
            return Err(denied_words(&shown(name, address), pattern));
        }
        let PrivateAddresses::Deny { rule } = &self.private else { return Ok(()) };
        let Some(range) = closed_range(address) else { return Ok(()) };
        if self.is_allowed(name, Some(address)) {
            return Ok(());
        }
        let shown = shown(name, address);
        Err(format!(
            "refused: {shown} is {range}, and {rule}; to admit this host write allow_hosts = [\"{name}\"] in [web]"
        ))
    }

    /// Whether a name is not enough to say that a host may be connected to.
    pub(crate) fn judges_addresses(&self) -> bool {
        self.private != PrivateAddresses::Allow || self.deny.iter().any(HostPattern::is_network)
    }

    /// What holds for a host, for people. Nobody is asked, so that of its addresses only a rule can be told.
    pub(crate) fn about(&self, host: &Authority) -> String {
        if let Err(why) = self.check_host(host) {
            return why;
        }
        match &self.private {
            PrivateAddresses::Allow => "any".to_owned(),
            PrivateAddresses::Deny { .. } if self.is_allowed(host.bare_host(), None) => {
                "any, for allow_hosts has this host".to_owned()
            }
            PrivateAddresses::Deny { rule } => format!("public ones, and those in allow_hosts: {rule}"),
        }
    }

    fn is_allowed(&self, name: &str, address: Option<IpAddr>) -> bool {
        let covers = |pattern: &HostPattern| {
            pattern.covers_name(name) || address.is_some_and(|address| pattern.covers_address(address))
        };
        self.allow.iter().any(covers)
    }

    /// A `*` among the denied gives way to whatever is allowed, so that both lists together name the only hosts.
    /// Before a name is looked up, it gives way to allowed networks as well: the addresses will tell.
    fn is_outdone(&self, pattern: &HostPattern, name: &str, address: Option<IpAddr>) -> bool {
        let by_network = address.is_none() && self.allow.iter().any(HostPattern::is_network);
        *pattern == HostPattern::Any && (by_network || self.is_allowed(name, address))
    }
}

fn denied_words(shown: &str, pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Any => format!(
            "refused: {shown} is not in allow_hosts, and deny_hosts = [\"*\"] in [web] refuses all others; add it there"
        ),
        pattern => format!(
            "refused: \"{pattern}\" in deny_hosts of [web] covers {shown}; take it out of that list to reach this host"
        ),
    }
}

fn shown(name: &str, address: IpAddr) -> String {
    let literal: Option<IpAddr> = name.parse().ok();
    match literal.is_some_and(|literal| literal.to_canonical() == address) {
        true => address.to_string(),
        false => format!("{address} (an address of {name})"),
    }
}

/// What kind of address this is, if it is not one of the public internet.
fn closed_range(address: IpAddr) -> Option<&'static str> {
    let kind_in = |table: &[(Network, &'static str)]| {
        table.iter().find(|(network, _)| network.holds(address)).map(|(_, kind)| *kind)
    };
    match address {
        IpAddr::V4(_) => kind_in(CLOSED_V4),
        IpAddr::V6(_) => kind_in(CLOSED_V6).or_else(|| match carried_by(address) {
            Some(inner) => closed_range(inner).map(|_| "a translated address of a closed IPv4 range"),
            None => (!GLOBAL_V6.holds(address)).then_some("a reserved address"),
        }),
    }
}

/// The IPv4 address that an IPv6 address leads to through a translator or a tunnel: NAT64 (RFC 6052), 6to4 (RFC 3056).
fn carried_by(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let bits = v6.to_bits();
    let inner = if NAT64.holds(address) {
        bits
    } else if SIX_TO_FOUR.holds(address) {
        bits >> 80
    } else {
        return None;
    };
    Some(IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(inner & 0xffff_ffff).ok()?)))
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Network {
    Network::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

/// A network by its first three groups; none of ours needs more, but for [`v6_last`].
const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Network {
    Network::new(IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), prefix)
}

const fn v6_last(last: u16) -> Network {
    Network::new(IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, last)), 128)
}

/// All that has been given out for the internet (RFC 4291, IANA's registry of the global unicast space).
const GLOBAL_V6: Network = v6(0x2000, 0, 0, 3);
const NAT64: Network = v6(0x64, 0xff9b, 0, 96);
const SIX_TO_FOUR: Network = v6(0x2002, 0, 0, 16);

/// IANA's registry of special-purpose IPv4 addresses, multicast, and what clouds answer their guests on. The first
/// that fits names the kind.
const CLOSED_V4: &[(Network, &str)] = &[
    (v4(169, 254, 169, 254, 32), "the address of a cloud's metadata service"),
    (v4(169, 254, 170, 2, 32), "the address of a cloud's metadata service"),
    (v4(100, 100, 100, 200, 32), "the address of a cloud's metadata service"),
    (v4(192, 0, 0, 192, 32), "the address of a cloud's metadata service"),
    (v4(168, 63, 129, 16, 32), "the address of a cloud's metadata service"),
    (v4(0, 0, 0, 0, 32), "the unspecified address"),
    (v4(0, 0, 0, 0, 8), "an address of this very network"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "an address shared by a provider's customers"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "an address for protocols"),
    (v4(192, 0, 2, 0, 24), "an address for documentation"),
    (v4(192, 88, 99, 0, 24), "an address for protocols"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "an address for benchmarks"),
    (v4(198, 51, 100, 0, 24), "an address for documentation"),
    (v4(203, 0, 113, 0, 24), "an address for documentation"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(255, 255, 255, 255, 32), "the broadcast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

/// The same of IPv6; what lies outside [`GLOBAL_V6`] is closed without being named here.
const CLOSED_V6: &[(Network, &str)] = &[
    (
        Network::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), 128),
        "the address of a cloud's metadata service",
    ),
    (
        Network::new(IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), 128),
        "the address of a cloud's metadata service",
    ),
    (v6_last(0), "the unspecified address"),
    (v6_last(1), "a loopback address"),
    (v6(0x64, 0xff9b, 1, 48), "an address of a local translator"),
    (v6(0x100, 0, 0, 64), "an address that discards"),
    (v6(0x2001, 0, 0, 23), "an address for protocols"),
    (v6(0x2001, 0xdb8, 0, 32), "an address for documentation"),
    (v6(0x3fff, 0, 0, 20), "an address for documentation"),
    (v6(0xfc00, 0, 0, 7), "a unique local address"),
    (v6(0xfe80, 0, 0, 10), "a link-local address"),
    (v6(0xfec0, 0, 0, 10), "a private address"),
    (v6(0xff00, 0, 0, 8), "a multicast address"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn patterns(texts: &[&str]) -> Vec<HostPattern> {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    fn closed(allow: &[&str], deny: &[&str]) -> AddressPolicy {
        let private = PrivateAddresses::Deny { rule: "private_addresses = \"deny\" in [web]".to_owned() };
        AddressPolicy { private, allow: patterns(allow), deny: patterns(deny) }
    }

    fn judge(policy: &AddressPolicy, host: &str, address: &str) -> Result<(), String> {
        let host = Authority::parse(host).unwrap();
        policy.check_host(&host).and_then(|()| policy.check_address(&host, address.parse().unwrap()))
    }

    /// Goal: no range of addresses is forgotten, and none is a bit too wide. Method: the first and last address of
    /// each range, and the public neighbours outside of it.
    #[test]
    fn every_closed_range_is_refused_from_end_to_end_and_its_neighbours_are_not() {
        let policy = closed(&[], &[]);
        for (kind, inside) in [
            ("this very network", "0.0.0.1 0.255.255.255"),
            ("unspecified", "0.0.0.0 ::"),
            ("private", "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fec0::1"),
            ("customers", "100.64.0.0 100.127.255.255"),
            ("loopback", "127.0.0.0 127.0.0.1 127.255.255.255 ::1"),
            ("link-local", "169.254.0.0 169.254.255.255 fe80:: febf:ffff::1"),
            ("metadata", "169.254.169.254 169.254.170.2 100.100.100.200 192.0.0.192 168.63.129.16"),
            ("metadata", "fd00:ec2::254 fd20:ce::254"),
            ("protocols", "192.0.0.0 192.0.0.255 192.88.99.1 2001:: 2001:0:4136:e378::1 2001:1ff:ffff::1"),
            ("documentation", "192.0.2.0 192.0.2.255 198.51.100.1 203.0.113.255 2001:db8::1 3fff::1 3fff:fff::1"),
            ("benchmarks", "198.18.0.0 198.19.255.255"),
            ("multicast", "224.0.0.0 239.255.255.255 ff02::1 ffff::1"),
            ("reserved", "240.0.0.0 255.255.255.254 ::2 ::7f00:1 ::ffff:0:7f00:1 4000::1 5f00::1 e000::1 1fff::1"),
            ("broadcast", "255.255.255.255"),
            ("unique local", "fc00::1 fd00::1 fdff:ffff::1"),
            ("discards", "100::1"),
            ("local translator", "64:ff9b:1::1"),
            ("translated", "64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 2002:7f00:1:: 2002:a00:1::5"),
            ("loopback", "::ffff:127.0.0.1 ::ffff:7f00:1"),
            ("private", "::ffff:10.0.0.1 ::ffff:192.168.1.1"),
            ("metadata", "::ffff:169.254.169.254"),
        ] {
            for address in inside.split(' ') {
                let why = judge(&policy, "example.org", address).expect_err(address);
                assert!(why.contains(kind) && why.contains("allow_hosts = [\"example.org\"]"), "{address}: {why}");
                assert_eq!(judge(&AddressPolicy::default(), "example.org", address), Ok(()), "{address}");
            }
        }
        for outside in [
            "1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255",
            "169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.88.98.255 192.167.255.255 192.169.0.0",
            "198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255",
            "168.63.129.15 168.63.129.17 2000::1 2001:200:: 2001:db7:ffff::1 2001:db9::1 2606:4700::1111 3ffe:ffff::1",
            "3fff:1000::1 64:ff9b::8.8.8.8 2002:808:808::1 ::ffff:8.8.8.8",
        ] {
            for address in outside.split(' ') {
                assert_eq!(judge(&policy, "example.org", address), Ok(()), "{address}");
            }
        }
    }

    /// Goal: no spelling of an address gets around the rule. Method: what a redirect may say, read as redirects are.
    #[test]
    fn an_address_is_refused_in_every_spelling() {
        let policy = closed(&[], &[]);
        for spelling in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "0x7f000001",
            "0x7F.0.0.0x1",
            "0x7f.1",
            "127.0.0.1.",
            "%31%32%37.0.0.1",
            "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
            "127\u{3002}0\u{3002}0\u{3002}1",
            "0",
            "0x0",
            "00",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:7f00:0001]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "[::ffff:a9fe:a9fe]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "user:word@127.0.0.1",
        ] {
            let url = Url::parse(&format!("http://{spelling}/x")).expect(spelling);
            let target = crate::target::Target::of_url(&url).expect(spelling);
            let why = policy.check_host(&target.authority).expect_err(spelling);
            assert!(why.starts_with("refused: "), "{spelling}: {why}");
        }
    }

    #[test]
    fn a_host_allowed_by_name_or_network_may_be_private() {
        let policy = closed(&["nas.home", "*.lan.example", "10.1.0.0/16", "fd00:1::/32", "::1"], &[]);
        for (host, address, admitted) in [
            ("nas.home", "192.168.1.2", true),
            ("NAS.home:8080", "127.0.0.1", true),
            ("a.nas.home", "192.168.1.2", false),
            ("xnas.home", "192.168.1.2", false),
            ("a.b.lan.example", "10.0.0.1", true),
            ("lan.example", "10.0.0.1", false),
            ("other.example", "10.1.2.3", true),
            ("other.example", "::ffff:10.1.2.3", true),
            ("other.example", "10.2.0.0", false),
            ("other.example", "64:ff9b::10.1.2.3", false),
            ("other.example", "fd00:1::5", true),
            ("other.example", "fd00:2::5", false),
            ("[::1]:80", "::1", true),
        ] {
            assert_eq!(judge(&policy, host, address).is_ok(), admitted, "{host} {address}");
        }
    }

    #[test]
    fn denied_hosts_are_refused_whatever_else_is_said() {
        let denied = ["ads.example", "*.bad.example", "198.0.0.0/8", "9.9.9.9"];
        let open = AddressPolicy { deny: patterns(&denied), allow: patterns(&denied), ..AddressPolicy::default() };
        for (host, address, rule) in [
            ("ads.example", "8.8.8.8", "\"ads.example\""),
            ("x.bad.example", "8.8.8.8", "\"*.bad.example\""),
            ("good.example", "198.1.2.3", "\"198.0.0.0/8\""),
            ("9.9.9.9:443", "9.9.9.9", "\"9.9.9.9\""),
            ("good.example", "64:ff9b::9.9.9.9", "\"9.9.9.9\""),
        ] {
            let why = judge(&open, host, address).expect_err(host);
            assert!(why.contains(rule) && why.contains("deny_hosts"), "{host}: {why}");
        }
        assert_eq!(judge(&open, "bad.example", "8.8.8.8"), Ok(()));
    }

    #[test]
    fn a_star_among_the_denied_leaves_what_is_allowed() {
        let only = AddressPolicy { deny: patterns(&["*"]), allow: patterns(&["example.org"]), ..Default::default() };
        assert_eq!(judge(&only, "example.org", "8.8.8.8"), Ok(()));
        assert!(only.check_host(&Authority::parse("example.com").unwrap()).unwrap_err().contains("allow_hosts"));
        assert!(judge(&only, "8.8.8.8", "8.8.8.8").is_err());
        let network = AddressPolicy { allow: patterns(&["8.8.0.0/16"]), ..only };
        assert_eq!(judge(&network, "any.example", "8.8.8.8"), Ok(()));
        assert!(judge(&network, "any.example", "9.9.9.9").is_err());
    }
}
