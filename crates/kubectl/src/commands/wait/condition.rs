//! Conditions of `kubectl wait --for`.

use apimachinery::jsonpath::{MissingKeys, Template};
use apimachinery::{Value, go};

use crate::Failure;
use crate::print::jsonpath::relaxed;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    Create,
    Delete,
    /// A condition in the status with this type and status.
    Status {
        name: String,
        value: String,
    },
    /// A JSONPath with this value, or with any.
    Path {
        path: String,
        value: Option<String>,
    },
}

const FORMAT: &str = "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or \
    --for=jsonpath='{.status.readyReplicas}'";

pub(super) fn parse(texts: &[String]) -> Result<Vec<Condition>, Failure> {
    if texts.is_empty() {
        return Err(Failure::new("unrecognized condition: []"));
    }
    texts.iter().map(|text| one(text)).collect()
}

fn one(text: &str) -> Result<Condition, Failure> {
    if text.eq_ignore_ascii_case("create") {
        return Ok(Condition::Create);
    }
    if text.eq_ignore_ascii_case("delete") {
        return Ok(Condition::Delete);
    }
    if let Some(condition) = text.strip_prefix("condition=") {
        let (name, value) = condition.split_once('=').unwrap_or((condition, "true"));
        return Ok(Condition::Status { name: name.to_owned(), value: value.to_owned() });
    }
    let Some(input) = text.strip_prefix("jsonpath=") else {
        return Err(Failure::new(format!("unrecognized condition: {}", go::quote(text))));
    };
    let parts = split(input);
    let (path, value) = match parts.as_slice() {
        [path] => (path, None),
        [path, value] => (path, Some(value.trim_matches(['\'', '"']).to_owned())),
        _ => return Err(Failure::new(FORMAT)),
    };
    let path = relaxed(path).map_err(|error| Failure::new(error.to_string()))?;
    if path.is_empty() {
        return Err(Failure::new("jsonpath expression cannot be empty"));
    }
    if value.as_deref() == Some("") {
        return Err(Failure::new(
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
        ));
    }
    Template::parse(&path, MissingKeys::Allow).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Condition::Path { path, value })
}

/// Splits at single equals signs. A double one is part of an expression.
fn split(input: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = input.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        if c != '=' {
            parts[last].push(c);
        } else if chars.next_if_eq(&'=').is_some() {
            parts[last].push_str("==");
        } else {
            parts.push(String::new());
        }
    }
    parts
}

impl Condition {
    /// Whether an object fulfils the condition.
    pub(super) fn is_met(&self, object: &Value) -> Result<bool, Failure> {
        match self {
            Self::Create => Ok(true),
            Self::Delete => Ok(false),
            Self::Status { name, value } => Ok(has_status(object, name, value)),
            Self::Path { path, value } => has_value(object, path, value.as_deref()),
        }
    }
}

fn has_status(object: &Value, name: &str, value: &str) -> bool {
    let conditions = object.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let same =
        |have: Option<&str>, expected: &str| have.is_some_and(|have| have.to_lowercase() == expected.to_lowercase());
    let Some(condition) = conditions
        .iter()
        .find(|condition| same(condition.str_at(&["type"]), name) && condition.str_at(&["status"]).is_some())
    else {
        return false;
    };
    let int = |value: Option<&Value>| value.and_then(Value::as_int);
    let observed = int(condition.get("observedGeneration")).or(int(object.at(&["status", "observedGeneration"])));
    if let (Some(generation), Some(observed)) = (int(object.at(&["metadata", "generation"])), observed)
        && observed < generation
    {
        return false;
    }
    same(condition.str_at(&["status"]), value)
}

fn has_value(object: &Value, path: &str, expected: Option<&str>) -> Result<bool, Failure> {
    let template = Template::parse(path, MissingKeys::Allow).map_err(|error| Failure::new(error.to_string()))?;
    let found = template.find(object).map_err(|error| Failure::new(error.to_string()))?;
    match found.as_slice() {
        [] => Ok(false),
        [first] => match (first.as_slice(), expected) {
            ([], _) => Ok(false),
            ([_], None) => Ok(true),
            ([Value::Object(_) | Value::Array(_)], Some(_)) => {
                Err(Failure::new("jsonpath leads to a nested object or list which is not supported"))
            }
            ([value], Some(expected)) => Ok(apimachinery::jsonpath::print(value).trim() == expected.trim()),
            _ => Err(Failure::new("given jsonpath expression matches more than one value")),
        },
        _ => Err(Failure::new("given jsonpath expression matches more than one list")),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn met(condition: &str, object: &Value) -> Result<bool, String> {
        one(condition).and_then(|condition| condition.is_met(object)).map_err(|failure| failure.message)
    }

    #[test]
    fn status_conditions_compare_without_case_and_wait_for_the_generation() {
        let object = |observed: i64| {
            value!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed, "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"}]}})
        };
        assert_eq!(met("condition=ready", &object(2)), Ok(true));
        assert_eq!(met("condition=ready", &object(1)), Ok(false));
        assert_eq!(met("condition=Failed=false", &object(2)), Ok(true));
        assert_eq!(met("condition=Failed", &object(2)), Ok(false));
        assert_eq!(met("condition=Other", &object(2)), Ok(false));
    }

    #[test]
    fn paths_compare_with_a_value_or_exist() {
        let pod = value!({"status": {"phase": "Running", "count": 3, "list": [{"a": 1}, {"a": 2}]}});
        assert_eq!(met("jsonpath={.status.phase}=Running", &pod), Ok(true));
        assert_eq!(met("jsonpath=.status.count=3", &pod), Ok(true));
        assert_eq!(met("jsonpath={.status.phase}", &pod), Ok(true));
        assert_eq!(met("jsonpath={.status.none}", &pod), Ok(false));
        assert_eq!(met("jsonpath={.status.list[?(@.a==2)].a}=2", &pod), Ok(true));
        assert_eq!(
            met("jsonpath={.status.list[*].a}=2", &pod),
            Err("given jsonpath expression matches more than one value".to_owned())
        );
    }

    #[test]
    fn invalid_conditions_are_rejected() {
        assert_eq!(met("x=y", &Value::Null), Err("unrecognized condition: \"x=y\"".to_owned()));
        assert!(met("jsonpath={.a}=", &Value::Null).unwrap_err().starts_with("jsonpath wait has to have a value"));
        assert!(met("jsonpath={.a}=b=c", &Value::Null).unwrap_err().starts_with("jsonpath wait format"));
    }
}
