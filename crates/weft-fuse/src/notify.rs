//! Telling the kernel what to forget.

use weft_fusedev::{Notifier, Told};
use weft_vfs::{NodeId, Notice, NoticeReceivers};

/// Starts the threads that pass notices on. They end when the file system is gone. Those of names and bytes go by a
/// notifier of their own, for they may wait for requests. `forget` is told of content that changed, before the kernel is;
/// `keeps_names` says of a directory whether the kernel may go on in a list of its names without asking.
pub(crate) fn start(
    of_attributes: Notifier,
    of_names: Notifier,
    receivers: NoticeReceivers,
    (forget, keeps_names): (impl Fn(NodeId) + Send + 'static, impl Fn(NodeId) -> bool + Send + 'static),
) -> std::io::Result<()> {
    let NoticeReceivers { attributes, others, told } = receivers;
    let name = |which: &str| std::thread::Builder::new().name(format!("weft-notify-{which}"));
    name("attr").spawn(move || {
        while let Ok(notice) = attributes.recv() {
            let notice = match notice {
                // The list is in its pages, which never wait for a request. Who has it open and reads it from the beginning
                // once more is not asked about: the kernel does not look at the directory's time then.
                Notice::Attributes { node } if keeps_names(node) => Notice::Content { node },
                notice => notice,
            };
            pass_on(&of_attributes, &notice);
            told.send_modify(|count| *count += 1);
        }
    })?;
    name("other").spawn(move || {
        while let Ok(notice) = others.recv() {
            if let Notice::Content { node } = &notice {
                forget(*node);
            }
            match notice {
                Notice::Fence(passed) => {
                    of_names.fence();
                    // Whoever waited may have gone.
                    let _ = passed.send(());
                }
                notice => pass_on(&of_names, &notice),
            }
        }
    })?;
    Ok(())
}

fn pass_on(notifier: &Notifier, notice: &Notice) {
    let told = match notice {
        Notice::Entry { parent, name } => notifier.invalidate_entry(parent.0, name.as_bytes()),
        Notice::Expired { parent, name } => match notifier.expire_entry(parent.0, name.as_bytes()) {
            // Before Linux 6.2: it is dropped, which says the same with more ado.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                notifier.invalidate_entry(parent.0, name.as_bytes())
            }
            told => told,
        },
        Notice::Attributes { node } => notifier.invalidate_attributes(node.0),
        Notice::Content { node } => notifier.invalidate_content(node.0, 0, 0),
        Notice::Grown { node, length, last } => notifier.store(node.0, length.saturating_sub(1), &[*last]),
        Notice::Everything => notifier.next_epoch(),
        Notice::Fence(_) => return,
    };
    match told {
        Ok(Told::Done) => {}
        Ok(Told::Unknown) => tracing::trace!(?notice, "a notice found nothing"),
        Err(error) => tracing::debug!(%error, ?notice, "a notice could not be passed on"),
    }
}
