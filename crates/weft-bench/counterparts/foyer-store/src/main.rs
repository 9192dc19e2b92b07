//! Objects in foyer's hybrid cache: `foyer-store DEVICE CAPACITY_BYTES MEMORY_BYTES`, on a file or a block device.
//!
//! It is told on standard input what to do, and answers each time with a line on standard output that begins with
//! `done`; other lines are the library's own. Times are taken here, so that the pipes are not what is measured.
//!
//! * `source BYTES`, first, and these bytes: what contents are cut from. Then the cache is opened: `done OPEN_NS`.
//! * `put COUNT`: puts objects and waits until they are on the disk: `done NS`.
//! * `get COUNT`: gets them, one after the other: `done NS NS ...`, with `-` for one that is not there.
//! * `compare COUNT`: gets them and looks at each byte: `done` and how many are there.
//! * `close`: ends well: `done`.
//!
//! After a count come as many lines `START LENGTH KEY`, the key in hexadecimal digits.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::Instant;

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    PsyncIoEngineConfig,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Cache = HybridCache<Vec<u8>, Bytes>;

struct Object {
    key: Vec<u8>,
    content: Bytes,
}

struct Store {
    device: PathBuf,
    cache: Cache,
}

impl Store {
    async fn open(device: PathBuf, capacity_bytes: usize, memory_bytes: usize) -> Result<Store> {
        // Past the system's cache: so the memory is what was asked for.
        let file = FileDeviceBuilder::new(&device).with_capacity(capacity_bytes).with_direct(true).build()?;
        // pread and pwrite are what foyer does unless told otherwise; with io_uring a thread of it never rests.
        let cache = HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(memory_bytes)
            .with_weighter(|key: &Vec<u8>, content: &Bytes| key.len() + content.len())
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(BlockEngineConfig::new(file))
            .build()
            .await?;
        Ok(Store { device, cache })
    }

    /// Puts, waits and syncs. What comes faster than it can be written foyer forgets, without a word: so this never
    /// has more than two parts under way.
    async fn put(&self, objects: Vec<Object>) -> Result<String> {
        let start = Instant::now();
        let (mut part_bytes, mut former) = (0, None);
        for Object { key, content } in objects {
            part_bytes += content.len() + PAGE_BYTES;
            self.cache.insert(key, content);
            if part_bytes >= PART_BYTES {
                part_bytes = 0;
                let storage = self.cache.storage().clone();
                let written = tokio::spawn(async move { storage.wait().await });
                if let Some(former) = former.replace(written) {
                    former.await?;
                }
            }
        }
        self.cache.storage().wait().await;
        // foyer itself never does.
        File::open(&self.device)?.sync_all()?;
        Ok(start.elapsed().as_nanos().to_string())
    }

    async fn get(&self, objects: &[Object]) -> Result<String> {
        let mut times = Vec::with_capacity(objects.len());
        for object in objects {
            let start = Instant::now();
            let found = self.cache.get(&object.key).await?;
            let time = start.elapsed().as_nanos();
            if let Some(found) = &found
                && found.value().len() != object.content.len()
            {
                return Err(format!("{} bytes instead of {}", found.value().len(), object.content.len()).into());
            }
            times.push(found.map(|_| time));
        }
        let shown = |time: Option<u128>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
        Ok(times.into_iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    async fn compare(&self, objects: &[Object]) -> Result<String> {
        let mut there = 0;
        for object in objects {
            let Some(found) = self.cache.get(&object.key).await? else { continue };
            if found.value() != &object.content {
                return Err(format!("{} differs", String::from_utf8_lossy(&object.key)).into());
            }
            there += 1;
        }
        Ok(there.to_string())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, device, capacity_bytes, memory_bytes] = &arguments[..] else {
        return Err("foyer-store DEVICE CAPACITY_BYTES MEMORY_BYTES".into());
    };
    let (device, capacity_bytes, memory_bytes) = (device.into(), capacity_bytes.parse()?, memory_bytes.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    // On a thread of the runtime, as a server would: from without each answer takes longer.
    runtime.block_on(runtime.spawn(serve(device, capacity_bytes, memory_bytes)))?
}

async fn serve(device: PathBuf, capacity_bytes: usize, memory_bytes: usize) -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let source = source(&mut input)?;
    let start = Instant::now();
    let store = Store::open(device, capacity_bytes, memory_bytes).await?;
    answer(&start.elapsed().as_nanos().to_string())?;
    while let Some(line) = line(&mut input)? {
        let (verb, count) = line.split_once(' ').unwrap_or((&line, "0"));
        let objects = objects(&mut input, count.parse()?, &source)?;
        match verb {
            "put" => answer(&store.put(objects).await?)?,
            "get" => answer(&store.get(&objects).await?)?,
            "compare" => answer(&store.compare(&objects).await?)?,
            "close" => {
                store.cache.close().await?;
                return answer("");
            }
            _ => return Err(format!("{line:?}: not understood").into()),
        }
    }
    Ok(())
}

fn source(input: &mut impl BufRead) -> Result<Bytes> {
    let line = line(input)?.ok_or("no source")?;
    let length = line.strip_prefix("source ").ok_or("no source")?.parse()?;
    let mut source = vec![0; length];
    input.read_exact(&mut source)?;
    Ok(source.into())
}

fn objects(input: &mut impl BufRead, count: usize, source: &Bytes) -> Result<Vec<Object>> {
    let object = |line: &str| -> Option<Object> {
        let mut words = line.split(' ');
        let (start, length): (usize, usize) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let digits = words.next()?;
        let byte = |at| digits.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let key = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
        let is_inside = start.checked_add(length)? <= source.len();
        is_inside.then(|| Object { key, content: source.slice(start..start + length) })
    };
    (0..count)
        .map(|_| {
            let line = line(input)?.ok_or("an object is missing")?;
            object(&line).ok_or_else(|| format!("{line:?}: no object").into())
        })
        .collect()
}

/// `None` at the end of the input.
fn line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let is_end = input.read_line(&mut line)? == 0;
    Ok((!is_end).then(|| line.trim_end().to_owned()))
}

fn answer(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "done {text}")?;
    Ok(output.flush()?)
}

/// A part of what foyer holds that is not written yet, which is 16 MiB unless it is told otherwise.
const PART_BYTES: usize = 4 << 20;
/// Each object takes whole pages.
const PAGE_BYTES: usize = 4096;
