//! Standard output and standard error. A reader that goes away early (`weft ls | head`) is no error.

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard output; see [`line()`].
macro_rules! say {
    ($($arg:tt)*) => { $crate::output::line(format_args!($($arg)*)) };
}
pub(crate) use say;

/// Writes a line. When nobody reads any more, the program ends as if all had been read.
pub fn line(text: fmt::Arguments<'_>) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes a line to standard error, where somebody reads that; what is done does not depend on it.
macro_rules! complain {
    ($($arg:tt)*) => { $crate::output::complaint(format_args!($($arg)*)) };
}
pub(crate) use complain;

/// Writes a line to standard error, and no name in it commands the terminal. Where nobody reads it nothing else changes, such
/// as how the program ends.
pub fn complaint(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{}\n", harmless(&text.to_string())).as_bytes());
}

/// With what would command a terminal escaped.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            _ if letter.is_control() => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// Writes bytes, as [`line()`] does.
pub fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            complain!("weft: standard output: {error}");
            std::process::exit(crate::exit::Exit::Failed as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file's name, which anybody may have chosen, does not reach the terminal as a command.
    #[test]
    fn names_do_not_command_the_terminal() {
        assert_eq!(harmless("weft: a\tb\nc \u{e9}"), "weft: a\tb\nc \u{e9}");
        assert_eq!(harmless("\u{1b}[2J\r\u{9b}1m\0"), "\\u{1b}[2J\\r\\u{9b}1m\\u{0}");
    }
}
