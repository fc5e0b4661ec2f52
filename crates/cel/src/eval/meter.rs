//! What an evaluation has used and may use.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use regex::Regex;

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The expression failed on these values; logic can absorb it.
    #[error("{0}")]
    Message(Cow<'static, str>),
    /// It cost more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    /// It needed more memory or steps than its cost accounts for.
    #[error("operation cancelled: resource limit exceeded")]
    Resources,
    /// The host asked to stop.
    #[error("operation interrupted")]
    Interrupted,
}

impl Failure {
    /// A failure that says why.
    pub fn message(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Message(why.into())
    }

    /// No function of that name takes these values.
    pub const fn no_overload() -> Self {
        Self::Message(Cow::Borrowed("no such overload"))
    }

    /// Whether logic may absorb it: `true || failure` is true, but nothing stands for a budget that is used up.
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
    /// Patterns compiled while running, the latest last.
    patterns: RefCell<Vec<(Box<str>, Regex)>>,
    interrupt: Option<&'m dyn Fn() -> bool>,
}

/// What an evaluation may allocate in all: upstream's costs do not bound it, since joining lists costs one unit however
/// long they are.
const BYTES_MAX: usize = 32 << 20;
// DEVIATION: calls of an expression also count as steps, by the length of their texts and by what they parse; tens of thousands of
// dear ones end with the resource limit where upstream goes on.
/// How many iterations, calls, comparisons and visits an evaluation may make in all. Upstream's costs do not bound the time that these take: values
/// can share parts, and one unit may stand for a text of any length. A step is about 20 ns.
const STEPS_MAX: usize = 300_000;
/// How many bytes are compared in the time of one step.
const BYTES_A_STEP: usize = 256;
/// Patterns kept while running.
const PATTERNS_MAX: usize = 8;
/// How many iterations pass between two looks at the interrupt.
const INTERRUPT_EVERY: u32 = 100;

impl<'m> Meter<'m> {
    /// A budget of so many units of cost.
    pub const fn new(limit: u64) -> Self {
        let (cost, bytes, steps, iterations) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self { cost, limit, bytes, steps, iterations, patterns: RefCell::new(Vec::new()), interrupt: None }
    }

    /// Stops the evaluation soon after `interrupt` gives true.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &'m dyn Fn() -> bool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// What has been used of the budget.
    pub const fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// How many comparisons, visits and iterations were made.
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

    /// So many bytes are compared with others.
    #[inline]
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Failure> {
        if bytes < BYTES_A_STEP { Ok(()) } else { self.work(bytes / BYTES_A_STEP) }
    }

    /// A compiled pattern, if it was used lately, or as `compile` makes it.
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

    /// One more iteration of a fold.
    pub(crate) fn iterate(&self) -> Result<(), Failure> {
        let iterations = self.iterations.get().wrapping_add(1);
        self.iterations.set(iterations);
        match self.interrupt {
            Some(interrupt) if iterations.is_multiple_of(INTERRUPT_EVERY) && interrupt() => Err(Failure::Interrupted),
            _ => Ok(()),
        }
    }
}
