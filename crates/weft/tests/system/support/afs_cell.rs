//! A real AFS cell, of OpenAFS's own servers, in network namespaces of its own: `scripts/afs-cell.sh` tells what it is.
//!
//! A cell is kept by a shell that brings it up, waits until its input ends, and takes it down. The input ends with the
//! [`AfsCell`] or, for the one that all tests of a run share, with the tests' process, however that ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::{Program, without};

/// A cell that is up. It is taken down when this is dropped.
pub struct AfsCell {
    keeper: Child,
    dir: PathBuf,
    id: String,
}

impl AfsCell {
    /// The cell that the tests of this run share, brought up by the first who asks: they leave its servers running and
    /// its volumes, other than `scratch`, as they are. `None`, with a line that says so, where there can be none.
    #[track_caller]
    pub fn up() -> Option<&'static AfsCell> {
        static SHARED: OnceLock<Result<AfsCell, Refusal>> = OnceLock::new();
        SHARED.get_or_init(AfsCell::start).as_ref().map_err(Refusal::tell).ok()
    }

    /// A cell for one test, which may do with it what it likes.
    #[track_caller]
    pub fn own() -> Option<AfsCell> {
        AfsCell::start().map_err(|refusal| refusal.tell()).ok()
    }

    fn start() -> Result<AfsCell, Refusal> {
        let dir = tempfile::Builder::new().prefix("wt-cell-").tempdir().expect("a temporary folder").keep();
        let mut command = Command::new("bash");
        command.args(["-c", KEEPER, SCRIPT]).arg(&dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        // What ends the tests from a terminal must leave it its time.
        command.process_group(0);
        let mut keeper = command.spawn().expect("bash runs");
        let mut said = String::new();
        keeper.stdout.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
        if said.ends_with("\nstatus 0\n") {
            let id = std::fs::read_to_string(dir.join("id")).expect("the cell's id");
            return Ok(AfsCell { keeper, dir, id: id.trim().to_owned() });
        }
        drop(keeper.stdin.take());
        let _ = keeper.wait();
        Err(if said.ends_with("status 3\n") { Refusal::Cannot(said) } else { Refusal::Failed(said) })
    }

    /// The name of a node's network namespace: of `fs1`, `fs2`, `c1`, `c2` or `admin`.
    pub fn namespace(&self, node: &str) -> String {
        format!("weft-{}-{node}", self.id)
    }

    /// The words that run a program in the network of a node; its files, and what it mounts, are the host's.
    pub fn words(&self, node: &str) -> Vec<String> {
        ["nsenter", &format!("--net=/run/netns/{}", self.namespace(node)), "--"].map(str::to_owned).into()
    }

    /// Does something in the network of a node: a socket that is opened there stays there.
    pub fn inside<T: Send>(&self, node: &str, act: impl FnOnce() -> T + Send) -> T {
        let network = File::open(Path::new("/run/netns").join(self.namespace(node))).expect("the cell is up");
        // Only a thread of its own goes there.
        let moved = move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
            act()
        };
        std::thread::scope(|scope| scope.spawn(moved).join()).expect("done without a panic")
    }

    /// A program of OpenAFS or Kerberos to be run on a node, with the cell's configuration.
    pub fn on<A: AsRef<OsStr>>(&self, node: &str, args: impl IntoIterator<Item = A>) -> Program {
        self.script("on").arg(node).args(args)
    }

    /// Kills a server of a node (`dafileserver`), as a crash would.
    #[track_caller]
    pub fn kill(&self, node: &str, server: &str) {
        self.script("stop").args([node, server]).good();
    }

    /// Starts a server of a node again.
    #[track_caller]
    pub fn restart(&self, node: &str, server: &str) {
        self.script("start").args([node, server]).good();
    }

    /// Stops a server of a node where it is, or has it go on: what it was asked meanwhile it does then.
    #[track_caller]
    pub fn freeze(&self, node: &str, server: &str, is_frozen: bool) {
        let pid = std::fs::read_to_string(self.dir.join("pids").join(format!("{node}.{server}"))).expect("it runs");
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT }).expect("root may, and it runs");
    }

    /// Pulls the cable of a node, or puts it in again.
    #[track_caller]
    pub fn connect(&self, node: &str, is_connected: bool) {
        let state = if is_connected { "up" } else { "down" };
        Program::new("ip").args(["-n", &self.namespace("switch"), "link", "set", node, state]).good();
    }

    fn script(&self, verb: &str) -> Program {
        Program::new(SCRIPT).arg(verb).arg(&self.dir)
    }

    /// The tree that a volume was made of.
    pub fn content(&self, volume: &str) -> PathBuf {
        self.dir.join("content").join(volume)
    }

    /// The keys of `alice`, `bob` or `admin`.
    pub fn keytab(&self, user: &str) -> PathBuf {
        self.dir.join("krb").join(format!("{user}.keytab"))
    }

    /// The folder that tells a client of the cell: `CellServDB`, `ThisCell`, `cacheinfo`.
    pub fn client_config(&self) -> PathBuf {
        self.dir.join("client")
    }

    /// The folder of all this.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for AfsCell {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Why there is no cell.
enum Refusal {
    /// Root or a program is missing.
    Cannot(String),
    /// It should have come up.
    Failed(String),
}

impl Refusal {
    /// Says what a test goes without; what should have come up fails the test.
    #[track_caller]
    fn tell(&self) {
        match self {
            Refusal::Cannot(said) => without(&format!("no AFS cell: {}", said.lines().next().unwrap_or_default())),
            Refusal::Failed(said) => panic!("the AFS cell does not come up: {said}"),
        }
    }
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/afs-cell.sh");

/// Its output ends when the cell is up, or cannot be. Should the tests have ended by then, nobody reads that.
const KEEPER: &str = r#"
trap '' PIPE
"$0" up "$1" < /dev/null 2>&1
echo "status $?"
exec > /dev/null 2>&1
cat
"$0" down "$1"
rmdir "$1"
"#;
