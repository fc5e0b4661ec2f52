//! A container's streams: written to the log and copied to attached clients.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::log::{Lines, Log, Stream};

/// Timeout after which an attached client that does not read is dropped; the container blocks meanwhile.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

pub(super) struct Output {
    sources: Vec<Source>,
    stdin: Option<OwnedFd>,
    log: Option<Log>,
    attached: Vec<AttachedClient>,
}

struct Source {
    stream: Stream,
    fd: OwnedFd,
    lines: Lines,
}

struct AttachedClient {
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    backlog: Vec<u8>,
    backlog_of: Stream,
    stuck_since: Instant,
}

impl Output {
    /// Creates the streams of a container with pipes.
    pub(super) fn pipes(stdout: OwnedFd, stderr: OwnedFd, stdin: Option<OwnedFd>, log: Option<Log>) -> Output {
        let sources = vec![Source::new(Stream::Stdout, stdout), Source::new(Stream::Stderr, stderr)];
        Output { sources, stdin, log, attached: Vec::new() }
    }

    /// Creates the streams of a container whose terminal arrives later.
    pub(super) fn terminal(log: Option<Log>) -> Output {
        Output { sources: Vec::new(), stdin: None, log, attached: Vec::new() }
    }

    /// Sets the terminal.
    pub(super) fn set_terminal(&mut self, master: OwnedFd, input: Option<OwnedFd>) {
        self.sources = vec![Source::new(Stream::Stdout, master)];
        self.stdin = input;
    }

    pub(super) fn attach(&mut self, stdout: OwnedFd, stderr: Option<OwnedFd>) {
        let (backlog, backlog_of, stuck_since) = (Vec::new(), Stream::Stdout, Instant::now());
        self.attached.push(AttachedClient { stdout, stderr, backlog, backlog_of, stuck_since });
    }

    pub(super) fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(super) fn reopen_log(&mut self) -> std::io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)
    }

    /// Whether all sources are closed.
    pub(super) fn is_finished(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the descriptors to poll: those of attached clients with a backlog, or the container's output if there
    /// are none.
    pub(super) fn wants(&self) -> Vec<PollFd<'_>> {
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

    /// Returns the time at which an attached client that does not read is dropped.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.attached.iter().filter(|one| !one.backlog.is_empty()).map(|one| one.stuck_since + TIMEOUT).min()
    }

    /// Copies all available data without blocking.
    pub(super) fn pump(&mut self) {
        let now = Instant::now();
        self.attached.retain_mut(|one| one.flush() && (one.backlog.is_empty() || now < one.stuck_since + TIMEOUT));
        let mut buffer = [0; READ_BYTES];
        while self.attached.iter().all(|one| one.backlog.is_empty()) {
            if !self.read_once(&mut buffer) {
                return;
            }
        }
    }

    /// Reads each source once. Returns whether any data was read.
    fn read_once(&mut self, buffer: &mut [u8]) -> bool {
        let mut any = false;
        let mut n = 0;
        while n < self.sources.len() {
            let source = &mut self.sources[n];
            match rustix::io::read(&source.fd, &mut *buffer) {
                Err(Errno::AGAIN) => n += 1,
                Err(Errno::INTR) => {}
                // A terminal without users returns an error instead of the end of the file.
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
                        one.write(stream, &buffer[..count]);
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
        // A read must not block; setting the mode on a valid descriptor cannot fail.
        let _ = rustix::io::ioctl_fionbio(&fd, true);
        Source { stream, fd, lines: Lines::new(stream) }
    }
}

impl AttachedClient {
    fn target(&self, stream: Stream) -> BorrowedFd<'_> {
        match (stream, &self.stderr) {
            (Stream::Stderr, Some(stderr)) => stderr.as_fd(),
            _ => self.stdout.as_fd(),
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.backlog = bytes.to_vec();
        self.backlog_of = stream;
        self.stuck_since = Instant::now();
        if !self.flush() {
            self.backlog.clear();
        }
    }

    /// Writes the backlog without blocking. Returns whether the client is still connected.
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

/// Appends to the log. On a full disk log lines are lost, and the container keeps running.
fn append(log: Option<&mut Log>, bytes: &[u8]) {
    if let Some(log) = log
        && !bytes.is_empty()
        && let Err(error) = log.write(bytes)
    {
        eprintln!("cannot write the log: {error}");
    }
}
