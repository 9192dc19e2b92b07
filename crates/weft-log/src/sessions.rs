//! What a log tells of objects that are used together: the parts of a page, by who referred to them; and what a client
//! opened one after the other.

use std::collections::{BTreeMap, HashMap};

use crate::{Act, Request};

/// Objects that are used together, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// At least two.
    pub objects: Vec<u32>,
}

/// What was learned.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Pages: the one that refers, then what it referred to, in the order in which they were first asked for.
    pub pages: Vec<Hint>,
    /// What one client opened within a session.
    pub visits: Vec<Hint>,
}

impl Sessions {
    /// Learns from requests in their order.
    pub fn learn(requests: &[Request]) -> Sessions {
        let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut open: HashMap<u32, (u64, Vec<u32>)> = HashMap::new();
        let mut learned = Sessions::default();
        for request in requests.iter().filter(|request| request.act == Act::Read) {
            if let Some(page) = request.referer.filter(|page| *page != request.object) {
                let parts = parts.entry(page).or_insert_with(|| vec![page]);
                if parts.len() < OBJECTS_MAX && !parts.contains(&request.object) {
                    parts.push(request.object);
                }
            }
            let (latest, visit) = open.entry(request.client).or_default();
            if request.time_s.saturating_sub(*latest) > GAP_S || visit.len() >= OBJECTS_MAX {
                learned.close(std::mem::take(visit));
            }
            *latest = request.time_s.max(*latest);
            if !visit.contains(&request.object) {
                visit.push(request.object);
            }
        }
        // In the order of the clients, so that the same log always gives the same.
        let mut left: Vec<(u32, Vec<u32>)> = open.into_iter().map(|(client, (_, visit))| (client, visit)).collect();
        left.sort_unstable();
        left.into_iter().for_each(|(_, visit)| learned.close(visit));
        learned.pages = parts.into_values().map(|objects| Hint { objects }).collect();
        learned
    }

    fn close(&mut self, objects: Vec<u32>) {
        if objects.len() > 1 {
            self.visits.push(Hint { objects });
        }
    }
}

/// A client that was away for longer begins anew: half an hour is what most who study logs take.
const GAP_S: u64 = 1800;
/// Most objects of a hint.
const OBJECTS_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(time_s: u64, client: u32, object: u32, referer: Option<u32>) -> Request {
        Request { time_s, client, object, bytes: Some(1), referer, act: Act::Read }
    }

    #[test]
    fn pages_have_their_parts_and_visits_end_with_a_pause() {
        let requests = [
            read(1, 1, 10, None),
            read(1, 2, 20, None),
            read(2, 1, 11, Some(10)),
            read(2, 2, 11, Some(20)),
            read(3, 1, 12, Some(10)),
            read(3, 1, 10, Some(10)),
            read(5000, 1, 13, None),
            read(5001, 1, 14, Some(13)),
            Request { act: Act::Replace, ..read(5002, 1, 15, Some(13)) },
        ];
        let learned = Sessions::learn(&requests);
        let objects = |hints: Vec<Hint>| hints.into_iter().map(|hint| hint.objects).collect::<Vec<_>>();
        assert_eq!(objects(learned.pages), [vec![10, 11, 12], vec![13, 14], vec![20, 11]]);
        assert_eq!(objects(learned.visits), [vec![10, 11, 12], vec![13, 14], vec![20, 11]]);
    }

    #[test]
    fn a_client_that_never_pauses_gives_hints_of_bounded_length() {
        let requests: Vec<Request> = (0..500).map(|object| read(1, 1, object, Some(9999))).collect();
        let learned = Sessions::learn(&requests);
        assert_eq!(learned.pages[0].objects.len(), OBJECTS_MAX);
        assert_eq!(learned.visits.len(), 500usize.div_ceil(OBJECTS_MAX));
    }
}
