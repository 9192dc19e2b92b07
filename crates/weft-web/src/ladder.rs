//! The ladder of ways to list a directory. A server that was found to speak a protocol with listings of its own (S3,
//! WebDAV) is asked by that; any other for its page, which may be a generated index or just have links. WebDAV is tried
//! once on a host whose pages gave nothing.

use std::time::{Duration, SystemTime};

use hyper::{StatusCode, header};
use weft_remote::{Answer, Call, Cursor, Found, Listing, Name, Result, Version};

use crate::authority::Authority;
use crate::content::{Content, Gathered};
use crate::exchange::Reply;
use crate::headers::content_length;
use crate::id::Place;
use crate::index::HEAD_BYTES;
use crate::lister::Lister;
use crate::listing::page_name;
use crate::lookup::bare_dir;
use crate::remote::{Web, last_name};

/// What an XML document at a directory's URL is.
pub(crate) enum Document {
    /// The listing of a bucket.
    Bucket,
    /// A document like any other.
    Page(Box<Gathered>),
}

impl Web {
    /// How a directory is listed.
    pub(crate) fn lister(&self, dir: &Place) -> Lister {
        let Some(authority) = Authority::parse(&dir.authority) else { return Lister::Page };
        let host = self.client.host(&authority);
        if host.builtin.is_some() {
            return Lister::Page;
        }
        if let Some(top) = host.lists.bucket_of(&dir.path) {
            return Lister::Bucket(top);
        }
        let named = self.options().dav_hosts.iter().any(|pattern| pattern.covers_name(authority.bare_host()));
        match named || host.lists.dav(SystemTime::now()) == Some(true) {
            true => Lister::Dav,
            false => Lister::Page,
        }
    }

    /// Lists a directory by the protocol that its host is known to speak; `None` where there is none, or it does not
    /// answer in it here.
    pub(crate) async fn list_by_protocol(
        &self,
        call: &Call,
        dir: &Place,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Option<Answer<Listing>>> {
        match self.lister(dir) {
            Lister::Page => Ok(None),
            Lister::Dav => self.list_dav(call, dir, known).await,
            Lister::Bucket(top) => self.list_bucket(call, dir, &top, known, cursor).await,
        }
    }

    /// Whether there is such a directory, by the protocol that its host is known to speak.
    pub(crate) async fn find_by_protocol(&self, call: &Call, name: Name, dir: &Place) -> Result<Option<Answer<Found>>> {
        match self.lister(dir) {
            Lister::Page => Ok(None),
            Lister::Dav => self.find_dav(call, name, dir).await,
            Lister::Bucket(top) if top == dir.path => Ok(Some(bare_dir(name, dir, None))),
            Lister::Bucket(top) => self.find_in_bucket(call, name, dir, &top).await,
        }
    }

    /// The directory in place of a file whose URL gave this, by the protocol that its host is known to speak. A file to which
    /// GET is nothing that can be done is a sign of WebDAV: that is found out then (`rclone serve webdav`).
    pub(crate) async fn dir_instead(
        &self,
        call: &Call,
        file: &Place,
        status: StatusCode,
    ) -> Result<Option<Answer<Found>>> {
        if file.query.is_some() || !matches!(status.as_u16(), 403..=405) {
            return Ok(None);
        }
        let dir = file.slashed();
        if status == StatusCode::METHOD_NOT_ALLOWED && self.lister(&dir) == Lister::Page {
            self.find_out_dav(call, &dir).await;
        }
        self.find_by_protocol(call, last_name(file), &dir).await
    }

    /// Lists by WebDAV a directory whose URL gave no list, if its host is found to speak that now.
    pub(crate) async fn try_dav(&self, call: &Call, dir: &Place) -> Option<Answer<Listing>> {
        if !self.find_out_dav(call, dir).await {
            return None;
        }
        self.list_dav(call, dir, &Version::None).await.ok().flatten()
    }

    /// Tries WebDAV on a directory whose URL gave nothing, unless it is known whether its host speaks it. Whether it does
    /// as far as is known now for the first time.
    pub(crate) async fn find_out_dav(&self, call: &Call, dir: &Place) -> bool {
        let Some(authority) = Authority::parse(&dir.authority) else { return false };
        let host = self.client.host(&authority);
        let lists = &host.lists;
        if host.builtin.is_some() || lists.dav(SystemTime::now()).is_some() {
            return false;
        }
        let _trying = lists.trying.lock().await;
        // Somebody else may have found out in the meantime.
        if let Some(speaks) = lists.dav(SystemTime::now()) {
            return speaks;
        }
        let (speaks, lasting) = match self.find_dav(call, page_name(), dir).await {
            Ok(Some(_)) => (true, SPOKEN_TIME),
            Ok(None) => (false, UNSPOKEN_TIME),
            Err(error) => {
                tracing::debug!("{}: WebDAV: {error}", dir.authority);
                (false, FAILED_TIME)
            }
        };
        lists.learn_dav(speaks, lasting, &*self.client.notes);
        speaks
    }

    /// Looks at the beginning of an XML document that a directory's URL gave.
    pub(crate) async fn document(&self, dir: &Place, content: Content) -> Result<Document> {
        let mut tap = content.tap(dir, dir.clone(), None, self.options());
        let gathered = content.gather(&mut tap, HEAD_BYTES).await?;
        if !is_bucket_listing(&gathered.head()) {
            return Ok(Document::Page(Box::new(gathered)));
        }
        Ok(Document::Bucket)
    }

    /// Remembers that a bucket begins at `dir`.
    pub(crate) fn learn_bucket(&self, dir: &Place) {
        if let Some(authority) = Authority::parse(&dir.authority) {
            self.client.host(&authority).lists.learn_bucket(&dir.path, &*self.client.notes);
        }
    }
}

/// Whether an answer to the GET of a directory was a refusal, or came without anything in it, so that another protocol
/// may know more. 401 is not one: first somebody must log in.
pub(crate) fn holds_nothing(reply: &Reply) -> bool {
    match reply.status.as_u16() {
        200 | 203 => content_length(&reply.headers) == Some(0),
        204 | 403 | 404 | 405 | 501 => true,
        _ => false,
    }
}

/// Whether an answer comes from a server that is made for WebDAV. Its page of a directory is for people: it has links to what
/// belongs to the page, and a file `index.html` is not what the directory's URL gives.
pub(crate) fn is_for_people(reply: &Reply) -> bool {
    reply.headers.get(header::SERVER).is_some_and(|server| server.as_bytes().starts_with(b"WsgiDAV/"))
}

/// Whether a document begins as the answer to ListObjects does (Amazon S3 API reference).
fn is_bucket_listing(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let head = head.trim_start_matches('\u{feff}').trim_start();
    let root = match head.strip_prefix("<?xml") {
        Some(declaration) => declaration.split_once("?>").map_or("", |(_, root)| root.trim_start()),
        None => head,
    };
    let after = root.strip_prefix("<ListBucketResult");
    after.is_some_and(|after| after.starts_with(|next: char| next == '>' || next.is_whitespace()))
}

/// For how long a host counts as one that speaks WebDAV.
const SPOKEN_TIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// And as one that does not.
const UNSPOKEN_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// For how long it is not tried again on a host that failed.
const FAILED_TIME: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_told_by_its_root_element() {
        for head in [
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/\">",
            "\u{feff}<ListBucketResult>",
            "\n <ListBucketResult\n",
        ] {
            assert!(is_bucket_listing(head.as_bytes()), "{head}");
        }
        for head in ["", "<?xml", "<ListBucketResults>", "<rss>", "<a><ListBucketResult>", "\u{e9}"] {
            assert!(!is_bucket_listing(head.as_bytes()), "{head}");
        }
    }
}
