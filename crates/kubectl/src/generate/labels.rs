//! Labels and selectors given as text.

use apimachinery::labels::{Operator, Selector};
use apimachinery::{Object, Value, go, value};

use super::{Error, texts};

/// Parses `a=b,c=d`, the form of `--labels`.
pub fn parse(text: &str) -> Result<Object, Error> {
    if text.is_empty() {
        return Err(Error::new("no label spec passed"));
    }
    let mut labels = Object::new();
    for part in text.split(',') {
        let [key, value] = part.split('=').collect::<Vec<_>>()[..] else {
            return Err(Error::new(format!("unexpected label spec: {part}")));
        };
        if key.is_empty() {
            return Err(Error::new("unexpected empty label key"));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}

/// Parses a selector into a `LabelSelector`.
pub fn selector(text: &str) -> Result<Value, Error> {
    let parsed = Selector::parse(text)
        .map_err(|error| Error::new(format!("couldn't parse the selector string \"{text}\": {error}")))?;
    let mut labels = Object::new();
    let mut expressions = Vec::new();
    for requirement in parsed.requirements().unwrap_or_default() {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals => {
                let [value] = requirement.values() else {
                    return Err(Error::new("equals operator must have exactly one value"));
                };
                labels.insert(requirement.key(), value.clone());
                continue;
            }
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan => return Err(unsupported("gt")),
            Operator::LessThan => return Err(unsupported("lt")),
            Operator::NotEquals => {
                return Err(Error::new(format!("{} is not a valid label selector operator", go::quote("!="))));
            }
        };
        let mut expression = value!({"key": (requirement.key()), "operator": operator});
        if !requirement.values().is_empty() {
            super::put(&mut expression, &["values"], texts(requirement.values()));
        }
        expressions.push(expression);
    }
    let mut selector = Object::new();
    if !labels.is_empty() {
        selector.insert("matchLabels", labels);
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions", expressions);
    }
    Ok(Value::Object(selector))
}

fn unsupported(operator: &str) -> Error {
    Error::new(format!("{} isn't supported in label selectors", go::quote(operator)))
}
