//! Status of an object: initial value, separation from spec writes, and counter validation.

use apimachinery::conform::zero;
use apimachinery::field::Error;
use apimachinery::{At, Errors, GroupVersionKind, Value};

use crate::catalogue;
use crate::field_rules::keep;
use crate::kind::Context;

/// Replaces the status by the initial status of the type, regardless of the client's value.
pub fn reset(object: &mut Value) {
    let text = |key: &str| object.text_at(&[key]);
    let kind = GroupVersionKind::parse(text("apiVersion"), text("kind")).ok();
    let schema = kind.and_then(|kind| catalogue::schema(&kind)).and_then(|schema| schema.child("status"));
    if let (Some(fields), Some(schema)) = (object.as_object_mut(), schema) {
        fields.insert("status", zero(schema));
    }
}

/// Restores the status on a write to the object, and the spec on a write to the status. Returns whether the write is to
/// the object.
pub fn separate(object: &mut Value, old: &Value, context: &Context<'_>) -> bool {
    let whole = context.subresource.is_empty();
    keep(object, old, if whole { "status" } else { "spec" });
    whole
}

/// Rejects negative numbers.
pub fn non_negative(status: &At<'_>, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        crate::field_rules::non_negative(&status.get(field), errors);
    }
}

/// Rejects a value of `field` that is greater than that of `whole`.
pub fn at_most(status: &At<'_>, field: &str, whole: &str, called: &str, errors: &mut Errors) {
    let field = status.get(field);
    if field.int() > status.get(whole).int() {
        errors.push(field.invalid(format!("cannot be greater than {called}")));
    }
}

/// Rejects a decrease or removal of a counter.
pub fn never_decremented(status: &At<'_>, old: &At<'_>, field: &str, errors: &mut Errors) {
    let (new, old) = (status.get(field), old.get(field));
    if old.is_present() && (new.is_absent() || new.int() < old.int()) {
        errors.push(Error::invalid(new.path(), new.int(), "cannot be decremented"));
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn new_object_has_the_initial_status_of_its_type() {
        let mut object = value!({"apiVersion": "v1", "kind": "Service", "status": {"loadBalancer": {"ingress": []}}});
        reset(&mut object);
        assert_eq!(object["status"], value!({"loadBalancer": {}}));
    }

    #[test]
    fn removed_counter_is_rejected_as_a_decrease() {
        let check = |new: Value, old: Value, expect: usize| {
            let mut errors = Errors::new();
            never_decremented(&At::root(&new), &At::root(&old), "n", &mut errors);
            assert_eq!(errors.len(), expect, "{new:?} {old:?}");
        };
        check(value!({}), value!({"n": 1}), 1);
        check(value!({"n": 1}), value!({"n": 2}), 1);
        check(value!({"n": 2}), value!({"n": 1}), 0);
        check(value!({"n": 0}), value!({}), 0);
    }
}
