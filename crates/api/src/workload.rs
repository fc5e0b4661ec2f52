//! Validation and columns shared by kinds with a pod template: selectors, int-or-percent values, containers.

use apimachinery::field::{BadValue, Error};
use apimachinery::labels::{self, Selector};
use apimachinery::table::Column;
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersionKind, Value, names};

use crate::core::pod_template_spec;
use crate::field_rules::wide_column;
use crate::{catalogue, go_form};

/// Kind-specific parts of the error messages about selector and template.
pub struct Shape {
    /// The kind in the error about an empty selector: `deployment`.
    pub selects_for: &'static str,
    /// The error about an invalid selector.
    pub unreadable: &'static str,
    /// The kind in the error about `activeDeadlineSeconds`.
    pub endless: &'static str,
}

/// Validates a required selector and the template that it must match.
pub fn validate_selected(spec: &At<'_>, shape: &Shape, errors: &mut Errors) {
    let selector = spec.get("selector");
    validate_selector(&selector, shape, errors);
    match labels::from_object(Some(selector.value())) {
        Ok(read) => {
            let template = spec.get("template");
            if !read.is_everything() {
                matches_template(&read, &template, errors);
            }
            pod_template_spec::validate(&template, errors);
        }
        Err(_) => errors.push(Error::invalid(selector.path(), selector_bad_value(selector.value()), shape.unreadable)),
    }
}

/// Requires a selector that is not empty.
pub fn validate_selector(selector: &At<'_>, shape: &Shape, errors: &mut Errors) {
    if selector.is_absent() {
        errors.push(selector.required(""));
        return;
    }
    labels::validate_object(selector.value(), selector.path(), errors);
    not_empty(selector, shape.selects_for, errors);
}

/// Rejects an empty selector.
pub fn not_empty(selector: &At<'_>, selects_for: &str, errors: &mut Errors) {
    if selector.get("matchLabels").len() + selector.get("matchExpressions").len() == 0 {
        let detail = format!("empty selector is invalid for {selects_for}");
        errors.push(Error::invalid(selector.path(), selector_bad_value(selector.value()), detail));
    }
}

/// Requires the selector to match the template's labels.
pub fn matches_template(selector: &Selector, template: &At<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    let found = metadata.get("labels");
    if !selector.matches_labels(found.value().as_object()) {
        errors.push(found.invalid("`selector` does not match template `labels`"));
    }
}

/// Requires restartPolicy Always and no `activeDeadlineSeconds`.
pub fn runs_forever(template: &At<'_>, endless: &str, errors: &mut Errors) {
    let spec = template.get("spec");
    let policy = spec.get("restartPolicy");
    if policy.str() != "Always" {
        errors.push(Error::not_supported(policy.path(), policy.str(), &["Always"]));
    }
    if spec.get("activeDeadlineSeconds").is_present() {
        let detail = format!("activeDeadlineSeconds in {endless} is not Supported");
        errors.push(spec.get("activeDeadlineSeconds").forbidden(detail));
    }
}

/// Formats a selector for an error message.
pub fn selector_bad_value(selector: &Value) -> BadValue {
    let root = GroupVersionKind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() };
    let schema = catalogue::schema(&root).and_then(|root| root.child("spec")).and_then(|spec| spec.child("selector"));
    match schema {
        Some(schema) if !selector.is_null() => go_form::bad_value(selector, schema),
        _ => BadValue::Value(Value::Null),
    }
}

/// Formats a part of an object for an error message, by the schema of a built-in kind.
pub fn bad_value(at: &At<'_>, kind: (&str, &str, &str), path: &[&str]) -> BadValue {
    let kind = GroupVersionKind { group: kind.0.into(), version: kind.1.into(), kind: kind.2.into() };
    match catalogue::schema(&kind) {
        Some(root) if at.is_present() => go_form::bad_value_at(at, root, path),
        _ => BadValue::Value(at.value().clone()),
    }
}

/// Requires a non-negative integer or a percentage.
pub fn int_or_percent(at: &At<'_>, errors: &mut Errors) {
    match at.value() {
        Value::String(text) => errors.extend(names::percent(text).into_iter().map(|wrong| at.invalid(wrong))),
        _ => crate::field_rules::non_negative(at, errors),
    }
}

/// Rejects a percentage above 100.
pub fn at_most_all(at: &At<'_>, errors: &mut Errors) {
    if percentage(at.value()).is_some_and(|percent| percent > 100) {
        errors.push(at.invalid("must not be greater than 100%"));
    }
}

/// Returns the integer or the percentage; zero if the value is neither.
pub fn int_or_percent_value(value: &Value) -> i64 {
    match value {
        Value::String(text) => percentage(value).unwrap_or_else(|| text.parse().unwrap_or_default()),
        _ => value.as_int().unwrap_or_default(),
    }
}

/// Returns the columns for container names and images.
pub fn container_columns() -> [Column; 2] {
    [
        wide_column("Containers", "string", "The names of the containers.", container_names),
        wide_column("Images", "string", "The images of the containers.", container_images),
    ]
}

/// Returns the column for the label selector in `spec.selector`.
pub fn selector_column() -> Column {
    fn selector(object: &Value, _now: Time) -> Value {
        labels::format_selector(object.at(&["spec", "selector"])).into()
    }
    wide_column("Selector", "string", "Label selector of the pods.", selector)
}

/// Returns an integer as a cell, zero if absent.
pub fn int_cell(object: &Value, path: &[&str]) -> Value {
    Value::Int(object.at(path).and_then(Value::as_int).unwrap_or_default())
}

/// Returns `field` of each container of a PodSpec, such as its name or image, as a cell.
pub fn names_of(spec: Option<&Value>, field: &str) -> Value {
    let containers = spec.and_then(|spec| spec.get("containers")).and_then(Value::as_array).unwrap_or_default();
    let names: Vec<_> = containers.iter().map(|container| container.text_at(&[field])).collect();
    names.join(",").into()
}

/// Returns the warning about an object name that is not a valid DNS label, as it becomes part of pod names.
pub fn pod_name_warning(name: &str) -> Option<String> {
    let wrong = names::dns1123_label(name);
    let problem =
        "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
    (!wrong.is_empty()).then(|| format!("metadata.name: {problem}: [{}]", wrong.join(" ")))
}

/// Returns the template's warnings. On update there are none unless the generation changed.
pub fn template_warnings(template: &At<'_>, object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let generation = |of: &Value| apimachinery::meta::Meta::of(of).generation();
    match old {
        Some(old) if generation(old) == generation(object) => Vec::new(),
        Some(old) => {
            let before = At::new(old.at(path).unwrap_or(&Value::Null), *template.path());
            pod_template_spec::warnings(template, Some(&before))
        }
        None => pod_template_spec::warnings(template, None),
    }
}

fn percentage(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    // A percentage that does not fit is treated as the maximum, so it exceeds every limit.
    names::percent(text).is_empty().then(|| text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

fn container_names(object: &Value, _now: Time) -> Value {
    names_of(object.at(&["spec", "template", "spec"]), "name")
}

fn container_images(object: &Value, _now: Time) -> Value {
    names_of(object.at(&["spec", "template", "spec"]), "image")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn value_is_an_integer_or_a_percentage() {
        let check = |value: Value, number: i64, wrong: usize| {
            let mut errors = Errors::new();
            int_or_percent(&At::root(&value), &mut errors);
            assert_eq!((int_or_percent_value(&value), errors.len()), (number, wrong), "{value:?}");
        };
        check(value!(3), 3, 0);
        check(value!(-1), -1, 1);
        check(value!("25%"), 25, 0);
        check(value!("25"), 25, 1);
        check(value!("x"), 0, 1);
        check(Value::Null, 0, 0);
    }

    #[test]
    fn selectors_are_printed_in_go_field_order() {
        let selector = value!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"b": "c"}});
        let text = selector_bad_value(&selector).to_string();
        assert_eq!(text, r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#);
    }
}
