//! A container's streams: read, cut into the log, copied to whoever is attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::log::{Lines, Log, Stream};

/// Who is attached and takes nothing for so long is dropped: meanwhile the container waits for them.
const PATIENCE: Duration = Duration::from_secs(10);
/// Read in one go; the log's lines are cut from it.
const READ_BYTES: usize = 64 << 10;

pub struct Output {
    sources: Vec<Source>,
    stdin: Option<OwnedFd>,
    log: Option<Log>,
    attached: Vec<Attached>,
}

struct Source {
    stream: Stream,
    fd: OwnedFd,
    lines: Lines,
}

struct Attached {
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    backlog: Vec<u8>,
    backlog_of: Stream,
    stuck_since: Instant,
}

impl Output {
    /// Streams of a container with pipes.
    pub fn pipes(stdout: OwnedFd, stderr: OwnedFd, stdin: Option<OwnedFd>, log: Option<Log>) -> Output {
        let sources = vec![Source::new(Stream::Stdout, stdout), Source::new(Stream::Stderr, stderr)];
        Output { sources, stdin, log, attached: Vec::new() }
    }

    /// Streams of a container whose terminal comes later.
    pub fn terminal(log: Option<Log>) -> Output {
        Output { sources: Vec::new(), stdin: None, log, attached: Vec::new() }
    }

    /// The terminal has come.
    pub fn set_terminal(&mut self, master: OwnedFd, input: Option<OwnedFd>) {
        self.sources = vec![Source::new(Stream::Stdout, master)];
        self.stdin = input;
    }

    pub fn attach(&mut self, stdout: OwnedFd, stderr: Option<OwnedFd>) {
        let (backlog, backlog_of, stuck_since) = (Vec::new(), Stream::Stdout, Instant::now());
        self.attached.push(Attached { stdout, stderr, backlog, backlog_of, stuck_since });
    }

    pub fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn reopen_log(&mut self) -> std::io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)
    }

    /// Whether nothing more can come.
    pub fn is_finished(&self) -> bool {
        self.sources.is_empty()
    }

    /// What to wait for: a stuck reader, or else the container's output.
    pub fn wants(&self) -> Vec<PollFd<'_>> {
        let stuck: Vec<PollFd<'_>> = self
            .attached
            .iter()
            .filter(|one| !one.backlog.is_empty())
            .map(|one| PollFd::from_borrowed_fd(one.target(one.backlog_of), PollFlags::OUT))
            .collect();
        if !stuck.is_empty() {
            return stuck;
        }
        self.sources.iter().map(|source| PollFd::new(&source.fd, PollFlags::IN)).collect()
    }

    /// When a stuck reader is to be dropped.
    pub fn deadline(&self) -> Option<Instant> {
        self.attached.iter().filter(|one| !one.backlog.is_empty()).map(|one| one.stuck_since + PATIENCE).min()
    }

    /// Moves what can be moved without waiting.
    pub fn pump(&mut self) {
        let now = Instant::now();
        self.attached.retain_mut(|one| one.flush() && (one.backlog.is_empty() || now < one.stuck_since + PATIENCE));
        let mut buffer = [0; READ_BYTES];
        while self.attached.iter().all(|one| one.backlog.is_empty()) {
            if !self.read_once(&mut buffer) {
                return;
            }
        }
    }

    /// One read of each source; says whether there was anything.
    fn read_once(&mut self, buffer: &mut [u8]) -> bool {
        let mut any = false;
        let mut n = 0;
        while n < self.sources.len() {
            let source = &mut self.sources[n];
            match rustix::io::read(&source.fd, &mut *buffer) {
                Err(Errno::AGAIN) => n += 1,
                Err(Errno::INTR) => {}
                // A terminal whose last user has gone fails instead of ending.
                Ok(0) | Err(_) => {
                    let rest = source.lines.finish(Timestamp::now());
                    append(self.log.as_mut(), &rest);
                    self.sources.remove(n);
                }
                Ok(count) => {
                    any = true;
                    let stream = source.stream;
                    let record = source.lines.push(&buffer[..count], Timestamp::now());
                    append(self.log.as_mut(), &record);
                    for one in &mut self.attached {
                        one.give(stream, &buffer[..count]);
                    }
                    n += 1;
                }
            }
        }
        if self.sources.is_empty() {
            self.attached.retain(|one| !one.backlog.is_empty());
        }
        any
    }
}

impl Source {
    fn new(stream: Stream, fd: OwnedFd) -> Source {
        // Without it a read would wait; a descriptor of ours takes it always.
        let _ = rustix::io::ioctl_fionbio(&fd, true);
        Source { stream, fd, lines: Lines::new(stream) }
    }
}

impl Attached {
    fn target(&self, stream: Stream) -> BorrowedFd<'_> {
        match (stream, &self.stderr) {
            (Stream::Stderr, Some(stderr)) => stderr.as_fd(),
            _ => self.stdout.as_fd(),
        }
    }

    fn give(&mut self, stream: Stream, bytes: &[u8]) {
        self.backlog = bytes.to_vec();
        self.backlog_of = stream;
        self.stuck_since = Instant::now();
        if !self.flush() {
            self.backlog.clear();
        }
    }

    /// Writes what can be written; says whether the reader is still there.
    fn flush(&mut self) -> bool {
        while !self.backlog.is_empty() {
            match rustix::io::write(self.target(self.backlog_of), &self.backlog) {
                Ok(count) => {
                    self.backlog.drain(..count);
                    self.stuck_since = Instant::now();
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// A full disk loses log lines, not the container.
fn append(log: Option<&mut Log>, bytes: &[u8]) {
    if let Some(log) = log
        && !bytes.is_empty()
        && let Err(error) = log.write(bytes)
    {
        eprintln!("cannot write the log: {error}");
    }
}
