use proptest::prelude::*;
use simple_dns::rdata::{A, AFSDB, CNAME, SRV};

use super::*;

/// An answer of a server to the question in some bytes.
pub(crate) struct Reply<'a> {
    pub packet: Packet<'a>,
}

impl<'a> Reply<'a> {
    pub fn to(question: &'a [u8]) -> Reply<'a> {
        let asked = Packet::parse(question).expect("a question of ours");
        Reply { packet: asked.into_reply() }
    }

    pub fn add(mut self, owner: &'a str, rdata: RData<'a>) -> Reply<'a> {
        self.packet.answers.push(record(owner, rdata));
        self
    }

    pub fn along(mut self, owner: &'a str, rdata: RData<'a>) -> Reply<'a> {
        self.packet.additional_records.push(record(owner, rdata));
        self
    }

    pub fn failing(mut self, code: RCODE) -> Reply<'a> {
        *self.packet.rcode_mut() = code;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.packet.build_bytes_vec_compressed().expect("it is written")
    }
}

fn record<'a>(owner: &'a str, rdata: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(Name::new_unchecked(owner), CLASS::IN, 300, rdata)
}

pub(crate) fn srv(priority: u16, weight: u16, port: u16, target: &str) -> RData<'_> {
    RData::SRV(SRV { priority, weight, port, target: Name::new_unchecked(target) })
}

pub(crate) fn afsdb(subtype: u16, host: &str) -> RData<'_> {
    RData::AFSDB(AFSDB { subtype, hostname: Name::new_unchecked(host) })
}

pub(crate) fn a(address: [u8; 4]) -> RData<'static> {
    RData::A(A { address: u32::from_be_bytes(address) })
}

pub(crate) fn cname(to: &str) -> RData<'_> {
    RData::CNAME(CNAME(Name::new_unchecked(to)))
}

const NAME: &str = "_afs3-vlserver._udp.example.org";

fn asked() -> Vec<u8> {
    question(7, NAME, Kind::Srv).expect("a name")
}

fn read_it(bytes: &[u8]) -> Answer {
    read(bytes, (7, NAME, Kind::Srv))
}

fn records(answer: Answer) -> usize {
    match answer {
        Answer::Found(found) => found.records.len(),
        other => panic!("expected records, got {other:?}"),
    }
}

#[test]
fn a_question_is_as_rfc_1035_has_it() {
    let wanted = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x0e_afs3-vlserver\x04_udp\x07example\x03org\0\0\x21\0\x01";
    assert_eq!(asked(), wanted);
    assert!(question(7, &"a".repeat(64), Kind::Srv).is_err());
}

#[test]
fn records_of_what_was_asked_are_found() {
    let question = asked();
    let reply = Reply::to(&question)
        .add("_AFS3-vlserver._udp.Example.org", srv(1, 2, 7003, "DB1.example.org"))
        .add("other.example.org", srv(1, 2, 7003, "evil.example.org"))
        .add(NAME, a([192, 0, 2, 9]))
        .along("db1.Example.org", a([192, 0, 2, 1]));
    let Answer::Found(found) = read_it(&reply.bytes()) else { panic!("it is good") };
    let data = Data::Srv { priority: 1, weight: 2, port: 7003, host: "db1.example.org".to_owned() };
    assert_eq!(found.records, [Record { ttl_s: 300, data }]);
    assert!(found.along.contains(&("db1.example.org".to_owned(), [192, 0, 2, 1].into(), 300)));
    assert_eq!(read_it(&Reply::to(&question).bytes()), Answer::Found(Found::default()));
}

#[test]
fn aliases_are_followed_but_not_in_circles() {
    let question = asked();
    let chain =
        Reply::to(&question).add("b.org", srv(1, 1, 1, "x.org")).add(NAME, cname("a.org")).add("a.org", cname("B.org"));
    assert_eq!(records(read_it(&chain.bytes())), 1);
    let circle = Reply::to(&question).add(NAME, cname("a.org")).add("a.org", cname(NAME));
    assert_eq!(records(read_it(&circle.bytes())), 0);
}

#[test]
fn answers_to_other_questions_are_passed_over() {
    let question = asked();
    let good = Reply::to(&question).add(NAME, srv(1, 2, 7003, "db1.example.org")).bytes();
    assert_eq!(records(read_it(&good)), 1);
    assert_eq!(read(&good, (8, NAME, Kind::Srv)), Answer::NotOurs);
    assert_eq!(read(&good, (7, "example.org", Kind::Srv)), Answer::NotOurs);
    assert_eq!(read(&good, (7, NAME, Kind::Address)), Answer::NotOurs);
    assert_eq!(read_it(&question), Answer::NotOurs, "the question itself");
    assert_eq!(read_it(b""), Answer::NotOurs);
}

#[test]
fn what_a_server_cannot_say_is_told_apart() {
    let question = asked();
    assert_eq!(read_it(&Reply::to(&question).failing(RCODE::NameError).bytes()), Answer::NoSuchName);
    let failing = |code| read_it(&Reply::to(&question).failing(code).bytes());
    assert!(matches!(failing(RCODE::ServerFailure), Answer::Useless(_)));
    assert!(matches!(failing(RCODE::Refused), Answer::Useless(_)));
    let mut cut = Reply::to(&question).bytes();
    cut[2] |= 2;
    assert_eq!(read_it(&cut[..20]), Answer::Cut, "whatever follows");
}

#[test]
fn messages_that_lead_astray_end() {
    let question = asked();
    let reply = Reply::to(&question).add(NAME, srv(1, 2, 7003, "db1.example.org")).bytes();
    // The first name as a pointer to itself, to what follows, and to another that leads back.
    for (at, pointer) in [(12, 12), (12, 14), (12, 0x3fff), (14, 12)] {
        let mut astray = reply.clone();
        astray[at..at + 2].copy_from_slice(&(0xc000_u16 | pointer).to_be_bytes());
        assert!(!matches!(read_it(&astray), Answer::Found(_)), "{at} {pointer}");
    }
    let mut many = reply.clone();
    many[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
    assert!(matches!(read_it(&many), Answer::Useless(why) if why.contains("more than 128")));
    for end in 0..reply.len() {
        assert!(!matches!(read_it(&reply[..end]), Answer::Found(_)), "cut at {end}");
    }
}

#[test]
fn hosts_have_names_of_hosts() {
    for good in ["a", "db1.example.org", "a_b.example.org", "10.77.0.1"] {
        assert!(is_host(good), "{good}");
    }
    for bad in ["", ".", "a..b", "a.", "a b.org", "\u{e5}.se", "a/b", &"a".repeat(64), &["a"; 128].join(".")] {
        assert!(!is_host(bad), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_borne(mut bytes in prop::collection::vec(any::<u8>(), 0..400), good in 0_u8..4) {
        if good > 0 {
            let question = asked();
            bytes.splice(..0, question.iter().copied());
            bytes[2] |= 0x80;
            bytes[7] = good;
        }
        let _ = read_it(&bytes);
    }

    #[test]
    fn flipped_bytes_are_borne(at in 0_usize..120, to in any::<u8>()) {
        let question = asked();
        let mut bytes = Reply::to(&question)
            .add(NAME, srv(1, 2, 7003, "db1.example.org"))
            .along("db1.example.org", a([192, 0, 2, 1]))
            .bytes();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = read_it(&bytes);
    }
}
