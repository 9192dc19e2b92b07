//! The codes of abort, table by table.

use super::{Means, Next};
use Means::{
    BadName, Busy, Damaged, Denied, Exists, Failed, Invalid, IsADirectory, Loop, NoSpace, NotADirectory, NotEmpty,
    NotFound, OtherTree, OverQuota, ReadOnly, TimedOut, TooMuch, Unreachable, Unsupported,
};
use Next::{AskVldb, DoubtToken, DropToken, GiveUp, NextAddress, NextSite, OlderCall, Reconnect, Wait};

/// One code.
pub(super) struct Row {
    /// The code, or its place in a [`Table`].
    pub code: i32,
    /// How it is called.
    pub name: &'static str,
    /// What it says; empty where the name says it.
    pub words: &'static str,
    /// The contract's error.
    pub means: Means,
    /// What to do.
    pub next: Next,
}

/// 256 codes, of which the first are named.
pub(super) struct Table {
    /// The table's name as `com_err` has it, from which its first code is made.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the first code of it"))]
    pub name: &'static str,
    /// The first code.
    pub base: i32,
    /// The codes in their order.
    pub rows: &'static [Row],
    /// The codes that have no row.
    pub other: Row,
}

impl Table {
    /// Whether the code is of this table.
    pub fn holds(&self, code: i32) -> bool {
        code & !(CODES - 1) == self.base
    }

    /// The row of a code of this table.
    pub fn row(&self, code: i32) -> &Row {
        usize::try_from(code - self.base).ok().and_then(|place| self.rows.get(place)).unwrap_or(&self.other)
    }
}

/// Codes of a table.
pub(super) const CODES: i32 = 256;

const fn row(code: i32, name: &'static str, words: &'static str, means: Means, next: Next) -> Row {
    Row { code, name, words, means, next }
}

/// A code that its place in a table tells.
const fn placed(name: &'static str, words: &'static str, means: Means, next: Next) -> Row {
    row(0, name, words, means, next)
}

/// An error of a system, whose name says it.
const fn error(name: &'static str, means: Means, next: Next) -> Row {
    row(0, name, "", means, next)
}

/// What is not named anywhere.
pub(super) const OTHER: Row = row(0, "unknown", "the server failed", Failed, GiveUp);
/// What Rx does not name: as if the server had gone.
pub(super) const OTHER_RX: Row = row(-1, "unknown", "the call failed", Unreachable, NextAddress);

/// Rx, its stubs, and the volumes.
pub(super) const VOLUMES: &[Row] = &[
    row(-1, "RX_CALL_DEAD", "the server is silent", TimedOut, NextAddress),
    row(-2, "RX_INVALID_OPERATION", "the server has no such service", Failed, NextSite),
    // The server is there, and only this call hangs.
    row(-3, "RX_CALL_TIMEOUT", "the call took too long", TimedOut, NextSite),
    row(-4, "RX_EOF", "the call ended too early", Damaged, NextAddress),
    row(-5, "RX_PROTOCOL_ERROR", "the server does not understand our packets", Damaged, NextAddress),
    row(-6, "RX_USER_ABORT", "the call was ended", Failed, NextAddress),
    row(-7, "RX_ADDRINUSE", "the port is in use", Failed, NextAddress),
    row(-8, "RX_MSGSIZE", "packets were too large for the way", Busy, Reconnect),
    row(-100, "VRESTARTING", "the server is starting", Busy, Wait),
    row(-450, "RXGEN_CC_MARSHAL", "the request could not be sent", Unreachable, NextAddress),
    row(-451, "RXGEN_CC_UNMARSHAL", "the reply could not be read", Damaged, NextAddress),
    row(-452, "RXGEN_SS_MARSHAL", "the server could not send its reply", Damaged, NextSite),
    row(-453, "RXGEN_SS_UNMARSHAL", "the server cannot read the request", Unsupported, GiveUp),
    row(-454, "RXGEN_DECODE", "the server cannot read the request", Unsupported, GiveUp),
    row(-455, "RXGEN_OPCODE", "the server has no such call", Unsupported, OlderCall),
    row(101, "VSALVAGE", "the volume needs repair", Unreachable, AskVldb),
    row(102, "VNOVNODE", "the volume has no such file", NotFound, GiveUp),
    row(103, "VNOVOL", "the server does not have the volume", Unreachable, AskVldb),
    row(104, "VVOLEXISTS", "the volume exists already", Exists, GiveUp),
    row(105, "VNOSERVICE", "the volume is not in service", Unreachable, NextSite),
    row(106, "VOFFLINE", "the volume is offline", Unreachable, AskVldb),
    row(107, "VONLINE", "the volume is online already", Exists, GiveUp),
    row(108, "VDISKFULL", "the server's partition is full", NoSpace, GiveUp),
    row(109, "VOVERQUOTA", "the volume has used its quota", OverQuota, GiveUp),
    row(110, "VBUSY", "the volume is busy", Busy, Wait),
    row(111, "VMOVED", "the volume has moved", Unreachable, AskVldb),
    row(112, "VIO", "the server cannot read the file", Failed, NextSite),
    row(113, "VSALVAGING", "the volume is being repaired", Busy, Wait),
    row(120, "VRESTRICTED", "the volume may not be used there", Failed, GiveUp),
    row(1234, "VICECONNBAD", "the server has forgotten the connection", Unreachable, Reconnect),
    row(1235, "VICETOKENDEAD", "the server has forgotten the token", Denied, Reconnect),
];

/// Errors of a server's system, by their numbers on Linux. None of them is among the volumes' codes.
pub(super) const ERRNOS: &[Row] = &[
    row(1, "EPERM", "", Denied, GiveUp),
    row(2, "ENOENT", "", NotFound, GiveUp),
    row(3, "ESRCH", "", Failed, GiveUp),
    row(4, "EINTR", "", Busy, GiveUp),
    row(5, "EIO", "", Failed, NextSite),
    row(6, "ENXIO", "", Failed, GiveUp),
    row(7, "E2BIG", "", TooMuch, GiveUp),
    row(8, "ENOEXEC", "", Failed, GiveUp),
    row(9, "EBADF", "", Failed, GiveUp),
    row(10, "ECHILD", "", Failed, GiveUp),
    row(11, "EAGAIN", "", Busy, GiveUp),
    row(12, "ENOMEM", "", Busy, NextSite),
    row(13, "EACCES", "", Denied, GiveUp),
    row(14, "EFAULT", "", Failed, GiveUp),
    row(15, "ENOTBLK", "", Failed, GiveUp),
    row(16, "EBUSY", "", Busy, GiveUp),
    row(17, "EEXIST", "", Exists, GiveUp),
    row(18, "EXDEV", "", OtherTree, GiveUp),
    row(19, "ENODEV", "", Failed, GiveUp),
    row(20, "ENOTDIR", "", NotADirectory, GiveUp),
    row(21, "EISDIR", "", IsADirectory, GiveUp),
    row(22, "EINVAL", "", Invalid, GiveUp),
    row(23, "ENFILE", "", Busy, GiveUp),
    row(24, "EMFILE", "", Busy, GiveUp),
    row(25, "ENOTTY", "", Failed, GiveUp),
    row(26, "ETXTBSY", "", Busy, GiveUp),
    row(27, "EFBIG", "", TooMuch, GiveUp),
    row(28, "ENOSPC", "", NoSpace, GiveUp),
    row(29, "ESPIPE", "", Failed, GiveUp),
    row(30, "EROFS", "", ReadOnly, GiveUp),
    row(31, "EMLINK", "", TooMuch, GiveUp),
    row(32, "EPIPE", "", Failed, GiveUp),
    row(33, "EDOM", "", Failed, GiveUp),
    row(34, "ERANGE", "", TooMuch, GiveUp),
    row(35, "EDEADLOCK", "", Failed, GiveUp),
    row(36, "ENAMETOOLONG", "", BadName, GiveUp),
    row(37, "ENOLCK", "", Busy, GiveUp),
    row(38, "ENOSYS", "", Unsupported, GiveUp),
    row(39, "ENOTEMPTY", "", NotEmpty, GiveUp),
    row(40, "ELOOP", "", Loop, GiveUp),
    row(75, "EOVERFLOW", "", TooMuch, GiveUp),
    row(84, "EILSEQ", "", BadName, GiveUp),
    row(95, "EOPNOTSUPP", "", Unsupported, GiveUp),
    row(116, "ESTALE", "", NotFound, GiveUp),
    row(117, "EUCLEAN", "", Failed, NextSite),
    row(121, "EREMOTEIO", "", Failed, NextSite),
    row(122, "EDQUOT", "", OverQuota, GiveUp),
];

/// Tables whose first code is made of a name.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "U",
        base: 5376,
        rows: UBIK,
        other: placed("ubik", "the database is in trouble", Unreachable, NextSite),
    },
    Table {
        name: "PT",
        base: 267_264,
        rows: PROTECTION,
        other: placed("PT", "the protection database failed", Failed, GiveUp),
    },
    Table {
        name: "VL",
        base: 363_520,
        rows: LOCATION,
        other: placed("VL", "the volume location database failed", Failed, GiveUp),
    },
    Table {
        name: "RXK",
        base: 19_270_400,
        rows: RXKAD,
        other: placed("RXKAD", "the token is refused", Denied, DoubtToken),
    },
    Table {
        name: "RXGK",
        base: 1_233_242_880,
        rows: &[],
        other: placed("RXGK", "the token is refused", Denied, DoubtToken),
    },
    Table { name: "uae", base: 49_733_376, rows: UNIVERSAL, other: placed("UAE", "the server failed", Failed, GiveUp) },
    Table {
        name: "VOLS",
        base: 1_492_325_120,
        rows: VOLUME_SERVER,
        other: placed("VOLSER", "the volume server failed", Failed, GiveUp),
    },
];

/// The replicated databases. Another server may be better off, whatever it is.
const UBIK: &[Row] = &[
    placed("UNOQUORUM", "the database servers have not agreed on a leader", Unreachable, NextSite),
    placed("UNOTSYNC", "this database server takes no changes", Unreachable, NextSite),
];

/// The protection database.
const PROTECTION: &[Row] = &[
    placed("PREXIST", "the name is taken", Exists, GiveUp),
    placed("PRIDEXIST", "the number is taken", Exists, GiveUp),
    placed("PRNOIDS", "no number is left", TooMuch, GiveUp),
    placed("PRDBFAIL", "the database cannot be read or written", Failed, NextSite),
    placed("PRNOENT", "no such user or group", NotFound, GiveUp),
    placed("PRPERM", "not allowed", Denied, GiveUp),
    placed("PRNOTGROUP", "not a group", Invalid, GiveUp),
    placed("PRNOTUSER", "not a user", Invalid, GiveUp),
    placed("PRBADNAM", "not a name that this can have", BadName, GiveUp),
    placed("PRBADARG", "an argument is out of range", Invalid, GiveUp),
    placed("PRNOMORE", "no more groups may be made", TooMuch, GiveUp),
    placed("PRDBBAD", "the database needs repair", Failed, NextSite),
    placed("PRGROUPEMPTY", "an empty group cannot be an owner", Invalid, GiveUp),
    placed("PRINCONSISTENT", "the database contradicts itself", Failed, NextSite),
    placed("PRDBADDR", "the database has a wrong address", Failed, NextSite),
    placed("PRTOOMANY", "the group has too many members", TooMuch, GiveUp),
    placed("PRNOMEM", "the server has no memory left", Busy, NextSite),
    placed("PRINTERNAL", "the server failed inside", Failed, NextSite),
    placed("PRNAMETOOLONG", "the name is too long", BadName, GiveUp),
];

/// The volume location database.
const LOCATION: &[Row] = &[
    placed("VL_IDEXIST", "the number is taken", Exists, GiveUp),
    placed("VL_IO", "the database cannot be read or written", Failed, NextSite),
    placed("VL_NAMEEXIST", "the name is taken", Exists, GiveUp),
    placed("VL_CREATEFAIL", "the entry could not be made", Failed, GiveUp),
    placed("VL_NOENT", "the cell has no such volume", NotFound, GiveUp),
    // An empty database beside others that are not is one that has been set up again.
    placed("VL_EMPTY", "the database is empty", Unreachable, NextSite),
    placed("VL_ENTDELETED", "the volume is deleted", NotFound, GiveUp),
    placed("VL_BADNAME", "not a name that a volume can have", BadName, GiveUp),
    placed("VL_BADINDEX", "an index is out of range", Invalid, GiveUp),
    placed("VL_BADVOLTYPE", "no such type of volume", Invalid, GiveUp),
    placed("VL_BADSERVER", "a server's number is out of range", Invalid, GiveUp),
    placed("VL_BADPARTITION", "no such partition", Invalid, GiveUp),
    placed("VL_REPSFULL", "the volume has as many sites as it can have", TooMuch, GiveUp),
    placed("VL_NOREPSERVER", "the volume has no such site", NotFound, GiveUp),
    placed("VL_DUPREPSERVER", "the volume has that site already", Exists, GiveUp),
    placed("VL_RWNOTFOUND", "the read-write volume is not there", NotFound, GiveUp),
    placed("VL_BADREFCOUNT", "a wrong number of references", Invalid, GiveUp),
    placed("VL_SIZEEXCEEDED", "the answer is too large", TooMuch, GiveUp),
    placed("VL_BADENTRY", "the entry is wrong", Invalid, GiveUp),
    placed("VL_BADVOLIDBUMP", "too many numbers of volumes were asked for", Invalid, GiveUp),
    placed("VL_IDALREADYHASHED", "the number of a copy is taken", Exists, GiveUp),
    placed("VL_ENTRYLOCKED", "the volume's entry is locked", Busy, Wait),
    placed("VL_BADVOLOPER", "no such operation on a volume", Invalid, GiveUp),
    placed("VL_BADRELLOCKTYPE", "no such way to unlock", Invalid, GiveUp),
    placed("VL_RERELEASE", "the last release was not finished", Failed, GiveUp),
    placed("VL_BADSERVERFLAG", "a site has a wrong flag", Invalid, GiveUp),
    placed("VL_PERM", "not allowed", Denied, GiveUp),
    placed("VL_NOMEM", "the server has no memory left", Busy, NextSite),
    placed("VL_BADVERSION", "the database is of another version", Failed, NextSite),
    placed("VL_INDEXERANGE", "an index is out of range", Invalid, GiveUp),
    placed("VL_MULTIPADDR", "several servers have that address", Failed, GiveUp),
    placed("VL_BADMASK", "an attribute that there is not", Invalid, GiveUp),
    placed("VL_DBBAD", "the database contradicts itself", Failed, NextSite),
];

/// Tokens of Kerberos.
const RXKAD: &[Row] = &[
    placed("RXKADINCONSISTENCY", "the server's security module is in trouble", Damaged, DoubtToken),
    placed("RXKADPACKETSHORT", "a packet of the security module is too short", Damaged, DoubtToken),
    placed("RXKADLEVELFAIL", "the server wants another level of security", Denied, DoubtToken),
    placed("RXKADTICKETLEN", "the ticket is too long or too short", Denied, DoubtToken),
    placed("RXKADOUTOFSEQUENCE", "a packet has a wrong number", Damaged, DoubtToken),
    placed("RXKADNOAUTH", "the token is not accepted", Denied, DoubtToken),
    placed("RXKADBADKEY", "the key is weak", Denied, DoubtToken),
    placed("RXKADBADTICKET", "the ticket is wrong", Denied, DoubtToken),
    placed("RXKADUNKNOWNKEY", "the server does not know the ticket's key", Denied, DoubtToken),
    placed("RXKADEXPIRED", "the token has expired: get a new one", Denied, DropToken),
    placed("RXKADSEALEDINCON", "a packet was changed on its way", Denied, DoubtToken),
    placed("RXKADDATALEN", "a packet is too long", Damaged, DoubtToken),
    placed("RXKADILLEGALLEVEL", "the server does not allow encryption", Denied, DoubtToken),
];

/// The volume server.
const VOLUME_SERVER: &[Row] = &[
    placed("VOLSERTRELE_ERROR", "the transaction could not be ended", Failed, GiveUp),
    placed("VOLSERNO_OP", "the volume server failed inside", Failed, GiveUp),
    placed("VOLSERREAD_DUMPERROR", "the dump is damaged", Damaged, GiveUp),
    placed("VOLSERDUMPERROR", "the dump is damaged", Damaged, GiveUp),
    placed("VOLSERATTACH_ERROR", "the volume cannot be attached", Failed, GiveUp),
    placed("VOLSERILLEGAL_PARTITION", "no such partition", Invalid, GiveUp),
    placed("VOLSERDETACH_ERROR", "the volume cannot be detached", Failed, GiveUp),
    placed("VOLSERBAD_ACCESS", "not allowed", Denied, GiveUp),
    placed("VOLSERVLDB_ERROR", "the volume location database failed", Failed, GiveUp),
    placed("VOLSERBADNAME", "not a name that a volume can have", BadName, GiveUp),
    placed("VOLSERVOLMOVED", "the volume has moved", Unreachable, AskVldb),
    placed("VOLSERBADOP", "no such operation on a volume", Invalid, GiveUp),
    placed("VOLSERBADRELEASE", "the release failed", Failed, GiveUp),
    placed("VOLSERVOLBUSY", "the volume is in use", Busy, Wait),
    placed("VOLSERNO_MEMORY", "the server has no memory left", Busy, Wait),
    placed("VOLSERNOVOL", "the server does not have the volume", Unreachable, AskVldb),
    placed("VOLSERMULTIRWVOL", "there are several read-write volumes", Failed, GiveUp),
    placed("VOLSERFAILEDOP", "the operation failed", Failed, GiveUp),
];

/// Errors of systems, by numbers that all systems share.
const UNIVERSAL: &[Row] = &[
    error("EPERM", Denied, GiveUp),
    error("ENOENT", NotFound, GiveUp),
    error("ESRCH", Failed, GiveUp),
    error("EINTR", Busy, GiveUp),
    error("EIO", Failed, NextSite),
    error("ENXIO", Failed, GiveUp),
    error("E2BIG", TooMuch, GiveUp),
    error("ENOEXEC", Failed, GiveUp),
    error("EBADF", Failed, GiveUp),
    error("ECHILD", Failed, GiveUp),
    error("EAGAIN", Busy, GiveUp),
    error("ENOMEM", Busy, NextSite),
    error("EACCES", Denied, GiveUp),
    error("EFAULT", Failed, GiveUp),
    error("ENOTBLK", Failed, GiveUp),
    error("EBUSY", Busy, GiveUp),
    error("EEXIST", Exists, GiveUp),
    error("EXDEV", OtherTree, GiveUp),
    error("ENODEV", Failed, GiveUp),
    error("ENOTDIR", NotADirectory, GiveUp),
    error("EISDIR", IsADirectory, GiveUp),
    error("EINVAL", Invalid, GiveUp),
    error("ENFILE", Busy, GiveUp),
    error("EMFILE", Busy, GiveUp),
    error("ENOTTY", Failed, GiveUp),
    error("ETXTBSY", Busy, GiveUp),
    error("EFBIG", TooMuch, GiveUp),
    error("ENOSPC", NoSpace, GiveUp),
    error("ESPIPE", Failed, GiveUp),
    error("EROFS", ReadOnly, GiveUp),
    error("EMLINK", TooMuch, GiveUp),
    error("EPIPE", Failed, GiveUp),
    error("EDOM", Failed, GiveUp),
    error("ERANGE", TooMuch, GiveUp),
    error("EDEADLK", Busy, GiveUp),
    error("ENAMETOOLONG", BadName, GiveUp),
    error("ENOLCK", Busy, GiveUp),
    error("ENOSYS", Unsupported, GiveUp),
    error("ENOTEMPTY", NotEmpty, GiveUp),
    error("ELOOP", Loop, GiveUp),
    error("EWOULDBLOCK", Busy, GiveUp),
    error("ENOMSG", Failed, GiveUp),
    error("EIDRM", Failed, GiveUp),
    error("ECHRNG", Failed, GiveUp),
    error("EL2NSYNC", Failed, GiveUp),
    error("EL3HLT", Failed, GiveUp),
    error("EL3RST", Failed, GiveUp),
    error("ELNRNG", Failed, GiveUp),
    error("EUNATCH", Failed, GiveUp),
    error("ENOCSI", Failed, GiveUp),
    error("EL2HLT", Failed, GiveUp),
    error("EBADE", Failed, GiveUp),
    error("EBADR", Failed, GiveUp),
    error("EXFULL", Failed, GiveUp),
    error("ENOANO", Failed, GiveUp),
    error("EBADRQC", Failed, GiveUp),
    error("EBADSLT", Failed, GiveUp),
    error("EBFONT", Failed, GiveUp),
    error("ENOSTR", Failed, GiveUp),
    error("ENODATA", Failed, GiveUp),
    error("ETIME", TimedOut, GiveUp),
    error("ENOSR", Failed, GiveUp),
    error("ENONET", Unreachable, NextSite),
    error("ENOPKG", Failed, GiveUp),
    error("EREMOTE", Failed, GiveUp),
    error("ENOLINK", Failed, GiveUp),
    error("EADV", Failed, GiveUp),
    error("ESRMNT", Failed, GiveUp),
    error("ECOMM", Failed, GiveUp),
    error("EPROTO", Damaged, GiveUp),
    error("EMULTIHOP", Failed, GiveUp),
    error("EDOTDOT", Failed, GiveUp),
    error("EBADMSG", Damaged, GiveUp),
    error("EOVERFLOW", TooMuch, GiveUp),
    error("ENOTUNIQ", Failed, GiveUp),
    error("EBADFD", Failed, GiveUp),
    error("EREMCHG", Failed, GiveUp),
    error("ELIBACC", Failed, GiveUp),
    error("ELIBBAD", Failed, GiveUp),
    error("ELIBSCN", Failed, GiveUp),
    error("ELIBMAX", Failed, GiveUp),
    error("ELIBEXEC", Failed, GiveUp),
    error("EILSEQ", BadName, GiveUp),
    error("ERESTART", Busy, GiveUp),
    error("ESTRPIPE", Failed, GiveUp),
    error("EUSERS", Failed, GiveUp),
    error("ENOTSOCK", Failed, GiveUp),
    error("EDESTADDRREQ", Failed, GiveUp),
    error("EMSGSIZE", Failed, GiveUp),
    error("EPROTOTYPE", Failed, GiveUp),
    error("ENOPROTOOPT", Failed, GiveUp),
    error("EPROTONOSUPPORT", Failed, GiveUp),
    error("ESOCKTNOSUPPORT", Failed, GiveUp),
    error("EOPNOTSUPP", Unsupported, GiveUp),
    error("EPFNOSUPPORT", Failed, GiveUp),
    error("EAFNOSUPPORT", Failed, GiveUp),
    error("EADDRINUSE", Failed, GiveUp),
    error("EADDRNOTAVAIL", Failed, GiveUp),
    error("ENETDOWN", Unreachable, NextSite),
    error("ENETUNREACH", Unreachable, NextSite),
    error("ENETRESET", Unreachable, NextSite),
    error("ECONNABORTED", Unreachable, NextSite),
    error("ECONNRESET", Unreachable, NextSite),
    error("ENOBUFS", Busy, GiveUp),
    error("EISCONN", Failed, GiveUp),
    error("ENOTCONN", Failed, GiveUp),
    error("ESHUTDOWN", Unreachable, NextSite),
    error("ETOOMANYREFS", Failed, GiveUp),
    error("ETIMEDOUT", TimedOut, NextSite),
    error("ECONNREFUSED", Unreachable, NextSite),
    error("EHOSTDOWN", Unreachable, NextSite),
    error("EHOSTUNREACH", Unreachable, NextSite),
    error("EALREADY", Busy, GiveUp),
    error("EINPROGRESS", Busy, GiveUp),
    error("ESTALE", NotFound, GiveUp),
    error("EUCLEAN", Failed, NextSite),
    error("ENOTNAM", Failed, GiveUp),
    error("ENAVAIL", Failed, GiveUp),
    error("EISNAM", Failed, GiveUp),
    error("EREMOTEIO", Failed, NextSite),
    error("EDQUOT", OverQuota, GiveUp),
    error("ENOMEDIUM", Unreachable, NextSite),
    error("EMEDIUMTYPE", Failed, GiveUp),
    error("ECANCELED", Failed, GiveUp),
    error("ENOTRECOVERABLE", Failed, GiveUp),
    error("ENOTSUP", Unsupported, GiveUp),
    error("EOTHER", Failed, GiveUp),
    error("EOWNERDEAD", Failed, GiveUp),
    error("EPROCLIM", Busy, GiveUp),
    error("EDISCON", Unreachable, NextSite),
];
