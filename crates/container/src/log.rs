//! A container's log in CRI's format: time, stream, whether the line ends here, the text.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// A longer line is written in parts.
const PART_BYTES_MAX: usize = 16 << 10;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
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

/// An open log.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub fn open(path: &Path) -> io::Result<Log> {
        // Logs may hold secrets: the group may read them, for programs that ship logs, and nobody else.
        let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
        Ok(Log { path: path.to_owned(), file })
    }

    /// After a rotation the path leads to another file.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = Log::open(&self.path)?.file;
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }
}

/// Cuts one stream into lines.
pub struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    pub fn new(stream: Stream) -> Lines {
        Lines { stream, pending: Vec::new() }
    }

    /// Takes output and gives what is ready for the log.
    pub fn push(&mut self, mut bytes: &[u8], now: Timestamp) -> Vec<u8> {
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

    /// The last line, if it has no end: a part, so that a reader adds none to it.
    pub fn finish(&mut self, now: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.pending.is_empty() {
            let line = std::mem::take(&mut self.pending);
            record(&mut out, now, self.stream, 'P', &line);
        }
        out
    }

    /// Adds to the pending line and gives out every full part of it but the last.
    fn take_parts(&mut self, mut bytes: &[u8], now: Timestamp, out: &mut Vec<u8>) {
        while self.pending.len() + bytes.len() > PART_BYTES_MAX {
            let (part, rest) = bytes.split_at(PART_BYTES_MAX - self.pending.len());
            self.pending.extend_from_slice(part);
            let part = std::mem::take(&mut self.pending);
            record(out, now, self.stream, 'P', &part);
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
    }
}

fn record(out: &mut Vec<u8>, now: Timestamp, stream: Stream, tag: char, text: &[u8]) {
    write!(out, "{now:.9} {} {tag} ", stream.name()).expect("writing to memory does not fail");
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
    fn lines_are_cut_wherever_they_were_read() {
        check(&["one\ntw", "o\n", "\n"], &["F one", "F two", "F "]);
        check(&["no end"], &["P no end"]);
        check(&[], &[]);
    }

    #[test]
    fn long_lines_come_in_parts() {
        let long = "x".repeat(PART_BYTES_MAX);
        check(&[&long, "y\n"], &[&format!("P {long}"), "F y"]);
        check(&[&format!("{long}\n")], &[&format!("F {long}")]);
        check(&[&format!("{long}{long}z")], &[&format!("P {long}"), &format!("P {long}"), "P z"]);
    }
}
