//! What an evaluation has used and may use.

use std::borrow::Cow;
use std::cell::Cell;

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
    interrupt: Option<&'m dyn Fn() -> bool>,
}

/// What an evaluation may allocate in all: upstream's costs do not bound it, since joining lists costs one unit however
/// long they are.
const BYTES_MAX: usize = 32 << 20;
/// How many comparisons and visits an evaluation may make in all: values can share parts.
const STEPS_MAX: usize = 400_000;
/// How many iterations pass between two looks at the interrupt.
const INTERRUPT_EVERY: u32 = 100;

impl<'m> Meter<'m> {
    /// A budget of so many units of cost.
    pub const fn new(limit: u64) -> Self {
        let (cost, bytes, steps, iterations) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self { cost, limit, bytes, steps, iterations, interrupt: None }
    }

    /// Stops the evaluation soon after `interrupt` gives true.
    #[must_use]
    pub const fn with_interrupt(mut self, interrupt: &'m dyn Fn() -> bool) -> Self {
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
        if total > STEPS_MAX { Err(Failure::Resources) } else { Ok(()) }
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
