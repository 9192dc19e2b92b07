//! Round trips per second over both transports, answered from memory: getattr with no time to live, and open, read of
//! 4 KiB and close, by one and by four threads. Needs root. Clients are processes of this program.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_fusedev::{
    Attributes, Entry, InitFlags, Interrupted, MountOptions, Opened, Operation, Reply, Request, RingLimits, Serve,
    Session, Transport, Wanted, mount, unmount,
};

struct Memory;

impl Memory {
    fn attributes(node: u64) -> Attributes {
        let mode = if node == 1 { 0o040_755 } else { 0o100_644 };
        Attributes { node, mode, links: 1, size: 4096, block_bytes: 4096, ..Attributes::default() }
    }
}

impl Serve for Memory {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node;
        match request.operation {
            Operation::Lookup(_) => reply.entry(&Entry {
                node: 2,
                generation: 0,
                name_ttl: Duration::from_secs(3600),
                attributes_ttl: Duration::ZERO,
                attributes: Memory::attributes(2),
            }),
            Operation::Getattr { .. } => reply.attributes(&Memory::attributes(node), Duration::ZERO),
            Operation::Open { .. } => {
                reply.opened(Opened { handle: 1, flags: Opened::NOFLUSH | Opened::DIRECT_IO, backing_id: 0 })
            }
            Operation::Read(read) => reply.data(&[7; 4096][..4096.min(read.size as usize)]),
            Operation::Release { .. } => reply.done(),
            _ => reply.error(38),
        };
    }

    fn interrupt(&self, _: u64) -> Interrupted {
        Interrupted::Taken
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, threads, file] = arguments.as_slice() {
        println!("{:.0}", client(what, threads.parse()?, Path::new(file)));
        return Ok(());
    }
    let mut mounts = Vec::new();
    for transport in [Transport::Classic, Transport::IoUring] {
        let directory = std::env::temp_dir().join(format!("pace-{}-{transport}", std::process::id()));
        std::fs::create_dir(&directory)?;
        let options = MountOptions {
            mountpoint: directory.clone(),
            source: "pace".to_owned(),
            subtype: "pace".to_owned(),
            allow_other: false,
            check_permissions: false,
            read_only: true,
            exec: false,
            atime: false,
        };
        let wanted = Wanted { flags: InitFlags::PARALLEL_DIROPS | InitFlags::ASYNC_READ, ..Wanted::default() };
        let begun = Session::begin_over(mount(&options)?, &wanted, transport, RingLimits::default());
        let served =
            begun.map_err(std::io::Error::other).and_then(|session| session.serve(Arc::new(Memory), 1, "pace"));
        mounts.push((transport, directory, served));
    }
    let measured = measure(&mounts.iter().map(|(transport, path, _)| (*transport, path.join("f"))).collect::<Vec<_>>());
    for (transport, directory, served) in mounts {
        unmount(&directory, true)?;
        std::fs::remove_dir(&directory)?;
        if let Err(error) = served {
            eprintln!("{transport}: {error}");
        }
    }
    measured
}

fn measure(mounts: &[(Transport, PathBuf)]) -> Result<(), Box<dyn std::error::Error>> {
    let me = std::env::current_exe()?;
    for what in ["getattr", "open-read-close"] {
        for threads in ["1", "4"] {
            let mut rates = vec![Vec::new(); mounts.len()];
            for _ in 0..ROUNDS {
                for ((_, file), rates) in mounts.iter().zip(&mut rates) {
                    let output = Command::new(&me).args([what, threads]).arg(file).output()?;
                    rates.push(String::from_utf8(output.stdout)?.trim().parse::<f64>()?);
                }
            }
            for ((transport, _), rates) in mounts.iter().zip(&mut rates) {
                rates.sort_by(f64::total_cmp);
                let (least, median, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
                println!("{what} {threads} threads {transport}: {median:.0} per second ({least:.0} to {most:.0})");
            }
        }
    }
    Ok(())
}

/// Operations per second.
fn client(what: &str, threads: usize, file: &Path) -> f64 {
    let begun = Instant::now();
    let count: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut count = 0;
            while begun.elapsed() < ROUND {
                for _ in 0..32 {
                    let ok = match what {
                        "getattr" => std::fs::metadata(file).is_ok(),
                        _ => std::fs::File::open(file).and_then(|open| open.read_at(&mut [0; 4096], 0)).is_ok(),
                    };
                    assert!(ok, "the mount answers");
                    count += 1;
                }
            }
            count
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    count as f64 / begun.elapsed().as_secs_f64()
}

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(300);
