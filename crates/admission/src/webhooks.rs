//! Admission webhooks: matching, reviews, and the interpretation of responses.
//!
//! ```text
//! Hook ─selects?─> version to send ─conditions?─> review ─(the server calls)─> response ─> notes, patch, or rejection
//! ```
//!
//! This module does not use the network: the API server sends the reviews.

mod response;
mod review;

use api::resources::NAMESPACES;
use api_registry::decode::resource_name;
use apimachinery::labels::from_object;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::{Value, go};
use cel::ExpressionContext;
use cel::cost::limits::MATCH_CONDITIONS;

use super::measure::Measurement;
use super::policies::evaluate::{ExpressionInputs, Scope, conditions_hold};
use super::policies::matching::{by_rules, selects_object, writes_namespace};
use super::policies::program::{Expression, Program};
use super::reinvocation::ReinvocationPolicy;
use super::{Attributes, Notes, VersionedKind, View};

pub use response::{AdmissionResponse, Failure};
pub use review::{Review, ReviewVersion, delete_options, write_options};

const GROUP: &str = "admissionregistration.k8s.io";
/// Kinds that are exempt from webhooks, so that a webhook cannot prevent its own repair.
const EXEMPT: [&str; 6] = [
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];
/// Default timeout of a webhook.
const TIMEOUT_SECONDS: u64 = 10;

/// The admission phase of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Mutating,
    Validating,
}

/// One webhook of a configuration.
pub struct Hook {
    /// The name of the configuration object.
    pub configuration: String,
    pub name: String,
    id: String,
    entry: Value,
    conditions: Program,
}

impl Hook {
    /// Returns the webhooks of a configuration.
    pub fn all(configuration: &Value) -> Vec<Self> {
        let env = ExpressionContext::MatchConditions.env_set().stored;
        let name = Meta::of(configuration).name();
        let hooks = configuration.list_at(&["webhooks"]).iter().enumerate();
        let hook = |(at, entry): (usize, &Value)| {
            let conditions = entry.list_at(&["matchConditions"]).iter();
            let compiled = conditions
                .map(|one| (one.text_at(&["name"]).into(), Expression::compile(&env, one.text_at(&["expression"]))));
            Self {
                configuration: name.to_owned(),
                name: entry.text_at(&["name"]).to_owned(),
                id: format!("{name}/{}/{at}", entry.text_at(&["name"])),
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

    pub fn client_config(&self) -> &Value {
        &self.entry["clientConfig"]
    }

    pub fn timeout_seconds(&self) -> u64 {
        let seconds = self.entry.get("timeoutSeconds").and_then(Value::as_int);
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .unwrap_or(TIMEOUT_SECONDS)
    }

    /// Whether a failed call admits the request (`failurePolicy: Ignore`).
    pub fn fails_open(&self) -> bool {
        self.entry.text_at(&["failurePolicy"]) == "Ignore"
    }

    /// Returns an ID that is unique among the webhooks of a request.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn again(&self) -> ReinvocationPolicy {
        ReinvocationPolicy::of(&self.entry)
    }

    /// Returns the version in which the webhook receives the object, or `None` if it does not match the request.
    pub fn selects<'a>(
        &self,
        attributes: &Attributes<'a>,
        object: &Value,
        view: &dyn View,
    ) -> Result<Option<VersionedKind<'a>>, Status> {
        let in_namespace = self.selects_namespace(attributes, object, view);
        if matches!(in_namespace, Ok(false)) || !selects_object(&self.entry, attributes, object) {
            return Ok(None);
        }
        let equivalent = self.entry.text_at(&["matchPolicy"]) != "Exact";
        let seen = by_rules(self.entry.list_at(&["rules"]), attributes, object, equivalent);
        // A missing namespace is only an error for a webhook that matches the request otherwise.
        if seen.is_some() {
            in_namespace?;
        }
        Ok(seen)
    }

    fn selects_namespace(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<bool, Status> {
        let is_namespace = attributes.is(NAMESPACES);
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
        let namespace = view.object(NAMESPACES, "", name);
        let namespace = namespace.ok_or_else(|| Status::not_found(GroupName::new("", "namespaces"), name))?;
        Ok(selector.matches_labels(Meta::of(&namespace).labels()))
    }

    /// Whether the match conditions are true for a review. Errors are handled by the failure policy.
    pub fn conditions_hold(
        &self,
        attributes: &Attributes<'_>,
        review: &Review,
        view: &dyn View,
    ) -> Result<bool, Status> {
        if self.conditions.conditions.is_empty() {
            return Ok(true);
        }
        let given = ExpressionInputs {
            object: review.object.clone(),
            old: review.old.clone(),
            request: review.request.clone(),
            namespace: Value::Null,
            params: Value::Null,
        };
        let authorizer = view.authorizer(attributes.user);
        let began = view.reading();
        let scope = Scope::new(&self.conditions, &given, attributes, &authorizer, ExpressionContext::MatchConditions);
        let matched = scope
            .map_err(|failure| failure.to_string())
            .and_then(|scope| conditions_hold(&self.conditions, &scope.with_budget(MATCH_CONDITIONS)));
        view.measured(Measurement::Evaluation(view.reading().saturating_sub(began)));
        match matched {
            Ok(matched) => Ok(matched),
            Err(_) if self.fails_open() => Ok(false),
            Err(error) => Err(Status::forbidden(resource_name(attributes.kind), attributes.name, error)),
        }
    }

    /// Admits or rejects a request after a failed call, according to the failure policy.
    pub fn apply_failure_policy(
        &self,
        failure: Failure,
        phase: Phase,
        position: (usize, usize),
        notes: &mut Notes,
    ) -> Result<(), Status> {
        match failure {
            Failure::Rejected(status) | Failure::InvalidPatch(status) => Err(*status),
            Failure::Call(_) if self.fails_open() => {
                let (round, at) = position;
                let phase = match phase {
                    Phase::Mutating => "mutation",
                    Phase::Validating => "validating",
                };
                let key = format!("failed-open.{phase}.webhook.admission.k8s.io/round_{round}_index_{at}");
                notes.audit.push((key, self.name.clone()));
                Ok(())
            }
            Failure::Call(message) => {
                Err(Status::internal_error(format!("failed calling webhook {}: {message}", go::quote(&self.name))))
            }
        }
    }

    /// Rejects a dry-run request for a webhook with side effects.
    fn check_dry_run(&self, attributes: &Attributes<'_>) -> Result<(), Failure> {
        if !attributes.dry_run || matches!(self.entry.text_at(&["sideEffects"]), "None" | "NoneOnDryRun") {
            return Ok(());
        }
        let name = go::quote(&self.name);
        Err(Failure::Rejected(Box::new(Status::bad_request(format!(
            "admission webhook {name} does not support dry run"
        )))))
    }
}

/// Whether the write is exempt from webhooks.
pub fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let kind = attributes.kind;
    kind.group == GROUP && EXEMPT.contains(&kind.plural.as_str())
}

#[cfg(test)]
mod tests;
