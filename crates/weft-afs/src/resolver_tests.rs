use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use simple_dns::Packet;
use tokio::net::TcpListener;

use super::*;
use crate::dns::tests::{Reply, srv};

/// What a name server sends to a question: over UDP any number of datagrams, over TCP the first.
pub(crate) type Script = Arc<dyn Fn(&[u8], Over) -> Vec<Vec<u8>> + Send + Sync>;

/// How a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Udp,
    Tcp,
}

/// A name server that answers by a script, on the same port over UDP and TCP.
pub(crate) struct NameServer {
    pub at: SocketAddr,
    asked: Arc<AtomicUsize>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl NameServer {
    pub async fn answering(script: impl Fn(&[u8], Over) -> Vec<Vec<u8>> + Send + Sync + 'static) -> NameServer {
        let script: Script = Arc::new(script);
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            // Another may have that port over TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("bound")).await {
                break (udp, tcp);
            }
        };
        let (at, asked) = (udp.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
        let (of_udp, of_tcp, count) = (script.clone(), script, asked.clone());
        let datagrams = tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::Relaxed);
                for answer in of_udp(&buffer[..length], Over::Udp) {
                    let _ = udp.send_to(&answer, from).await;
                }
            }
        });
        let streams = tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let Ok(length) = stream.read_u16().await else { continue };
                let mut question = vec![0; length.into()];
                if stream.read_exact(&mut question).await.is_ok()
                    && let Some(answer) = of_tcp(&question, Over::Tcp).first()
                {
                    let length = u16::try_from(answer.len()).expect("short");
                    let _ = stream.write_all(&[&length.to_be_bytes()[..], answer].concat()).await;
                }
            }
        });
        NameServer { at, asked, tasks: [datagrams, streams] }
    }

    /// Questions over UDP so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    async fn ask(&self) -> Result<Option<Found>, String> {
        Resolver::At(self.at).ask(NAME, Kind::Srv, Instant::now() + Duration::from_secs(60)).await
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

const NAME: &str = "_afs3-vlserver._udp.example.org";

fn good(question: &[u8]) -> Vec<u8> {
    Reply::to(question).add(NAME, srv(1, 2, 7003, "db1.example.org")).bytes()
}

fn of(answer: Result<Option<Found>, String>) -> usize {
    answer.expect("an answer").expect("a name").records.len()
}

#[test]
fn name_servers_are_those_of_the_file() {
    let text = "# x\nnameserver 192.0.2.1\n nameserver  2001:db8::1 # y\nsearch a.b\nnameserver x\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
    let wanted: Vec<SocketAddr> =
        ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"].iter().map(|at| at.parse().expect("good")).collect();
    assert_eq!(name_servers(text), wanted);
    assert_eq!(name_servers(""), []);
}

/// Goal: lies that come before the truth change nothing: another number, another name, no answer at all.
#[tokio::test]
async fn the_answer_that_is_ours_counts() {
    let server = NameServer::answering(|question, _| {
        let good = good(question);
        let mut other_id = good.clone();
        other_id[0] ^= 0x55;
        let other = Packet::parse(question).expect("ours").id();
        let other = crate::dns::question(other, "evil.example.org", Kind::Srv).expect("a name");
        vec![other_id, super::tests::good(&other), question.to_vec(), vec![1, 2, 3], good]
    });
    assert_eq!(of(server.await.ask().await), 1);
}

/// Goal: an answer that does not fit is asked for over TCP, and one that is cut there as well is none.
#[tokio::test]
async fn what_is_cut_is_asked_for_over_tcp() {
    let cut = |question: &[u8]| {
        let mut cut = Reply::to(question).bytes();
        cut[2] |= 2;
        cut
    };
    let server = NameServer::answering(move |question, over| match over {
        Over::Udp => vec![cut(question)],
        Over::Tcp => vec![good(question)],
    });
    assert_eq!(of(server.await.ask().await), 1);
    let server = NameServer::answering(move |question, _| vec![cut(question)]);
    assert!(server.await.ask().await.is_err());
}

/// Goal: one that refuses, makes no sense or is silent is asked again, and then it is told which it was.
#[tokio::test]
async fn a_server_that_does_not_answer_is_told() {
    let failing = NameServer::answering(|question, _| {
        vec![Reply::to(question).failing(simple_dns::RCODE::ServerFailure).bytes()]
    })
    .await;
    let error = failing.ask().await.expect_err("it fails");
    assert!(error.contains(&failing.at.to_string()) && error.contains("ServerFailure"), "{error}");
    assert_eq!(failing.asked(), ROUNDS);
    let silent = NameServer::answering(|_, _| Vec::new()).await;
    let until = Instant::now() + Duration::from_millis(100);
    let error = Resolver::At(silent.at).ask(NAME, Kind::Srv, until).await.expect_err("silence");
    assert!(error.contains("no answer"), "{error}");
    let absent =
        NameServer::answering(|question, _| vec![Reply::to(question).failing(simple_dns::RCODE::NameError).bytes()]);
    assert_eq!(absent.await.ask().await, Ok(None));
}
