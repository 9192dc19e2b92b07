//! The trees that are served: the same bytes in every run.

use std::fs::{File, FileTimes};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

/// Folders of the tree of small files.
pub const FOLDERS: usize = 20;
/// Files in each.
pub const FILES_PER_FOLDER: usize = 100;
/// Files of each folder that are read: 500 in all.
pub const READ_PER_FOLDER: usize = 25;
/// Size of the large file in bytes.
pub const LARGE_BYTES: u64 = 500 << 20;
/// Names in the trees of many names.
pub const NAMES: usize = 100_000;
/// Folders in the one that has folders.
const NAME_FOLDERS: usize = 100;

/// Where the trees lie.
#[derive(Debug)]
pub struct Sample {
    /// 20 folders of 100 files of 1 to 16 KiB.
    pub small: PathBuf,
    /// The folder of the large file.
    pub large: PathBuf,
    /// 100,000 names in one folder.
    pub flat: PathBuf,
    /// 100,000 names in 100 folders.
    pub folders: PathBuf,
}

/// Name of the large file.
pub const LARGE_NAME: &str = "large.bin";

impl Sample {
    /// The places below a folder; nothing is made yet.
    pub fn below(dir: &Path) -> Sample {
        let [small, large, flat, folders] = ["small", "large", "flat", "folders"].map(|name| dir.join(name));
        Sample { small, large, flat, folders }
    }

    /// The large file.
    pub fn large_file(&self) -> PathBuf {
        self.large.join(LARGE_NAME)
    }

    /// Makes the tree of small files; does nothing when it is there.
    pub fn make_small(&self) -> Result<()> {
        if self.small.exists() {
            return Ok(());
        }
        let mut noise = Noise(1);
        for folder in 0..FOLDERS {
            let dir = self.small.join(folder_name(folder));
            std::fs::create_dir_all(&dir)?;
            for file in 0..FILES_PER_FOLDER {
                write_noise(&dir.join(file_name(file)), small_bytes(folder, file), &mut noise)?;
            }
        }
        Ok(())
    }

    /// Makes the large file; does nothing when it is there.
    pub fn make_large(&self) -> Result<()> {
        if self.large.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.large)?;
        write_noise(&self.large_file(), LARGE_BYTES, &mut Noise(2))
    }

    /// Makes the trees of many names, of empty files.
    pub fn make_names(&self) -> Result<()> {
        if self.flat.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.flat)?;
        for name in 0..NAMES {
            File::create(self.flat.join(format!("name-{name:06}.txt")))?;
        }
        for folder in 0..NAME_FOLDERS {
            let dir = self.folders.join(format!("folder-{folder:03}"));
            std::fs::create_dir_all(&dir)?;
            for name in 0..NAMES / NAME_FOLDERS {
                File::create(dir.join(format!("name-{name:06}.txt")))?;
            }
        }
        Ok(())
    }

    /// Compares what is read below `root` with the original, byte for byte: a figure of wrong bytes is no figure.
    pub fn verify_small(&self, root: &Path, per_folder: usize) -> Result<()> {
        for folder in 0..FOLDERS {
            for file in files_to_read(per_folder) {
                let path = Path::new(&folder_name(folder)).join(file_name(file));
                let seen = std::fs::read(root.join(&path)).with_context(|| path.display().to_string())?;
                ensure!(seen == std::fs::read(self.small.join(&path))?, "{}: wrong bytes", path.display());
            }
        }
        Ok(())
    }

    /// Bytes of the small files that are read.
    pub fn small_bytes_read(per_folder: usize) -> u64 {
        let folders = 0..FOLDERS;
        folders.map(|folder| files_to_read(per_folder).map(|file| small_bytes(folder, file)).sum::<u64>()).sum()
    }
}

/// Name of a folder of the tree of small files.
pub fn folder_name(folder: usize) -> String {
    format!("folder-{folder:02}")
}

/// Name of a small file.
pub fn file_name(file: usize) -> String {
    format!("file-{file:03}.bin")
}

/// Which files of a folder are read: spread over it.
pub fn files_to_read(per_folder: usize) -> impl Iterator<Item = usize> {
    (0..per_folder).map(move |index| index * FILES_PER_FOLDER / per_folder)
}

/// Sizes from 1 to 16 KiB, evenly spread.
fn small_bytes(folder: usize, file: usize) -> u64 {
    1024 + ((folder * FILES_PER_FOLDER + file) as u64 * 7919) % (15 * 1024 + 1)
}

/// A month old, as files of web sites are: a server that says nothing of freshness is then believed for some days.
fn write_noise(path: &Path, bytes: u64, noise: &mut Noise) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    let mut left = bytes;
    while left > 0 {
        let piece = noise.next().to_le_bytes();
        let count = left.min(piece.len() as u64);
        out.write_all(&piece[..count as usize])?;
        left -= count;
    }
    out.flush()?;
    drop(out);
    file.set_times(FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(30 * 24 * 3600)))?;
    Ok(())
}

/// Bytes that do not compress (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_the_tables_say() {
        let sizes: Vec<u64> =
            (0..FOLDERS).flat_map(|folder| (0..FILES_PER_FOLDER).map(move |file| small_bytes(folder, file))).collect();
        assert_eq!(sizes.len(), 2000);
        assert!(sizes.iter().all(|size| (1024..=16 * 1024).contains(size)));
        assert!(sizes.iter().min() < Some(&1200) && sizes.iter().max() > Some(&16_000));
    }

    #[test]
    fn files_to_read_are_distinct_and_in_the_folder() {
        let files: std::collections::BTreeSet<usize> = files_to_read(READ_PER_FOLDER).collect();
        assert_eq!(files.len(), READ_PER_FOLDER);
        assert!(files.iter().all(|file| *file < FILES_PER_FOLDER));
        assert_eq!(FOLDERS * READ_PER_FOLDER, 500);
    }
}
