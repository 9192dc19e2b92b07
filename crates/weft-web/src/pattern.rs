//! How hosts are named in lists: by name, by the end of a name, by address or network.

use std::fmt;
use std::net::IpAddr;

use crate::authority::Authority;

/// One item of a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`: every host.
    Any,
    /// `example.org`: this host on any port.
    Exact(String),
    /// `*.example.org`: every host below that name, not the name itself. Holds the name.
    Below(String),
    /// `192.0.2.1`, `10.0.0.0/8`, `fd00::/8`: every host with such an address.
    Network(Network),
}

/// A range of addresses under one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

impl HostPattern {
    /// Reads an item of a list.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(text: &str) -> Result<HostPattern, String> {
        let bad =
            |why: &str| format!("\"{text}\" {why}: write a host, *.HOST, an address, a network as 10.0.0.0/8, or *");
        if text == "*" {
            return Ok(HostPattern::Any);
        }
        if let Some((first, prefix)) = text.split_once('/') {
            let first: IpAddr = first.parse().map_err(|_| bad("does not start with an address"))?;
            let bits = prefix.parse().ok().filter(|bits: &u8| *bits <= width(first) && bits.to_string() == prefix);
            let network = Network::new(first, bits.ok_or_else(|| bad("has no prefix length that fits"))?);
            if first.to_canonical() != first {
                return Err(bad("is IPv4 in the form of IPv6; write it as IPv4"));
            }
            let behind = width(first) - network.prefix;
            if masked(first, network.prefix).checked_shl(u32::from(behind)).unwrap_or(0) != masked(first, width(first))
            {
                return Err(bad("has bits set behind its prefix"));
            }
            return Ok(HostPattern::Network(network));
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).filter(|t| t.contains(':')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Ok(HostPattern::Network(Network::new(address, width(address))));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let host = Authority::parse(name).ok_or_else(|| bad("is no host"))?;
        match (host.port, host.bare_host().parse::<IpAddr>().is_ok(), below) {
            (Some(_), ..) => Err(bad("has a port, but lists are about hosts")),
            (None, true, _) => Err(bad("is no host")),
            (None, false, true) => Ok(HostPattern::Below(host.host)),
            (None, false, false) => Ok(HostPattern::Exact(host.host)),
        }
    }

    /// Whether a host of this name is meant, its addresses left aside. `name` is in the form of an [`Authority`].
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Exact(exact) => exact == name,
            HostPattern::Below(end) => {
                name.strip_suffix(end.as_str()).is_some_and(|start| start.len() > 1 && start.ends_with('.'))
            }
            HostPattern::Network(network) => name.parse().is_ok_and(|address| network.holds(address)),
        }
    }

    /// Whether every host with this address is meant.
    pub(crate) fn covers_address(&self, address: IpAddr) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Network(network) => network.holds(address),
            HostPattern::Exact(_) | HostPattern::Below(_) => false,
        }
    }

    pub(crate) fn is_network(&self) -> bool {
        matches!(self, HostPattern::Network(_))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(name) => write!(f, "*.{name}"),
            HostPattern::Network(network) if network.prefix == width(network.first) => network.first.fmt(f),
            HostPattern::Network(network) => write!(f, "{}/{}", network.first, network.prefix),
        }
    }
}

impl Network {
    /// The addresses that agree with `first` in their `prefix` first bits.
    pub(crate) const fn new(first: IpAddr, prefix: u8) -> Network {
        Network { first, prefix }
    }

    /// Whether the address is one of them. An IPv4 address in the clothes of IPv6 counts as what it is.
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.first.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == masked(self.first, self.prefix)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first bits of an address, the rest taken away.
fn masked(address: IpAddr, prefix: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    bits.checked_shr(u32::from(width(address) - prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_and_written_alike() {
        for (text, shown) in [
            ("*", "*"),
            ("Example.ORG", "example.org"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("*.example.org", "*.example.org"),
            ("localhost", "localhost"),
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("[::1]", "::1"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::/8", "fd00::/8"),
        ] {
            assert_eq!(HostPattern::parse(text).map(|p| p.to_string()).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for (text, why) in [
            ("", "no host"),
            ("*.", "no host"),
            ("a*.example", "no host"),
            ("example.org:80", "port"),
            ("127.1", "no host"),
            ("*.127.0.0.1", "no host"),
            ("example.org/docs", "address"),
            ("10.0.0.0/33", "prefix"),
            ("10.0.0.0/08", "prefix"),
            ("10.0.0.1/8", "behind its prefix"),
            ("::ffff:10.0.0.0/104", "as IPv4"),
            ("[10.0.0.1]", "no host"),
            ("https://example.org", "address"),
        ] {
            let error = HostPattern::parse(text).expect_err(text);
            assert!(error.contains(why) && error.contains("10.0.0.0/8"), "{text}: {error}");
        }
    }

    #[test]
    fn networks_hold_what_agrees_in_the_prefix() {
        let holds = |network: &str, address: &str| {
            HostPattern::parse(network).unwrap().covers_address(address.parse().unwrap())
        };
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "2000::1"));
        assert!(holds("::/0", "2000::1") && !holds("::/0", "::ffff:1.2.3.4"));
        assert!(holds("10.0.0.0/31", "10.0.0.1") && !holds("10.0.0.0/31", "10.0.0.2"));
        assert!(holds("10.0.0.0/8", "::ffff:10.9.9.9"));
    }
}
