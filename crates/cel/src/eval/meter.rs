//! Resource meter of an evaluation: cost, memory and steps.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use regex::Regex;

/// An evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The expression failed on these values; logical operators can absorb the failure.
    #[error("{0}")]
    Message(Cow<'static, str>),
    /// The cost limit was exceeded.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    /// The memory or step limit was exceeded.
    #[error("operation cancelled: resource limit exceeded")]
    Resources,
    /// The caller interrupted the evaluation.
    #[error("operation interrupted")]
    Interrupted,
}

impl Failure {
    pub fn message(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Message(message.into())
    }

    /// Returns the failure for values that match no overload.
    pub const fn no_overload() -> Self {
        Self::Message(Cow::Borrowed("no such overload"))
    }

    /// Whether logical operators may absorb the failure: `true || failure` is true, but an exhausted budget always
    /// fails.
    pub const fn absorbable(&self) -> bool {
        matches!(self, Self::Message(_))
    }
}

/// Counts cost, memory and steps of one evaluation, or of several that share a budget.
pub struct Meter<'m> {
    cost: Cell<u64>,
    limit: u64,
    bytes: Cell<usize>,
    steps: Cell<usize>,
    iterations: Cell<u32>,
    /// Cache of patterns compiled at runtime, oldest first.
    patterns: RefCell<Vec<(Box<str>, Regex)>>,
    interrupt: Option<&'m dyn Fn() -> bool>,
}

/// Maximum total bytes that an evaluation may allocate. Upstream's costs do not bound allocation: joining lists costs
/// one unit regardless of their length.
const BYTES_MAX: usize = 32 << 20;
// DEVIATION: calls of an expression also count as steps, by the length of their texts and by what they parse; tens of
// thousands of expensive calls reach the resource limit, where upstream continues.
/// Maximum number of iterations, calls, comparisons and visits of an evaluation. Upstream's costs do not bound the time
/// that these take: values can share parts, and one unit may represent a text of any length. A step takes about 20 ns.
const STEPS_MAX: usize = 300_000;
/// The number of bytes compared in the time of one step.
const BYTES_A_STEP: usize = 256;
/// Maximum number of patterns cached at runtime.
const PATTERNS_MAX: usize = 8;
/// The number of iterations between two checks of the interrupt.
const INTERRUPT_EVERY: u32 = 100;

impl<'m> Meter<'m> {
    /// Creates a meter with a budget of `limit` cost units.
    pub const fn new(limit: u64) -> Self {
        let (cost, bytes, steps, iterations) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self { cost, limit, bytes, steps, iterations, patterns: RefCell::new(Vec::new()), interrupt: None }
    }

    /// Interrupts the evaluation when `interrupt` returns true, which is checked every 100 iterations.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &'m dyn Fn() -> bool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Returns the cost so far.
    pub const fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Returns the number of steps so far: iterations, calls, comparisons and visits.
    pub const fn steps(&self) -> usize {
        self.steps.get() + self.iterations.get() as usize
    }

    #[inline]
    pub(crate) fn charge(&self, units: u64) -> Result<(), Failure> {
        let cost = self.cost.get().saturating_add(units);
        self.cost.set(cost);
        if cost > self.limit { Err(Failure::Cost) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn allocate(&self, bytes: usize) -> Result<(), Failure> {
        let total = self.bytes.get().saturating_add(bytes);
        self.bytes.set(total);
        if total > BYTES_MAX { Err(Failure::Resources) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn work(&self, steps: usize) -> Result<(), Failure> {
        let total = self.steps.get().saturating_add(steps);
        self.steps.set(total);
        if total.saturating_add(self.iterations.get() as usize) > STEPS_MAX { Err(Failure::Resources) } else { Ok(()) }
    }

    /// Counts the comparison of `bytes` bytes.
    #[inline]
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Failure> {
        if bytes < BYTES_A_STEP { Ok(()) } else { self.work(bytes / BYTES_A_STEP) }
    }

    /// Returns the cached pattern, or compiles and caches it. A full cache drops its oldest pattern.
    pub(crate) fn pattern(
        &self,
        text: &str,
        compile: impl FnOnce() -> Result<Regex, Failure>,
    ) -> Result<Regex, Failure> {
        if let Some((_, pattern)) = self.patterns.borrow().iter().find(|(have, _)| **have == *text) {
            return Ok(pattern.clone());
        }
        let pattern = compile()?;
        let mut patterns = self.patterns.borrow_mut();
        if patterns.len() == PATTERNS_MAX {
            patterns.remove(0);
        }
        patterns.push((text.into(), pattern.clone()));
        Ok(pattern)
    }

    /// Counts one iteration of a comprehension.
    pub(crate) fn iterate(&self) -> Result<(), Failure> {
        let iterations = self.iterations.get().wrapping_add(1);
        self.iterations.set(iterations);
        match self.interrupt {
            Some(interrupt) if iterations.is_multiple_of(INTERRUPT_EVERY) && interrupt() => Err(Failure::Interrupted),
            _ => Ok(()),
        }
    }
}
