//! Masks the values of Secrets, such that changes are still visible.

use apimachinery::{Object, Value};

const MASK: &str = "***";
const BEFORE: &str = "*** (before)";
const AFTER: &str = "*** (after)";

/// Replaces the data of two versions of a Secret.
pub(super) fn mask(before: &mut Value, after: &mut Value) {
    let data = |object: &Value| object.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let (old, new) = (data(before), data(after));
    mask_one(before, &new, BEFORE);
    mask_one(after, &old, AFTER);
}

fn mask_one(object: &mut Value, other: &Object, changed: &str) {
    let Some(Value::Object(data)) = object.get_mut("data") else { return };
    for (key, value) in data.iter_mut() {
        let differs = other.get(key).is_some_and(|other| other != value);
        *value = if differs { changed } else { MASK }.into();
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn changed_values_differ_and_others_do_not() {
        let mut before = value!({"data": {"same": "x", "changed": "a", "removed": "r"}});
        let mut after = value!({"data": {"same": "x", "changed": "b", "added": "n"}});
        mask(&mut before, &mut after);
        assert_eq!(before, value!({"data": {"same": "***", "changed": "*** (before)", "removed": "***"}}));
        assert_eq!(after, value!({"data": {"same": "***", "changed": "*** (after)", "added": "***"}}));
        let mut absent = Value::Null;
        mask(&mut absent, &mut after);
        assert_eq!(absent, Value::Null);
    }
}
