//! Pages whose names are the beginnings of longer ones: their directories are there, whatever the directories' own URLs give.
//! A file that has taken the place of a directory looks the same. Which of the two it is, the directory above tells, if that
//! has a list and not just links.

use hyper::StatusCode;
use weft_remote::{Answer, Call, Checked, Completeness, FileKind, Found, RemoteError, Result};

use crate::content::{Content, has_content, media_of};
use crate::exchange::Reply;
use crate::id::Place;
use crate::lister::Lister;
use crate::listing::page_name;
use crate::lookup::bare_dir;
use crate::remote::{Web, last_name};
use crate::tap::Media;

impl Web {
    /// What there is in place of a directory whose own URL gives nothing: the directory, if the page of its name is there, or
    /// the file that this is by now.
    pub(crate) async fn dir_by_page(
        &self,
        call: &Call,
        dir: &Place,
        page: &Place,
        detail: String,
    ) -> Result<Answer<Checked>> {
        let reply = self.client.look(call, page, &[]).await?;
        if !has_content(&reply) || reply.slashed {
            reply.body.drain().await;
            return Err(RemoteError::NotFound { detail });
        }
        let content = Content::read(reply, self.options());
        let (entry, answer) = (content.entry(last_name(page), page.file_id()), content.answer(()));
        content.into_flow().drain().await;
        let found = match self.is_listed_file(call, page).await {
            true => answer.map(|()| Found { entry, along: None }),
            false => Answer { lease: answer.lease, audience: answer.audience, ..bare_dir(last_name(dir), dir, None) },
        };
        Ok(found.map(|found| Checked::Is(Box::new(found))))
    }

    /// Whether what the own URL of a directory gave is no directory's: some servers give a file at its URL with a slash as well
    /// (miniserve, http-server of Node.js), or fail over that (serve-index), and the list of the directory above tells it as a file.
    pub(crate) async fn is_file_instead(&self, call: &Call, dir: &Place, reply: &Reply) -> bool {
        let is_doubtful = match reply.status {
            StatusCode::INTERNAL_SERVER_ERROR => true,
            _ => has_content(reply) && media_of(&reply.headers) == Media::Other,
        };
        match dir.unslashed().filter(|_| is_doubtful) {
            Some(page) => self.is_listed_file(call, &page).await,
            None => false,
        }
    }

    /// Whether the directory that a page lies in has a list, and that tells it as a file.
    pub(crate) async fn is_listed_file(&self, call: &Call, page: &Place) -> bool {
        let is_file = match self.lister(&page.dir()) {
            Lister::Page => self.is_file_in_index(call, page).await,
            Lister::Dav => self.is_dav_file(call, page).await,
            Lister::Bucket(_) => Ok(false),
        };
        is_file.unwrap_or_else(|error| {
            tracing::debug!("{}{}: {error}", page.authority, page.path);
            false
        })
    }

    async fn is_file_in_index(&self, call: &Call, page: &Place) -> Result<bool> {
        let dir = page.dir();
        let reply = self.client.get(call, &dir, &[]).await?;
        let has_names = has_content(&reply);
        let content = Content::read(reply, self.options());
        if !has_names || !content.may_hold_names() {
            content.into_flow().drain().await;
            return Ok(false);
        }
        let entry = content.entry(page_name(), dir.file_id());
        let mut tap = content.tap(&dir, dir.clone(), Some(entry), self.options());
        content.gather(&mut tap, self.options().page_bytes_max).await?;
        let learnt = tap.finish();
        let (file, entries) = (page.file_id(), learnt.names.first().map(|names| &names.entries));
        let is_listed = entries.is_some_and(|entries| {
            entries.iter().any(|entry| entry.id == file && entry.attributes.kind == FileKind::File)
        });
        Ok(is_listed && learnt.completeness != Completeness::Partial)
    }
}
