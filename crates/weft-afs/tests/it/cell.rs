//! A real AFS cell, of OpenAFS's own servers, in network namespaces of its own: `scripts/afs-cell.sh` tells what it is.
//!
//! The tests of a run share one. It is kept by a shell that brings it up, waits until its input ends, and takes it down:
//! the input ends with the tests' process, however that ends.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use weft_afs::cell::Cell;
use weft_afs::cell_server_db::CellServerDb;

/// A cell that is up.
pub struct AfsCell {
    _keeper: Child,
    dir: PathBuf,
    id: String,
}

impl AfsCell {
    /// The cell, brought up by the first who asks. `None`, with a line that says so, where there can be none.
    ///
    /// Tests leave its servers running, but for a moment, and write into folders of their own alone: in the volume `scratch`, or in
    /// `user/alice/private`, where only `alice` may look.
    #[track_caller]
    pub fn up() -> Option<&'static AfsCell> {
        static SHARED: OnceLock<Result<AfsCell, Refusal>> = OnceLock::new();
        match SHARED.get_or_init(AfsCell::start) {
            Ok(cell) => Some(cell),
            Err(Refusal::Cannot(why)) => {
                println!("skipped: no AFS cell: {why}");
                None
            }
            Err(Refusal::Failed(said)) => panic!("the AFS cell does not come up: {said}"),
        }
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
            return Ok(AfsCell { _keeper: keeper, dir, id: id.trim().to_owned() });
        }
        drop(keeper.stdin.take());
        let _ = keeper.wait();
        Err(match said.ends_with("status 3\n") {
            // The script's own word comes last, after what the programs said that it tried.
            true => Refusal::Cannot(said.lines().rev().nth(1).unwrap_or_default().to_owned()),
            false => Refusal::Failed(said),
        })
    }

    /// The network of a node: of `c1`, `c2` or `admin`.
    pub fn network(&self, node: &str) -> PathBuf {
        PathBuf::from(format!("/run/netns/weft-{}-{node}", self.id))
    }

    /// Stops the server of files of `fs1` where it is, until what comes back is dropped: what it was asked meanwhile it does
    /// then.
    pub fn frozen(&self) -> Frozen {
        let pid = std::fs::read_to_string(self.dir.join("pids/fs1.dafileserver")).expect("it runs");
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::STOP).expect("root may, and it runs");
        Frozen(pid)
    }

    /// The name of a credential cache that there is not: whoever runs the tests may have a ticket.
    pub fn no_ccache(&self) -> String {
        format!("FILE:{}", self.dir.join("no-tickets").display())
    }

    /// The name of a credential cache with a ticket of `alice` or `bob` for the cell, made for one test.
    pub fn ccache(&self, user: &str, test: &str) -> String {
        let cache = format!("FILE:{}", self.dir.join(format!("{user}-{test}")).display());
        let keytab = self.dir.join("krb").join(format!("{user}.keytab"));
        let mut kinit = Command::new(SCRIPT);
        kinit.arg("on").arg(&self.dir).args(["c1", "kinit", "-S", "afs/weft.test", "-c", &cache]);
        kinit.args(["-k", "-t"]).arg(keytab).arg(user).stdin(Stdio::null());
        let outcome = kinit.output().expect("the script runs");
        assert!(outcome.status.success(), "kinit {user}: {}", String::from_utf8_lossy(&outcome.stderr));
        cache
    }

    /// The cell as a client's CellServDB tells of it.
    pub fn known(&self) -> Cell {
        let bytes = std::fs::read(self.dir.join("client/CellServDB")).expect("the cell is up");
        let read = CellServerDb::read(&bytes).expect("a CellServDB");
        read.cells().next().expect("one cell").clone()
    }
}

/// A server that stands still.
pub struct Frozen(Pid);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Why there is no cell.
enum Refusal {
    /// Root or a program is missing.
    Cannot(String),
    /// It should have come up.
    Failed(String),
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
