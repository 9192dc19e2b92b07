//! Clients that look at the pages of a site: their views are interleaved, as a server sees them.
//!
//! Which page is looked at follows Zipf, as requests of the web do (Breslau and others, INFOCOM 1999, found exponents
//! of 0.64 to 0.83). A client asks for the objects of its page one after the other, and then takes another page; whose
//! turn it is is left to chance. Nobody keeps anything: what a browser would have is asked for again.

use weft_log::{Act, Request, Trace};

use super::site::{self, Site};
use super::zipf::Zipf;
use crate::random::Random;

/// Who looks at a site, and how.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// How many look at pages at the same time.
    pub count: u32,
    /// Exponent of the pages' popularity.
    pub exponent: f64,
    /// How often an object is replaced, as a share of all requests.
    pub replaced: f64,
    /// The same gives the same.
    pub seed: u64,
}

/// Where a client is: its page, and the place of the next object in it.
#[derive(Clone, Copy, Debug)]
struct View {
    page: usize,
    next: usize,
}

/// So many requests.
pub fn views(site: &Site, clients: Clients, requests: usize) -> Trace {
    let mut random = Random::new(clients.seed ^ SALT);
    let popularity = Zipf::new(site.pages.len(), clients.exponent);
    // Popular pages are not those that were made first.
    let mut by_rank: Vec<usize> = (0..site.pages.len()).collect();
    random.shuffle(&mut by_rank);
    let begin = |random: &mut Random| View { page: by_rank[popularity.draw(random)], next: 0 };
    let mut views: Vec<View> = (0..clients.count.max(1)).map(|_| begin(&mut random)).collect();
    let mut lengths = site.lengths.clone();
    let mut trace = Trace { names: site.names.clone(), requests: Vec::with_capacity(requests) };
    while trace.requests.len() < requests {
        let time_s = (trace.requests.len() / REQUESTS_PER_SECOND) as u64;
        if random.unit() < clients.replaced {
            let object = random.place(lengths.len());
            lengths[object] = site::length(&mut random);
            let (object, bytes) = (u32::try_from(object).expect("as in the site"), Some(lengths[object]));
            trace.requests.push(Request { time_s, client: EDITOR, object, bytes, referer: None, act: Act::Replace });
            continue;
        }
        let client = random.place(views.len());
        let view = &mut views[client];
        let page = &site.pages[view.page];
        let object = page[view.next];
        trace.requests.push(Request {
            time_s,
            client: u32::try_from(client).expect("as many as were asked for"),
            object,
            bytes: Some(lengths[object as usize]),
            referer: (view.next > 0).then_some(page[0]),
            act: Act::Read,
        });
        view.next += 1;
        if view.next == page.len() {
            *view = begin(&mut random);
        }
    }
    trace
}

/// Who replaces objects: none of the readers.
const EDITOR: u32 = u32::MAX;
const REQUESTS_PER_SECOND: usize = 100;
/// The site may be made from the same seed.
const SALT: u64 = 0x5eed_0f76_1e77_5000;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::workload::Shape;

    const CLIENTS: Clients = Clients { count: 8, exponent: 0.8, replaced: 0.02, seed: 5 };

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let site = Site::new(Shape { pages: 60, seed: 5 });
        let of = |seed| views(&site, Clients { seed, ..CLIENTS }, 5000);
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), of(6));
    }

    #[test]
    fn each_client_reads_whole_pages_in_their_order_and_all_are_interleaved() {
        let site = Site::new(Shape { pages: 60, seed: 5 });
        let trace = views(&site, CLIENTS, 5000);
        let mut of_client: HashMap<u32, Vec<&Request>> = HashMap::new();
        for request in trace.requests.iter().filter(|request| request.act == Act::Read) {
            of_client.entry(request.client).or_default().push(request);
        }
        assert_eq!(of_client.len(), 8);
        for requests in of_client.values() {
            let pages = requests.chunk_by(|_, next| next.referer.is_some());
            for page in pages {
                let objects: Vec<u32> = page.iter().map(|request| request.object).collect();
                assert!(site.pages.iter().any(|whole| whole.starts_with(&objects)), "{objects:?}");
                assert!(page[1..].iter().all(|request| request.referer == Some(page[0].object)));
            }
        }
        let switches = trace.requests.windows(2).filter(|two| two[0].client != two[1].client).count();
        assert!(switches > 4000, "{switches}");
        let replaced = trace.requests.iter().filter(|request| request.act == Act::Replace).count();
        assert!((60..150).contains(&replaced), "{replaced}");
    }
}
