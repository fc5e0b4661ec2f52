//! Acting as somebody else: what the headers ask for, which checks allow it, and who the request then comes from.
//!
//! There are several ways to be allowed, tried in order; each is a list of questions to the authorizers. Constrained
//! ways (the gate `ConstrainedImpersonation`, on by default) also ask whether the requester may make *this* request
//! while acting so; the last way is the one that has always been: `impersonate` on users, groups, uids and extras.

mod modes;

use std::collections::BTreeMap;

use machinery::status::Status;
use machinery::{Str, go};

pub use modes::Gate;

use crate::attributes::{Attributes, Question};
use crate::escape::unescape;
use crate::request_header::strip_prefix;
use crate::{Decision, User};

const USER: &str = "Impersonate-User";
const UID: &str = "Impersonate-Uid";
const GROUP: &str = "Impersonate-Group";
const EXTRA_PREFIX: &str = "Impersonate-Extra-";

/// Whom a request comes from once the impersonation is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// The one it is to be taken for.
    pub user: User,
    /// The verb that allowed it, for the audit log; empty for the way that has always been.
    pub constraint: &'static str,
}

/// An impersonation on its way through the checks: ask, answer, until there is an outcome.
#[derive(Clone, Debug)]
pub struct Trial {
    modes: Vec<Mode>,
    mode: usize,
    step: usize,
    first_refusal: Option<Status>,
}

/// One way to be allowed.
#[derive(Clone, Debug)]
struct Mode {
    steps: Vec<Step>,
    outcome: Impersonated,
}

/// A question, and what its answer means.
#[derive(Clone, Debug)]
struct Step {
    question: Question,
    weight: Weight,
}

#[derive(Clone, Debug)]
enum Weight {
    /// It must be allowed.
    Must,
    /// If it is allowed, the next so many need not be asked.
    Spares(usize),
    /// Whatever the authorizers would say, it is refused for this reason.
    Never(String),
}

/// What a trial needs next.
#[derive(Clone, Debug)]
pub enum Next<'a> {
    /// An answer to this, given by [`Trial::answer`].
    Ask(Attributes<'a>),
    /// Nothing: this is the outcome.
    Done(Result<Impersonated, Box<Status>>),
}

/// Whom the headers ask to act as. `None` if they ask nothing.
///
/// # Errors
/// The answer to a request that names something of a user, but not the user.
pub fn wanted(headers: &[(&str, &str)]) -> Result<Option<User>, Box<Status>> {
    let is = |have: &str, name: &str| have.eq_ignore_ascii_case(name);
    let groups = headers.iter().filter(|(name, _)| is(name, GROUP)).map(|(_, value)| Str::from(*value)).collect();
    let mut extra: BTreeMap<Str, Vec<Str>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = strip_prefix(name, EXTRA_PREFIX) {
            extra.entry(unescape(&key.to_ascii_lowercase()).into()).or_default().push((*value).into());
        }
    }
    let first = |name| Str::from(headers.iter().find(|(have, _)| is(have, name)).map_or("", |(_, value)| *value));
    let user = User { name: first(USER), uid: first(UID), groups, extra };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user == User::default() {
        return Ok(None);
    }
    let message = format!("requested {} without impersonating a user name", go_syntax(&user));
    Err(Box::new(Status::bad_request(message)))
}

/// Whether a header is one of those that ask for impersonation: once read, nobody behind may see it.
pub fn owns(header: &str) -> bool {
    [USER, UID, GROUP].iter().any(|name| name.eq_ignore_ascii_case(header))
        || strip_prefix(header, EXTRA_PREFIX).is_some()
}

impl Trial {
    /// The trial of `attributes.user` who wants to make that request as `wanted`.
    pub fn new(wanted: &User, attributes: &Attributes<'_>, gate: Gate) -> Self {
        Self { modes: modes::all(wanted, attributes, gate), mode: 0, step: 0, first_refusal: None }
    }

    /// What is needed next.
    pub fn needs(&mut self) -> Next<'_> {
        while let Some(Step { question, weight: Weight::Never(reason) }) = self.current() {
            let refusal = question.attributes().forbidden(reason);
            self.give_up(refusal);
        }
        match (self.modes.get(self.mode), self.current()) {
            (_, Some(step)) => Next::Ask(step.question.attributes()),
            (Some(mode), None) => Next::Done(Ok(mode.outcome.clone())),
            (None, None) => {
                let refusal = self.first_refusal.clone();
                let refusal = refusal.unwrap_or_else(|| Status::internal_error("all impersonation modes failed"));
                Next::Done(Err(Box::new(refusal)))
            }
        }
    }

    /// What the authorizers said to the question that [`Trial::needs`] gave.
    pub fn answer(&mut self, decision: &Decision) {
        let Some(Step { question, weight }) = self.current() else { return };
        match (weight, decision) {
            (Weight::Spares(count), Decision::Allow(_)) => self.step += 1 + count,
            (Weight::Spares(_), _) | (Weight::Must, Decision::Allow(_)) => self.step += 1,
            (Weight::Must | Weight::Never(_), Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
                let refusal = question.attributes().forbidden(reason);
                self.give_up(refusal);
            }
            (Weight::Never(_), Decision::Allow(_)) => {}
        }
    }

    /// The outcome, if the authorizers can be asked at once.
    pub fn run(mut self, mut ask: impl FnMut(&Attributes<'_>) -> Decision) -> Result<Impersonated, Box<Status>> {
        loop {
            let decision = match self.needs() {
                Next::Done(outcome) => return outcome,
                Next::Ask(attributes) => ask(&attributes),
            };
            self.answer(&decision);
        }
    }

    fn current(&self) -> Option<&Step> {
        self.modes.get(self.mode)?.steps.get(self.step)
    }

    fn give_up(&mut self, refusal: Status) {
        self.first_refusal.get_or_insert(refusal);
        (self.mode, self.step) = (self.mode + 1, 0);
    }
}

/// A user as Go's `%#v` shows it, which clients get to see.
fn go_syntax(user: &User) -> String {
    let list = |items: &[Str]| {
        let items: Vec<_> = items.iter().map(|item| go::quote(item)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<_> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", go::quote(key), list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    let (name, uid) = (go::quote(&user.name), go::quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
mod tests;
