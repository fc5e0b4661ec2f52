//! Impersonation: the headers, the authorization checks, and the resulting user.
//!
//! There are several modes, tried in order. Each mode is a list of authorization checks. Constrained modes (feature
//! gate `ConstrainedImpersonation`, on by default) also check whether the requester may make this request while
//! impersonating. The last mode is legacy impersonation: `impersonate` on users, groups, uids and userextras.

mod modes;

use std::collections::BTreeMap;

use apimachinery::status::Status;
use apimachinery::{Str, go};

pub use modes::Gate;

use crate::attributes::{Attributes, OwnedAttributes};
use crate::escape::unescape;
use crate::request_header::strip_prefix;
use crate::{Decision, User};

const USER: &str = "Impersonate-User";
const UID: &str = "Impersonate-Uid";
const GROUP: &str = "Impersonate-Group";
const EXTRA_PREFIX: &str = "Impersonate-Extra-";

/// The result of an allowed impersonation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The impersonated user.
    pub user: User,
    /// The verb that allowed it, for the audit log; empty for legacy impersonation.
    pub constraint: &'static str,
}

/// The state of an impersonation check. The caller alternates [`Trial::needs`] and [`Trial::record_decision`] until
/// there is an outcome.
#[derive(Clone, Debug)]
pub struct Trial {
    modes: Vec<Mode>,
    mode: usize,
    step: usize,
    first_denial: Option<Status>,
}

/// One impersonation mode.
#[derive(Clone, Debug)]
struct Mode {
    steps: Vec<Step>,
    outcome: ImpersonatedUser,
}

/// An authorization check, and the effect of its decision.
#[derive(Clone, Debug)]
struct Step {
    question: OwnedAttributes,
    weight: CheckRule,
}

#[derive(Clone, Debug)]
enum CheckRule {
    /// The check must be allowed.
    Required,
    /// If the check is allowed, this number of following checks is skipped.
    SkipsOnAllow(usize),
    /// The check is always denied, with this reason.
    AlwaysDenied(String),
}

/// The next step of a trial.
#[derive(Clone, Debug)]
pub enum Next<'a> {
    /// The caller must authorize these attributes and call [`Trial::record_decision`].
    Authorize(Attributes<'a>),
    /// The outcome.
    Done(Result<ImpersonatedUser, Box<Status>>),
}

/// Returns the user requested by impersonation headers; `None` without such headers.
///
/// # Errors
/// The status for a request that has impersonation headers without a user.
pub fn target_user(headers: &[(&str, &str)]) -> Result<Option<User>, Box<Status>> {
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

/// Whether a header is an impersonation header, which must be removed before the request is forwarded.
pub fn owns(header: &str) -> bool {
    [USER, UID, GROUP].iter().any(|name| name.eq_ignore_ascii_case(header))
        || strip_prefix(header, EXTRA_PREFIX).is_some()
}

impl Trial {
    /// Starts the checks whether `attributes.user` may make the request as `target_user`.
    pub fn new(target_user: &User, attributes: &Attributes<'_>, gate: Gate) -> Self {
        Self { modes: modes::all(target_user, attributes, gate), mode: 0, step: 0, first_denial: None }
    }

    /// Returns the next step.
    pub fn needs(&mut self) -> Next<'_> {
        while let Some(Step { question, weight: CheckRule::AlwaysDenied(reason) }) = self.current() {
            let denial = question.attributes().forbidden(reason);
            self.reject_mode(denial);
        }
        match (self.modes.get(self.mode), self.current()) {
            (_, Some(step)) => Next::Authorize(step.question.attributes()),
            (Some(mode), None) => Next::Done(Ok(mode.outcome.clone())),
            (None, None) => {
                let denial = self.first_denial.clone();
                let denial = denial.unwrap_or_else(|| Status::internal_error("all impersonation modes failed"));
                Next::Done(Err(Box::new(denial)))
            }
        }
    }

    /// Records the decision for the attributes returned by [`Trial::needs`].
    pub fn record_decision(&mut self, decision: &Decision) {
        let Some(Step { question, weight }) = self.current() else { return };
        match (weight, decision) {
            (CheckRule::SkipsOnAllow(count), Decision::Allow(_)) => self.step += 1 + count,
            (CheckRule::SkipsOnAllow(_), _) | (CheckRule::Required, Decision::Allow(_)) => self.step += 1,
            (
                CheckRule::Required | CheckRule::AlwaysDenied(_),
                Decision::Deny(reason) | Decision::NoOpinion(reason),
            ) => {
                let denial = question.attributes().forbidden(reason);
                self.reject_mode(denial);
            }
            (CheckRule::AlwaysDenied(_), Decision::Allow(_)) => {}
        }
    }

    /// Runs all checks with a synchronous authorizer.
    pub fn run(
        mut self,
        mut authorize: impl FnMut(&Attributes<'_>) -> Decision,
    ) -> Result<ImpersonatedUser, Box<Status>> {
        loop {
            let decision = match self.needs() {
                Next::Done(outcome) => return outcome,
                Next::Authorize(attributes) => authorize(&attributes),
            };
            self.record_decision(&decision);
        }
    }

    fn current(&self) -> Option<&Step> {
        self.modes.get(self.mode)?.steps.get(self.step)
    }

    fn reject_mode(&mut self, denial: Status) {
        self.first_denial.get_or_insert(denial);
        (self.mode, self.step) = (self.mode + 1, 0);
    }
}

/// Formats a user as Go's `%#v`, which is visible to clients.
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
