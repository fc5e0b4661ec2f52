//! Conditions in the status of an object: found, set and removed as upstream's controllers do it.

use machinery::Value;

/// The condition of a type in the status of a whole object.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    in_list(object.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default(), kind)
}

/// The condition of a type in a list.
pub fn in_list<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Puts a condition at the end of a list in place of the one of its type. One that says the same with the same reason stays as it is;
/// one that only has another reason keeps the time of its last transition.
pub fn set(conditions: &mut Vec<Value>, mut condition: Value) {
    let kind = condition.str_at(&["type"]).unwrap_or_default().to_owned();
    if let Some(old) = in_list(conditions, &kind) {
        let same = |field| old.get(field) == condition.get(field);
        if same("status") && same("reason") {
            return;
        }
        if same("status")
            && let Some(time) = old.get("lastTransitionTime").cloned()
            && let Some(condition) = condition.as_object_mut()
        {
            condition.insert("lastTransitionTime", time);
        }
    }
    remove(conditions, &kind);
    conditions.push(condition);
}

/// Takes the condition of a type out.
pub fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition.str_at(&["type"]) != Some(kind));
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
        value!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": time})
    }

    #[test]
    fn a_condition_that_says_the_same_stays_as_it_is() {
        let mut list = vec![condition("A", "True", "Old", "1"), condition("B", "True", "R", "1")];
        let before = list.clone();
        set(&mut list, condition("B", "True", "R", "9"));
        assert_eq!(list, before);
        set(&mut list, condition("A", "True", "New", "9"));
        assert_eq!(list[1], condition("A", "True", "New", "1"), "its transition was long ago");
        set(&mut list, condition("B", "False", "R", "9"));
        assert_eq!(list[1], condition("B", "False", "R", "9"));
        remove(&mut list, "A");
        assert_eq!(list.len(), 1);
    }
}
