//! Output of commands.
//!
//! When the reader closes standard output, as `head -1` does, output is discarded and the command continues, because it
//! may have other work. Any other write error makes the command fail at its end.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first write error, reported at the end of the command.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);
/// Whether the reader has closed standard output.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Prints a line to standard output, as `println!` does.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard output, as `print!` does.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

pub(crate) use {out, outln};

pub(crate) fn print(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    record(stdout.write_fmt(text).and_then(|()| stdout.flush()));
}

pub(crate) fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    record(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Prints the input until its end.
pub(crate) fn copy(from: &mut impl Read) {
    let mut stdout = io::stdout().lock();
    record(io::copy(from, &mut stdout).and_then(|_| stdout.flush()));
}

/// Prints a line to standard error. Errors are ignored: the reader may have closed it.
pub(crate) fn error_line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(format_args!("{text}\n"));
}

/// Whether output is discarded because its reader closed it. Commands that only print can then stop.
pub(crate) fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Returns the first write error other than a closed pipe.
pub(crate) fn finish() -> io::Result<()> {
    FAILURE.lock().expect("no holder panics").take().map_or(Ok(()), Err)
}

fn record(printed: io::Result<()>) {
    if let Err(error) = printed {
        if error.kind() == ErrorKind::BrokenPipe {
            IS_CLOSED.store(true, Ordering::Relaxed);
            return;
        }
        FAILURE.lock().expect("no holder panics").get_or_insert(error);
    }
}
