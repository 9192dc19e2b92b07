//! What has come to a name: where there was nothing, or something of another kind, as far as is known.
//!
//! In a tree whose files are what their names say, what comes has the identity of what was there before. Of that nothing counts
//! any more, for however long it was to be trusted: of a file its content, of a directory the names in it. These are forgotten,
//! so that each of them comes as well when it is found again, with all that is below it.

use weft_remote::{FileKind, Sameness};
use weft_store::{DentryRecord, DentryTarget, NodeId};

use crate::Result;
use crate::vfs::Vfs;

impl Vfs {
    /// Whether this has come to a name of which that is known.
    pub(crate) fn has_come(&self, known: Option<&DentryRecord>, id: NodeId) -> Result<bool> {
        match known.map(|known| known.target) {
            None | Some(DentryTarget::Absent) => Ok(true),
            Some(DentryTarget::Node(was)) if was == id => Ok(false),
            // The kind of what a page links to may be unknown: that says nothing of what was there.
            Some(DentryTarget::Node(was)) => {
                Ok(self.store.node(was)?.is_some_and(|was| was.attributes.kind != FileKind::Unknown))
            }
        }
    }

    /// Has nothing count of what was known of a node before its source told of it itself, where that may be of another. The names
    /// are not locked.
    pub(crate) fn leave_what_was(&self, id: NodeId, kind: FileKind, version: Sameness, has_come: bool) -> Result<()> {
        let is_other = match version {
            _ if kind == FileKind::Directory => has_come,
            Sameness::Same | Sameness::Equivalent => false,
            Sameness::Different => true,
            Sameness::CannotTell => has_come,
        };
        match (is_other, kind) {
            (false, _) => Ok(()),
            (true, FileKind::Directory) => self.forget_below(id),
            (true, _) => self.distrust_content(id),
        }
    }

    /// Forgets what was in a directory before it came. The names are not locked.
    pub(crate) fn forget_below(&self, dir: NodeId) -> Result<()> {
        self.forget_listing(dir)?;
        self.forget_names(dir)
    }
}
