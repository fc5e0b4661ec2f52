//! What commands print.
//!
//! A reader may have seen enough, as `head -1` has after one line. What is printed after that is discarded and the command goes on, since
//! it may have more to do than to print. Any other failure to write to standard output fails the command at its end.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Mutex;

/// The first failure to print, for the end of the command.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line to standard output, as `println!` does.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard output, as `print!` does.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

pub(crate) use {out, outln};

/// Prints text.
pub fn print(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    record(stdout.write_fmt(text).and_then(|()| stdout.flush()));
}

/// Prints bytes.
pub fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    record(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Prints everything that can be read.
pub fn copy(from: &mut impl Read) {
    let mut stdout = io::stdout().lock();
    record(io::copy(from, &mut stdout).and_then(|_| stdout.flush()));
}

/// Prints a line to standard error, whose reader may have gone too.
pub fn error_line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(format_args!("{text}\n"));
}

/// Fails if something could not be printed that somebody would have read.
pub fn finish() -> io::Result<()> {
    FAILURE.lock().expect("no holder panics").take().map_or(Ok(()), Err)
}

fn record(printed: io::Result<()>) {
    if let Err(error) = printed
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILURE.lock().expect("no holder panics").get_or_insert(error);
    }
}
