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

/// Writes a line to standard error. Where nobody reads it nothing else changes, such as how the program ends.
pub fn complaint(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
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
