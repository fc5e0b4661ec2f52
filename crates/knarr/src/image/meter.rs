//! Progress of an image pull on standard error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use image_store::{Digest, PullProgress};

/// Minimum interval between updates of the progress line.
const LINE_EVERY: Duration = Duration::from_millis(100);

/// Reports progress on standard error: an updated line on a terminal, otherwise one line per completed blob.
pub(super) struct Meter {
    name: String,
    live: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Received bytes and size of each blob.
    parts: BTreeMap<Digest, (u64, u64)>,
    last_rendered: Option<Instant>,
}

impl Meter {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), live: std::io::stderr().is_terminal(), state: Mutex::default() }
    }

    pub(super) fn update(&self, step: &PullProgress) {
        let mut state = self.state.lock().expect("no holder panics");
        let before = state.parts.insert(step.digest.clone(), (step.arrived, step.size));
        if !self.live {
            let is_new = before.is_none_or(|(arrived, _)| arrived < step.size);
            if step.arrived == step.size && is_new {
                write_stderr(&format!("{}: pulled {}, {}\n", self.name, step.digest, bytes(step.size)));
            }
            return;
        }
        if state.last_rendered.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            state.last_rendered = Some(Instant::now());
            // The escape sequence clears the rest of a longer previous line.
            write_stderr(&format!("\r{}: {}\x1b[K", self.name, line(&state.parts)));
        }
    }

    /// Clears the progress line.
    pub(super) fn finish(&self) {
        if self.live && self.state.lock().expect("no holder panics").last_rendered.is_some() {
            write_stderr("\r\x1b[K");
        }
    }
}

/// Writes to standard error. Errors are ignored: the reader may have closed it.
fn write_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(parts: &BTreeMap<Digest, (u64, u64)>) -> String {
    let whole = parts.values().filter(|(arrived, size)| arrived == size).count();
    let (arrived, size) = parts.values().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let mut line = format!("{whole} of {} blobs", parts.len());
    let _ = write!(line, ", {} of {}", bytes(arrived), bytes(size));
    line
}

fn bytes(count: u64) -> String {
    const MIB: u64 = 1 << 20;
    if count < MIB {
        format!("{} KiB", count.div_ceil(1 << 10))
    } else {
        format!("{:.1} MiB", count as f64 / MIB as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_sums_all_blobs() {
        let parts = BTreeMap::from([(Digest::of(b"a"), (1 << 20, 3 << 20)), (Digest::of(b"b"), (500, 500))]);
        assert_eq!(line(&parts), "1 of 2 blobs, 1.0 MiB of 3.0 MiB");
        assert_eq!(bytes(500), "1 KiB");
    }
}
