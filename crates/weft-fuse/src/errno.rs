//! The one place where errors become errnos.

use weft_remote::RemoteError;
use weft_vfs::VfsError;

/// A Linux error number, from `errno(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub rustix::io::Errno);

impl Errno {
    /// Its name in C (`ENOENT`), for those that weft answers with; `other` for the rest.
    pub fn name(self) -> &'static str {
        use rustix::io::Errno as E;
        match self.0 {
            E::NOENT => "ENOENT",
            E::IO => "EIO",
            E::ACCESS => "EACCES",
            E::STALE => "ESTALE",
            E::NOTDIR => "ENOTDIR",
            E::ISDIR => "EISDIR",
            E::NAMETOOLONG => "ENAMETOOLONG",
            E::TXTBSY => "ETXTBSY",
            E::BADF => "EBADF",
            E::TIMEDOUT => "ETIMEDOUT",
            E::NETDOWN => "ENETDOWN",
            E::ROFS => "EROFS",
            E::OPNOTSUPP => "EOPNOTSUPP",
            E::LOOP => "ELOOP",
            E::HOSTUNREACH => "EHOSTUNREACH",
            E::AGAIN => "EAGAIN",
            E::NOSPC => "ENOSPC",
            E::NODATA => "ENODATA",
            E::RANGE => "ERANGE",
            E::MFILE => "EMFILE",
            E::NFILE => "ENFILE",
            E::INTR => "EINTR",
            E::EXIST => "EEXIST",
            E::NOTEMPTY => "ENOTEMPTY",
            E::INVAL => "EINVAL",
            E::PERM => "EPERM",
            E::XDEV => "EXDEV",
            E::FBIG => "EFBIG",
            E::MLINK => "EMLINK",
            E::TOOBIG => "E2BIG",
            E::NXIO => "ENXIO",
            E::NOSYS => "ENOSYS",
            E::NOLCK => "ENOLCK",
            E::DEADLK => "EDEADLK",
            _ => "other",
        }
    }

    /// Of a change of bytes or length: too much of them is a file that is too long.
    pub(crate) fn of_content(error: VfsError) -> Errno {
        match error {
            VfsError::Remote(RemoteError::TooMuch { .. }) => Errno(rustix::io::Errno::FBIG),
            error => Errno::from(error),
        }
    }

    /// Of a change of an extended attribute: too much is a value that is too long.
    pub(crate) fn of_attribute(error: VfsError) -> Errno {
        match error {
            VfsError::Remote(RemoteError::TooMuch { .. }) => Errno(rustix::io::Errno::TOOBIG),
            error => Errno::from(error),
        }
    }

    /// Of a new name: one that the source cannot have is no name there, which is another thing than that it is absent.
    pub(crate) fn of_new_name(error: VfsError) -> Errno {
        match error {
            VfsError::Remote(RemoteError::BadName { .. }) => Errno(rustix::io::Errno::INVAL),
            error => Errno::from(error),
        }
    }

    /// Of a new symbolic link: too much is what it says.
    pub(crate) fn of_symlink(error: VfsError) -> Errno {
        match error {
            VfsError::Remote(RemoteError::TooMuch { .. }) => Errno(rustix::io::Errno::NAMETOOLONG),
            error => Errno::of_new_name(error),
        }
    }

    /// The number, as the kernel's protocol has it.
    pub(crate) fn raw(self) -> i32 {
        self.0.raw_os_error()
    }
}

impl From<&VfsError> for Errno {
    fn from(error: &VfsError) -> Errno {
        use rustix::io::Errno as E;
        Errno(match error {
            VfsError::NotFound => E::NOENT,
            VfsError::Stale => E::STALE,
            VfsError::NotADirectory => E::NOTDIR,
            VfsError::IsADirectory => E::ISDIR,
            VfsError::NameTooLong => E::NAMETOOLONG,
            VfsError::Denied => E::ACCESS,
            // The reader asked for bytes of a version that nobody has any more: an input error, and a named event.
            VfsError::Changed => E::IO,
            // "Text file busy": the file is held in a state that excludes this open.
            VfsError::OldVersionOpen => E::TXTBSY,
            // As a full disk is: what may be held is held.
            VfsError::NoRoom(_) => E::NOSPC,
            VfsError::Pinned => E::PERM,
            VfsError::BadHandle => E::BADF,
            VfsError::TimedOut => E::TIMEDOUT,
            // "Network is down": it is, for this tree, by the user's own word.
            VfsError::Offline => E::NETDOWN,
            VfsError::ReadOnly => E::ROFS,
            VfsError::OtherTree => E::XDEV,
            VfsError::NoAttribute => E::NODATA,
            VfsError::Remote(error) => of_remote(error),
            VfsError::Store(error) => of_store(error),
        })
    }
}

impl From<VfsError> for Errno {
    fn from(error: VfsError) -> Errno {
        Errno::from(&error)
    }
}

fn of_remote(error: &RemoteError) -> rustix::io::Errno {
    use rustix::io::Errno as E;
    match error {
        RemoteError::NotFound { .. } => E::NOENT,
        RemoteError::Denied { .. } => E::ACCESS,
        RemoteError::NotPermitted { .. } => E::PERM,
        RemoteError::NotADirectory { .. } => E::NOTDIR,
        RemoteError::IsADirectory { .. } => E::ISDIR,
        // A name that the source cannot have does not exist.
        RemoteError::BadName { .. } => E::NOENT,
        RemoteError::VersionChanged { .. } => E::IO,
        RemoteError::Exists { .. } => E::EXIST,
        RemoteError::NotEmpty { .. } => E::NOTEMPTY,
        RemoteError::NoSpace { .. } => E::NOSPC,
        // Names of one file; of its length and its attributes the callers above tell.
        RemoteError::OverQuota { .. } => E::DQUOT,
        RemoteError::OtherTree { .. } => E::XDEV,
        RemoteError::TooMuch { .. } => E::MLINK,
        RemoteError::Invalid { .. } => E::INVAL,
        RemoteError::Unplaced { .. } => E::STALE,
        RemoteError::ReadOnly { .. } => E::ROFS,
        RemoteError::Unsupported { .. } => E::OPNOTSUPP,
        RemoteError::Loop { .. } => E::LOOP,
        RemoteError::Unreachable { .. } => E::HOSTUNREACH,
        RemoteError::TimedOut { .. } => E::TIMEDOUT,
        RemoteError::Busy { .. } => E::AGAIN,
        // Not EMFILE, which is of the program's own limit.
        RemoteError::TooManyOpen { .. } => E::NFILE,
        RemoteError::CutShort { .. } => E::IO,
        RemoteError::GaveWay { .. } => E::AGAIN,
        RemoteError::Damaged { .. } => E::IO,
        RemoteError::Failed { .. } => E::IO,
    }
}

fn of_store(error: &weft_vfs::StoreError) -> rustix::io::Errno {
    use rustix::io::Errno as E;
    use weft_vfs::StoreError;
    match error {
        StoreError::Full { .. } => E::NOSPC,
        StoreError::Damaged { .. }
        | StoreError::Missing { .. }
        | StoreError::WrongLength { .. }
        | StoreError::InUse { .. }
        | StoreError::Index(_) => E::IO,
        StoreError::Io { source, .. } => match E::from_io_error(source) {
            Some(E::MFILE) => E::NFILE,
            errno => errno.unwrap_or(E::IO),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_errnos_that_semantics_promises() {
        let detail = || "x".to_string();
        let cases = [
            (VfsError::Remote(RemoteError::Unreachable { detail: detail() }), rustix::io::Errno::HOSTUNREACH),
            (VfsError::Remote(RemoteError::Loop { detail: detail() }), rustix::io::Errno::LOOP),
            (VfsError::Remote(RemoteError::Denied { detail: detail() }), rustix::io::Errno::ACCESS),
            (VfsError::Remote(RemoteError::NotPermitted { detail: detail() }), rustix::io::Errno::PERM),
            (VfsError::Remote(RemoteError::Exists { detail: detail() }), rustix::io::Errno::EXIST),
            (VfsError::Remote(RemoteError::NotEmpty { detail: detail() }), rustix::io::Errno::NOTEMPTY),
            (VfsError::Remote(RemoteError::NoSpace { detail: detail() }), rustix::io::Errno::NOSPC),
            (VfsError::Changed, rustix::io::Errno::IO),
            (VfsError::TimedOut, rustix::io::Errno::TIMEDOUT),
        ];
        for (error, errno) in cases {
            assert_eq!(Errno::from(&error).0, errno, "{error}");
        }
    }

    #[test]
    fn what_is_too_much_is_told_by_what_was_done() {
        use rustix::io::Errno as E;
        let error = || VfsError::Remote(RemoteError::TooMuch { detail: "x".to_owned() });
        let told = [Errno::of_new_name(error()), Errno::of_content(error()), Errno::of_attribute(error())];
        assert_eq!(told.map(|errno| errno.0), [E::MLINK, E::FBIG, E::TOOBIG]);
        assert_eq!(Errno::of_symlink(error()).0, E::NAMETOOLONG);
        assert_eq!(Errno::of_content(VfsError::ReadOnly).name(), "EROFS");
        assert_eq!(
            Errno::of_content(VfsError::Remote(RemoteError::Unsupported { detail: "x".to_owned() })).name(),
            "EOPNOTSUPP"
        );
    }
}
