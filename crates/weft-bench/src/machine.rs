//! On what a run was made: without it a figure says nothing.

use std::path::Path;
use std::process::Command;

use crate::process;

/// Lines that describe the machine, the date and the programs.
pub fn describe(dir: &Path, versions: &[String]) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = field(&cpus, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib: f64 = field(&memory, "MemTotal").and_then(|kib| kib.trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    vec![
        format!("date: {}", said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))),
        format!("machine: {model}, {cores} cores, {:.0} GiB of memory", kib / f64::from(1 << 20)),
        format!("kernel: {}, {}", said(Command::new("uname").arg("-sr")), user()),
        format!("disk: {}", file_system(dir)),
        format!("load average at the start: {}", load.join(", ")),
        format!("programs: {}", versions.join("; ")),
    ]
}

/// The type of the file system of a folder.
fn file_system(dir: &Path) -> String {
    let text = process::output(Command::new("df").arg("--output=fstype").arg(dir)).unwrap_or_default();
    text.lines().nth(1).unwrap_or("unknown").trim().to_owned()
}

fn user() -> &'static str {
    if rustix::process::geteuid().is_root() { "run as root" } else { "run as an ordinary user" }
}

/// The first line of what a program says; `unknown` where it does not run.
pub fn said(command: &mut Command) -> String {
    let text = process::output(command).unwrap_or_default();
    text.lines().next().map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

/// The value of the first `name : value`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "a: 1\nmodel name\t: X 5 \nmodel name\t: Y\n";
        assert_eq!(field(text, "model name"), Some("X 5"));
        assert_eq!(field(text, "MemTotal"), None);
    }
}
