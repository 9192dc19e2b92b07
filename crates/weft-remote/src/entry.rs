//! Names in directories, and what comes back when one asks for them.

use std::sync::Arc;

use crate::{Along, Attributes, Body, FileId, Name, Version};

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// What it names.
    pub id: FileId,
    /// What the source told about it along with the name.
    pub attributes: Attributes,
    /// The content's version where the listing tells it.
    pub version: Version,
}

/// A file that was looked up or checked.
#[derive(Debug)]
pub struct Found {
    /// The entry, under the name that was asked for.
    pub entry: Entry,
    /// Bytes that came with the answer: of the file itself, or of the page of the directory.
    pub along: Option<Along>,
}

/// The outcome of checking something of which a version is known.
#[derive(Debug)]
pub enum Checked {
    /// It still is that version; what is known of it holds.
    Unchanged,
    /// It is this now. The id differs from the one asked for where the name now leads elsewhere (a page became
    /// a directory).
    Is(Box<Found>),
    /// Its content is that of the known version still. What else is told of it, and its version, are these now.
    Touched(Box<Entry>),
}

/// Whether a listing is all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Completeness {
    /// A name that is not listed does not exist.
    Complete,
    /// There may be more than is listed (the links of a page).
    Partial,
    /// As `Complete`, except for names that web servers leave out of their lists as they are set up: those that start with a
    /// dot, and what Apache's `IndexIgnore` has (`HEADER*`, `README*`, `*~`, `*#`, `*,v`, `*,t`, `RCS`, `CVS`).
    CompleteButHidden,
    /// As `Complete`, except for names that end with `@sys`: the source (AFS) reads those as others.
    CompleteButAtSys,
}

impl Completeness {
    /// Whether a listing that lacks `name` says that there is no such name.
    pub fn denies(self, name: &Name) -> bool {
        match self {
            Completeness::Complete => true,
            Completeness::CompleteButHidden => !is_left_out(name.as_bytes()),
            Completeness::CompleteButAtSys => !name.as_bytes().ends_with(b"@sys"),
            Completeness::Partial => false,
        }
    }
}

/// Whether servers leave a name out of their lists although it is there: `conf/extra/httpd-autoindex.conf` of Apache 2.4, and
/// dots, which nginx and lighttpd leave out as well.
fn is_left_out(name: &[u8]) -> bool {
    let begins = [&b"."[..], b"HEADER", b"README"].iter().any(|begin| name.starts_with(begin));
    let ends = [&b"~"[..], b"#", b",v", b",t"].iter().any(|end| name.ends_with(end));
    begins || ends || matches!(name, b"RCS" | b"CVS")
}

/// Where a listing goes on; the kind's own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

/// Some or all names of a directory.
#[derive(Debug)]
pub struct Page {
    /// The names, each once, in the source's order.
    pub entries: Vec<Entry>,
    /// Whether all pages of this listing together are all there is.
    pub completeness: Completeness,
    /// Where to go on; `None` when this was the last page.
    pub next: Option<Cursor>,
}

/// The outcome of listing a directory.
#[derive(Debug)]
pub enum Listing {
    /// The listing of the known version still holds.
    Unchanged,
    /// A page of names, and bytes that came along (the page that held the links), if any.
    Page(Page, Option<Along>),
    /// A page of a listing that was told before: its rows that are new or may be others, and those that stand, of which all was
    /// told before and no change has been told since. Who has not kept these takes them as rows.
    Changes(Page, Vec<Arc<Entry>>),
}

/// The outcome of fetching content.
#[derive(Debug)]
pub struct Fetched {
    /// What the source says of the file now.
    pub attributes: Attributes,
    /// The bytes.
    pub body: Body,
}
