//! foyer, a cache of others, beside the store: a program of its own keeps the objects and measures itself
//! (`counterparts/foyer-store`, which also tells the protocol).

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;

use super::pages::Object;
use crate::process;

/// Where foyer keeps objects.
#[derive(Clone, Debug)]
pub struct Home {
    program: PathBuf,
    /// A file or a block device.
    device: PathBuf,
    capacity_bytes: u64,
    /// Where the contents are cut from.
    source: Bytes,
}

/// An object: what it is called, and where its content lies in the source.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its key.
    pub key: Vec<u8>,
    /// Where the content begins.
    pub start: usize,
    /// Length of the content in bytes.
    pub length: usize,
}

impl From<Object> for Item {
    fn from(object: Object) -> Item {
        Item { key: object.key().to_vec(), start: object.start(), length: object.length }
    }
}

impl Home {
    /// On a file or a block device, with room for objects of so many bytes in all: more than they take, so that none has to go.
    pub fn new(program: &Path, device: PathBuf, source: &Bytes, bytes: u64) -> Home {
        let capacity_bytes = (bytes * 3 / 2 + SPARE_BYTES).next_multiple_of(BLOCK_BYTES);
        Home { program: program.to_owned(), device, capacity_bytes, source: source.clone() }
    }

    /// How much of the device is foyer's, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Writes zeros to all of it: nothing that was there is found again, and no later write changes anything but the data.
    pub fn empty(&self) -> Result<()> {
        let mut device = OpenOptions::new().write(true).create(true).truncate(false).open(&self.device)?;
        let zeros = vec![0; ZEROS_BYTES];
        (0..self.capacity_bytes / ZEROS_BYTES as u64).try_for_each(|_| device.write_all(&zeros))?;
        Ok(device.sync_all()?)
    }

    /// Opens it, with so much memory for objects.
    pub fn open(&self, memory_bytes: usize) -> Result<Foyer> {
        let mut command = Command::new(&self.program);
        command.arg(&self.device).args([self.capacity_bytes.to_string(), memory_bytes.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        let input = child.stdin.take().context("an input")?;
        let output = BufReader::new(child.stdout.take().context("an output")?);
        let mut foyer = Foyer { child, input, output, opened: Duration::ZERO };
        writeln!(foyer.input, "source {}", self.source.len())?;
        foyer.input.write_all(&self.source)?;
        foyer.opened = nanoseconds(&foyer.answer()?)?;
        Ok(foyer)
    }
}

/// A foyer that is open; ended in any case.
#[derive(Debug)]
pub struct Foyer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What the opening took.
    pub opened: Duration,
}

impl Foyer {
    /// Puts objects and waits until all are on the disk; what that took.
    pub fn put(&mut self, items: &[Item]) -> Result<Duration> {
        nanoseconds(&self.ask("put", items)?)
    }

    /// Gets one after the other; what each took, `None` for one that was not there.
    pub fn get(&mut self, items: &[Item]) -> Result<Vec<Option<Duration>>> {
        let answer = self.ask("get", items)?;
        let time = |word| if word == "-" { Ok(None) } else { nanoseconds(word).map(Some) };
        let times = answer.split(' ').map(time).collect::<Result<Vec<_>>>()?;
        ensure!(times.len() == items.len(), "{} answers for {} objects", times.len(), items.len());
        Ok(times)
    }

    /// Compares contents with what was put; how many are not there.
    pub fn missing(&mut self, items: &[Item]) -> Result<usize> {
        let there: usize = self.ask("compare", items)?.parse().context("a number")?;
        items.len().checked_sub(there).context("more objects than there are")
    }

    /// Ends it well.
    pub fn close(mut self) -> Result<()> {
        self.ask("close", &[])?;
        let status = process::wait(&mut self.child, PATIENCE)?;
        ensure!(status.is_some_and(|status| status.success()), "foyer's program: {status:?}");
        Ok(())
    }

    fn ask(&mut self, verb: &str, items: &[Item]) -> Result<String> {
        let mut text = format!("{verb} {}\n", items.len());
        for item in items {
            write!(text, "{} {} ", item.start, item.length)?;
            item.key.iter().try_for_each(|byte| write!(text, "{byte:02x}"))?;
            text.push('\n');
        }
        self.input.write_all(text.as_bytes())?;
        self.answer()
    }

    /// The next line that is an answer: foyer has something to say as well.
    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if let Some(answer) = line.strip_prefix("done ") {
                return Ok(answer.trim_end().to_owned());
            }
            line.clear();
        }
        let status = process::wait(&mut self.child, PATIENCE)?;
        anyhow::bail!("foyer's program has ended: {status:?}")
    }
}

impl Drop for Foyer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All times together; `None` when an object was not there: what a miss takes says nothing.
pub fn together(times: &[Option<Duration>]) -> Option<Duration> {
    times.iter().copied().sum()
}

fn nanoseconds(word: &str) -> Result<Duration> {
    Ok(Duration::from_nanos(word.parse().with_context(|| format!("a time: {word}"))?))
}

/// foyer's block, of which it wants some that are free.
const BLOCK_BYTES: u64 = 16 << 20;
const SPARE_BYTES: u64 = 256 << 20;
const ZEROS_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_miss_there_is_no_time() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(together(&[second, second]), Some(Duration::from_secs(2)));
        assert_eq!(together(&[second, None]), None);
    }
}
