//! What hosts say to programs that go through them (robots.txt, RFC 9309): asked once, and kept for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Call, Crawl, FileId, Leave, Name, RemoteError, Result, Rules};

use crate::content::has_content;
use crate::exchange::{GetError, Reply};
use crate::id::{Id, Place};
use crate::remote::{Web, foreign};
use crate::robots::{BYTES_MAX, ROBOTS_PATH, Robots};
use crate::unlisted::place_below;

/// What is known of each host's rules. The lock guards the map alone and is held for one look.
#[derive(Default)]
pub(crate) struct Crawls {
    hosts: Mutex<HashMap<String, Arc<Slot>>>,
}

/// One host's rules. Whoever asks for them holds the lock meanwhile; others wait and find the answer.
type Slot = tokio::sync::Mutex<Option<Kept>>;

#[derive(Clone)]
struct Kept {
    said: Arc<Said>,
    until: Instant,
}

/// What a host says.
enum Said {
    Rules(Robots),
    /// Nothing that can be read: nothing may be asked for (RFC 9309 section 2.3.1.4).
    Nothing(String),
}

impl Crawls {
    fn slot(&self, authority: &str) -> Arc<Slot> {
        let mut hosts = self.hosts.lock();
        if !hosts.contains_key(authority) && hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        hosts.entry(authority.to_owned()).or_default().clone()
    }
}

impl Web {
    /// [`Remote::may_crawl`](weft_remote::Remote::may_crawl) without the deadline.
    pub(crate) async fn crawl(&self, call: &Call, file: &FileId, below: &[Name], rules: Rules) -> Result<Crawl> {
        let (dir, place) = match Id::parse(file) {
            Some(Id::Root) => return Ok(of_all_hosts(below)),
            Some(Id::Dir(place)) => (true, place),
            Some(Id::File(place)) => (false, place),
            None => return Err(foreign(file)),
        };
        let options = self.options();
        let mut crawl = Crawl {
            leave: Leave::Granted,
            source: place.authority.clone(),
            at_once: options.crawl_at_once,
            pause: options.crawl_pause,
            note: None,
        };
        if rules == Rules::Ignored || options.builtin.contains_key(&place.authority) {
            return Ok(crawl);
        }
        let said = self.rules_of(call, &place.authority).await?;
        let robots = match &*said {
            Said::Rules(robots) => robots,
            Said::Nothing(why) => {
                let why = format!("{why}, so nothing of {} may be asked for (RFC 9309)", place.authority);
                return Ok(Crawl { leave: Leave::Refused { why }, ..crawl });
            }
        };
        if let Some(delay) = robots.delay {
            crawl.pause = crawl.pause.max(delay.min(DELAY_MAX));
            let (written, kept) = (delay.as_secs_f64(), delay.min(DELAY_MAX).as_secs_f64());
            crawl.note = Some(match delay > DELAY_MAX {
                true => {
                    format!("{}: robots.txt asks for {written} s between requests; {kept} s are kept", crawl.source)
                }
                false => format!("{}: {written} s between requests, as robots.txt asks", crawl.source),
            });
        }
        let places = match below.is_empty() || !dir {
            true => vec![place],
            // Whether it is a file or a directory shows when it is asked for.
            false => place_below(&place, below).map(|place| vec![place.slashed(), place]).unwrap_or_default(),
        };
        if let Some(first) = places.first()
            && !places.iter().any(|place| robots.allow(&place.path_and_query()))
        {
            let why = format!("{}{ROBOTS_PATH} does not allow {}", first.authority, first.path_and_query());
            crawl.leave = Leave::Refused { why };
        }
        Ok(crawl)
    }

    async fn rules_of(&self, call: &Call, authority: &str) -> Result<Arc<Said>> {
        let slot = self.crawls.slot(authority);
        let mut kept = slot.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(kept.said.clone());
        }
        let said = Arc::new(self.ask_for_rules(call, authority).await?);
        let time = if matches!(*said, Said::Rules(_)) { KEPT_TIME } else { SILENCE_TIME };
        *kept = Some(Kept { said: said.clone(), until: Instant::now() + time });
        Ok(said)
    }

    async fn ask_for_rules(&self, call: &Call, authority: &str) -> Result<Said> {
        let place = Place { path: ROBOTS_PATH.to_owned(), ..Place::top(authority) };
        let reply = match self.client.get(call, &place, &[]).await {
            Ok(reply) => reply,
            // In circles, or too far: there is none (section 2.3.1.2).
            Err(GetError::Remote(RemoteError::Loop { .. })) => return Ok(Said::Rules(Robots::default())),
            Err(GetError::Remote(error @ RemoteError::Busy { .. })) => return Err(error),
            Err(error) => return Ok(Said::Nothing(format!("robots.txt: {}", RemoteError::from(error)))),
        };
        if reply.redirects.len() > REDIRECTS_MAX || reply.status.is_client_error() {
            reply.body.drain().await;
            return Ok(Said::Rules(Robots::default()));
        }
        if !has_content(&reply) {
            let why = format!("{}: {}", reply.url, reply.status);
            reply.body.drain().await;
            // Neither an error nor content: nothing was said.
            return Ok(if reply.status.is_success() { Said::Rules(Robots::default()) } else { Said::Nothing(why) });
        }
        match read(reply).await {
            Ok(file) => Ok(Said::Rules(Robots::parse(&file, PRODUCT_TOKEN))),
            Err(error) => Ok(Said::Nothing(error.to_string())),
        }
    }
}

/// The list of hosts is weft's own; a host in it is asked for by its name.
fn of_all_hosts(below: &[Name]) -> Crawl {
    let refused = "the hosts that were visited are not gone through; name one host";
    let leave = if !below.is_empty() { Leave::Granted } else { Leave::Refused { why: refused.to_owned() } };
    Crawl { leave, ..Crawl::default() }
}

/// As much of a file as counts.
async fn read(mut reply: Reply) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    while let Some(bytes) = reply.body.next().await.transpose()? {
        file.extend_from_slice(&bytes[..bytes.len().min(BYTES_MAX - file.len())]);
        if file.len() >= BYTES_MAX {
            break;
        }
    }
    Ok(file)
}

/// What weft is called in a robots.txt (RFC 9309 section 2.2.1).
const PRODUCT_TOKEN: &str = "weft";
/// Rules are used for no longer than this (section 2.4).
const KEPT_TIME: Duration = Duration::from_secs(24 * 3600);
/// A host that gave none is asked again after this time.
const SILENCE_TIME: Duration = Duration::from_secs(60);
/// Redirects that are followed (section 2.3.1.2).
const REDIRECTS_MAX: usize = 5;
/// Longest pause that a host may ask for.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Hosts whose rules are remembered.
const HOSTS_MAX: usize = 1024;
