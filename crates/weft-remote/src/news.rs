//! Events of a kind on their way to whoever listens: bounded, and never lost without a word.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::Event;

/// The queue of events. When it is full, all that wait become one [`Event::AllBroken`].
#[derive(Debug)]
pub struct News {
    max: usize,
    /// Guards what waits; no other lock is taken under it.
    waiting: Mutex<Waiting>,
    more: Notify,
    /// How many events whoever listens is done with: with those before the one that is asked for.
    heard: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Events that were told so far, in all.
    told: u64,
    taken: bool,
    closed: bool,
}

/// What was told up to some moment.
#[derive(Clone, Copy, Debug)]
pub struct ToldUpTo(u64);

impl News {
    /// A queue of at most `max` events. It begins with `AllBroken`: what was promised before this process watched may
    /// have changed unseen.
    pub fn new(max: usize) -> News {
        let waiting = Waiting { events: VecDeque::from([Event::AllBroken]), told: 1, ..Waiting::default() };
        News { max: max.max(1), waiting: Mutex::new(waiting), more: Notify::new(), heard: watch::Sender::new(0) }
    }

    /// Adds events.
    pub fn tell(&self, events: Vec<Event>) -> ToldUpTo {
        let told = {
            let mut waiting = self.waiting.lock();
            waiting.told += events.len() as u64;
            let told = ToldUpTo(waiting.told);
            if events.is_empty() {
                return told;
            }
            if waiting.events.len() + events.len() > self.max || events.contains(&Event::AllBroken) {
                waiting.events.clear();
                waiting.events.push_back(Event::AllBroken);
            } else {
                waiting.events.extend(events);
            }
            told
        };
        self.more.notify_one();
        told
    }

    /// Returns when whoever listens is done with what was told up to then: it asks for more. For ever while nobody does.
    pub async fn heard(&self, told: ToldUpTo) {
        // The sender is ours: it is there.
        let _ = self.heard.subscribe().wait_for(|heard| *heard >= told.0).await;
    }

    /// Returns when whoever listens is done with everything that was told so far; at once while nobody listens.
    pub async fn all_heard(&self) {
        let told = {
            let waiting = self.waiting.lock();
            waiting.taken.then_some(ToldUpTo(waiting.told))
        };
        if let Some(told) = told {
            self.heard(told).await;
        }
    }

    /// Whether whoever listens is done with everything that was told so far; also while nobody listens.
    pub fn is_heard(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.taken || *self.heard.borrow() >= waiting.told
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.more.notify_one();
    }

    /// The events, for the first who asks; the stream ends when the queue is closed.
    pub fn stream(self: &Arc<News>) -> BoxStream<'static, Event> {
        if std::mem::replace(&mut self.waiting.lock().taken, true) {
            return Box::pin(futures_util::stream::pending());
        }
        Box::pin(futures_util::stream::unfold(self.clone(), async |news| {
            let event = news.next().await?;
            Some((event, news))
        }))
    }

    async fn next(&self) -> Option<Event> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                let done = waiting.told - waiting.events.len() as u64;
                self.heard.send_if_modified(|heard| done > std::mem::replace(heard, done));
                match waiting.events.pop_front() {
                    Some(event) => return Some(event),
                    None if waiting.closed => return None,
                    None => {}
                }
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use futures_util::StreamExt;

    #[tokio::test]
    async fn what_is_not_read_collapses_and_nothing_is_lost_without_a_word() {
        let broken = |at: u32| Event::Broken(FileId::new(at.to_string()));
        let news = Arc::new(News::new(3));
        let mut stream = news.stream();
        assert_eq!(stream.next().await, Some(Event::AllBroken), "what a former process promised");
        news.tell(vec![broken(1), broken(2), broken(3)]);
        assert_eq!(stream.next().await, Some(broken(1)));
        news.tell(vec![broken(4)]);
        news.tell(vec![broken(5)]);
        assert_eq!(stream.next().await, Some(Event::AllBroken));
        news.tell(vec![broken(6)]);
        news.close();
        assert_eq!(stream.next().await, Some(broken(6)));
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn who_told_hears_when_that_was_heard() {
        use futures_util::FutureExt;
        let news = Arc::new(News::new(2));
        let mut stream = news.stream();
        let nothing = news.tell(Vec::new());
        assert!(news.heard(nothing).now_or_never().is_none(), "what was told before");
        stream.next().await;
        assert!(news.heard(nothing).now_or_never().is_none(), "it is being done");
        let told = news.tell(vec![Event::Broken(FileId::new("1")), Event::Broken(FileId::new("2"))]);
        stream.next().await;
        assert!(news.heard(nothing).now_or_never().is_some());
        stream.next().await;
        assert!(news.heard(told).now_or_never().is_none());
        assert!(stream.next().now_or_never().is_none());
        assert!(news.heard(told).now_or_never().is_some(), "the next is asked for");
        let many = news.tell(vec![Event::AllBroken, Event::AllBroken, Event::AllBroken]);
        assert_eq!(stream.next().await, Some(Event::AllBroken));
        assert!(stream.next().now_or_never().is_none());
        assert!(news.heard(many).now_or_never().is_some(), "also when they became one");
    }
}
