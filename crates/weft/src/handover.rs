//! What passes between the supervisor of a mount and the daemons that it starts, one after the other.
//!
//! A daemon's standard input is a socket to its supervisor. The supervisor's first word comes with three files in memory
//! (the roll of what the kernel holds, and the two of the store's journal), with the connection to the kernel if there is
//! one already, and with a socket on which the daemon has the supervisor send notices to the kernel (see
//! [`weft_fuse::Life::notices`]), with a fourth file in memory, of writes under way ([`weft_dir::CutOff`]), and last with the
//! socket of AFS of the daemon before, if that had one. The daemon that made the mount gives the connection into keeping, and
//! each its socket of AFS; each tells when it serves, and may ask to be followed by the program that is installed now. Words are JSON, each in a packet of its own; new ones may be added, and an unknown one
//! is passed over, for the two may be of different versions of weft.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

/// One side of the socket. Clones share it.
#[derive(Clone, Debug)]
pub struct Line(Arc<OwnedFd>);

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Word {
    /// To a daemon: here are the files in memory, and the connection if `mounted`.
    Start {
        /// [`PROTOCOL`] of the supervisor.
        protocol: u32,
        /// Whether there is a mount already.
        mounted: bool,
        /// Whether a socket for notices comes last; a supervisor of before sends none.
        #[serde(default)]
        notices: bool,
        /// Whether the supervisor tells when it has sent them; one of before does not.
        #[serde(default)]
        fences: bool,
        /// The kernel's number of the connection, where it is known.
        #[serde(default)]
        connection: Option<u32>,
        /// Whether the file of writes comes after all these; a supervisor of before has none.
        #[serde(default)]
        writes: bool,
        /// Whether a socket of AFS comes last.
        #[serde(default)]
        cells: bool,
    },
    /// From a daemon: here is the connection of the mount that it made.
    Mounted {
        /// The kernel's number of it, where it is known.
        #[serde(default)]
        connection: Option<u32>,
    },
    /// From a daemon: here is the socket at which file servers of AFS look for this mount.
    Cells,
    /// From a daemon: it serves.
    Serving,
    /// From a daemon: when it ends, the program that is installed is to go on.
    Replace,
    /// Something of another version.
    #[serde(other)]
    Unknown,
}

/// What a mount has beside its connection, for as long as it is there.
#[derive(Debug)]
pub struct Kept {
    /// The roll of what the kernel holds.
    pub roll: File,
    /// The store's journal.
    pub journal: [File; 2],
    /// Writes under way to directories of this machine; a supervisor of before has none.
    pub writes: Option<File>,
    /// The socket at which file servers of AFS look for this mount, once there is one. What they tell between two daemons waits
    /// in it: at a port that is closed they would try again and again, and whoever makes the change waits for that.
    pub cells: Option<OwnedFd>,
}

/// The kernel's side of a mount.
#[derive(Debug)]
pub struct Kernel {
    /// The connection.
    pub device: OwnedFd,
    /// Its number, where that is known.
    pub connection: Option<u32>,
}

/// What a daemon is given.
#[derive(Debug)]
pub struct Handover {
    /// To the supervisor.
    pub line: Line,
    /// The files in memory.
    pub kept: Kept,
    /// A mount that is there already.
    pub mount: Option<Kernel>,
    /// Where the supervisor hears of notices to send.
    pub notices: Option<OwnedFd>,
}

impl Kept {
    /// Makes the files: they are in memory alone, and go with the last who holds them.
    ///
    /// # Errors
    /// What memfd_create(2) says.
    pub fn new() -> io::Result<Kept> {
        let make = |name: &str| -> io::Result<File> {
            Ok(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?.into())
        };
        let journal = [make("weft-journal-0")?, make("weft-journal-1")?];
        Ok(Kept { roll: make("weft-roll")?, journal, writes: Some(make("weft-writes")?), cells: None })
    }
}

impl Handover {
    /// In a daemon: takes what comes on standard input, which then is empty.
    ///
    /// # Errors
    /// A sentence, when nobody that this program understands is there.
    pub fn of_stdin() -> io::Result<Handover> {
        let line = Line(Arc::new(io::stdin().as_fd().try_clone_to_owned()?));
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let (word, files) = line.hear(RecvFlags::empty())?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let Word::Start { protocol: PROTOCOL, mounted, notices, fences, connection, writes, cells } = word else {
            return Err(io::Error::other("the supervisor is of another version of weft: unmount, and mount again"));
        };
        let mut files = files.into_iter();
        let (Some(roll), Some(first), Some(second)) = (files.next(), files.next(), files.next()) else {
            return Err(io::Error::other("the supervisor sent too few files"));
        };
        let device = if mounted { files.next() } else { None };
        if mounted != device.is_some() {
            return Err(io::Error::other("the supervisor sent no connection"));
        }
        let notices = if notices { files.next() } else { None };
        // Better a daemon that may not end when it is killed than one that does not know what the kernel has forgotten.
        let notices = notices.filter(|_| fences);
        let writes = if writes { files.next().map(File::from) } else { None };
        let cells = if cells { files.next() } else { None };
        let kept = Kept { roll: roll.into(), journal: [first.into(), second.into()], writes, cells };
        Ok(Handover { line, kept, mount: device.map(|device| Kernel { device, connection }), notices })
    }
}

impl Line {
    /// In the supervisor: a line, and the other end as a daemon's standard input.
    ///
    /// # Errors
    /// What socketpair(2) says.
    pub fn pair() -> io::Result<(Line, Stdio)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Line(Arc::new(ours)), Stdio::from(theirs)))
    }

    /// In the supervisor: the first word.
    ///
    /// # Errors
    /// What sendmsg(2) says.
    pub fn start(&self, kept: &Kept, mount: Option<&Kernel>, notices: BorrowedFd<'_>) -> io::Result<()> {
        let [first, second] = &kept.journal;
        let mut files = vec![kept.roll.as_fd(), first.as_fd(), second.as_fd()];
        files.extend(mount.map(|mount| mount.device.as_fd()));
        files.push(notices);
        files.extend(kept.writes.as_ref().map(File::as_fd));
        files.extend(kept.cells.as_ref().map(OwnedFd::as_fd));
        let start = Word::Start {
            protocol: PROTOCOL,
            mounted: mount.is_some(),
            notices: true,
            fences: true,
            connection: mount.and_then(|mount| mount.connection),
            writes: kept.writes.is_some(),
            cells: kept.cells.is_some(),
        };
        self.say(start, &files)
    }

    /// Says a word.
    ///
    /// # Errors
    /// What sendmsg(2) says; `BrokenPipe` when nobody is there.
    pub fn say(&self, word: Word, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(&word)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            match sendmsg(&*self.0, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(|_| ())?),
            }
        }
    }

    /// In the supervisor: the next word, if there is one now, and the files that came with it.
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub fn hear_now(&self) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
        match self.hear(RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            heard => heard,
        }
    }

    /// `None` when the other end is gone.
    fn hear(&self, flags: RecvFlags) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; WORD_BYTES_MAX];
        let message = loop {
            let mut data = [IoSliceMut::new(&mut text)];
            match recvmsg(&*self.0, &mut data, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                heard => break heard?,
            }
        };
        if message.bytes == 0 {
            return Ok(None);
        }
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files: Vec<OwnedFd> = files.flatten().collect();
        let cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let word = if cut { Word::Unknown } else { serde_json::from_slice(&text[..message.bytes])? };
        Ok(Some((word, files)))
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Counts up when a supervisor and a daemon of different versions cannot work together.
const PROTOCOL: u32 = 1;
/// Files in one packet.
const FILES_MAX: usize = 8;
/// Longest word.
const WORD_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_with_their_files_and_unknown_ones_are_passed_over() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let (ours, theirs) = (Line(Arc::new(ours)), Line(Arc::new(theirs)));
        assert!(ours.hear_now().expect("nothing yet").is_none());
        let kept = Kept::new().expect("files in memory");
        let kept = Kept { cells: Some(File::open("/dev/null").expect("a file").into()), ..kept };
        theirs.start(&kept, None, kept.roll.as_fd()).expect("said");
        theirs.say(Word::Mounted { connection: Some(7) }, &[kept.roll.as_fd()]).expect("said");
        rustix::net::send(&*theirs.0, br#"{"word":"sing","loud":true}"#, SendFlags::empty()).expect("sent");
        let heard = || {
            let (word, files) = ours.hear_now().expect("heard").expect("a word");
            (word, files.len())
        };
        let connection = None;
        let (mounted, notices, fences, writes, cells) = (false, true, true, true, true);
        let start = Word::Start { protocol: PROTOCOL, mounted, notices, fences, connection, writes, cells };
        assert_eq!(heard(), (start, 6));
        assert_eq!(heard(), (Word::Mounted { connection: Some(7) }, 1));
        assert_eq!(heard(), (Word::Unknown, 0));
        let before: Word = serde_json::from_str(r#"{"word":"start","protocol":1,"mounted":true}"#).expect("understood");
        let (mounted, notices, fences, writes, cells) = (true, false, false, false, false);
        assert_eq!(before, Word::Start { protocol: 1, mounted, notices, fences, connection, writes, cells });
        let before: Word = serde_json::from_str(r#"{"word":"mounted"}"#).expect("understood");
        assert_eq!(before, Word::Mounted { connection });
        drop(theirs);
        assert!(ours.hear(RecvFlags::empty()).expect("the end").is_none());
    }
}
