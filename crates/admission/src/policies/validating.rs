//! ValidatingAdmissionPolicy: denies, audits or warns according to the binding's validationActions.

use std::sync::Arc;
use std::time::Duration;

use api::resources::{NAMESPACES, VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS};
use apimachinery::field::Cause;
use apimachinery::meta::Meta;
use apimachinery::status::{Reason, Status};
use apimachinery::{Value, json, value};
use cel::{ExpressionContext, Val};

use super::evaluate::{ExpressionInputs, Scope, conditions_hold};
use super::program::{Program, Programs, Rule};
use super::{Bound, fails_closed, in_force, is_exempt, matching, params};
use crate::measure::{Check, Measurement, Policies};
use crate::pods::spec;
use crate::{Attributes, Notes, Plugin, View};

/// Maximum length of a message from a `messageExpression`.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// Maximum length of an audit annotation from a `valueExpression`.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
const HOST: ExpressionContext = ExpressionContext::ValidatingPolicy;

#[derive(Default)]
pub(crate) struct ValidatingAdmissionPolicy {
    programs: Programs,
}

/// A failed validation.
struct Denial {
    binding: Option<String>,
    reason: String,
    message: String,
    /// Index of the validation; `None` if the policy could not be evaluated.
    at: Option<usize>,
    /// Whether the evaluation of an expression failed.
    failed: bool,
}

impl Plugin for ValidatingAdmissionPolicy {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        if is_exempt(attributes) {
            return Ok(());
        }
        let all = in_force(view, VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS);
        if all.is_empty() {
            return Ok(());
        }
        self.programs.keep(all.iter().map(|bound| &*bound.policy));
        let namespace = match (attributes.namespace, attributes.is(NAMESPACES)) {
            ("", true) => view.object(NAMESPACES, "", attributes.name),
            ("", false) => None,
            (name, _) => view.object(NAMESPACES, "", name),
        };
        for bound in &all {
            let request = Request { attributes, object, view, namespace: namespace.as_deref(), bound };
            if let Some(denial) = self.evaluate_bindings(&request, notes) {
                return Err(denial_status(attributes, object, Meta::of(&bound.policy).name(), &denial));
            }
        }
        Ok(())
    }
}

/// A request and one policy that may match it.
struct Request<'a> {
    attributes: &'a Attributes<'a>,
    object: &'a Value,
    view: &'a dyn View,
    namespace: Option<&'a Value>,
    bound: &'a Bound,
}

impl ValidatingAdmissionPolicy {
    /// Returns the first denial of a policy. Warnings and audit annotations of all bindings are added to `notes`.
    fn evaluate_bindings(&self, request: &Request<'_>, notes: &mut Notes) -> Option<Denial> {
        let Request { attributes, object, namespace, bound, .. } = *request;
        let constraints = &spec(&bound.policy)["matchConstraints"];
        let seen = matching::matches(constraints, attributes, object, namespace)?;
        let program = self.programs.of(&bound.policy, HOST, request.view);
        let mut first = None;
        for binding in &bound.bindings {
            let limits = spec(binding).get("matchResources").unwrap_or(&Value::Null);
            if matching::matches(limits, attributes, object, namespace).is_none() {
                continue;
            }
            let name = Meta::of(binding).name();
            let found = match params::of(&bound.policy, binding, attributes, request.view) {
                Ok(found) => found,
                Err(cause) => {
                    if fails_closed(&bound.policy) {
                        first.get_or_insert(Denial::error(name, format!("failed to configure binding: {cause}")));
                    }
                    continue;
                }
            };
            for params in found {
                let given = ExpressionInputs::of(attributes, object, namespace, params, seen);
                let began = request.view.reading();
                let denials = evaluate(request, &program, &given, name, notes);
                let took = request.view.reading().saturating_sub(began);
                request.view.measured(Measurement::Evaluation(took));
                record_metrics(request, binding, &denials, took);
                act(bound, binding, denials, &mut first, notes);
            }
        }
        first
    }
}

/// Records the result in metrics.
fn record_metrics(request: &Request<'_>, binding: &Value, denials: &[Denial], took: Duration) {
    let check = |action: &'static str, failed: bool| {
        request.view.measured(Measurement::Check(Check {
            by: Policies::Validating,
            policy: Meta::of(&request.bound.policy).name(),
            binding: Meta::of(binding).name(),
            action,
            failed,
            took,
        }));
    };
    if denials.is_empty() {
        return check("allow", false);
    }
    let actions = spec(binding).list_at(&["validationActions"]);
    for denial in denials {
        for action in actions.iter().filter_map(Value::as_str) {
            match action {
                "Warn" => check("warn", denial.failed),
                "Audit" => check("audit", denial.failed),
                _ => check("deny", denial.failed),
            }
        }
    }
}

/// Applies the binding's validationActions to the denials.
fn act(bound: &Bound, binding: &Value, denials: Vec<Denial>, first: &mut Option<Denial>, notes: &mut Notes) {
    let (policy, name) = (Meta::of(&bound.policy).name(), Meta::of(binding).name());
    let actions = spec(binding).list_at(&["validationActions"]);
    for denial in denials {
        for action in actions.iter().filter_map(Value::as_str) {
            match action {
                "Warn" => notes.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{name}': {}",
                    denial.message
                )),
                "Audit" => notes.audit.push((
                    "validation.policy.admission.k8s.io/validation_failure".to_owned(),
                    failure(policy, name, actions, &denial),
                )),
                _ => {}
            }
        }
        if actions.iter().any(|action| action.as_str() == Some("Deny")) {
            first.get_or_insert(denial);
        }
    }
}

/// Formats a denial for the audit annotation.
fn failure(policy: &str, binding: &str, actions: &[Value], denial: &Denial) -> String {
    let at = denial.at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX));
    json::to_string(&value!([{
        "message": (denial.message.as_str()),
        "policy": policy,
        "binding": binding,
        "expressionIndex": at,
        "validationActions": (actions.to_vec()),
    }]))
}

/// Returns the denials of a policy's validations.
fn evaluate(
    request: &Request<'_>,
    program: &Arc<Program>,
    given: &ExpressionInputs,
    binding: &str,
    notes: &mut Notes,
) -> Vec<Denial> {
    let closed = fails_closed(&request.bound.policy);
    let wrong = |error: String| if closed { vec![Denial::error(binding, error)] } else { Vec::new() };
    let authorizer = request.view.authorizer(request.attributes.user);
    let scope = match Scope::new(program, given, request.attributes, &authorizer, HOST) {
        Ok(scope) => scope,
        Err(failure) => return wrong(failure.to_string()),
    };
    match conditions_hold(program, &scope) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(error) => return wrong(error),
    }
    let mut denials = Vec::new();
    for (at, rule) in program.rules.iter().enumerate() {
        match scope.run(&rule.main) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => denials.push(Denial {
                binding: Some(binding.to_owned()),
                reason: rule.entry.text_at(&["reason"]).to_owned(),
                message: message(rule, &scope),
                at: Some(at),
                failed: false,
            }),
            Err(error) => denials.extend(wrong(error).into_iter().map(|denial| Denial { at: Some(at), ..denial })),
        }
    }
    let policy = Meta::of(&request.bound.policy).name();
    for rule in &program.annotations {
        match annotation(rule, &scope) {
            Ok(Some(value)) => notes.audit.push((format!("{policy}/{}", rule.entry.text_at(&["key"])), value)),
            Ok(None) => {}
            Err(error) => denials.extend(wrong(error)),
        }
    }
    denials
}

/// Returns the message of a denial: the `messageExpression`, the `message`, or the failed expression.
fn message<'a>(rule: &'a Rule, scope: &Scope<'a>) -> String {
    if let Some(Ok(Val::String(made))) = rule.message.as_ref().map(|message| scope.run(message)) {
        let made = made.as_str().trim();
        if !made.is_empty() && !made.contains('\n') && made.len() <= MESSAGE_BYTES_MAX {
            return made.to_owned();
        }
    }
    match rule.entry.text_at(&["message"]).trim() {
        "" => format!("failed expression: {}", rule.main.source.trim()),
        message => message.to_owned(),
    }
}

fn annotation<'a>(rule: &'a Rule, scope: &Scope<'a>) -> Result<Option<String>, String> {
    match scope.run(&rule.main)? {
        Val::Null => Ok(None),
        Val::String(value) => {
            let value = value.as_str().trim();
            let end = value.floor_char_boundary(ANNOTATION_BYTES_MAX);
            Ok((!value.is_empty()).then(|| value[..end].to_owned()))
        }
        other => Err(format!(
            "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
            rule.main.source,
            other.type_of()
        )),
    }
}

impl Denial {
    /// Returns the denial for a policy that could not be evaluated.
    fn error(binding: &str, message: String) -> Self {
        Self { binding: Some(binding.to_owned()), reason: String::new(), message, at: None, failed: true }
    }
}

fn denial_status(attributes: &Attributes<'_>, object: &Value, policy: &str, denial: &Denial) -> Status {
    let bound = denial.binding.as_ref().map(|name| format!(" with binding '{name}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{policy}'{bound} denied request: {}", denial.message);
    let mut status = attributes.forbidden(object, &message);
    status.reason = match denial.reason.as_str() {
        "Forbidden" => Reason::Forbidden,
        "Unauthorized" => Reason::Unauthorized,
        "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
        _ => Reason::Invalid,
    };
    status.code = status.reason.code();
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: String::new(), message, field: String::new() });
    }
    status
}
