//! Telling the kernel what to forget.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::Receiver;

use fuser::{INodeNo, Notifier};
use weft_vfs::{Notice, NoticeReceivers};

/// Starts the threads that pass notices on. They end when the file system is gone.
pub(crate) fn start(notifier: Notifier, receivers: NoticeReceivers) -> std::io::Result<()> {
    let NoticeReceivers { attributes, others } = receivers;
    let attribute_notifier = notifier.clone();
    let name = |which: &str| std::thread::Builder::new().name(format!("weft-notify-{which}"));
    name("attr").spawn(move || pass_on(&attribute_notifier, &attributes))?;
    name("other").spawn(move || pass_on(&notifier, &others))?;
    Ok(())
}

fn pass_on(notifier: &Notifier, notices: &Receiver<Notice>) {
    while let Ok(notice) = notices.recv() {
        let told = match &notice {
            Notice::Entry { parent, name } => {
                notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name.as_bytes()))
            }
            // A negative offset leaves the pages alone (fuse_notify_inval_inode_out in linux/fuse.h).
            Notice::Attributes { node, .. } => notifier.inval_inode(INodeNo(node.0), -1, 0),
            Notice::Content { node } => notifier.inval_inode(INodeNo(node.0), 0, 0),
        };
        if let Err(error) = told {
            // ENOENT: the kernel does not know it and so has nothing to forget.
            tracing::trace!(%error, ?notice, "a notice found nothing");
        }
        if let Notice::Attributes { done: Some(done), .. } = notice {
            // The request that waited may have been given up.
            let _ = done.send(());
        }
    }
}
