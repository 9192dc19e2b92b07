//! The transcript of the WFS paper (Kathuria and Jackson 1999, section 5.1): its page, its host, its commands.

use std::path::Path;

use crate::support::{Mount, Program, Setup, find_program, is_root, weft_program, without};

/// Goal: what the paper shows works as printed there. Method: a network, and a table of hosts, of the test's own, in
/// which the paper's host is this machine; the commands are a user's, in a shell.
#[test]
fn the_transcript_of_the_paper_works_as_printed() {
    if !is_root() || ["unshare", "ip", "python3"].into_iter().any(|name| find_program(name).is_none()) {
        without("a network and a table of hosts of its own need root, unshare(1), ip(8) and python3");
        return;
    }
    let Some(mount) = Mount::prepare(Setup::default()) else { return };
    let write = |name: &str, text: &str| std::fs::write(mount.beside(name), text).expect("written");
    write("hosts", "127.0.0.1 localhost www.cs.wisc.edu\n");
    write("page.html", PAGE);
    write("server.py", SERVER);
    for name in ["lsw", "rmw", "weft"] {
        std::os::unix::fs::symlink(weft_program(), mount.beside(name)).expect("linked");
    }
    let folder = mount.beside("");
    let words = ["unshare", "-n", "-m", "--propagation", "private", "sh", "-eu", "-c", SCRIPT, "sh"];
    let said = Program::words(&words.map(str::to_owned))
        .arg(&folder)
        .env("HOME", mount.beside("home"))
        .env("XDG_RUNTIME_DIR", mount.beside("run"))
        .env("XDG_CACHE_HOME", mount.beside("home/cache"))
        .env("XDG_CONFIG_HOME", mount.beside("home/config"))
        .run();
    assert_eq!(said.code, Some(0), "{said:?}");
    let parts: Vec<&str> = said.out.split("--\n").collect();
    let [first, fetched, second, listed, removed, third] = parts[..] else { panic!("six parts: {said:?}") };
    assert_eq!(columns(first), uncached(&["bar/", "foo.html", "mountain.gif", "resume.ps", "xml/"]), "{first}");
    assert_eq!(fetched, "the foo file\n");
    assert_eq!(columns(second), uncached(&["bar/", "mountain.gif", "resume.ps", "xml/"]), "{second}");
    assert!(listed.split_whitespace().any(|name| name == "foo.html"), "an ordinary ls shows it: {listed}");
    assert!(removed.starts_with("1 files, ") && removed.ends_with(" dropped from the cache\n"), "{removed}");
    assert_eq!(columns(third), columns(first), "known, and no longer cached");
    let asked = std::fs::read_to_string(Path::new(&folder).join("asked")).expect("the server's log");
    let files = asked.lines().filter(|path| path.ends_with("foo.html")).count();
    assert_eq!(files, 1, "fetched once, and nothing else of the page's links: {asked}");
    assert!(!asked.contains("resume") && !asked.contains("world_headlines") && !asked.contains("bart"), "{asked}");
}

/// Kind of tree, mode and name of each line; the time, which is that of discovery as in the paper, is there.
fn columns(said: &str) -> Vec<(String, String, String)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, mode, _size, month, day, time, name] = words[..] else { panic!("seven columns: {line}") };
        assert!(month.len() == 3 && day.parse::<u8>().is_ok() && time.contains(':'), "the time of discovery: {line}");
        (kind.to_owned(), mode.to_owned(), name.to_owned())
    };
    said.lines().map(line).collect()
}

/// What must be shown of names that are not cached.
fn uncached(names: &[&str]) -> Vec<(String, String, String)> {
    let mode = |name: &str| if name.ends_with('/') { "dr-xr-xr-x" } else { "-r--r--r--" };
    names.iter().map(|name| ("[web]".to_owned(), mode(name).to_owned(), (*name).to_owned())).collect()
}

/// The eight links of the paper's page.
const PAGE: &str = r#"<A HREF = "http://www.cnn.com/world_headlines.html"> headlines </A>
<A HREF = "http://www.cs.wisc.edu/csl/">useful info</A>
<A HREF = "http://www.cs.wisc.edu/~bart/736.html">advanced os</A>
<A HREF = "http://www.cs.wisc.edu/~brucej/foo.html">foo file</A>
<A HREF = "http://www.cs.wisc.edu/~brucej/bar/">bar dir</A>
<A HREF = "resume.ps">resume</A>
<A HREF = "xml/">xml data files</A>
<A HREF = "http://www.cs.wisc.edu/~brucej/mountain.gif">Mt. St Helens</A>
"#;

/// What the user types. The folder was made "through normal use" before, as the paper has it: by a look into it.
const SCRIPT: &str = r#"
cd "$1"
PATH="$1:$PATH"
ip link set lo up
mount --bind hosts /etc/hosts
: > ready
python3 -u server.py >> ready &
server=$!
trap 'cd /; weft umount --lazy "$1/mnt" > /dev/null 2>&1 || true; kill $server' EXIT
tail -f --pid=$server ready | head -n 1 > /dev/null
weft mount --cache cache mnt > /dev/null
cd "mnt/web/www.cs.wisc.edu/~brucej"
ls > /dev/null
lsw
echo --
cat foo.html
echo --
lsw
echo --
ls
echo --
rmw foo.html
echo --
lsw
cd /
weft umount "$1/mnt" > /dev/null
"#;

const SERVER: &str = r#"
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_GET(self):
        with open("asked", "a") as lines: lines.write(self.path + "\n")
        if self.path == "/~brucej":
            self.send_response(301); self.send_header("Location", "/~brucej/"); self.end_headers(); return
        body = {"/~brucej/": open("page.html", "rb").read(), "/~brucej/foo.html": b"the foo file\n"}.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html"); self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers(); self.wfile.write(body or b"")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Handler)
print("ready")
server.serve_forever()
"#;
