//! The ways to servers: one for each service of a server and each token that is shown to it.
//!
//! A way holds its token weakly. When nobody has that any more (it has ended, was refused or replaced, and no call with it is
//! under way) the way is forgotten, with its connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_rx::{Endpoint, RouteId, Security};

use crate::tokens::Token;

/// All ways that are in use.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_end: HashMap<(SocketAddr, u16, Option<u64>), Route>,
}

#[derive(Debug)]
struct Route {
    id: RouteId,
    token: Option<Weak<Token>>,
    used: Instant,
}

impl Routes {
    /// The way to a service, as nobody or with a token.
    pub fn of(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        to: SocketAddr,
        service: u16,
        token: Option<&Arc<Token>>,
    ) -> RouteId {
        let key = (to, service, token.map(|token| token.id));
        if let Some(route) = self.by_end.get_mut(&key) {
            route.used = now;
            return route.id;
        }
        self.make_room(endpoint, now);
        let security = token.map_or(Security::None, |token| Security::Rxkad(token.security.clone()));
        let id = endpoint.route(to, service, security);
        self.by_end.insert(key, Route { id, token: token.map(Arc::downgrade), used: now });
        id
    }

    /// Forgets the ways of tokens that nobody has any more; where there are too many, that which was not used for longest.
    fn make_room(&mut self, endpoint: &mut Endpoint, now: Instant) {
        let is_gone = |route: &Route| route.token.as_ref().is_some_and(|token| token.strong_count() == 0);
        for (_, gone) in self.by_end.extract_if(|_, route| is_gone(route)) {
            endpoint.forget_route(now, gone.id);
        }
        if self.by_end.len() < ROUTES_MAX {
            return;
        }
        let oldest = self.by_end.iter().min_by_key(|(_, route)| route.used).map(|(key, _)| *key);
        if let Some(gone) = oldest.and_then(|key| self.by_end.remove(&key)) {
            endpoint.forget_route(now, gone.id);
        }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.by_end.len()
    }
}

/// Ways that are kept at once.
const ROUTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use weft_rx::Config;

    use super::*;
    use crate::tokens::tests::token;

    #[test]
    fn the_ways_of_a_token_go_with_it() {
        let (mut routes, mut endpoint) = (Routes::default(), Endpoint::new(Config::default(), [1; 32]));
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut of = |port, token: Option<&Arc<Token>>| {
            let id = routes.of(&mut endpoint, Instant::now(), at(port), 1, token);
            (id, routes.count())
        };
        let (one, other) = (Arc::new(token(1)), Arc::new(token(2)));
        let (nobody, first) = (of(1, None), of(1, Some(&one)));
        assert_eq!(of(1, Some(&one)), first);
        assert_eq!(of(1, None), (nobody.0, 2));
        let second = of(1, Some(&other));
        assert!(second.1 == 3 && second.0 != first.0, "each token has its own");
        drop(one);
        assert_eq!(of(2, Some(&other)).1, 3, "that of the first is gone");
        assert_eq!(of(1, Some(&other)).0, second.0);
        let mut most = 0;
        for port in 3..=ROUTES_MAX as u16 + 10 {
            most = most.max(of(port, None).1);
        }
        assert_eq!(most, ROUTES_MAX);
    }
}
