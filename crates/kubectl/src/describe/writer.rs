//! Text in aligned columns with indentation levels: the layout of `kubectl describe`.

use std::fmt;

use super::clock::Clock;
use crate::print::{escape_terminal, tabwriter::TabWriter};

/// Collects the text of one description. Columns are separated by tabs and aligned when the text is finished.
pub struct Writer<'a> {
    finished: String,
    pending: String,
    /// Levels added to each write, for a description inside another.
    nested: usize,
    pub clock: &'a Clock,
}

/// Two spaces in front of each column.
const PADDING: usize = 2;

/// Writes a line at an indentation level: `line!(w, 1, "Name:\t{}", name)`.
macro_rules! line {
    ($writer:expr, $level:expr, $format:literal $($argument:tt)*) => {
        $writer.line($level, format_args!($format $($argument)*))
    };
}
pub(crate) use line;

impl<'a> Writer<'a> {
    pub const fn new(clock: &'a Clock) -> Self {
        Self { finished: String::new(), pending: String::new(), nested: 0, clock }
    }

    /// Appends text after the spaces of `level`. The spaces precede each write, not each line.
    pub fn write(&mut self, level: usize, text: impl fmt::Display) {
        for _ in 0..level + self.nested {
            self.pending.push_str("  ");
        }
        self.pending.push_str(&escape_terminal(&text.to_string()));
    }

    /// Appends a line after the spaces of `level`.
    pub fn line(&mut self, level: usize, text: fmt::Arguments<'_>) {
        self.write(level, text);
        self.pending.push('\n');
    }

    /// Aligns the text so far. Columns of later text are independent of it.
    pub fn flush(&mut self) {
        self.finished.push_str(&TabWriter::new(0, PADDING).format(&self.pending));
        self.pending.clear();
    }

    /// Calls `write` with `levels` added to the level of each write.
    pub fn nested(&mut self, levels: usize, write: impl FnOnce(&mut Self)) {
        self.nested += levels;
        write(self);
        self.nested -= levels;
    }

    /// Returns the text with its tabs.
    pub fn into_unaligned(self) -> String {
        self.pending
    }

    pub fn finish(mut self) -> String {
        self.flush();
        self.finished
    }
}
