use simple_dns::{Packet, RCODE};

use super::*;
use crate::dns::tests::{Reply, a, afsdb, cname, srv};
use crate::resolver::tests::NameServer;

fn cell(name: &str) -> CellName {
    CellName::new(name.as_bytes()).expect("a name")
}

async fn ask_of(server: &NameServer) -> Result<Said, String> {
    ask(&Resolver::At(server.at), &cell("example.org"), Instant::now() + Duration::from_secs(60)).await
}

/// What is asked, and with which type.
fn asked(question: &[u8]) -> (String, Kind) {
    let packet = Packet::parse(question).expect("ours");
    let asked = &packet.questions[0];
    let kinds = [Kind::Srv, Kind::Afsdb, Kind::Address];
    let kind = kinds.into_iter().find(|kind| asked.qtype == (*kind).into()).expect("one of ours");
    (asked.qname.to_string(), kind)
}

const SRV: &str = "_afs3-vlserver._udp.example.org";

/// A name server with these records of the cell, for whose hosts it has 192.0.2.N by the number in their names.
async fn server(records: impl Fn(Reply<'_>, Kind) -> Option<Vec<u8>> + Send + Sync + 'static) -> NameServer {
    NameServer::answering(move |question, _| {
        let (name, kind) = asked(question);
        let answer = match kind {
            Kind::Address => {
                let number = name.trim_start_matches("db").split('.').next().and_then(|number| number.parse().ok());
                number.map(|number| Reply::to(question).add(&name, a([192, 0, 2, number])).bytes())
            }
            kind => records(Reply::to(question), kind),
        };
        vec![answer.unwrap_or_else(|| Reply::to(question).failing(RCODE::NameError).bytes())]
    })
    .await
}

fn at(servers: &[(u8, u16)]) -> Vec<SocketAddr> {
    servers.iter().map(|(number, port)| SocketAddr::from(([192, 0, 2, *number], *port))).collect()
}

/// Goal: database servers are asked in the order of their priorities, at their ports, and AFSDB counts where there is no SRV.
#[tokio::test]
async fn a_cell_is_found_by_either_record() {
    let by_srv = server(|reply, kind| {
        (kind == Kind::Srv).then(|| {
            reply
                .add(SRV, srv(20, 0, 7003, "db3.example.org"))
                .add(SRV, srv(10, 1, 7103, "DB2.example.org"))
                .add(SRV, srv(10, 9, 7003, "db1.example.org"))
                .along("db2.example.org", a([192, 0, 2, 22]))
                .bytes()
        })
    })
    .await;
    let said = ask_of(&by_srv).await.expect("an answer");
    assert_eq!(said, Said { servers: at(&[(1, 7003), (22, 7103), (3, 7003)]), lasts: Duration::from_secs(300) });
    let by_afsdb = server(|reply, kind| {
        let all = [afsdb(1, "db4.example.org"), afsdb(2, "db5.example.org"), afsdb(1, "db6.example.org")];
        (kind == Kind::Afsdb).then(|| all.into_iter().fold(reply, |reply, one| reply.add("example.org", one)).bytes())
    })
    .await;
    assert_eq!(ask_of(&by_afsdb).await.expect("an answer").servers, at(&[(4, 7003), (6, 7003)]));
    let by_alias = server(|reply, kind| {
        let reply = reply.add(SRV, cname("x.example.org")).add("x.example.org", srv(1, 1, 7003, "db1.example.org"));
        (kind == Kind::Srv).then(|| reply.bytes())
    })
    .await;
    assert_eq!(ask_of(&by_alias).await.expect("an answer").servers, at(&[(1, 7003)]));
    let by_none = server(|_, _| None).await;
    assert_eq!(ask_of(&by_none).await, Ok(Said { servers: Vec::new(), lasts: ABSENCE_TIME }));
}

/// Goal: what cannot be a server of a cell is none, and there are no more than so many.
#[tokio::test]
async fn what_is_said_is_checked() {
    let odd = server(|reply, kind| {
        (kind == Kind::Srv).then(|| {
            reply
                .add(SRV, srv(1, 1, 7003, ""))
                .add(SRV, srv(1, 1, 0, "db1.example.org"))
                .add(SRV, srv(1, 1, 7003, "a b.example.org"))
                .add(SRV, srv(1, 1, 7003, "db7.example.org"))
                .along("db7.example.org", a([0, 0, 0, 0]))
                .along("db7.example.org", a([224, 0, 0, 1]))
                .along("db7.example.org", a([255, 255, 255, 255]))
                .along("db7.example.org", a([127, 0, 0, 1]))
                .along("db7.example.org", a([10, 0, 0, 1]))
                .bytes()
        })
    })
    .await;
    let wanted: Vec<SocketAddr> = vec![([127, 0, 0, 1], 7003).into(), ([10, 0, 0, 1], 7003).into()];
    assert_eq!(ask_of(&odd).await.expect("an answer").servers, wanted);
    let many = NameServer::answering(|question, over| {
        let (name, kind) = asked(question);
        let names: Vec<String> = (1..100).map(|number| format!("db{number}.example.org")).collect();
        let reply = Reply::to(question);
        let bytes = match kind {
            Kind::Srv => names.iter().fold(reply, |reply, name| reply.add(SRV, srv(1, 1, 7003, name))).bytes(),
            _ => (1..100).fold(reply, |reply, last| reply.add(&name, a([10, 0, name.len() as u8, last]))).bytes(),
        };
        match over {
            // It does not fit into a datagram.
            crate::resolver::tests::Over::Udp => {
                let mut cut = Reply::to(question).bytes();
                cut[2] |= 2;
                vec![cut]
            }
            crate::resolver::tests::Over::Tcp => vec![bytes],
        }
    })
    .await;
    let servers = ask_of(&many).await.expect("an answer").servers;
    assert!(!servers.is_empty() && servers.len() <= HOSTS_MAX * ADDRESSES_MAX, "{servers:?}");
    let silent = NameServer::answering(|_, _| Vec::new()).await;
    let until = Instant::now() + Duration::from_millis(50);
    assert!(ask(&Resolver::At(silent.at), &cell("example.org"), until).await.is_err());
}

/// Goal: names that programs try in every directory are not asked for, and those of cells are.
#[test]
fn only_what_may_be_a_cell_is_asked_for() {
    for name in
        ["grand.central.org", "cs.cmu.edu", "weft.test", "a-b.x-y.org", "example.museum", "openafs.md", "a.xn--p1ai"]
    {
        assert!(may_be_known(&cell(name)), "{name}");
    }
    for name in [
        "git",
        "hidden",
        "autorun.inf",
        "desktop.ini",
        "folder.jpg",
        "a.json",
        "x_y.org",
        "-a.org",
        "a-.org",
        "a..org",
        "a.",
        "10.0.0.1",
        "a.b1",
        "a.c",
        "x.localhost",
        "package.lock",
    ] {
        assert!(!may_be_known(&cell(name)), "{name}");
    }
    let long = format!("{}.org", ["a".repeat(60).as_str(); 4].join("."));
    assert!(!may_be_known(&cell(&long)), "it has no room for the name of the service");
}

/// Goal: however short or long DNS says that something lasts, it is within bounds.
#[tokio::test]
async fn times_are_within_bounds() {
    for (ttl_s, wanted) in [(0, LASTS_MIN), (u32::MAX, LASTS_MAX), (3600, Duration::from_secs(3600))] {
        let server = server(move |reply, kind| {
            let mut reply =
                reply.add(SRV, srv(1, 1, 7003, "db1.example.org")).along("db1.example.org", a([10, 0, 0, 1]));
            reply.packet.answers[0].ttl = ttl_s;
            reply.packet.additional_records[0].ttl = 100_000.max(ttl_s);
            (kind == Kind::Srv).then(|| reply.bytes())
        })
        .await;
        assert_eq!(ask_of(&server).await.expect("an answer").lasts, wanted);
    }
}
