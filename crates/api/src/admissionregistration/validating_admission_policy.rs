//! ValidatingAdmissionPolicy: CEL expressions that validate objects during admission.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{self, Meta, Scope};
use apimachinery::{At, Errors, Value, names};
use cel::Type;

use super::expressions::{Expressions, Uses};
use super::policy;
use crate::field_rules::{
    column, count_cell, drop_field, keep, keep_for_status, one_of_if_present, raise_generation, reset_with_metadata,
    start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column, names as strings};

const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_EXPRESSION_MAX: usize = 5 * 1024;
const AT_LEAST_ONE: &str = "validations or auditAnnotations must contain at least one item";

pub fn kind() -> Kind {
    Kind {
        categories: strings(&["api-extensions"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        unconditional_update: false,
        rules: Arc::new(ValidatingAdmissionPolicy),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        qualified_finalizers: false,
        ..Kind::stored("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
    }
    .with_columns(&[
        name_column(),
        column("Validations", "integer", "Number of validations.", |object, _| {
            count_cell(&At::root(object).get("spec").get("validations"))
        }),
        column("ParamKind", "string", "Kind of the parameter objects.", |object, _| param_kind(object).into()),
        age_column(),
    ])
}

/// Returns the table cell for a policy's `paramKind`.
pub fn param_kind(object: &Value) -> String {
    match object.at(&["spec", "paramKind"]).filter(|kind| !kind.is_null()) {
        Some(kind) => {
            let text = |field: &str| kind.text_at(&[field]);
            format!("{}/{}", text("apiVersion"), text("kind"))
        }
        None => "<unset>".to_owned(),
    }
}

#[derive(Debug)]
struct ValidatingAdmissionPolicy;

impl Rules for ValidatingAdmissionPolicy {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn default(&self, object: &mut Value, _version: &str) {
        policy::default(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            keep_for_status(object, old);
        } else {
            keep(object, old, "status");
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource == "status" {
            validate_status(&At::root(object).get("status"), errors);
        } else {
            validate_spec(object, Some(old), errors);
        }
    }
}

fn validate_spec(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = At::root(object);
    let spec = root.get("spec");
    let mut expressions = policy::expressions(&spec, old, false);
    policy::validate(&spec, old, &mut expressions, false, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.push(validations.required(AT_LEAST_ONE));
        errors.push(annotations.required(AT_LEAST_ONE));
        return;
    }
    let params = spec.get("paramKind").is_present();
    let messages = expressions.with(Uses { params, authorizer: false, mutation: false });
    for validation in validations.items() {
        validate_validation(&validation, &expressions, &messages, errors);
    }
    if annotations.len() > ANNOTATIONS_MAX {
        errors.push(annotations.invalid(format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations")));
    }
    let mut seen = BTreeSet::new();
    for annotation in annotations.items() {
        validate_annotation(&annotation, Meta::of(object).name(), &expressions, errors);
        let key = annotation.get("key");
        if !seen.insert(key.str().to_owned()) {
            errors.push(Error::duplicate(key.path(), key.str()));
        }
    }
}

fn validate_validation(
    validation: &At<'_>,
    expressions: &Expressions<'_>,
    messages: &Expressions<'_>,
    errors: &mut Errors,
) {
    let expression = validation.get("expression");
    if expression.str().trim().is_empty() {
        errors.push(expression.required("expression is not specified"));
    } else {
        expressions.check(expression.str(), &[Type::Bool], &expression, errors);
    }
    let computed = validation.get("messageExpression");
    match (computed.str(), computed.str().trim()) {
        ("", _) => {}
        (_, "") => errors.push(computed.invalid("must be non-empty if specified")),
        (source, _) => messages.check(source, &[Type::String], &computed, errors),
    }
    let message = validation.get("message");
    match (message.str(), message.str().trim()) {
        ("", _) => {}
        (_, "") => errors.push(message.invalid("message must be non-empty if specified")),
        (_, text) if text.contains(['\n', '\r']) => {
            errors.push(message.invalid("message must not contain line breaks"));
        }
        _ => {}
    }
    one_of_if_present(&validation.get("reason"), &["Forbidden", "Invalid", "RequestEntityTooLarge"], errors);
}

fn validate_annotation(annotation: &At<'_>, policy: &str, expressions: &Expressions<'_>, errors: &mut Errors) {
    let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
    if policy.is_empty() {
        errors.push(Error::invalid(key.path(), key.str(), "requires metadata.name be non-empty"));
    } else {
        let full = format!("{policy}/{}", key.str());
        let wrong = names::qualified_name(&full);
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(key.path(), full.as_str(), wrong)));
    }
    match value.str().trim() {
        "" => errors.push(value.required("valueExpression is not specified")),
        long if long.len() > ANNOTATION_EXPRESSION_MAX => {
            errors.push(value.required(format!("must not exceed {ANNOTATION_EXPRESSION_MAX} bytes in length")));
        }
        source => expressions.check(source, &[Type::String, Type::Null], &value, errors),
    }
}

fn validate_status(status: &At<'_>, errors: &mut Errors) {
    let checking = status.get("typeChecking");
    let warnings = checking.get("expressionWarnings");
    for warning in warnings.items() {
        if warning.get("warning").is_empty() {
            errors.push(warning.get("warning").required(""));
        }
        if warning.get("fieldRef").str().trim().is_empty() {
            errors.push(warning.get("fieldRef").required(""));
        }
    }
    let conditions = status.get("conditions");
    meta::validate_conditions(conditions.list(), conditions.path(), errors);
}
