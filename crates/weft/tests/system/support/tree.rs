//! Trees on disk for servers to serve, and the comparison with what a mount shows.

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::process::{Program, run};

/// Writes a file whose time of modification is a whole minute, `minutes` after a day in 2024: an index page tells
/// minutes, and where the time is exact all the same it does not differ.
pub fn write_aged(file: &Path, bytes: &[u8], minutes: u64) {
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
    std::fs::write(file, bytes).expect("written");
    age(file, minutes);
}

/// 2,000 small files in 20 folders, one folder in a folder in a folder, an empty file and one of 5 MiB.
pub fn big_tree(root: &Path) {
    for number in 0..2000_u64 {
        let (folder, file) = (number / 100, number % 100);
        let text = format!("This is file {file} in folder {folder}.\n").repeat(1 + (number as usize * 37) % 90);
        write_aged(&root.join(format!("folder{folder:02}/file{file:02}.txt")), text.as_bytes(), number);
    }
    write_aged(&root.join("folder00/empty"), b"", 3000);
    write_aged(&root.join("folder00/large.bin"), &noise(5 << 20), 3001);
    write_aged(&root.join("nested/deep/deeper/bottom.txt"), b"found\n", 3002);
    age_folders(root);
}

/// A small tree with the odd names that every server shows, an empty file and a file above one megabyte.
pub fn small_tree(root: &Path, dots: bool) {
    for number in 0..60_u64 {
        let text = format!("file {number}\n").repeat(1 + (number as usize * 613) % 4000);
        write_aged(&root.join(format!("f{}/{number}.txt", number % 3)), text.as_bytes(), number * 61);
    }
    write_aged(&root.join("empty"), b"", 1);
    write_aged(&root.join("large.bin"), &noise(1_300_007), 2);
    odd_names(&root.join("odd"), dots);
    age_folders(root);
}

/// Files under names that are odd but are the same on disk and in the mount. `dots` says whether names that begin
/// with a dot are among them, for nginx does not list those.
pub fn odd_names(folder: &Path, dots: bool) {
    let (long, long_utf8) = ("n".repeat(255), "\u{e9}".repeat(127) + "x");
    let mut names = vec![
        "space in the middle",
        " leading space",
        "trailing space ",
        "100%",
        "50%off",
        "%41",
        "caf\u{e9}",
        "\u{65e5}\u{672c}\u{8a9e}.txt",
        "\u{1f9f5} thread",
        "hash#tag",
        "a+b",
        "colon:inside",
        "it's",
        "double\"quote",
        "amp&ersand",
        "<angle>",
        "semi;colon",
        "equal=s",
        "at@sign",
        "back\\slash",
        "dollar$",
        "star*",
        "[brackets]",
        "{braces}",
        "tilde~",
        "~leading",
        "-dash",
        "--help",
        "pipe|",
        "comma,",
        "&amp;",
        "%7E",
        &long,
        &long_utf8,
    ];
    if dots {
        names.extend([".dot", ".hidden", "..two"]);
    }
    for (number, name) in names.iter().enumerate() {
        write_aged(&folder.join(name), format!("the content of {name}\n").as_bytes(), number as u64);
    }
    write_aged(&folder.join("a folder & more/in it.txt"), b"in it\n", 9);
    write_aged(&folder.join(OsStr::from_bytes(b"colon:folder/in it.txt")), b"in it too\n", 9);
}

/// Asserts that two trees hold the same names, kinds, sizes and bytes, by the tools that people use.
#[track_caller]
pub fn compare(disk: &Path, mount: &Path) {
    let list = |root: &Path| {
        let printed = run("find", [root.as_os_str(), OsStr::new("-printf"), OsStr::new("%y %P\\n")]);
        let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list(mount), list(disk));
    let diff = Program::new("diff").args(["-r", "--no-dereference"]).arg(disk).arg(mount).run();
    assert_eq!((diff.code, diff.out.as_str()), (Some(0), ""), "{diff:?}");
    // After every byte has been read every size is known exactly.
    let sizes = |root: &Path| {
        let printed = run(
            "find",
            [root.as_os_str(), OsStr::new("-type"), OsStr::new("f"), OsStr::new("-printf"), OsStr::new("%s %P\\n")],
        );
        let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sizes(mount), sizes(disk));
}

/// The number of folders in a tree, itself among them.
pub fn folders_in(root: &Path) -> usize {
    run("find", [root.as_os_str(), OsStr::new("-type"), OsStr::new("d")]).lines().count()
}

/// Bytes without a pattern that a mistake could hide in.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn age_folders(root: &Path) {
    for entry in std::fs::read_dir(root).expect("a folder").flatten() {
        if entry.path().is_dir() {
            age_folders(&entry.path());
        }
    }
    age(root, 0);
}

fn age(path: &Path, minutes: u64) {
    let day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_706_918_400);
    let at = day + Duration::from_secs(60 * minutes);
    let file = File::open(path).expect("just made");
    file.set_times(FileTimes::new().set_modified(at)).expect("set");
}
