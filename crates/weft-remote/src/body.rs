//! Bytes on their way from a source.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::{Answer, FileId, Page, Result, Version};

/// A run of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Number of bytes; `None` means to the end of the file.
    pub length: Option<u64>,
}

impl Span {
    /// The whole file.
    pub const WHOLE: Span = Span { start: 0, length: None };
}

/// What a body's stream delivers.
#[derive(Debug)]
pub enum Piece {
    /// The next bytes.
    Bytes(Bytes),
    /// Names learnt while the bytes streamed by (links of a page): they count for their directory as if it had
    /// been listed.
    Known(Known),
}

/// Names of one directory that were learnt on the way.
#[derive(Debug)]
pub struct Known {
    /// The directory they belong to.
    pub dir: FileId,
    /// The names. Several `Known` may come for one directory; they add up.
    pub page: Answer<Page>,
}

/// Content on its way: a stream of bytes of exactly one version of one file.
///
/// The stream ends with `None` only when every announced byte has been delivered; a body that was cut short ends
/// with an error. Dropping the body stops the transfer. Not reading it holds the source back.
pub struct Body {
    /// The file whose bytes these are.
    pub file: FileId,
    /// The version whose bytes these are.
    pub version: Version,
    /// Offset of the first byte delivered.
    pub start: u64,
    /// Length in bytes of the whole file (not of this stream), where announced.
    pub file_length: Option<u64>,
    /// Whether this file can be fetched from the middle under this version, so that the stream may be dropped
    /// early and taken up again.
    pub resumable: bool,
    /// The bytes, and names learnt from them.
    pub stream: BoxStream<'static, Result<Piece>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("file", &self.file)
            .field("version", &self.version)
            .field("start", &self.start)
            .field("file_length", &self.file_length)
            .field("resumable", &self.resumable)
            .finish_non_exhaustive()
    }
}

/// A body that came with an answer about something else.
///
/// When `body.file` is not the file that was asked for (the page of a directory), the bytes become that file's
/// content only if the names learnt from the stream include it; otherwise (a generated index) they are dropped.
#[derive(Debug)]
pub struct Along {
    /// The bytes.
    pub body: Body,
    /// The directory whose listing the stream will have delivered as [`Known`] when it ends; `None` when it only
    /// carries a file.
    pub lists: Option<FileId>,
    /// How long the bytes may be trusted as the content of `body.file`.
    pub lease: crate::Lease,
    /// Who may be shown them.
    pub audience: crate::Audience,
}
