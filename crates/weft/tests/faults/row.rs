//! One row of the table: what the server does, what the user does, and what the user must see.

use std::collections::BTreeMap;
use std::fmt;

use rustix::io::Errno;

use crate::secure::Speech;
use crate::support::Asked;

/// One lie and what must come of it.
pub struct Row {
    /// The idea that the row belongs to.
    pub case: &'static str,
    /// What is special about this row.
    pub input: String,
    /// The lie.
    pub lie: Lie,
    /// What the user does.
    pub look: Look,
    /// What the user must see at first.
    pub cold: See,
    /// The same again.
    pub warm: See,
    /// After a remount, with a server that hangs up on everybody.
    pub gone: See,
    /// After that, with a server that tells the truth, once asked to reload.
    pub healed: See,
    /// What the file has by right where the user looks, whatever the server says of it.
    pub content: Vec<u8>,
    /// Most requests that cold and warm may cost.
    pub requests_max: usize,
    /// Whether the row has a server of its own, because it keeps connections busy.
    pub own_host: bool,
    /// Whether it moves many bytes instead of waiting, so that few such rows may run at a time.
    pub busy: bool,
    /// How its server speaks; what it says is `lie` in plain text alone.
    pub speech: Speech,
}

/// Makes the answer. The string is what the path has below the row's own folder; the other that folder.
pub type Lie = Box<dyn Fn(&Asked, &str, &str) -> Reply + Send + Sync>;

/// The bytes of an answer and what becomes of the connection.
pub struct Reply {
    /// What is sent first.
    pub bytes: Vec<u8>,
    /// What happens then.
    pub then: Then,
}

/// What a server does after an answer.
pub enum Then {
    /// It reads the next request.
    Keep,
    /// It closes the connection.
    Close,
    /// It says nothing more until the client hangs up.
    Hold,
    /// It sends this again and again, up to [`REPEAT_BYTES_MAX`] bytes, until the client hangs up.
    Repeat(Vec<u8>),
    /// It sends this one byte at a time, with a pause behind each in which the client may hang up.
    Drip(Vec<u8>),
}

/// What a user does in the row's folder.
pub enum Look {
    /// Reads a file.
    File(Vec<u8>),
    /// Reads so many bytes of a file from an offset.
    Span(Vec<u8>, u64, usize),
    /// Lists the folder and reads every file in it.
    List,
    /// Asks for this path below `web/`.
    Host(Vec<u8>),
}

/// What was seen.
#[derive(Clone, PartialEq, Eq)]
pub enum Seen {
    /// Content.
    Bytes(Vec<u8>),
    /// Names, and what reading each gave.
    Names(BTreeMap<Vec<u8>, Seen>),
    /// A directory, which is not looked into.
    Folder,
    /// An error number.
    Fails(i32),
}

/// What must be seen.
#[derive(Clone)]
pub enum See {
    /// Exactly this.
    This(Seen),
    /// One of these errors.
    Fails(&'static [Errno]),
    /// Either exactly this or one of these errors.
    Either(Seen, &'static [Errno]),
}

impl Row {
    /// A row in which a file of the usual name is read, and the same is seen warm as cold.
    pub fn new(case: &'static str, input: impl Into<String>, cold: See, lie: Lie) -> Row {
        Row {
            case,
            input: input.into(),
            lie,
            look: Look::File(FILE.to_vec()),
            warm: cold.clone(),
            gone: See::after(&cold),
            healed: See::bytes(truth(FILE_PATH)),
            cold,
            content: truth(FILE_PATH),
            requests_max: 2,
            own_host: false,
            busy: false,
            speech: Speech::Plain,
        }
    }

    /// A row that lists a folder and expects these names with this content, in every phase.
    pub fn list(case: &'static str, input: impl Into<String>, names: BTreeMap<Vec<u8>, Seen>, lie: Lie) -> Row {
        // Its page and each file, and again for those that could not be read.
        let requests_max = 2 + 2 * names.len();
        let see = See::This(Seen::Names(names));
        let row = Row::new(case, input, see.clone(), lie);
        Row { look: Look::List, gone: see.clone(), healed: see, requests_max, ..row }
    }

    /// Whether its server says that there is an error: what it sends then is no content.
    pub fn says_error(&self) -> bool {
        let status = self.input.get(..3).and_then(|status| status.parse::<u16>().ok());
        matches!(self.case, "status" | "busy" | "folder status") && status.is_some_and(|status| status >= 400)
    }

    /// With another look.
    pub fn look(self, look: Look) -> Row {
        Row { look, ..self }
    }

    /// With other bounds on requests.
    pub fn requests(self, requests_max: usize) -> Row {
        Row { requests_max, ..self }
    }

    /// With something else to see when the server is gone.
    pub fn gone(self, gone: See) -> Row {
        Row { gone, ..self }
    }

    /// With something else to see when the server is mended.
    pub fn healed(self, healed: See) -> Row {
        Row { healed, ..self }
    }

    /// On a server of its own.
    pub fn own_host(self) -> Row {
        Row { own_host: true, ..self }
    }

    /// On a server of its own that speaks in another way.
    pub fn spoken(self, speech: Speech) -> Row {
        Row { own_host: true, speech, ..self }
    }

    /// On a server of its own, with many bytes to move.
    pub fn busy(self) -> Row {
        Row { own_host: true, busy: true, ..self }
    }
}

impl Reply {
    /// An answer after which the connection is used again.
    pub fn keep(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { bytes: bytes.into(), then: Then::Keep }
    }

    /// An answer after which the connection ends.
    pub fn close(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { bytes: bytes.into(), then: Then::Close }
    }

    /// An answer and then something.
    pub fn then(bytes: impl Into<Vec<u8>>, then: Then) -> Reply {
        Reply { bytes: bytes.into(), then }
    }
}

impl See {
    /// These bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> See {
        See::This(Seen::Bytes(bytes.into()))
    }

    /// What must be there without the server: what was right stays, what was none is still none.
    fn after(cold: &See) -> See {
        match cold {
            See::This(seen @ (Seen::Bytes(_) | Seen::Names(_) | Seen::Folder)) => See::This(seen.clone()),
            See::Either(seen, _) => See::Either(seen.clone(), GONE),
            See::This(Seen::Fails(_)) | See::Fails(_) => See::Fails(GONE),
        }
    }

    /// Whether `seen` is right.
    pub fn allows(&self, seen: &Seen) -> bool {
        let among = |errnos: &[Errno]| matches!(seen, Seen::Fails(n) if errnos.iter().any(|e| e.raw_os_error() == *n));
        match self {
            See::This(this) => this == seen,
            See::Fails(errnos) => among(errnos),
            See::Either(this, errnos) => this == seen || among(errnos),
        }
    }
}

impl fmt::Display for See {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errnos =
            |errnos: &[Errno]| errnos.iter().map(|e| errno_name(e.raw_os_error())).collect::<Vec<_>>().join(" or ");
        match self {
            See::This(seen) => write!(f, "{seen}"),
            See::Fails(list) => write!(f, "{}", errnos(list)),
            See::Either(seen, list) => write!(f, "{seen} or {}", errnos(list)),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Bytes(bytes) if bytes.len() <= 60 => write!(f, "\"{}\"", bytes.escape_ascii()),
            Seen::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Seen::Folder => write!(f, "folder"),
            Seen::Fails(errno) => write!(f, "{}", errno_name(*errno)),
            Seen::Names(names) => {
                for (name, seen) in names {
                    let shown: String = name.escape_ascii().to_string().chars().take(40).collect();
                    write!(f, "{shown}={seen} ")?;
                }
                write!(f, "({} names)", names.len())
            }
        }
    }
}

/// As the manual pages name it.
pub fn errno_name(errno: i32) -> String {
    let known = [
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::ACCESS, "EACCES"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::LOOP, "ELOOP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::HOSTUNREACH, "EHOSTUNREACH"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::NOTCONN, "ENOTCONN"),
        (Errno::CONNABORTED, "ECONNABORTED"),
        (Errno::INVAL, "EINVAL"),
    ];
    let found = known.iter().find(|(known, _)| known.raw_os_error() == errno);
    found.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

/// What a mended server has at a path below a row's folder.
pub fn truth(path: &str) -> Vec<u8> {
    format!("the bytes of {path}\n").into_bytes()
}

/// The file that most rows read.
pub const FILE: &[u8] = b"x.bin";
/// The same as part of a URL.
pub const FILE_PATH: &str = "x.bin";
/// Most bytes of an answer without end: far more than anybody should take who wants a few.
pub const REPEAT_BYTES_MAX: usize = 64 << 20;
/// What a name without content gives when nobody answers: it is not known, or known not to be.
const GONE: &[Errno] = &[Errno::HOSTUNREACH, Errno::NOENT];
