//! Conditions in the status of an object.

use apimachinery::Value;

/// Returns the condition of a type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.list_at(&["status", "conditions"]);
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Returns the status of a condition: `True`, `False` or `Unknown`.
pub fn condition_status<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    condition(object, kind)?.str_at(&["status"])
}

/// Whether the status of a condition is `True`.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    condition_status(object, kind) == Some("True")
}
