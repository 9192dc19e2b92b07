//! How what the kernel tells breaks promises.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;
use rustix::fs::inotify::{ReadFlags, Reader};
use rustix::io::Errno;
use weft_remote::{Event, Name};

use crate::facts::{facts, facts_of};
use crate::gone::Gone;
use crate::mounts::{Change, Mounts};
use crate::place::parted;
use crate::places::{Names, Seen};
use crate::watches::Watches;

/// The thread that hears; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    wake: Arc<OwnedFd>,
}

impl Listener {
    /// Starts to hear what the kernel tells of the watches, where there are any, and of mounts.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(watches: Arc<Watches>) -> std::io::Result<Listener> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ended = wake.clone();
        // From here on: the thread may begin later.
        let mounts = Mounts::look(&watches.top);
        std::thread::Builder::new().name("weft-dir".to_owned()).spawn(move || watches.listen(mounts, &ended))?;
        Ok(Listener { wake })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It cannot fail: the counter has room for one more.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Watches {
    fn listen(&self, mut mounts: Option<Mounts>, ended: &OwnedFd) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = self.inotify.as_ref().map(|inotify| Reader::new(inotify, &mut buffer));
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
            fds.extend(mounts.as_ref().map(|mounts| PollFd::from_borrowed_fd(mounts.told_by(), PollFlags::PRI)));
            fds.extend(self.inotify.as_ref().map(|inotify| PollFd::new(inotify, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.go_deaf(error),
            }
            let may_be_others = mounts.is_some() && !fds[1].revents().is_empty();
            if let Some(mounts) = mounts.as_mut().filter(|_| may_be_others) {
                self.see(mounts.look_again(&self.top));
            }
            if let Some(Err(error)) = reader.as_mut().map(|reader| self.hear_all(reader)) {
                return self.go_deaf(error);
            }
        }
    }

    /// Takes in all that the kernel has to tell of the watches now.
    fn hear_all(&self, reader: &mut Reader<'_, &OwnedFd>) -> Result<(), Errno> {
        self.hearing.store(true, Ordering::SeqCst);
        loop {
            match reader.next() {
                Ok(event) => {
                    self.hear(event.wd(), event.events(), event.file_name().map(|name| name.to_bytes()));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.hearing.store(false, Ordering::SeqCst);
        self.taken_in.send_modify(|count| *count += 1);
        // Whoever has seen that it is not so waits by now.
        drop(self.taking.0.lock());
        self.taking.1.notify_all();
        Ok(())
    }

    fn see(&self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Below => {
                tracing::debug!("something was mounted or unmounted in the directory: every lease ends");
                self.break_all();
            }
            Change::Unmounted => {
                tracing::info!(path = %self.top.shown(b""), "a directory was unmounted");
                self.end(Gone::Unmounted);
            }
        }
    }

    /// Changes are no longer heard of: nothing that was promised holds, and nothing more can be reached.
    fn go_deaf(&self, error: Errno) {
        tracing::error!(%error, "the kernel no longer tells of changes");
        self.end(Gone::Unheard);
    }

    /// Takes in one message of the kernel about the watch `number`, or about `name` in its directory.
    pub(crate) fn hear(&self, number: i32, what: ReadFlags, name: Option<&[u8]>) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            tracing::debug!("more changes at once than the kernel keeps: every lease ends");
            return self.break_all();
        }
        let mut table = self.table.lock();
        let Some(dir) = table.path_of(number) else {
            // Taken back, or about to be entered by somebody who must know that something happened.
            if !(what.contains(ReadFlags::IGNORED) && table.was_taken_back(number)) {
                table.moves += 1;
            }
            return;
        };
        if let Some(path) = name.and_then(|name| crate::place::below(&dir, name))
            && !what.contains(ReadFlags::ISDIR)
            && self.hands.defers(&path, number, what)
        {
            return;
        }
        if let Some(name) = name
            && !what.contains(ReadFlags::ISDIR)
            && let Some(was) = table.echo(&dir, name)
        {
            drop(table);
            if self.is_echo(&dir, name, &was) {
                return;
            }
            self.table.lock().forget_echo(&dir, name);
            return self.hear(number, what, Some(name));
        }
        let ended = what.intersects(LEFT.union(ReadFlags::IGNORED));
        if ended && dir.is_empty() {
            drop(table);
            let unmounted = what.contains(ReadFlags::UNMOUNT);
            return self.end(if unmounted { Gone::Unmounted } else { Gone::Left });
        }
        let mut broken = Vec::new();
        match name {
            Some(name) => {
                table.break_name(&dir, name, what.intersects(LEADS_ELSEWHERE), &mut broken);
                if what.contains(ReadFlags::ISDIR)
                    && what.intersects(LEADS_ELSEWHERE)
                    && let Some(path) = crate::place::below(&dir, name)
                {
                    table.moves += 1;
                    // What is watched where one was made is that, or came later: what was there before was told to leave.
                    if !what.contains(ReadFlags::CREATE) {
                        table.forget(self.inotify.as_ref(), &path, None, &mut broken);
                    }
                }
            }
            None if ended => {
                table.moves += 1;
                table.break_at(&dir, &mut broken);
                table.forget(self.inotify.as_ref(), &dir, None, &mut broken);
            }
            None => table.break_itself(&dir, &mut broken),
        }
        self.news.tell(broken);
        drop(table);
        if let Some(name) = name
            && what.intersects(COMES)
            && !what.contains(ReadFlags::ISDIR)
        {
            self.has_come(&dir, name);
        }
    }

    /// A name has come to stand for a file: whoever has it open finds it there from now on. Where it has other names it is told
    /// of, and so are those: what changes through the one was promised to be told by way of the others.
    pub(crate) fn has_come(&self, dir: &[u8], name: &[u8]) {
        let turns = self.places.turns();
        let (Ok(at), Ok(name)) = (std::ffi::CString::new(name), Name::new(name)) else { return };
        let Ok(dir) = self.top.reach(dir, OFlags::PATH) else { return };
        let (Ok((facts, mount)), Ok((above, _))) = (facts_of(dir.as_fd(), &at), facts(dir.as_fd())) else { return };
        if mount != self.top.mount {
            return;
        }
        let file = self.top.identity(&facts);
        self.places.learn_come(file, facts.names(), (self.top.identity(&above).key(), &name), turns);
        if facts.names() == Names::Several {
            let others = self.places.seen(file);
            let mut table = self.table.lock();
            let of_name = |seen: &Seen| parted(&seen.path).and_then(|(dir, name)| table.break_quietly(dir, name));
            let broken = others.iter().filter_map(of_name).chain([Event::Broken(file.file_id())]).collect();
            self.news.tell(broken);
        }
    }
}

/// The watched directory itself is no longer where it was.
const LEFT: ReadFlags = ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT);
/// A directory's name leads elsewhere than before.
const LEADS_ELSEWHERE: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);
/// A name has come.
const COMES: ReadFlags = ReadFlags::CREATE.union(ReadFlags::MOVED_TO);
/// Bytes of messages taken from the kernel at a time.
const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use weft_remote::{FileId, Lease, News};

    use super::*;
    use crate::identity::Identity;
    use crate::options::DirectoryOptions;
    use crate::places::Places;
    use crate::promise::Promise;
    use crate::top::Top;

    /// Watches over a tree of directories, without the thread: what the kernel tells is told by the test.
    fn watches(dirs: &[&str], change: impl FnOnce(&mut DirectoryOptions)) -> (tempfile::TempDir, Watches) {
        let folder = tempfile::tempdir().unwrap();
        for dir in dirs {
            std::fs::create_dir_all(folder.path().join(dir)).unwrap();
        }
        let mut options = DirectoryOptions::new(folder.path());
        change(&mut options);
        let top = Arc::new(Top::open(folder.path()).unwrap());
        let news = Arc::new(News::new(options.events_max));
        let places = Arc::new(Places::new(options.places_max));
        (folder, Watches::new(top, options, news, places))
    }

    fn stands(watches: &Watches, promise: &Promise) -> bool {
        matches!(watches.lease(&[promise]), Lease::UntilBroken(_))
    }

    /// The number of a directory's watch.
    fn number(watches: &Watches, dir: &[u8]) -> i32 {
        let table = watches.table.lock();
        (0..1000).find(|number| table.path_of(*number).as_deref() == Some(dir)).expect("it is watched")
    }

    fn identity(watches: &Watches, dir: &[u8]) -> Identity {
        let dir = watches.top.reach(dir, OFlags::PATH).unwrap();
        watches.top.identity(&facts(dir.as_fd()).unwrap().0)
    }

    fn promise(watches: &Watches, path: &[u8]) -> Promise {
        let (dir, name) = parted(path).unwrap();
        watches.promise_name(dir, identity(watches, dir).key(), name)
    }

    fn promise_directory(watches: &Watches, dir: &[u8]) -> Promise {
        watches.promise_directory(dir, identity(watches, dir).key())
    }

    /// All events, a directory by its path with a slash, a name by its own.
    async fn told(watches: &Watches, dirs: &[&str]) -> Vec<String> {
        watches.news.close();
        let path = |file: &FileId| {
            let dir = dirs.iter().find(|dir| identity(watches, dir.as_bytes()).file_id() == *file);
            format!("{}/", dir.expect("it is of one of these directories"))
        };
        let shown = |event| match event {
            Event::Broken(dir) => path(&dir),
            Event::NameBroken { dir, name, .. } => format!("{}{name}", path(&dir)),
            Event::AllBroken => "(all)".to_owned(),
            other => panic!("{other:?}"),
        };
        futures_util::StreamExt::collect(futures_util::StreamExt::map(watches.news.stream(), shown)).await
    }

    #[tokio::test]
    async fn an_overflow_breaks_every_lease_and_what_follows_is_promised_anew() {
        let (_folder, watches) = watches(&["a"], |_| {});
        let former = promise(&watches, b"a/file");
        assert!(stands(&watches, &former));
        watches.hear(-1, ReadFlags::QUEUE_OVERFLOW, None);
        assert_eq!(watches.lease(&[&former]), Lease::Spent);
        assert_eq!(watches.table.lock().counts(), (0, 0, 0, 0));
        assert!(stands(&watches, &promise(&watches, b"a/file")));
        assert_eq!(told(&watches, &[]).await, ["(all)"]);
    }

    #[tokio::test]
    async fn a_promise_is_broken_once_with_its_directory_and_no_other() {
        let (_folder, watches) = watches(&["a"], |_| {});
        let (one, two, dir) = (promise(&watches, b"a/1"), promise(&watches, b"a/2"), promise_directory(&watches, b"a"));
        let of_a = number(&watches, b"a");
        for _ in 0..3 {
            watches.hear(of_a, ReadFlags::MODIFY, Some(b"1"));
        }
        assert!(!stands(&watches, &one) && stands(&watches, &two) && !stands(&watches, &dir));
        let again = promise(&watches, b"a/1");
        assert!(stands(&watches, &again) && !stands(&watches, &one), "an old answer is not saved by a new promise");
        assert_eq!(told(&watches, &["a"]).await, ["(all)", "a/1", "a/"]);
    }

    #[tokio::test]
    async fn a_directory_that_leaves_takes_everything_below_it_along() {
        let (_folder, watches) = watches(&["a/b/c", "ab"], |_| {});
        let (deep, beside) = (promise(&watches, b"a/b/c/file"), promise(&watches, b"ab/file"));
        watches.hear(number(&watches, b""), ReadFlags::MOVED_FROM.union(ReadFlags::ISDIR), Some(b"a"));
        assert!(!stands(&watches, &deep) && stands(&watches, &beside));
        assert!(!watches.is_watched(b"a") && !watches.is_watched(b"a/b/c") && watches.is_watched(b"ab"));
        assert_eq!(told(&watches, &["a/b/c"]).await, ["(all)", "a/b/c/file"]);
    }

    /// A listing says of names nobody asked about what they are, and of all others that there are none.
    #[tokio::test]
    async fn whoever_knows_the_listing_is_told_of_names_that_come_and_go() {
        let (_folder, watches) = watches(&["a"], |_| {});
        promise_directory(&watches, b"a");
        let of_a = number(&watches, b"a");
        watches.hear(of_a, ReadFlags::CREATE, Some(b"new"));
        watches.hear(of_a, ReadFlags::CREATE, Some(b"newer"));
        promise_directory(&watches, b"a");
        watches.hear(of_a, ReadFlags::MODIFY, Some(b"other"));
        assert_eq!(told(&watches, &["a"]).await, ["(all)", "a/new", "a/", "a/"], "once for each listing");
    }

    /// Goal: a directory that was listed before the kernel's word of its making was taken in is watched on: where a file that is
    /// moved to it is found.
    #[test]
    fn a_directory_that_was_made_just_before_it_was_used_is_watched_on() {
        let (_folder, watches) = watches(&["a"], |_| {});
        let in_it = promise(&watches, b"a/file");
        let of_top = number(&watches, b"");
        watches.hear(of_top, ReadFlags::CREATE.union(ReadFlags::ISDIR), Some(b"a"));
        assert!(watches.is_watched(b"a") && stands(&watches, &in_it));
        watches.hear(of_top, ReadFlags::MOVED_TO.union(ReadFlags::ISDIR), Some(b"a"));
        assert!(!watches.is_watched(b"a") && !stands(&watches, &in_it), "it may have taken the place of another");
    }

    #[test]
    fn nothing_is_promised_on_the_watch_of_another_directory() {
        let (_folder, watches) = watches(&["a", "b"], |_| {});
        let of_b = identity(&watches, b"b").key();
        assert!(watches.watch(b"a"));
        assert!(matches!(watches.promise_name(b"a", of_b, b"file"), Promise::NotMade));
        assert!(matches!(watches.promise_directory(b"a", of_b), Promise::NotMade));
        assert!(stands(&watches, &promise(&watches, b"a/file")));
    }

    #[test]
    fn nothing_is_reached_after_the_top_has_gone() {
        let (_folder, watches) = watches(&[], |_| {});
        assert!(watches.watch(b""));
        watches.hear(number(&watches, b""), ReadFlags::MOVE_SELF, None);
        assert!(watches.table.lock().gone.is_some());
        assert!(!watches.watch(b""));
    }

    #[test]
    fn a_watch_is_made_anew_when_something_moves_meanwhile() {
        let (_folder, watches) = watches(&["a"], |_| {});
        let before = watches.table.lock().moves;
        watches.hear(12_345, ReadFlags::MOVE_SELF, None);
        watches.hear(12_345, ReadFlags::IGNORED, None);
        assert_eq!(watches.table.lock().moves, before + 2, "whoever is about to enter that watch looks again");
        assert!(watches.watch(b"a"));
    }

    #[tokio::test]
    async fn the_least_recently_used_directory_gives_way_and_says_so() {
        let (_folder, watches) = watches(&["a", "b", "c", "d/e/f"], |options| options.watches_max = 3);
        let (a, b) = (promise(&watches, b"a/1"), promise(&watches, b"b/1"));
        assert!(watches.watch(b"a"), "used again");
        let c = promise(&watches, b"c/1");
        assert!(stands(&watches, &a) && !stands(&watches, &b) && stands(&watches, &c));
        assert!(watches.is_watched(b""), "directories above go last");
        assert!(matches!(promise(&watches, b"d/e/f/1"), Promise::NotMade), "deeper than there may be watches");
        assert!(watches.table.lock().counts().0 <= 3);
        assert_eq!(told(&watches, &["a", "b", "c"]).await[..2], ["(all)", "b/1"]);
    }

    #[tokio::test]
    async fn promises_give_way_too() {
        let (_folder, watches) = watches(&["a", "b"], |options| options.promises_max = 2);
        let (one, two) = (promise(&watches, b"a/1"), promise(&watches, b"a/2"));
        assert!(stands(&watches, &one) && stands(&watches, &two));
        assert!(matches!(promise(&watches, b"a/3"), Promise::NotMade), "the directory itself does not give way");
        let Promise::Made { stamp, .. } = promise_directory(&watches, b"a") else { panic!("it is watched") };
        assert!(
            matches!(watches.promise_names(b"a", stamp, &[b"1", b"2"]), Some(Some(_))),
            "what is promised needs no room"
        );
        let Promise::Made { stamp: beside, .. } = promise_directory(&watches, b"b") else { panic!("it is watched") };
        assert_eq!(watches.promise_names(b"b", beside, &[b"1", b"2", b"3"]), Some(None), "more than there may be");
        assert!(stands(&watches, &one) && stands(&watches, &two), "and nobody gave way to it");
        let other = promise(&watches, b"b/1");
        assert!(!stands(&watches, &one) && !stands(&watches, &two) && stands(&watches, &other));
        let mut events = told(&watches, &["a", "b"]).await;
        events.sort();
        assert_eq!(events, ["(all)", "a/", "a/1", "a/2"]);
    }
}
