//! Admission measurements for metrics. Admission itself reads no clock, and no decision depends on a measurement.

use std::time::Duration;

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub enum Measurement<'a> {
    /// Duration of compiling all expressions of a policy.
    Compilation(Duration),
    /// Duration of evaluating the expressions for one request.
    Evaluation(Duration),
    /// A policy was evaluated for a request.
    Check(Check<'a>),
}

/// The result of a request at one binding of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    pub by: Policies,
    pub policy: &'a str,
    pub binding: &'a str,
    /// `allow`, `deny`, `warn` or `audit`.
    pub action: &'static str,
    /// Whether the evaluation failed.
    pub failed: bool,
    pub took: Duration,
}

/// The policy kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policies {
    Validating,
    Mutating,
}
