//! Defaulting, validation and columns shared by both admission policy binding kinds.

use apimachinery::table::Column;
use apimachinery::{At, Errors, Value, names};

use super::match_resources;
use crate::field_rules::{column, default_to, label_selector, looks, path_segment};
use crate::kind::{age_column, name_column};

pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    match_resources::default(spec, "matchResources");
    if let Some(params) = spec.get_mut("paramRef").filter(|params| !params.is_null()) {
        default_to(params, "parameterNotFoundAction", "Deny");
    }
}

pub(super) fn validate(spec: &At<'_>, errors: &mut Errors) {
    let policy = spec.get("policyName");
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        looks(&policy, names::dns1123_subdomain, errors);
    }
    validate_params(&spec.get("paramRef"), errors);
    match_resources::validate(&spec.get("matchResources"), errors);
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        name_column(),
        column("PolicyName", "string", "Bound policy.", |object, _| object.text_at(&["spec", "policyName"]).into()),
        column("ParamRef", "string", "Parameters of the binding.", |object, _| params(object).into()),
        age_column(),
    ]
}

fn validate_params(params: &At<'_>, errors: &mut Errors) {
    const EITHER: &str = "name and selector are mutually exclusive";
    if params.is_absent() {
        return;
    }
    let (name, selector) = (params.get("name"), params.get("selector"));
    if !name.is_empty() {
        path_segment(name.str(), name.path(), errors);
        if selector.is_present() {
            errors.push(name.forbidden(EITHER));
        }
    }
    if selector.is_present() {
        label_selector(&selector, errors);
        if !name.is_empty() {
            errors.push(selector.forbidden(EITHER));
        }
    }
    if name.is_empty() && selector.is_absent() {
        errors.push(params.required("one of name or selector must be specified"));
    }
    let action = params.get("parameterNotFoundAction");
    if action.is_empty() {
        errors.push(action.required(""));
    } else if !["Deny", "Allow"].contains(&action.str()) {
        errors.push(action.not_supported(&["Deny", "Allow"]));
    }
}

fn params(object: &Value) -> String {
    let text = |field: &str| object.text_at(&["spec", "paramRef", field]);
    if object.at(&["spec", "paramRef"]).is_none_or(Value::is_null) {
        return "<unset>".to_owned();
    }
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}
