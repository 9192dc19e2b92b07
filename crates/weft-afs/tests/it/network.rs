//! A node's network, for sockets of this process.
//!
//! A socket stays in the network of the thread that opens it. So a thread of its own goes there, with a runtime on which
//! whatever opens and reads sockets is run; nothing else of the process moves.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::cell::AfsCell;

/// A thread in the network of a node. It ends with this, and what runs there.
pub struct Network {
    handle: Handle,
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Goes to a node of the cell.
    pub fn of(cell: &AfsCell, node: &str) -> Network {
        let network = File::open(cell.network(node)).expect("the cell is up");
        let (is_there, arrival) = mpsc::channel();
        let (ends, end) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            is_there.send(runtime.handle().clone()).expect("who made the thread waits");
            let _ = runtime.block_on(end);
        });
        let handle = arrival.recv().expect("the thread is in the network");
        Network { handle, ends: Some(ends), thread: Some(thread) }
    }

    /// Does something there.
    pub async fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        self.handle.spawn(async { act() }).await.expect("done without a panic")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
