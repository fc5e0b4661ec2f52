//! What admission tells of itself to whoever measures: deciding has no clock, and no decision depends on what it reads.

use std::time::Duration;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub enum Measured<'a> {
    /// All expressions of a policy were compiled.
    Compilation(Duration),
    /// Expressions were evaluated for one request.
    Evaluation(Duration),
    /// A policy judged a request, or changed its object.
    Check(Check<'a>),
}

/// What became of a request at one binding of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Which sort of policy it is.
    pub by: Policies,
    /// The policy.
    pub policy: &'a str,
    /// The binding.
    pub binding: &'a str,
    /// What was done: `allow`, `deny`, `warn` or `audit`.
    pub action: &'static str,
    /// Whether the policy could not be evaluated.
    pub failed: bool,
    /// How long it took.
    pub took: Duration,
}

/// The sorts of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Policies {
    Validating,
    Mutating,
}
