//! Standard output and error of a command. After the pipe is closed, the process exits without a message, as with
//! SIGPIPE.

use std::cell::RefCell;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::rc::Rc;

use crate::failure::go_io_error;

/// The exit code of a shell for a process that SIGPIPE terminated.
const BROKEN_PIPE_CODE: i32 = 141;

/// A writer of a command. Clones share the buffer.
#[derive(Clone)]
pub struct Output {
    writer: Rc<RefCell<Box<dyn Write>>>,
    terminal: bool,
    /// The file that failures name.
    path: &'static str,
}

impl Output {
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let writer = Box::new(BufWriter::with_capacity(64 << 10, stdout));
        Self { writer: Rc::new(RefCell::new(writer)), terminal, path: "/dev/stdout" }
    }

    pub fn stderr() -> Self {
        let stderr = io::stderr();
        let terminal = stderr.is_terminal();
        Self { writer: Rc::new(RefCell::new(Box::new(stderr))), terminal, path: "/dev/stderr" }
    }

    /// Returns a writer into memory, for tests.
    pub fn memory() -> (Self, Rc<RefCell<Vec<u8>>>) {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let writer = Box::new(Memory(Rc::clone(&bytes)));
        let output = Self { writer: Rc::new(RefCell::new(writer)), terminal: false, path: "" };
        (output, bytes)
    }

    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Names the file in an error. Exits if the pipe is closed.
    // DEVIATION: kubectl ignores failed writes of tables, names and messages, and succeeds.
    fn check<T>(&self, written: io::Result<T>) -> io::Result<T> {
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => std::process::exit(BROKEN_PIPE_CODE),
            kind => io::Error::new(kind, format!("write {}: {}", self.path, go_io_error(&error))),
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check(self.writer.borrow_mut().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check(self.writer.borrow_mut().flush())
    }
}

/// Returns the width of help texts on a terminal: the largest of 120, 100 and 80 columns that fits; `None` if standard
/// output is not a terminal or too narrow.
pub fn help_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).ok()?.ws_col;
    [120, 100, 80].into_iter().find(|width| columns >= *width).map(usize::from)
}

struct Memory(Rc<RefCell<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
