//! A real cell that is written down nowhere: DNS knows it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::afs::read;
use crate::support::{AfsCell, Mount, Program, Setup, compare, fails_with, names_in};

/// A name server on the node c1 of a cell, over UDP. It lasts as long as the tests.
struct NameServer {
    at: SocketAddr,
    /// How often each name was asked for, with the number of the type.
    asked: Arc<Mutex<BTreeMap<(String, u16), usize>>>,
}

/// Records by name and type: what follows the length of a record's data.
type Records = Vec<(&'static str, u16, Vec<u8>)>;

const A: u16 = 1;
const AFSDB: u16 = 18;
const SRV: u16 = 33;

impl NameServer {
    /// Answers with these records, and for other names that there is none such.
    fn on(cell: &AfsCell, records: Records) -> NameServer {
        let socket = cell.inside("c1", || UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let at = socket.local_addr().expect("bound");
        let asked: Arc<Mutex<BTreeMap<(String, u16), usize>>> = Arc::default();
        let seen = asked.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let (name, kind) = question(&buffer[..length]);
                let answer = answer(&buffer[..length], &name, kind, &records);
                *seen.lock().expect("no panic").entry((name, kind)).or_default() += 1;
                let _ = socket.send_to(&answer, from);
            }
        });
        NameServer { at, asked }
    }

    fn asked(&self, name: &str, kind: u16) -> usize {
        self.asked.lock().expect("no panic").get(&(name.to_owned(), kind)).copied().unwrap_or(0)
    }
}

/// The name and the type that are asked for.
fn question(message: &[u8]) -> (String, u16) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..=at + length]).into_owned());
        at += 1 + length;
    }
    (labels.join("."), u16::from_be_bytes([message[at + 1], message[at + 2]]))
}

fn answer(question: &[u8], name: &str, kind: u16, records: &Records) -> Vec<u8> {
    let of_name = || records.iter().filter(|(of, ..)| *of == name);
    let found: Vec<_> = of_name().filter(|(_, of, _)| *of == kind).collect();
    let mut answer = question.to_vec();
    // An answer, and that there is no such name.
    answer[2] |= 0x80;
    answer[3] = if of_name().count() == 0 { 3 } else { 0 };
    answer[7] = found.len().try_into().expect("few");
    for (_, kind, data) in found {
        // The name is that of the question; the class is IN, for two minutes.
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, 120]);
        answer.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
        answer.extend_from_slice(data);
    }
    answer
}

fn host(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

fn srv(port: u16, name: &str) -> Vec<u8> {
    [&[0, 1, 0, 1][..], &port.to_be_bytes(), &host(name)].concat()
}

fn afsdb(name: &str) -> Vec<u8> {
    [&[0, 1][..], &host(name)].concat()
}

/// The cell's only database server.
const SERVER: [u8; 4] = [10, 77, 0, 1];
const SERVICE: &str = "_afs3-vlserver._udp.weft.test";

/// A mount on the node c1, whose CellServDB this is.
fn mounted(cell: &AfsCell, source: &'static str, cells: &str, settings: &str) -> Option<(Mount, tempfile::TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("CellServDB"), cells).expect("written");
    let config = format!("[afs]\nconfig_dir = \"{}\"\n{settings}\n", folder.path().display());
    let mut mount = Mount::prepare(Setup { source, config, ..Setup::default() })?;
    mount.move_to(cell.words("c1"));
    mount.mount();
    Some((mount, folder))
}

/// Goal: with an empty CellServDB a cell is found by its name, read, and found again after a remount; names that are no cells
/// are not there, and most of them are not asked for.
#[test]
fn a_cell_is_found_by_its_name() {
    let Some(cell) = AfsCell::up() else { return };
    let records = vec![(SERVICE, SRV, srv(7003, "fs1.weft.test")), ("fs1.weft.test", A, SERVER.to_vec())];
    let server = NameServer::on(cell, records);
    let resolver = format!("resolver = \"{}\"", server.at);
    let Some((mount, _folder)) = mounted(cell, "", "", &resolver) else { return };
    let (names, top) = (names_in(&mount.at("afs/weft.test")), mount.at("afs"));
    assert!(["home", "pub", "user"].iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    compare(&cell.content("pub").join("d00"), &top.join("weft.test/pub/d00"));
    assert!(names_in(&top.join(".weft.test")).contains(&"pub".to_owned()), "the read-write side");
    assert_eq!(server.asked(SERVICE, SRV), 1, "what it says is kept");
    for name in ["autorun.inf", ".git", "weft", ".Trash-0", "a..b", "x.json"] {
        fails_with(std::fs::metadata(top.join(name)), Errno::NOENT);
    }
    assert_eq!(server.asked.lock().expect("no panic").len(), 2, "nobody asked for these");
    for _ in 0..3 {
        fails_with(std::fs::metadata(top.join("example.org")), Errno::NOENT);
    }
    assert_eq!(server.asked("_afs3-vlserver._udp.example.org", SRV), 1, "that there is none is kept as well");
    mount.remount();
    assert_eq!(read(&mount.at("afs/weft.test/home/notes.txt")), "notes of alice\n");
    assert_eq!(server.asked(SERVICE, SRV), 2);
}

/// Goal: a cell is found by AFSDB records where there are no others; it can be mounted alone.
#[test]
fn a_cell_is_mounted_by_its_name() {
    let Some(cell) = AfsCell::up() else { return };
    let records = vec![("weft.test", AFSDB, afsdb("fs1.weft.test")), ("fs1.weft.test", A, SERVER.to_vec())];
    let server = NameServer::on(cell, records);
    let resolver = format!("resolver = \"{}\"", server.at);
    let Some((mount, _folder)) = mounted(cell, "afs:weft.test", "", &resolver) else { return };
    assert_eq!(read(&mount.at("home/notes.txt")), "notes of alice\n");
    assert_eq!((server.asked(SERVICE, SRV), server.asked("weft.test", AFSDB)), (1, 1));
}

/// Goal: a mount point leads to a cell that nothing but DNS knows. Method: the same servers are written down under another
/// name, and a volume there has a mount point that names the cell.
#[test]
fn a_mount_point_leads_to_a_cell_by_dns() {
    let Some(cell) = AfsCell::own() else { return };
    let tree = cell.dir().join("tree");
    std::fs::create_dir(&tree).expect("made");
    std::os::unix::fs::symlink("#weft.test:pub.", tree.join("elsewhere")).expect("made");
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/afs-dump.py");
    let (script, file) =
        ("python3 \"$0\" \"$1\" --name scratch --owner 1 --acl anyuser:rl > \"$2\"", cell.dir().join("dump"));
    Program::new("sh").args(["-c", script, dump]).arg(&tree).arg(&file).good();
    let restore = ["vos", "restore", "fs1", "a", "scratch", "-overwrite", "full", "-localauth", "-file"];
    cell.on("fs1", restore).arg(&file).good();
    let records = vec![(SERVICE, SRV, srv(7003, "fs1.weft.test")), ("fs1.weft.test", A, SERVER.to_vec())];
    let server = NameServer::on(&cell, records);
    let other = ">other.test\n10.77.0.1 #fs1\n";
    let resolver = format!("resolver = \"{}\"", server.at);
    let Some((mount, _folder)) = mounted(&cell, "afs", other, &resolver) else { return };
    assert_eq!(names_in(&mount.dir()), [".other.test", "other.test"]);
    let point = mount.at(".other.test/scratch/elsewhere");
    assert_eq!(server.asked(SERVICE, SRV), 0, "nobody went there");
    compare(&cell.content("pub").join("d01"), &point.join("d01"));
    assert_eq!(read(&point.join("empty")), "");
    assert_eq!(mount.why(&point.join("empty"), "cell"), "weft.test");
    assert_eq!(server.asked(SERVICE, SRV), 1);
}

/// Goal: while DNS is silent a name is an error and not an absence; with `dns = false` nobody is asked.
#[test]
fn silence_is_no_absence() {
    let Some(cell) = AfsCell::up() else { return };
    let Some((mount, _folder)) = mounted(cell, "afs", "", "resolver = \"127.0.0.1:9\"") else { return };
    fails_with(std::fs::metadata(mount.at("weft.test")), Errno::HOSTUNREACH);
    fails_with(std::fs::metadata(mount.at("weft")), Errno::NOENT);
    let known = ">other.test\n10.77.0.1 #fs1\n";
    let Some((mount, _folder)) = mounted(cell, "afs", known, "resolver = \"127.0.0.1:9\"\ndns = false") else { return };
    fails_with(std::fs::metadata(mount.at("weft.test")), Errno::NOENT);
}
