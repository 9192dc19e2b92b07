//! Whether a tree of the web is there before it is mounted.

use weft_remote::{Call, RemoteError, Result, Version};

use crate::content::{Content, has_content};
use crate::id::{Id, Place};
use crate::remote::Web;

impl Web {
    /// Asks whether the root of a tree is a directory that can be listed, or may be one. Of a host as a whole nothing is asked.
    ///
    /// # Errors
    /// `NotFound` when its URL leads to nothing, `NotADirectory` when it leads to a file; whatever keeps its host from
    /// answering.
    pub async fn find_tree(&self, call: &Call) -> Result<()> {
        let Id::Dir(root) = &self.root else { return Ok(()) };
        let Some(page) = root.unslashed() else { return Ok(()) };
        self.within(call, &root.dir_id(), self.find_tree_by(call, root, &page)).await
    }

    /// The same by what the URL of the root without its slash gives first.
    async fn find_tree_by(&self, call: &Call, root: &Place, page: &Place) -> Result<()> {
        let reply = self.client.look(call, page, &[]).await?;
        if reply.slashed {
            return Ok(());
        }
        if !has_content(&reply) {
            reply.body.drain().await;
            return self.list(call, root, &Version::None, None).await.map(drop);
        }
        let content = Content::read(reply, self.options());
        let source = content.origin.source.clone();
        let may_be_page = content.may_hold_names() || content.is_xml();
        content.into_flow().drain().await;
        if may_be_page {
            return Ok(());
        }
        let below = self.client.look(call, root, &[]).await?;
        let is_directory = has_content(&below) || self.leads_on(call, root, below.status);
        below.body.drain().await;
        match is_directory {
            true => Ok(()),
            false => Err(RemoteError::NotADirectory { detail: format!("{source}: a file") }),
        }
    }
}
