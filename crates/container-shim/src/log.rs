//! Container log in CRI format: timestamp, stream, partial or full, text.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Maximum size of a record; longer lines are written as partial records.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(crate) fn open(path: &Path) -> io::Result<Log> {
        // Logs may contain secrets: only the owner and the group, for log collectors, may read them.
        let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// Opens the path again after a rotation.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = Log::open(&self.path)?.file;
        Ok(())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }
}

/// Splits a stream into log records.
pub(crate) struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(stream: Stream) -> Lines {
        Lines { stream, pending: Vec::new() }
    }

    /// Adds output and returns the complete records.
    pub(crate) fn push(&mut self, mut bytes: &[u8], now: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take_parts(&bytes[..end], now, &mut out);
            let line = std::mem::take(&mut self.pending);
            record(&mut out, now, self.stream, 'F', &line);
            bytes = &bytes[end + 1..];
        }
        self.take_parts(bytes, now, &mut out);
        out
    }

    /// Returns an unterminated last line as a partial record, so that readers add no newline.
    pub(crate) fn finish(&mut self, now: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.pending.is_empty() {
            let line = std::mem::take(&mut self.pending);
            record(&mut out, now, self.stream, 'P', &line);
        }
        out
    }

    /// Adds to the pending line and emits all full parts except the last.
    fn take_parts(&mut self, mut bytes: &[u8], now: Timestamp, out: &mut Vec<u8>) {
        while self.pending.len() + bytes.len() > RECORD_BYTES_MAX {
            let (part, rest) = bytes.split_at(RECORD_BYTES_MAX - self.pending.len());
            self.pending.extend_from_slice(part);
            let part = std::mem::take(&mut self.pending);
            record(out, now, self.stream, 'P', &part);
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
    }
}

fn record(out: &mut Vec<u8>, now: Timestamp, stream: Stream, tag: char, text: &[u8]) {
    write!(out, "{now:.9} {} {tag} ", stream.name()).expect("writing to memory cannot fail");
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], expect: &[&str]) {
        let now = Timestamp::from_second(1).unwrap();
        let mut lines = Lines::new(Stream::Stderr);
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(lines.push(piece.as_bytes(), now));
        }
        out.extend(lines.finish(now));
        let expect: String =
            expect.iter().map(|line| format!("1970-01-01T00:00:01.000000000Z stderr {line}\n")).collect();
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn lines_are_split_independently_of_read_boundaries() {
        check(&["one\ntw", "o\n", "\n"], &["F one", "F two", "F "]);
        check(&["no end"], &["P no end"]);
        check(&[], &[]);
    }

    #[test]
    fn long_lines_become_partial_records() {
        let long = "x".repeat(RECORD_BYTES_MAX);
        check(&[&long, "y\n"], &[&format!("P {long}"), "F y"]);
        check(&[&format!("{long}\n")], &[&format!("F {long}")]);
        check(&[&format!("{long}{long}z")], &[&format!("P {long}"), &format!("P {long}"), "P z"]);
    }
}
