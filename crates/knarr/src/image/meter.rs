//! How far a pull is, for whoever watches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use image::{Digest, Step};

/// A line that changes faster cannot be read.
const LINE_EVERY: Duration = Duration::from_millis(100);

/// Tells on the standard error: a line that changes on a terminal, a line a part elsewhere.
pub struct Meter {
    name: String,
    live: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has arrived of each part, and how much it will be.
    parts: BTreeMap<Digest, (u64, u64)>,
    shown: Option<Instant>,
}

impl Meter {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), live: std::io::stderr().is_terminal(), state: Mutex::default() }
    }

    pub fn told(&self, step: &Step) {
        let mut state = self.state.lock().expect("no holder panics");
        let before = state.parts.insert(step.digest.clone(), (step.arrived, step.size));
        if !self.live {
            let is_new = before.is_none_or(|(arrived, _)| arrived < step.size);
            if step.arrived == step.size && is_new {
                say(&format!("{}: {} is here, {}\n", self.name, step.digest, bytes(step.size)));
            }
            return;
        }
        if state.shown.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            state.shown = Some(Instant::now());
            // The rest of a longer line before it is cleared.
            say(&format!("\r{}: {}\x1b[K", self.name, line(&state.parts)));
        }
    }

    /// Leaves the place of the line for what comes next.
    pub fn finish(&self) {
        if self.live && self.state.lock().expect("no holder panics").shown.is_some() {
            say("\r\x1b[K");
        }
    }
}

/// Whoever reads it may have gone.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(parts: &BTreeMap<Digest, (u64, u64)>) -> String {
    let whole = parts.values().filter(|(arrived, size)| arrived == size).count();
    let (arrived, size) = parts.values().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let mut line = format!("{whole} of {} parts", parts.len());
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
    fn a_line_sums_up_all_parts() {
        let parts = BTreeMap::from([(Digest::of(b"a"), (1 << 20, 3 << 20)), (Digest::of(b"b"), (500, 500))]);
        assert_eq!(line(&parts), "1 of 2 parts, 1.0 MiB of 3.0 MiB");
        assert_eq!(bytes(500), "1 KiB");
    }
}
