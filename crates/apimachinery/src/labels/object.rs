//! `LabelSelector` objects: `matchLabels` and `matchExpressions`.

use super::{Operator, Requirement, Selector};
use crate::field::{self, Error, Errors};
use crate::{Object, Path, Str, Value, go, names};

/// An object is not a valid `LabelSelector`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectorError {
    #[error("{} is not a valid label selector operator", go::quote(.0))]
    Operator(String),
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
}

/// Converts a `LabelSelector` object. [`None`] matches nothing, an empty object everything.
pub fn from_object(object: Option<&Value>) -> Result<Selector, SelectorError> {
    let Some(object) = object.filter(|object| !object.is_null()) else { return Ok(Selector::Nothing) };
    let mut requirements = Vec::new();
    for (key, value) in object.get("matchLabels").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        let values = vec![value.as_str().unwrap_or_default().into()];
        let requirement = Requirement::new(key, Operator::Equals, values, &Path::ROOT);
        requirements.push(requirement.map_err(SelectorError::Invalid)?);
    }
    for expression in expressions(object) {
        let name = expression.str_at(&["operator"]).unwrap_or_default();
        let operator = match name {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return Err(SelectorError::Operator(name.to_owned())),
        };
        let key = expression.str_at(&["key"]).unwrap_or_default();
        let requirement = Requirement::new(key, operator, values(expression), &Path::ROOT);
        requirements.push(requirement.map_err(SelectorError::Invalid)?);
    }
    Ok(Selector::new(requirements))
}

/// Validates a `LabelSelector` object.
pub fn validate_object(object: &Value, path: &Path, errors: &mut Errors) {
    if let Some(labels) = object.get("matchLabels").and_then(Value::as_object) {
        crate::meta::validate_labels(labels, &path.field("matchLabels"), errors);
    }
    let at = path.field("matchExpressions");
    for (index, expression) in expressions(object).iter().enumerate() {
        validate_expression(expression, &at.index(index), errors);
    }
}

/// Formats a selector for command output: `<none>` if it is empty.
pub fn format_selector(object: Option<&Value>) -> String {
    match from_object(object).map(|selector| selector.to_string()) {
        Err(_) => "<error>".to_owned(),
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
    }
}

/// Formats labels for command output: `a=1,b=2`, or `<none>`.
pub fn format_labels(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    let mut labels: Vec<_> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    // As in upstream, the entries are ordered, not the keys: `a-b=1` precedes `a=1`.
    labels.sort_unstable();
    if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") }
}

fn validate_expression(expression: &Value, path: &Path, errors: &mut Errors) {
    let values = values(expression);
    match expression.str_at(&["operator"]).unwrap_or_default() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.field("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.field("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => errors.push(Error::invalid(&path.field("operator"), operator, "not a valid selector operator")),
    }
    let key = expression.str_at(&["key"]).unwrap_or_default();
    for wrong in names::qualified_name(key) {
        errors.push(Error::invalid(&path.field("key"), key, wrong));
    }
    let at = path.field("values");
    for (index, value) in values.iter().enumerate() {
        for wrong in names::label_value(value) {
            errors.push(Error::invalid(&at.index(index), value.clone(), wrong));
        }
    }
}

fn expressions(selector: &Value) -> &[Value] {
    selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default()
}

fn values(expression: &Value) -> Vec<Str> {
    let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
    values.iter().map(|value| value.as_str().unwrap_or_default().into()).collect()
}
