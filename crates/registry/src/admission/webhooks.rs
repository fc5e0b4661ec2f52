//! Admission webhooks: which of them are asked about a request, what they are sent, and what their answers mean.
//!
//! ```text
//! Hook ─selects?─> version to show ─conditions?─> review ─(the server calls)─> answer ─> notes, patch, or refusal
//! ```
//!
//! Nothing here speaks to a webhook: the API server carries reviews there and answers back.

mod answer;
mod review;

use cel::Host;
use cel::cost::limits::MATCH_CONDITIONS;
use machinery::labels::from_object;
use machinery::meta::Meta;
use machinery::status::{GroupName, Status};
use machinery::{Value, go};

use super::measure::Measured;
use super::pods::{items, text};
use super::policies::evaluate::{Given, Scope, conditions_hold};
use super::policies::matching::{by_rules, selects_object, writes_namespace};
use super::policies::program::{Expression, Program};
use super::reinvocation::Again;
use super::{Attributes, Notes, Seen, View};
use crate::body::resource_name;

pub use answer::{Answer, Failure};
pub use review::{Review, ReviewVersion, delete_options, write_options};

const GROUP: &str = "admissionregistration.k8s.io";
/// What decides over requests is never decided over: a hook must not lock its own repair out.
const EXEMPT: [&str; 6] = [
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];
/// How long a hook may take if it does not say.
const TIMEOUT_SECONDS: u64 = 10;

/// When hooks are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They may change the object.
    Mutating,
    /// They may refuse it.
    Validating,
}

/// One webhook of a configuration.
pub struct Hook {
    /// The name of the configuration.
    pub configuration: String,
    /// Its own name.
    pub name: String,
    id: String,
    entry: Value,
    conditions: Program,
}

impl Hook {
    /// The webhooks of a configuration.
    pub fn all(configuration: &Value) -> Vec<Self> {
        let env = Host::MatchConditions.env_set().stored;
        let name = Meta::of(configuration).name();
        let hooks = items(configuration, "webhooks").iter().enumerate();
        let hook = |(at, entry): (usize, &Value)| {
            let conditions = items(entry, "matchConditions").iter();
            let compiled =
                conditions.map(|one| (text(one, "name").into(), Expression::compile(&env, text(one, "expression"))));
            Self {
                configuration: name.to_owned(),
                name: text(entry, "name").to_owned(),
                id: format!("{name}/{}/{at}", text(entry, "name")),
                entry: entry.clone(),
                conditions: Program {
                    variables: Vec::new(),
                    conditions: compiled.collect(),
                    rules: Vec::new(),
                    annotations: Vec::new(),
                },
            }
        };
        hooks.map(hook).collect()
    }

    /// Where it is.
    pub fn client_config(&self) -> &Value {
        &self.entry["clientConfig"]
    }

    /// How long it may take.
    pub fn timeout_seconds(&self) -> u64 {
        let seconds = self.entry.get("timeoutSeconds").and_then(Value::as_int);
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .unwrap_or(TIMEOUT_SECONDS)
    }

    /// Whether a request goes on when the hook cannot be asked.
    pub fn fails_open(&self) -> bool {
        text(&self.entry, "failurePolicy") == "Ignore"
    }

    /// What it is known by among the hooks of one request.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether it wants to see what others make of an object after it.
    pub fn again(&self) -> Again {
        Again::of(&self.entry)
    }

    /// The version in which the hook wants to see the object of a request; `None` if it does not concern it.
    pub fn selects<'a>(
        &self,
        attributes: &Attributes<'a>,
        object: &Value,
        view: &dyn View,
    ) -> Result<Option<Seen<'a>>, Status> {
        let in_namespace = self.selects_namespace(attributes, object, view);
        if matches!(in_namespace, Ok(false)) || !selects_object(&self.entry, attributes, object) {
            return Ok(None);
        }
        let equivalent = text(&self.entry, "matchPolicy") != "Exact";
        let seen = by_rules(items(&self.entry, "rules"), attributes, object, equivalent);
        // A namespace that is not found matters only to a hook that the request concerns.
        if seen.is_some() {
            in_namespace?;
        }
        Ok(seen)
    }

    fn selects_namespace(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<bool, Status> {
        let is_namespace = attributes.is("", "namespaces");
        let Some(selector) = self.entry.get("namespaceSelector").filter(|selector| !selector.is_null()) else {
            return Ok(true);
        };
        if attributes.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = from_object(Some(selector)).map_err(|wrong| Status::internal_error(wrong.to_string()))?;
        if selector.requirements().is_some_and(<[_]>::is_empty) {
            return Ok(true);
        }
        if writes_namespace(attributes, object) {
            return Ok(selector.matches_labels(Meta::of(object).labels()));
        }
        let name = if is_namespace { attributes.name } else { attributes.namespace };
        let namespace = view.object("", "namespaces", "", name);
        let namespace = namespace.ok_or_else(|| Status::not_found(GroupName::new("", "namespaces"), name))?;
        Ok(selector.matches_labels(Meta::of(&namespace).labels()))
    }

    /// Whether the match conditions hold for a review. What goes wrong with them is judged by the failure policy.
    pub fn conditions_hold(
        &self,
        attributes: &Attributes<'_>,
        review: &Review,
        view: &dyn View,
    ) -> Result<bool, Status> {
        if self.conditions.conditions.is_empty() {
            return Ok(true);
        }
        let given = Given {
            object: review.object.clone(),
            old: review.old.clone(),
            request: review.request.clone(),
            namespace: Value::Null,
            params: Value::Null,
        };
        let authorizer = view.authorizer(attributes.user);
        let began = view.reading();
        let scope = Scope::new(&self.conditions, &given, attributes, &authorizer, Host::MatchConditions);
        let held = scope
            .map_err(|failure| failure.to_string())
            .and_then(|scope| conditions_hold(&self.conditions, &scope.with_budget(MATCH_CONDITIONS)));
        view.measured(Measured::Evaluation(view.reading().saturating_sub(began)));
        match held {
            Ok(held) => Ok(held),
            Err(_) if self.fails_open() => Ok(false),
            Err(why) => Err(Status::forbidden(resource_name(attributes.kind), attributes.name, why)),
        }
    }

    /// What becomes of a request when asking the hook failed: it goes on, or is refused.
    pub fn settle(
        &self,
        failure: Failure,
        phase: Phase,
        place: (usize, usize),
        notes: &mut Notes,
    ) -> Result<(), Status> {
        match failure {
            Failure::Refused(status) | Failure::Impossible(status) => Err(*status),
            Failure::Call(_) if self.fails_open() => {
                let (round, at) = place;
                let phase = match phase {
                    Phase::Mutating => "mutation",
                    Phase::Validating => "validating",
                };
                let key = format!("failed-open.{phase}.webhook.admission.k8s.io/round_{round}_index_{at}");
                notes.audit.push((key, self.name.clone()));
                Ok(())
            }
            Failure::Call(why) => {
                Err(Status::internal_error(format!("failed calling webhook {}: {why}", go::quote(&self.name))))
            }
        }
    }

    /// Whether a request that must have no effect may be shown to the hook.
    fn check_dry_run(&self, attributes: &Attributes<'_>) -> Result<(), Failure> {
        if !attributes.dry_run || matches!(text(&self.entry, "sideEffects"), "None" | "NoneOnDryRun") {
            return Ok(());
        }
        let name = go::quote(&self.name);
        Err(Failure::Refused(Box::new(Status::bad_request(format!(
            "admission webhook {name} does not support dry run"
        )))))
    }
}

/// Whether no hook is asked about a write.
pub fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let kind = attributes.kind;
    kind.group == GROUP && EXEMPT.contains(&kind.plural.as_str())
}

#[cfg(test)]
mod tests;
