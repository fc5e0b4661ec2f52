//! Status conditions that the server itself sets.

use apimachinery::{Object, Value};

/// Replaces or appends a condition. lastTransitionTime is kept while the status does not change.
pub fn set(object: &mut Value, mut condition: Object) {
    let Value::Object(fields) = object else { return };
    let Value::Object(status) = fields.get_or_insert_with("status", Value::object) else { return };
    let conditions = status.get_or_insert_with("conditions", || Value::Array(Vec::new()));
    if conditions.is_null() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else { return };
    let kind = condition.get("type").cloned();
    match conditions.iter_mut().find(|have| have.get("type") == kind.as_ref()) {
        None => conditions.push(Value::Object(condition)),
        Some(have) => {
            if have.get("status") == condition.get("status")
                && let Some(time) = have.get("lastTransitionTime").cloned()
            {
                condition.insert("lastTransitionTime", time);
            }
            *have = Value::Object(condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn updated_condition_keeps_its_position_and_unchanged_transition_time() {
        let mut object = value!({"status": {"conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "1"},
            {"type": "B", "status": "True", "lastTransitionTime": "1"},
        ]}});
        let condition = |kind: &str, status: &str| {
            let Value::Object(condition) = value!({"type": kind, "status": status, "lastTransitionTime": "2"}) else {
                unreachable!("it is an object")
            };
            condition
        };
        set(&mut object, condition("A", "True"));
        set(&mut object, condition("B", "False"));
        set(&mut object, condition("C", "True"));
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let describe = |condition: &Value| {
            ["type", "status", "lastTransitionTime"].map(|field| condition.str_at(&[field]).unwrap()).join(" ")
        };
        assert_eq!(conditions.iter().map(describe).collect::<Vec<_>>(), ["A True 1", "B False 2", "C True 2"]);
    }
}
