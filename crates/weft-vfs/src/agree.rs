//! Whether two tellings of a file's attributes can be about the same content, and what both together say.

use std::time::{Duration, SystemTime};

use weft_remote::{Attributes, Figure, FileKind, Sameness};

/// Whether a listing's row says more than the name.
pub(crate) fn tells_attributes(attributes: &Attributes) -> bool {
    (attributes.kind == FileKind::Directory && !lacks_times(attributes))
        || attributes.size != Figure::Unknown
        || attributes.modified != Figure::Unknown
}

/// Whether a listing's row tells of a file all that one of the same name could differ in.
pub(crate) fn tells_exactly(attributes: &Attributes) -> bool {
    attributes.size.exact().is_some() && attributes.modified.exact().is_some()
}

/// Whether this is what is told of a directory in passing, by a source that tells its times to whoever asks: one that tells
/// owners.
pub(crate) fn lacks_times(attributes: &Attributes) -> bool {
    attributes.kind == FileKind::Directory && attributes.owner.is_some() && attributes.modified == Figure::Unknown
}

/// Whether a listing's row cannot be about the same content as what is known.
pub(crate) fn contradicts(known: &Attributes, row: &Attributes) -> bool {
    sizes_differ(known.size, row.size) || times_differ(known.modified, row.modified)
}

/// The finer figures of two tellings that agree.
pub(crate) fn finer(known: &Attributes, row: &Attributes) -> Attributes {
    Attributes {
        kind: if known.kind == FileKind::Unknown { row.kind } else { known.kind },
        size: finer_figure(known.size, row.size),
        modified: finer_figure(known.modified, row.modified),
        mode: known.mode.or(row.mode),
        owner: known.owner.or(row.owner),
        changed: finer_figure(known.changed, row.changed),
        accessed: finer_figure(known.accessed, row.accessed),
        links: known.links.or(row.links),
        device: known.device.or(row.device),
        allocated: known.allocated.or(row.allocated),
        has_access_list: known.has_access_list,
    }
}

/// The same where the row was asked for after what is known: what it tells besides size and time, which say nothing of
/// modes, owners and names, counts.
pub(crate) fn newer(known: &Attributes, row: &Attributes) -> Attributes {
    Attributes {
        mode: row.mode.or(known.mode),
        owner: row.owner.or(known.owner),
        changed: finer_figure(row.changed, known.changed),
        links: row.links.or(known.links),
        device: row.device.or(known.device),
        allocated: row.allocated.or(known.allocated),
        has_access_list: row.has_access_list,
        ..finer(known, row)
    }
}

/// What a source says of a file itself, with the time that is known of it where this tells none: lists tell the times of files
/// whose own answers do not. Not where the two can be about different content: one length is the least.
pub(crate) fn with_time_known(told: Attributes, known: &Attributes, versions: Sameness) -> Attributes {
    let is_same = match versions {
        Sameness::Same | Sameness::Equivalent => true,
        Sameness::Different => false,
        Sameness::CannotTell => are_sizes_known(&told, known) && !sizes_differ(known.size, told.size),
    };
    match told.kind == FileKind::File && told.modified == Figure::Unknown && is_same {
        true => Attributes { modified: known.modified, ..told },
        false => told,
    }
}

fn are_sizes_known(one: &Attributes, other: &Attributes) -> bool {
    one.size != Figure::Unknown && other.size != Figure::Unknown
}

fn sizes_differ(known: Figure<u64>, row: Figure<u64>) -> bool {
    match (known, row) {
        (Figure::Exact(known), Figure::Exact(row)) | (Figure::Rounded(known), Figure::Rounded(row)) => known != row,
        (Figure::Exact(known), Figure::Rounded(row)) | (Figure::Rounded(known), Figure::Exact(row)) => {
            known.abs_diff(row) > known.max(row) / ROUNDING_PART + ROUNDING_BYTES
        }
        (Figure::Unknown, _) | (_, Figure::Unknown) => false,
    }
}

fn times_differ(known: Figure<SystemTime>, row: Figure<SystemTime>) -> bool {
    match (known, row) {
        (Figure::Exact(known), Figure::Exact(row)) | (Figure::Rounded(known), Figure::Rounded(row)) => known != row,
        (Figure::Exact(exact), Figure::Rounded(minute)) | (Figure::Rounded(minute), Figure::Exact(exact)) => {
            exact < minute || minute.checked_add(ROUNDING_TIME).is_some_and(|next| exact >= next)
        }
        (Figure::Unknown, _) | (_, Figure::Unknown) => false,
    }
}

fn finer_figure<T: Copy>(known: Figure<T>, row: Figure<T>) -> Figure<T> {
    match (known, row) {
        (Figure::Exact(_), _) | (Figure::Rounded(_), Figure::Rounded(_) | Figure::Unknown) => known,
        (Figure::Rounded(_), Figure::Exact(_)) | (Figure::Unknown, _) => row,
    }
}

/// A rounded size (`1.2K`, `17M`) lies within a tenth of the exact one.
const ROUNDING_PART: u64 = 10;
/// And small ones within a KiB.
const ROUNDING_BYTES: u64 = 1024;
/// Index pages give times to the minute, and leave out the seconds (`%H:%M`, mod_autoindex, ngx_http_autoindex_module).
const ROUNDING_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: Figure<u64>, modified: Figure<SystemTime>) -> Attributes {
        Attributes { size, modified, ..Attributes::of_kind(FileKind::File) }
    }

    #[test]
    fn a_row_that_is_newer_counts_in_what_sizes_and_times_do_not_tell() {
        let at = |seconds| Figure::Exact(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let bare = row(Figure::Exact(7), at(70));
        let known = Attributes { mode: Some(0o644), links: Some(1), changed: at(70), ..bare };
        let told = Attributes { mode: Some(0o600), links: Some(2), changed: at(80), ..bare };
        assert!(!contradicts(&known, &told));
        assert_eq!((newer(&known, &told), finer(&known, &told)), (told, known));
        assert_eq!(newer(&known, &bare), known, "a row that tells nothing of them");
    }

    #[test]
    fn a_time_stays_where_the_same_content_is_told_without_one() {
        let minute = Figure::Rounded(SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        let listed = row(Figure::Rounded(1000), minute);
        let (told, longer) = (row(Figure::Exact(1010), Figure::Unknown), row(Figure::Exact(10_000), Figure::Unknown));
        let unmeasured = row(Figure::Unknown, Figure::Unknown);
        for (told, versions, stays) in [
            (told, Sameness::CannotTell, true),
            (told, Sameness::Different, false),
            (longer, Sameness::CannotTell, false),
            (unmeasured, Sameness::CannotTell, false),
            (unmeasured, Sameness::Same, true),
        ] {
            let both = with_time_known(told, &listed, versions);
            assert_eq!(
                (both.size, both.modified),
                (told.size, if stays { minute } else { Figure::Unknown }),
                "{told:?}"
            );
        }
        let later = Figure::Exact(SystemTime::UNIX_EPOCH + Duration::from_secs(90));
        let own = row(Figure::Exact(1010), later);
        assert_eq!(with_time_known(own, &listed, Sameness::CannotTell).modified, later);
    }

    #[test]
    fn a_coarser_row_that_agrees_confirms_and_one_that_differs_contradicts() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let known = row(Figure::Exact(1234), Figure::Exact(at(1_000_047)));
        let agrees = row(Figure::Rounded(1229), Figure::Rounded(at(1_000_020)));
        assert!(!contradicts(&known, &agrees));
        assert_eq!(finer(&known, &agrees), known);
        assert!(contradicts(&known, &row(Figure::Exact(1235), Figure::Unknown)));
        assert!(contradicts(&known, &row(Figure::Exact(1234), Figure::Rounded(at(1_000_200)))));
        assert!(contradicts(&known, &row(Figure::Exact(1234), Figure::Exact(at(1_000_048)))));
        assert!(contradicts(&known, &row(Figure::Exact(1234), Figure::Rounded(at(1_000_080)))), "a later minute");
        assert!(contradicts(&agrees, &row(Figure::Unknown, Figure::Rounded(at(1_000_080)))), "the next minute");
        assert!(!contradicts(&row(Figure::Unknown, Figure::Unknown), &known));
        assert_eq!(finer(&agrees, &known), known);
    }
}
