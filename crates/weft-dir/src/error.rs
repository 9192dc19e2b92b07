//! What can go wrong, in sentences.

use std::path::PathBuf;

use rustix::io::Errno;
use weft_remote::RemoteError;

/// Why a directory cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The path does not start at the root.
    #[error("{}: name the directory by its absolute path", path.display())]
    Relative {
        /// As given.
        path: PathBuf,
    },
    /// The directory cannot be opened.
    #[error("{}: {source}: name a directory that this user may enter and read", path.display())]
    Open {
        /// As given.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The kernel lacks what keeps names from leading out.
    #[error("{}: openat2: {source}: this needs Linux 5.6 or newer, and a sandbox that allows openat2", path.display())]
    Unsafe {
        /// As given.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The thread that hears of changes cannot be started.
    #[error("{}: no thread to hear of changes: {source}", path.display())]
    Thread {
        /// As given.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}

/// A failed system call on `shown` as the contract's error.
pub(crate) fn failed(shown: &str, doing: &str, errno: Errno) -> RemoteError {
    let detail = format!("{shown}: {doing}: {}", words(errno));
    match errno {
        Errno::NOENT | Errno::STALE => RemoteError::NotFound { detail },
        Errno::ACCESS => RemoteError::Denied {
            detail: format!("{detail} (the user that weft runs as needs the right to do that there)"),
        },
        Errno::PERM => RemoteError::NotPermitted {
            detail: format!(
                "{detail} (the user that weft runs as is not its owner, or it is immutable or can only be appended to, which \
                 lsattr shows)"
            ),
        },
        Errno::NOTDIR => RemoteError::NotADirectory { detail },
        Errno::ISDIR => RemoteError::IsADirectory { detail },
        Errno::NAMETOOLONG | Errno::ILSEQ | Errno::LOOP => RemoteError::BadName { detail },
        Errno::EXIST => RemoteError::Exists { detail },
        Errno::NOTEMPTY => RemoteError::NotEmpty { detail },
        Errno::NOSPC => RemoteError::NoSpace { detail },
        Errno::DQUOT => RemoteError::OverQuota { detail },
        Errno::MLINK | Errno::FBIG | Errno::TOOBIG | Errno::RANGE => RemoteError::TooMuch { detail },
        Errno::INVAL => RemoteError::Invalid { detail },
        Errno::ROFS => RemoteError::ReadOnly { detail },
        Errno::OPNOTSUPP | Errno::NOSYS => RemoteError::Unsupported { detail },
        // Subvolumes, quotas of projects, what is of several layers of an overlay: whoever would move it copies.
        Errno::XDEV => RemoteError::OtherTree { detail },
        Errno::BUSY | Errno::TXTBSY | Errno::AGAIN => RemoteError::Busy { detail, retry_after: None },
        Errno::MFILE | Errno::NFILE => RemoteError::TooManyOpen { detail },
        Errno::NOTCONN | Errno::HOSTDOWN | Errno::HOSTUNREACH => RemoteError::Unreachable { detail },
        Errno::TIMEDOUT => RemoteError::TimedOut { detail },
        _ => RemoteError::Failed { detail },
    }
}

/// The system's words for an error.
fn words(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_in_the_contracts_words() {
        let told = |errno| failed("/srv/x", "open", errno);
        assert!(matches!(told(Errno::NOENT), RemoteError::NotFound { .. }));
        assert!(matches!(told(Errno::ACCESS), RemoteError::Denied { .. }));
        assert!(matches!(told(Errno::NAMETOOLONG), RemoteError::BadName { .. }));
        assert!(matches!(told(Errno::EXIST), RemoteError::Exists { .. }));
        assert!(matches!(told(Errno::NOTEMPTY), RemoteError::NotEmpty { .. }));
        assert!(matches!(told(Errno::NOSPC), RemoteError::NoSpace { .. }));
        assert!(matches!(told(Errno::DQUOT), RemoteError::OverQuota { .. }));
        assert!(matches!(told(Errno::PERM), RemoteError::NotPermitted { .. }));
        assert!(matches!(told(Errno::MLINK), RemoteError::TooMuch { .. }));
        assert!(matches!(told(Errno::INVAL), RemoteError::Invalid { .. }));
        assert!(matches!(told(Errno::XDEV), RemoteError::OtherTree { .. }));
        assert!(matches!(told(Errno::IO), RemoteError::Failed { .. }));
        let denied = told(Errno::ACCESS).to_string();
        assert!(denied.contains("/srv/x") && denied.contains("needs the right"), "{denied}");
    }
}
