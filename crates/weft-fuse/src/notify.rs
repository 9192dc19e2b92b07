//! Telling the kernel what to forget.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, Notifier};
use weft_vfs::{NodeId, Notice, NoticeReceivers};

/// Starts the threads that pass notices on. They end when the file system is gone. `forget` is told of content that
/// changed, before the kernel is.
pub(crate) fn start(
    notifier: Notifier,
    receivers: NoticeReceivers,
    forget: impl Fn(NodeId) + Send + 'static,
) -> std::io::Result<()> {
    let NoticeReceivers { attributes, others, told } = receivers;
    let attribute_notifier = notifier.clone();
    let name = |which: &str| std::thread::Builder::new().name(format!("weft-notify-{which}"));
    name("attr").spawn(move || {
        while let Ok(notice) = attributes.recv() {
            pass_on(&attribute_notifier, &notice);
            told.send_modify(|count| *count += 1);
        }
    })?;
    name("other").spawn(move || {
        while let Ok(notice) = others.recv() {
            if let Notice::Content { node } = &notice {
                forget(*node);
            }
            pass_on(&notifier, &notice);
        }
    })?;
    Ok(())
}

fn pass_on(notifier: &Notifier, notice: &Notice) {
    let told = match notice {
        Notice::Entry { parent, name } => notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name.as_bytes())),
        // A negative offset leaves the pages alone (fuse_notify_inval_inode_out in linux/fuse.h).
        Notice::Attributes { node } => notifier.inval_inode(INodeNo(node.0), -1, 0),
        Notice::Content { node } => notifier.inval_inode(INodeNo(node.0), 0, 0),
    };
    if let Err(error) = told {
        // ENOENT: the kernel does not know it and so has nothing to forget.
        tracing::trace!(%error, ?notice, "a notice found nothing");
    }
}
