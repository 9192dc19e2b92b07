//! One round of asking those who have something: who is asked when, until one answers.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

/// What comes after a round, the last resort first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum After {
    GiveUp,
    /// It may have moved: who should have it is silent.
    Seek,
    AskVldb,
    Wait,
}

/// What one of those who were asked said.
#[derive(Debug)]
pub(crate) enum Said<R, F> {
    /// The answer.
    Done(R),
    /// A failure that is the answer.
    Final(F),
    /// Not by this one; what comes if no other one does it.
    NotHere(After, F),
}

/// A round without an answer, and the failure that tells most, unless there was nobody to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missed<F> {
    pub after: After,
    pub last: Option<F>,
}

/// How a round goes on while one that was asked has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner<'a> {
    /// Whether others are asked meanwhile.
    pub hedged: bool,
    /// After how long one that is busy is asked again meanwhile, each time.
    pub pauses: &'a [Duration],
}

/// Whom there is to ask, and who is being asked.
struct Round<S, T> {
    sites: VecDeque<S>,
    /// Who is busy, and when it is asked again.
    busy: VecDeque<(Instant, S)>,
    asked: Vec<S>,
    running: FuturesUnordered<T>,
    hedge_at: Instant,
}

/// Asks `sites` in order: the next one when one refuses and, if that may be, also when one takes its time. Who is busy is asked
/// again while others take theirs. Returns the first answer, and who was asked and has not answered.
///
/// # Errors
/// When nobody does it, or a failure is the answer.
pub(crate) async fn ask_in_turn<S: Copy + PartialEq, R, F, T: Future<Output = (S, Said<R, F>)>>(
    sites: impl IntoIterator<Item = S>,
    Manner { hedged, pauses }: Manner<'_>,
    ask: impl Fn(S) -> T,
) -> Result<(R, Vec<S>), Missed<F>> {
    let (sites, mut pauses) = (sites.into_iter().collect(), pauses.iter());
    let (busy, asked, running, hedge_at) = (VecDeque::new(), Vec::new(), FuturesUnordered::new(), Instant::now());
    let mut round = Round { sites, busy, asked, running, hedge_at };
    let mut missed = None;
    loop {
        if round.running.is_empty() && !round.begin_next(&ask) {
            return Err(missed.unwrap_or(Missed { after: After::AskVldb, last: None }));
        }
        let again = round.busy.front().filter(|_| hedged).map(|(due, _)| *due);
        let (site, said) = tokio::select! {
            biased;
            Some(ended) = round.running.next() => ended,
            () = sleep_until(again.unwrap_or(round.hedge_at)), if again.is_some() => {
                round.begin_busy(&ask);
                continue;
            }
            () = sleep_until(round.hedge_at), if hedged && !round.sites.is_empty() => {
                round.begin_next(&ask);
                continue;
            }
        };
        round.asked.retain(|asked| *asked != site);
        let (after, failure) = match said {
            Said::Done(reply) => return Ok((reply, round.asked)),
            Said::Final(failure) => return Err(Missed { after: After::GiveUp, last: Some(failure) }),
            Said::NotHere(after, failure) => (after, failure),
        };
        if after == After::Wait {
            round.busy.extend(pauses.next().map(|pause| (Instant::now() + *pause, site)));
        }
        if missed.as_ref().is_none_or(|missed: &Missed<F>| after >= missed.after) {
            missed = Some(Missed { after, last: Some(failure) });
        }
    }
}

impl<S: Copy, T: Future> Round<S, T> {
    /// Asks the next one; says whether there is one.
    fn begin_next(&mut self, ask: &impl Fn(S) -> T) -> bool {
        let Some(site) = self.sites.pop_front() else { return false };
        self.hedge_at = Instant::now() + HEDGE_AFTER;
        self.begin(site, ask);
        true
    }

    fn begin_busy(&mut self, ask: &impl Fn(S) -> T) {
        if let Some((_, site)) = self.busy.pop_front() {
            self.begin(site, ask);
        }
    }

    fn begin(&mut self, site: S, ask: &impl Fn(S) -> T) {
        self.asked.push(site);
        self.running.push(ask(site));
    }
}

/// How long one may take before another one is asked as well.
const HEDGE_AFTER: Duration = Duration::from_millis(700);

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// What a site says, and after how many milliseconds.
    type Word<'a> = (u8, u64, Said<&'a str, &'a str>);

    /// Sites by their numbers, with one word for each time that one is asked.
    struct Sites<'a> {
        words: Mutex<Vec<Word<'a>>>,
        /// Who was asked, and when, in milliseconds.
        asked: Mutex<Vec<(u8, u128)>>,
        since: Instant,
    }

    impl<'a> Sites<'a> {
        fn new(words: impl IntoIterator<Item = Word<'a>>) -> Sites<'a> {
            let words = Mutex::new(words.into_iter().collect());
            Sites { words, asked: Mutex::default(), since: Instant::now() }
        }

        async fn say(&self, site: u8) -> (u8, Said<&'a str, &'a str>) {
            self.asked.lock().push((site, self.since.elapsed().as_millis()));
            let word = {
                let mut words = self.words.lock();
                let nth = words.iter().position(|(who, ..)| *who == site);
                nth.map(|nth| words.remove(nth))
            };
            match word {
                Some((_, pause, said)) => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    (site, said)
                }
                None => std::future::pending().await,
            }
        }

        async fn ask(&self, order: &[u8], hedged: bool) -> Result<(&'a str, Vec<u8>), Missed<&'a str>> {
            let manner = Manner { hedged, pauses: &[Duration::from_millis(10), Duration::from_millis(400)] };
            ask_in_turn(order.iter().copied(), manner, |site| self.say(site)).await
        }
    }

    fn busy<'a>() -> Said<&'a str, &'a str> {
        Said::NotHere(After::Wait, "busy")
    }

    /// Goal: one that is only busy is asked again beside one that says nothing, and a third one is not kept waiting by that.
    #[tokio::test(start_paused = true)]
    async fn who_is_busy_is_asked_again_while_others_are_silent() {
        let sites = Sites::new([(1, 1, busy()), (1, 1, busy()), (1, 1, Said::Done("of 1"))]);
        assert_eq!(sites.ask(&[1, 2], true).await, Ok(("of 1", vec![2])));
        assert_eq!(*sites.asked.lock(), [(1, 0), (2, 1), (1, 11), (1, 412)]);
        let sites = Sites::new([(1, 1, busy()), (1, 1, busy()), (1, 1, busy()), (3, 1, Said::Done("of 3"))]);
        assert_eq!(sites.ask(&[1, 2, 3], true).await, Ok(("of 3", vec![2])));
        assert_eq!(*sites.asked.lock(), [(1, 0), (2, 1), (1, 11), (1, 412), (3, 701)]);
    }

    /// Goal: what cannot be asked twice is asked of one at a time.
    #[tokio::test(start_paused = true)]
    async fn a_change_is_asked_for_once_at_a_time() {
        let sites = Sites::new([(1, 1, busy()), (2, 5000, Said::Done("of 2"))]);
        assert_eq!(sites.ask(&[1, 2, 3], false).await, Ok(("of 2", vec![])));
        assert_eq!(*sites.asked.lock(), [(1, 0), (2, 1)]);
    }

    /// Goal: a site that takes its time has the next one asked; whichever answers first counts.
    #[tokio::test(start_paused = true)]
    async fn the_first_answer_counts() {
        let sites = Sites::new([(1, 1000, Said::Done("of 1")), (2, 500, Said::Done("of 2"))]);
        assert_eq!(sites.ask(&[1, 2], true).await, Ok(("of 1", vec![2])));
        let sites = Sites::new([(1, 1500, Said::Done("of 1")), (2, 500, Said::Done("of 2"))]);
        assert_eq!(sites.ask(&[1, 2], true).await, Ok(("of 2", vec![1])));
    }

    /// Goal: of several failures the one counts from which most can come; a final one ends the round.
    #[tokio::test(start_paused = true)]
    async fn what_may_come_of_it_is_what_counts() {
        let away = || Said::NotHere(After::GiveUp, "away");
        let missed = |after, failure| Err(Missed { after, last: failure });
        let sites = Sites::new([(1, 1, busy()), (2, 1, away())]);
        assert_eq!(sites.ask(&[1, 2], true).await, missed(After::Wait, Some("busy")));
        let sites = Sites::new([(1, 1, away()), (2, 1, Said::NotHere(After::AskVldb, "elsewhere")), (3, 1, away())]);
        assert_eq!(sites.ask(&[1, 2, 3], true).await, missed(After::AskVldb, Some("elsewhere")));
        let sites = Sites::new([(1, 1, busy()), (2, 1, Said::Final("denied"))]);
        assert_eq!(sites.ask(&[1, 2, 3], true).await, missed(After::GiveUp, Some("denied")));
        assert_eq!(Sites::new([]).ask(&[], true).await, missed(After::AskVldb, None));
    }
}
