//! What is read: a tree of C that compiles, small files, many names, large files. The same bytes in every run.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::random::Random;

/// Where all of it lies on the disk; each has the same name in the volume.
#[derive(Debug)]
pub struct Trees {
    /// The folder that the volume is made from.
    pub top: PathBuf,
}

/// The tree that compiles.
pub const SOURCE: &str = "source";
/// The folder of small files.
pub const SMALL: &str = "small";
/// The folder of many names.
pub const MANY: &str = "many";
/// One large file.
pub const LARGE: &str = "large.bin";
/// Two files of half its length.
pub const HALVES: [&str; 2] = ["half-0.bin", "half-1.bin"];
/// A part of it: an eighth.
pub const EIGHTH: &str = "eighth.bin";
/// What is long enough for those that are slow far away.
pub const SHORT: &str = "short.bin";

/// Length of [`SHORT`].
pub const SHORT_BYTES: u64 = 4 << 20;
/// Small files, and the length of each.
pub const SMALL_FILES: usize = 500;
const SMALL_BYTES: u64 = 2048;
/// Names in the folder of many.
pub const NAMES: usize = 10_000;
/// Folders of the tree that compiles, and what each has.
const MODULES: usize = 16;
const UNITS: usize = 9;
const HEADERS: usize = 6;
const TEXTS: usize = 5;
/// Files of the tree that compiles: what its folders have, and two.
pub const SOURCE_FILES: usize = MODULES * (UNITS + HEADERS + TEXTS) + 2;
/// Of these those that are compiled.
pub const SOURCE_UNITS: usize = MODULES * UNITS + 1;

impl Trees {
    /// Makes all of it below a folder, which is made.
    pub fn make(top: &Path, large_bytes: u64) -> Result<Trees> {
        make_source(&top.join(SOURCE))?;
        let mut random = Random::new(2);
        std::fs::create_dir_all(top.join(SMALL))?;
        for number in 0..SMALL_FILES {
            write_noise(&top.join(SMALL).join(format!("file-{number:03}")), SMALL_BYTES, &mut random)?;
        }
        std::fs::create_dir_all(top.join(MANY))?;
        for number in 0..NAMES {
            File::create(top.join(MANY).join(format!("name-{number:05}")))?;
        }
        write_noise(&top.join(LARGE), large_bytes, &mut random)?;
        for half in HALVES {
            write_noise(&top.join(half), large_bytes / 2, &mut random)?;
        }
        write_noise(&top.join(EIGHTH), large_bytes / 8, &mut random)?;
        write_noise(&top.join(SHORT), SHORT_BYTES, &mut random)?;
        Ok(Trees { top: top.to_owned() })
    }

    /// One of them on the disk.
    pub fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }
}

/// The folders of the tree that compiles, relative to its top.
pub fn source_folders() -> impl Iterator<Item = String> {
    (0..MODULES).map(|module| format!("m{module:02}"))
}

fn make_source(top: &Path) -> Result<()> {
    let mut random = Random::new(1);
    for (module, folder) in source_folders().enumerate() {
        let folder = top.join(folder);
        std::fs::create_dir_all(&folder)?;
        for number in 0..HEADERS {
            write(&folder.join(format!("h{module:02}_{number}.h")), &header(module, number))?;
        }
        for number in 0..UNITS {
            write(&folder.join(format!("u{module:02}_{number}.c")), &unit(module, number, &mut random))?;
        }
        for number in 0..TEXTS {
            write(&folder.join(format!("notes-{number}.txt")), &prose(&mut random))?;
        }
    }
    write(&top.join("main.c"), &main_unit())?;
    write(&top.join("Makefile"), MAKEFILE)
}

/// Declares what the units with its number have, and a table's layout.
fn header(module: usize, number: usize) -> String {
    let name = format!("h{module:02}_{number}");
    let mut text = format!("#ifndef {name}_H\n#define {name}_H\n\nstruct {name} {{ unsigned a, b, c[8]; }};\n\n");
    for line in 0..24 {
        let _ = writeln!(text, "#define {name}_{line}(x) (((x) ^ {}u) + {line}u * (x))", line * 7919 + module);
    }
    let _ = writeln!(text, "\nunsigned u{module:02}_{number}(unsigned);\n#endif");
    text
}

/// One entry point and functions that it uses.
fn unit(module: usize, number: usize, random: &mut Random) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for header in 0..HEADERS {
        let _ = writeln!(text, "#include \"h{module:02}_{header}.h\"");
    }
    let functions = 6 + random.place(12);
    for function in 0..functions {
        let (header, line, factor) = (random.place(HEADERS), random.place(24), random.below(9973));
        let _ = write!(
            text,
            "\nstatic unsigned f{function}(unsigned x)\n{{\n    struct h{module:02}_{header} t = {{ x, {factor}u, {{ 0 }} }};\n    \
             for (unsigned i = 0; i < 8; i++)\n        t.c[i] = h{module:02}_{header}_{line}(t.a + i) ^ t.b;\n    \
             return t.c[x % 8] + {factor}u;\n}}\n"
        );
    }
    let _ = write!(text, "\nunsigned u{module:02}_{number}(unsigned x)\n{{\n");
    for function in 0..functions {
        let _ = writeln!(text, "    x = f{function}(x);");
    }
    text.push_str("    return x;\n}\n");
    text
}

fn main_unit() -> String {
    let mut text = String::from("#include <stdio.h>\n");
    let entries = || (0..MODULES).flat_map(|module| (0..UNITS).map(move |unit| format!("u{module:02}_{unit}")));
    entries().for_each(|entry| text.push_str(&format!("unsigned {entry}(unsigned);\n")));
    text.push_str("\nint main(void)\n{\n    unsigned x = 1;\n");
    entries().for_each(|entry| text.push_str(&format!("    x = {entry}(x);\n")));
    text.push_str("    printf(\"%u\\n\", x);\n    return 0;\n}\n");
    text
}

/// 2 to 30 KiB of words.
fn prose(random: &mut Random) -> String {
    let bytes = 2048 + random.place(28 << 10);
    let mut text = String::new();
    while text.len() < bytes {
        let end = if random.below(12) == 0 { "\n" } else { " " };
        let _ = write!(text, "{}{end}", WORDS[random.place(WORDS.len())]);
    }
    text
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn write_noise(path: &Path, bytes: u64, random: &mut Random) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).with_context(|| path.display().to_string())?);
    for _ in 0..bytes / 8 {
        out.write_all(&random.next().to_le_bytes())?;
    }
    Ok(out.flush()?)
}

/// Objects lie in O, which has the same folders.
const MAKEFILE: &str = "O ?= .\nSOURCES := $(sort $(wildcard m*/*.c)) main.c\nOBJECTS := $(SOURCES:%.c=$(O)/%.o)\n\n\
                        $(O)/program: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n\
                        $(O)/%.o: %.c\n\t$(CC) -O1 -c -o $@ $<\n";
const WORDS: &[&str] = &[
    "volume",
    "server",
    "promise",
    "break",
    "client",
    "directory",
    "the",
    "of",
    "a",
    "file",
    "is",
    "and",
    "to",
    "cell",
    "token",
    "call",
    "window",
    "packet",
    "vnode",
    "data",
    "version",
    "lease",
    "which",
    "it",
    "has",
    "cache",
    "name",
];

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Goal: the tree has the files that the tables tell of, is the same in every run, and compiles to a program that runs.
    #[test]
    fn the_source_compiles() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        make_source(&one).unwrap();
        make_source(&other).unwrap();
        assert!(Command::new("diff").arg("-r").args([&one, &other]).status().unwrap().success());
        let files = Command::new("find").arg(&one).args(["-type", "f"]).output().unwrap().stdout;
        assert_eq!(files.iter().filter(|byte| **byte == b'\n').count(), SOURCE_FILES);
        let made =
            Command::new("make").arg("-s").arg("-j2").arg("-C").arg(&one).env_remove("MAKEFLAGS").output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let said = Command::new(one.join("program")).output().unwrap();
        assert!(said.status.success() && !said.stdout.is_empty());
    }
}
