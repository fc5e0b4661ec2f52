//! Resource quota evaluation: amounts, usage of an object, and scopes.

pub mod amounts;
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

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "containers").iter().chain(items(spec, "initContainers"))
}
