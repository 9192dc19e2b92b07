//! Messages of DNS: a question as bytes, and what an answer says to it (RFC 1035; SRV: RFC 2782; AFSDB: RFC 1183).
//!
//! An answer counts if it is one to this question: with its number, its name and its type. Of its records those count that are
//! of the name that was asked for, or of the one that this name is said to stand for (CNAME); addresses count for the hosts
//! that these records name.

use std::net::Ipv4Addr;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Hosts and ports of a service.
    Srv,
    /// Hosts that are servers of AFS.
    Afsdb,
    /// Addresses of a host.
    Address,
}

/// One record that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// How long it may be remembered.
    pub ttl_s: u32,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Srv { priority: u16, weight: u16, port: u16, host: String },
    Afsdb { subtype: u16, host: String },
    Address(Ipv4Addr),
}

/// The records that an answer has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub records: Vec<Record>,
    /// Addresses of hosts that came along, in lower case.
    pub along: Vec<(String, Ipv4Addr, u32)>,
}

/// What some bytes are as an answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// To another question, or none: to be passed over.
    NotOurs,
    /// It did not fit into a datagram: to be asked for over TCP.
    Cut,
    /// What there is; no records where there is nothing of that kind.
    Found(Found),
    /// There is no such name.
    NoSuchName,
    /// The server does not answer, or makes no sense.
    Useless(String),
}

/// A question as bytes, that the server is to find the answer to by itself.
///
/// # Errors
/// For a name that DNS cannot have.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Result<Vec<u8>, String> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let asked = Name::new(name).map_err(|error| format!("{name}: {error}"))?;
    packet.questions.push(Question::new(asked, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(|error| format!("{name}: {error}"))
}

/// Reads an answer.
pub(crate) fn read(bytes: &[u8], (id, name, kind): (u16, &str, Kind)) -> Answer {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Answer::NotOurs };
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    if word(0) != id || word(2) & IS_ANSWER == 0 || word(2) & OPERATION != 0 {
        return Answer::NotOurs;
    }
    if word(2) & IS_CUT != 0 {
        return Answer::Cut;
    }
    if [4, 6, 8, 10].into_iter().any(|at| word(at) > RECORDS_MAX) {
        return Answer::Useless(format!("more than {RECORDS_MAX} records"));
    }
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => return Answer::Useless(error.to_string()),
    };
    let is_ours = |asked: &Question<'_>| {
        is(&asked.qname, name) && asked.qtype == kind.into() && asked.qclass == QCLASS::CLASS(CLASS::IN)
    };
    match &packet.questions[..] {
        [asked] if is_ours(asked) => {}
        // Some servers that refuse do not repeat it.
        [] if packet.rcode() != RCODE::NoError => {}
        _ => return Answer::NotOurs,
    }
    match packet.rcode() {
        RCODE::NoError => Answer::Found(found(&packet, name, kind)),
        RCODE::NameError => Answer::NoSuchName,
        code => Answer::Useless(format!("{code:?}")),
    }
}

/// The records of a name, or of what it stands for.
fn found(packet: &Packet<'_>, name: &str, kind: Kind) -> Found {
    let mut owner = name.to_ascii_lowercase();
    for _ in 0..=ALIASES_MAX {
        let of_owner = || packet.answers.iter().filter(|record| record.class == CLASS::IN && is(&record.name, &owner));
        let records: Vec<Record> = of_owner().filter_map(|record| Record::of(record, kind)).collect();
        let alias = of_owner().find_map(|record| match &record.rdata {
            RData::CNAME(alias) => Some(alias.0.to_string().to_ascii_lowercase()),
            _ => None,
        });
        match alias {
            Some(alias) if records.is_empty() => owner = alias,
            _ => return Found { records, along: along(packet) },
        }
    }
    Found::default()
}

fn along(packet: &Packet<'_>) -> Vec<(String, Ipv4Addr, u32)> {
    let all = packet.answers.iter().chain(&packet.additional_records).filter(|record| record.class == CLASS::IN);
    let address = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::A(a) => Some((record.name.to_string().to_ascii_lowercase(), Ipv4Addr::from_bits(a.address), record.ttl)),
        _ => None,
    };
    all.filter_map(address).collect()
}

impl Record {
    fn of(record: &ResourceRecord<'_>, kind: Kind) -> Option<Record> {
        let data = match (&record.rdata, kind) {
            (RData::SRV(srv), Kind::Srv) => Data::Srv {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                host: srv.target.to_string().to_ascii_lowercase(),
            },
            (RData::AFSDB(afsdb), Kind::Afsdb) => {
                Data::Afsdb { subtype: afsdb.subtype, host: afsdb.hostname.to_string().to_ascii_lowercase() }
            }
            (RData::A(a), Kind::Address) => Data::Address(Ipv4Addr::from_bits(a.address)),
            _ => return None,
        };
        Some(Record { ttl_s: record.ttl, data })
    }
}

impl From<Kind> for QTYPE {
    fn from(kind: Kind) -> QTYPE {
        QTYPE::TYPE(match kind {
            Kind::Srv => TYPE::SRV,
            Kind::Afsdb => TYPE::AFSDB,
            Kind::Address => TYPE::A,
        })
    }
}

fn is(name: &Name<'_>, wanted: &str) -> bool {
    name.to_string().eq_ignore_ascii_case(wanted)
}

/// Whether a name can be that of a host: labels of letters, digits, '-' and '_', one of them at least.
pub(crate) fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(allowed)
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

/// Bytes before the first question.
const HEAD_BYTES: usize = 12;
/// In the third and fourth byte: an answer; which operation; an answer that was cut.
const IS_ANSWER: u16 = 0x8000;
const OPERATION: u16 = 0x7800;
const IS_CUT: u16 = 0x0200;
/// Most records of one section.
const RECORDS_MAX: u16 = 128;
/// Names that stand for each other, from what was asked to what was meant.
const ALIASES_MAX: usize = 8;
/// Longest part of a name, and longest name as text.
pub(crate) const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
#[path = "dns_tests.rs"]
pub(crate) mod tests;
