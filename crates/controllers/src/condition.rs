//! Status conditions: find, set and remove, with the rules of upstream's controllers.

use apimachinery::Value;

pub use api::view::condition as find;

pub fn in_list<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Replaces the condition of the same type and moves it to the end. A condition with equal status and reason is left
/// unchanged. A condition with equal status and another reason keeps its lastTransitionTime.
pub fn set(conditions: &mut Vec<Value>, mut condition: Value) {
    let kind = condition.text_at(&["type"]).to_owned();
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

pub fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition.str_at(&["type"]) != Some(kind));
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
        value!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": time})
    }

    #[test]
    fn condition_with_equal_status_and_reason_is_unchanged() {
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
