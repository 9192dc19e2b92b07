//! Events of a kind on their way to whoever listens: bounded, and never lost without a word.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Event;

/// The queue of events. When it is full, all that wait become one [`Event::AllBroken`].
#[derive(Debug)]
pub struct News {
    max: usize,
    /// Guards what waits; no other lock is taken under it.
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    taken: bool,
    closed: bool,
}

impl News {
    /// A queue of at most `max` events. It begins with `AllBroken`: what was promised before this process watched may
    /// have changed unseen.
    pub fn new(max: usize) -> News {
        let waiting = Waiting { events: VecDeque::from([Event::AllBroken]), ..Waiting::default() };
        News { max: max.max(1), waiting: Mutex::new(waiting), more: Notify::new() }
    }

    /// Adds events.
    pub fn tell(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        {
            let mut waiting = self.waiting.lock();
            if waiting.events.len() + events.len() > self.max || events.contains(&Event::AllBroken) {
                waiting.events.clear();
                waiting.events.push_back(Event::AllBroken);
            } else {
                waiting.events.extend(events);
            }
        }
        self.more.notify_one();
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
}
