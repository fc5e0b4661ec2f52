//! MutatingAdmissionPolicy: CEL expressions that change objects during admission.

use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};
use cel::Type;

use super::expressions::Expressions;
use super::policy;
use super::validating_admission_policy::param_kind;
use crate::field_rules::{column, count_cell, one_of, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column, names};

pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        unconditional_update: false,
        rules: Arc::new(MutatingAdmissionPolicy),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        qualified_finalizers: false,
        persistence: super::stored_as_beta("mutatingadmissionpolicies"),
        ..Kind::stored("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .with_beta("v1beta1")
            .with_beta("v1alpha1")
    }
    .with_columns(&[
        name_column(),
        column("Mutations", "integer", "Number of mutations.", |object, _| {
            count_cell(&At::root(object).get("spec").get("mutations"))
        }),
        column("ParamKind", "string", "Kind of the parameter objects.", |object, _| param_kind(object).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct MutatingAdmissionPolicy;

impl Rules for MutatingAdmissionPolicy {
    fn default(&self, object: &mut Value, _version: &str) {
        policy::default(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(object, Some(old), errors);
    }
}

fn validate_spec(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = At::root(object);
    let spec = root.get("spec");
    let mut expressions = policy::expressions(&spec, old, true);
    policy::validate(&spec, old, &mut expressions, true, errors);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        errors.push(mutations.required("mutations must contain at least one item"));
    }
    for mutation in mutations.items() {
        validate_mutation(&mutation, &expressions, errors);
    }
    let policy = spec.get("reinvocationPolicy");
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        one_of(&policy, &["IfNeeded", "Never"], errors);
    }
}

fn validate_mutation(mutation: &At<'_>, expressions: &Expressions<'_>, errors: &mut Errors) {
    let ty = mutation.get("patchType");
    let (chosen, other, result_type) = match ty.str() {
        "" => return errors.push(ty.required("")),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::PartialObject("Object".into())),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Type::list(Type::PartialObject("JSONPatch".into()))),
        _ => return errors.push(ty.not_supported(&["ApplyConfiguration", "JSONPatch"])),
    };
    if mutation.get(other).is_present() {
        errors.push(mutation.get(other).forbidden(format!("must not be specified when patchType is {}", ty.str())));
    }
    let patch = mutation.get(chosen);
    if patch.is_absent() {
        errors.push(patch.required(format!("must be specified when patchType is {}", ty.str())));
        return;
    }
    let expression = patch.get("expression");
    if expression.str().trim().is_empty() {
        errors.push(expression.required(""));
    } else {
        expressions.check(expression.str(), &[result_type], &expression, errors);
    }
}
