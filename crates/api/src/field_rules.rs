//! Field validation, defaulting and update helpers shared by many kinds.

use apimachinery::field::{BadValue, Error};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::quantity::Quantity;
use apimachinery::table::{Cell, Column};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Object, Path, Value, names};

pub const IMMUTABLE: &str = "field is immutable";

/// Whether two values are semantically equal in upstream: an empty list or map equals an absent one.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            let known = |from: &Object, to: &Object| {
                from.iter().all(|(key, value)| same(value, to.get(key).unwrap_or(&Value::Null)))
            };
            known(a, b) && known(b, a)
        }
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::Null, Value::Object(entries)) | (Value::Object(entries), Value::Null) => entries.is_empty(),
        _ => a == b,
    }
}

/// Rejects a change of the field.
pub fn immutable(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if !same(new.value(), old.value()) {
        errors.push(Error::invalid(new.path(), emptied(new, old), IMMUTABLE));
    }
}

/// Returns the value for an error message. Decoding drops a list or map that became empty; messages show it as empty
/// rather than absent.
pub fn emptied(new: &At<'_>, old: &At<'_>) -> Value {
    match (new.value(), old.value()) {
        (Value::Null, Value::Array(_)) => Value::Array(Vec::new()),
        (Value::Null, Value::Object(_)) => Value::object(),
        (value, _) => value.clone(),
    }
}

/// Like [`immutable`], with another representation of the value in the error.
pub fn immutable_with_value(new: &At<'_>, old: &At<'_>, bad_value: impl FnOnce() -> BadValue, errors: &mut Errors) {
    if !same(new.value(), old.value()) {
        errors.push(Error::invalid(new.path(), bad_value(), IMMUTABLE));
    }
}

/// Requires one of `known`, which the error lists in this order. An absent string counts as empty.
pub fn one_of(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if !known.contains(&at.str()) {
        errors.push(Error::not_supported(at.path(), at.str(), known));
    }
}

/// Like [`one_of`], for an optional field.
pub fn one_of_if_present(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if at.is_present() {
        one_of(at, known, errors);
    }
}

/// Adds an error per violation that `rule` returns for the string.
pub fn looks(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    errors.extend(rule(at.str()).into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
}

/// Requires a string that satisfies `rule`.
pub fn required_and_looks(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if at.str().is_empty() {
        errors.push(at.required(""));
    } else {
        looks(at, rule, errors);
    }
}

/// Requires a non-empty value.
pub fn required(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.push(at.required(""));
    }
}

/// Rejects a negative number.
pub fn non_negative(at: &At<'_>, errors: &mut Errors) {
    if at.int() < 0 {
        errors.push(Error::invalid(at.path(), at.int(), "must be greater than or equal to 0"));
    }
}

/// Validates the name of a CSI or DRA driver.
pub fn driver_name(at: &At<'_>, errors: &mut Errors) {
    const LENGTH_MAX: usize = 63;
    let name = at.str();
    if name.is_empty() {
        errors.push(at.required(""));
    }
    if name.len() > LENGTH_MAX {
        errors.push(Error::too_long(at.path(), LENGTH_MAX));
    }
    if !name.is_empty() {
        let wrong = names::dns1123_subdomain(&name.to_lowercase());
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), name, wrong)));
    }
}

/// Validates a label selector; an absent one is valid.
pub fn label_selector(at: &At<'_>, errors: &mut Errors) {
    apimachinery::labels::validate_object(at.value(), at.path(), errors);
}

/// Parses a quantity; absent or invalid ones are zero.
pub fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO)
}

/// Rejects a negative quantity.
pub fn non_negative_quantity(at: &At<'_>, errors: &mut Errors) {
    let found = quantity(at.value());
    if found.is_negative() {
        errors.push(Error::invalid(at.path(), found.to_string(), "must be greater than or equal to 0"));
    }
}

/// Sets a field that is absent. Returns whether it was absent.
pub fn default_to(object: &mut Value, field: &str, value: impl Into<Value>) -> bool {
    let Some(object) = object.as_object_mut() else { return false };
    let absent = object.get(field).is_none_or(Value::is_null);
    if absent {
        object.insert(field, value);
    }
    absent
}

/// Like [`default_to`], for a string whose unset value is empty.
pub fn default_empty_to(object: &mut Value, field: &str, value: &str) {
    let Some(object) = object.as_object_mut() else { return };
    if object.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
        object.insert(field, value);
    }
}

/// Returns mutable list items; none if there is no list.
pub fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes a field that the client may not set.
pub fn drop_field(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

/// Restores a field that this write may not change.
pub fn keep(object: &mut Value, old: &Value, field: &str) {
    match (object.as_object_mut(), old.get(field)) {
        (Some(object), Some(value)) => drop(object.insert(field, value.clone())),
        (Some(object), None) => drop(object.remove(field)),
        (None, _) => {}
    }
}

/// Restores everything except `field`. Mutable metadata such as labels is kept as written.
pub fn keep_all_but(object: &mut Value, old: &Value, field: &str) {
    let others = |of: &Value| -> Vec<String> {
        let fields = of.as_object().into_iter().flat_map(Object::keys);
        fields.filter(|name| !["apiVersion", "kind", "metadata", field].contains(name)).map(str::to_owned).collect()
    };
    for name in others(object).iter().chain(&others(old)) {
        keep(object, old, name);
    }
}

/// Restores everything except the status and managedFields, including metadata. For kinds whose status writers may not
/// change labels or finalizers.
pub fn keep_for_status(object: &mut Value, old: &Value) {
    keep_all_but(object, old, "status");
    let (Some(metadata), Some(before)) = (object.get_mut("metadata"), old.get("metadata")) else { return };
    for field in ["annotations", "deletionTimestamp", "finalizers", "generation", "labels", "ownerReferences"] {
        keep(metadata, before, field);
    }
}

/// Returns the reset fields of kinds that restore their metadata on status writes.
pub fn reset_with_metadata(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "" => &["status"],
        "status" => &["metadata", "spec"],
        _ => &[],
    }
}

/// Sets the generation of a new object to 1.
pub fn start_generation(object: &mut Value) {
    if let Some(mut meta) = MetaMut::of(object) {
        meta.set("generation", 1);
    }
}

/// Increments the generation if one of the fields changed.
pub fn raise_generation(object: &mut Value, old: &Value, fields: &[&str]) {
    let absent = Value::Null;
    let value = |of: &Value, field: &str| of.get(field).unwrap_or(&absent).clone();
    let changed = fields.iter().any(|field| !same(&value(object, field), &value(old, field)));
    raise_generation_where(object, old, changed);
}

/// Increments the generation if `changed`.
pub fn raise_generation_where(object: &mut Value, old: &Value, changed: bool) {
    if changed {
        let generation = Meta::of(old).generation() + 1;
        if let Some(mut meta) = MetaMut::of(object) {
            meta.set("generation", generation);
        }
    }
}

/// Returns a column of priority 0, which is always printed.
pub fn column(name: &str, ty: &str, description: &str, cell: fn(&Value, Time) -> Value) -> Column {
    Column::new(name, ty, description, Cell::Function(cell))
}

/// Returns a column of priority 1, printed with `-o wide`.
pub fn wide_column(name: &str, ty: &str, description: &str, cell: fn(&Value, Time) -> Value) -> Column {
    Column { priority: 1, ..column(name, ty, description, cell) }
}

/// Returns the number of items as a cell.
pub fn count_cell(at: &At<'_>) -> Value {
    Value::Int(i64::try_from(at.len()).unwrap_or(i64::MAX))
}

/// Adds the errors of the path segment rule.
pub fn path_segment(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(names::path_segment(name).into_iter().map(|wrong| Error::invalid(path, name, wrong)));
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn empty_list_or_map_equals_absent() {
        let check = |a: Value, b: Value, expect: bool| assert_eq!(same(&a, &b), expect, "{a:?} {b:?}");
        check(value!({"a": []}), value!({}), true);
        check(value!({"a": {"b": {}}}), value!({"a": {}}), true);
        check(value!({"a": ""}), value!({}), false);
        check(value!([1]), value!([1, 2]), false);
        check(value!([1]), Value::Null, false);
    }

    #[test]
    fn status_write_restores_everything_else() {
        let old =
            value!({"kind": "K", "metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"x": 1}, "extra": true});
        let written = value!({"kind": "K", "metadata": {"name": "a", "labels": {"l": "m"}, "managedFields": [{}]},
            "spec": {"x": 2}, "status": {"y": 1}});
        let mut new = written.clone();
        keep_for_status(&mut new, &old);
        let expect = value!({"kind": "K", "metadata": {"name": "a", "finalizers": ["f"], "managedFields": [{}]},
            "spec": {"x": 1}, "status": {"y": 1}, "extra": true});
        assert_eq!(new, expect);
        let mut new = written.clone();
        keep_all_but(&mut new, &old, "status");
        assert_eq!((&new["metadata"], &new["spec"]), (&written["metadata"], &old["spec"]));
    }
}
