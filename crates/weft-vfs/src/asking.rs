//! Questions about files whose place their kind may have forgotten, and changes that are made at once.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Answer, Call, Change, Mutation, Outcome, RemoteError, Version};

use crate::going_on::ToItsEnd;
use crate::inode::Inode;
use crate::overtaken::Making;
use crate::vfs::{DEPTH_MAX, Vfs};
use crate::{Result, VfsError};

impl Vfs {
    /// Asks about an inode. Where its kind does not know its place, that is looked up again from the top, once.
    pub(crate) async fn ask_of<T, Question>(
        &self,
        call: &Call,
        inode: &Inode,
        question: impl Fn() -> Question,
    ) -> Result<Answer<T>>
    where
        Question: Future<Output = weft_remote::Result<Answer<T>>>,
    {
        // What goes to the source has room of its own: else whoever finds all at hand would carry that room about.
        match Box::pin(self.ask(call, question())).await {
            Err(VfsError::Remote(RemoteError::Unplaced { .. })) => {
                Box::pin(self.place_again(call, inode)).await?;
                Box::pin(self.ask(call, question())).await
            }
            outcome => outcome,
        }
    }

    /// Has the kind of an inode learn again where it is, by the names that it was found under.
    ///
    /// # Errors
    /// `Stale` when there is another file there, or none.
    pub(crate) async fn place_again(&self, call: &Call, inode: &Inode) -> Result<()> {
        let remote = self.remote_of(inode)?.clone();
        let mut record = inode.record();
        let mut chain = Vec::new();
        while record.file != remote.root() {
            if chain.len() >= DEPTH_MAX {
                return Err(VfsError::Stale);
            }
            let parent = self.store.node(record.parent)?.ok_or(VfsError::Stale)?;
            chain.push(std::mem::replace(&mut record, parent));
        }
        let mut dir = remote.root();
        for step in chain.into_iter().rev() {
            let answer = self.ask(call, remote.lookup(call, &dir, &step.name)).await?;
            let Some(found) = answer.value.filter(|found| found.entry.id == step.file) else {
                // Who looks the path up again is not to be led here once more.
                self.doubt_name(step.parent, &step.name)?;
                return Err(VfsError::Stale);
            };
            dir = found.entry.id;
        }
        Ok(())
    }

    /// Has the source of an inode make a change to it, now.
    ///
    /// # Errors
    /// What the remote says.
    ///
    /// # Cancel safety
    /// What a source was asked to change it may change all the same: that is waited for, and then whoever uses what it was
    /// about asks again.
    pub(crate) fn apply(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        change: Change,
        made: SystemTime,
        expected: &Version,
    ) -> impl Future<Output = Result<Answer<Outcome>>> + Send + use<> {
        let binding = inode.record.read().binding;
        let remote = self.remote_of(inode).cloned();
        let making = Making { vfs: self.clone(), binding, mutation: Mutation { change, made } };
        let (call, inode, expected) = (*call, inode.clone(), expected.clone());
        ToItsEnd::told(&self.runtime, |left| async move {
            let remote = remote?;
            let vfs = making.vfs.clone();
            let outcome = vfs.ask_of(&call, &inode, || remote.apply(&call, &making.mutation, &expected)).await;
            if left.is_so() {
                // Not on a thread that a request needs.
                tokio::task::spawn_blocking(move || making.ended_alone());
            }
            outcome
        })
    }

    /// # Errors
    /// `ReadOnly` where the tree of an inode takes no changes.
    pub(crate) fn refuse_read_only(&self, inode: &Inode) -> Result<()> {
        match self.remote_of(inode)?.capabilities().writable {
            true => Ok(()),
            false => Err(VfsError::ReadOnly),
        }
    }

    /// Refuses who may not write a file, where its kind tells that before it is tried.
    ///
    /// # Errors
    /// `Remote` with `Denied`, `NotPermitted` or `ReadOnly`.
    pub(crate) async fn refuse_unwritable(&self, call: &Call, inode: &Inode, appends: bool) -> Result<()> {
        let remote = self.remote_of(inode)?;
        if !remote.capabilities().rights || inode.is_gone() {
            return Ok(());
        }
        let (file, parent) = {
            let record = inode.record.read();
            (record.file.clone(), record.parent)
        };
        let dir = self.store.node(parent)?.map(|record| record.file);
        match self.ask_for(call, remote.may_write(call, &file, dir.as_ref(), appends)).await {
            Err(
                error @ VfsError::Remote(
                    RemoteError::Denied { .. } | RemoteError::NotPermitted { .. } | RemoteError::ReadOnly { .. },
                ),
            ) => Err(error),
            Err(error) => {
                // Found out when it is sent, or by whoever asks for the file.
                tracing::debug!(%error, node = inode.id.0, "whether it may be written is not told");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
