//! Resource quota evaluation: usage of an object, and scopes.

pub mod scopes;
pub mod usage;

use apimachinery::Value;

fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).unwrap_or_default()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn spec(object: &Value) -> &Value {
    &object["spec"]
}
