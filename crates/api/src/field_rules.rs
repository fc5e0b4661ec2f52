//! Rules about fields that many kinds share, and the small changes that their writes have in common.

use machinery::field::{BadValue, Error};
use machinery::meta::{Meta, MetaMut};
use machinery::quantity::Quantity;
use machinery::table::{Cell, Column};
use machinery::time::Time;
use machinery::{At, Errors, Object, Path, Value, names};

/// Said of a field that must stay as it is.
pub const IMMUTABLE: &str = "field is immutable";

/// Whether two values mean the same to upstream: an empty list or map is as good as none.
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

/// The field must be what it was.
pub fn immutable(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if !same(new.value(), old.value()) {
        errors.push(Error::invalid(new.path(), emptied(new, old), IMMUTABLE));
    }
}

/// The value as it was sent: decoding has dropped a list or map that lost its last entry, which is not the same as
/// one that is not there to those who read the message.
pub fn emptied(new: &At<'_>, old: &At<'_>) -> Value {
    match (new.value(), old.value()) {
        (Value::Null, Value::Array(_)) => Value::Array(Vec::new()),
        (Value::Null, Value::Object(_)) => Value::object(),
        (value, _) => value.clone(),
    }
}

/// As [`immutable`], for a value that messages do not show as JSON.
pub fn immutable_shown(new: &At<'_>, old: &At<'_>, shown: impl FnOnce() -> BadValue, errors: &mut Errors) {
    if !same(new.value(), old.value()) {
        errors.push(Error::invalid(new.path(), shown(), IMMUTABLE));
    }
}

/// The string must be one of these, which are listed in the order given. An absent one reads as empty.
pub fn one_of(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if !known.contains(&at.str()) {
        errors.push(Error::not_supported(at.path(), at.str(), known));
    }
}

/// As [`one_of`], of a field that may be absent.
pub fn one_of_if_present(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if at.is_present() {
        one_of(at, known, errors);
    }
}

/// The string must look as `rule` says.
pub fn looks(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    errors.extend(rule(at.str()).into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
}

/// There must be a string, and it must look as `rule` says.
pub fn required_and_looks(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if at.str().is_empty() {
        errors.push(at.required(""));
    } else {
        looks(at, rule, errors);
    }
}

/// There must be something.
pub fn required(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.push(at.required(""));
    }
}

/// The number must not be negative.
pub fn non_negative(at: &At<'_>, errors: &mut Errors) {
    if at.int() < 0 {
        errors.push(Error::invalid(at.path(), at.int(), "must be greater than or equal to 0"));
    }
}

/// A name of a CSI driver or a resource driver.
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

/// A selector of labels; absent is right.
pub fn label_selector(at: &At<'_>, errors: &mut Errors) {
    machinery::labels::validate_object(at.value(), at.path(), errors);
}

/// The quantity at a place, zero if there is none.
pub fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO)
}

/// A quantity must not be negative.
pub fn non_negative_quantity(at: &At<'_>, errors: &mut Errors) {
    let found = quantity(at.value());
    if found.is_negative() {
        errors.push(Error::invalid(at.path(), found.to_string(), "must be greater than or equal to 0"));
    }
}

/// Sets a field that is absent. Gives back whether it was.
pub fn default_to(object: &mut Value, field: &str, value: impl Into<Value>) -> bool {
    let Some(object) = object.as_object_mut() else { return false };
    let absent = object.get(field).is_none_or(Value::is_null);
    if absent {
        object.insert(field, value);
    }
    absent
}

/// As [`default_to`], of a string that is empty when nobody set it.
pub fn default_empty_to(object: &mut Value, field: &str, value: &str) {
    let Some(object) = object.as_object_mut() else { return };
    if object.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
        object.insert(field, value);
    }
}

/// The items of a list for changing; none if there is no list.
pub fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Takes a field away, as from a client that may not set it.
pub fn drop_field(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

/// Puts a field back to what it was, as for a write that may not touch it.
pub fn keep(object: &mut Value, old: &Value, field: &str) {
    match (object.as_object_mut(), old.get(field)) {
        (Some(object), Some(value)) => drop(object.insert(field, value.clone())),
        (Some(object), None) => drop(object.remove(field)),
        (None, _) => {}
    }
}

/// Puts everything but a field back to what it was; of the metadata, labels and the like stay as they are written.
pub fn keep_all_but(object: &mut Value, old: &Value, field: &str) {
    let others = |of: &Value| -> Vec<String> {
        let fields = of.as_object().into_iter().flat_map(Object::keys);
        fields.filter(|name| !["apiVersion", "kind", "metadata", field].contains(name)).map(str::to_owned).collect()
    };
    for name in others(object).iter().chain(&others(old)) {
        keep(object, old, name);
    }
}

/// Puts everything but the status back to what it was, the metadata too: for kinds whose status is written by others
/// than those who may label an object or hold it. Who owns which field stays as it is written.
pub fn keep_for_status(object: &mut Value, old: &Value) {
    keep_all_but(object, old, "status");
    let (Some(metadata), Some(before)) = (object.get_mut("metadata"), old.get("metadata")) else { return };
    for field in ["annotations", "deletionTimestamp", "finalizers", "generation", "labels", "ownerReferences"] {
        keep(metadata, before, field);
    }
}

/// The fields that writes do not set of kinds that keep their metadata when the status is written.
pub fn reset_with_metadata(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "" => &["status"],
        "status" => &["metadata", "spec"],
        _ => &[],
    }
}

/// The generation of a new object.
pub fn start_generation(object: &mut Value) {
    if let Some(mut meta) = MetaMut::of(object) {
        meta.set("generation", 1);
    }
}

/// Raises the generation if one of the fields is not what it was.
pub fn raise_generation(object: &mut Value, old: &Value, fields: &[&str]) {
    let absent = Value::Null;
    let value = |of: &Value, field: &str| of.get(field).unwrap_or(&absent).clone();
    let changed = fields.iter().any(|field| !same(&value(object, field), &value(old, field)));
    raise_generation_where(object, old, changed);
}

/// Raises the generation if what the kind counts has changed.
pub fn raise_generation_where(object: &mut Value, old: &Value, changed: bool) {
    if changed {
        let generation = Meta::of(old).generation() + 1;
        if let Some(mut meta) = MetaMut::of(object) {
            meta.set("generation", generation);
        }
    }
}

/// A column that is always shown.
pub fn column(name: &str, ty: &str, description: &str, cell: fn(&Value, Time) -> Value) -> Column {
    Column::new(name, ty, description, Cell::Function(cell))
}

/// A column that is shown where there is room.
pub fn wide_column(name: &str, ty: &str, description: &str, cell: fn(&Value, Time) -> Value) -> Column {
    Column { priority: 1, ..column(name, ty, description, cell) }
}

/// How many items there are, as a cell shows it.
pub fn count_cell(at: &At<'_>) -> Value {
    Value::Int(i64::try_from(at.len()).unwrap_or(i64::MAX))
}

/// The errors of a rule that another path says in front.
pub fn path_segment(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(names::path_segment(name).into_iter().map(|wrong| Error::invalid(path, name, wrong)));
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn an_empty_list_or_map_is_as_good_as_none() {
        let check = |a: Value, b: Value, expect: bool| assert_eq!(same(&a, &b), expect, "{a:?} {b:?}");
        check(value!({"a": []}), value!({}), true);
        check(value!({"a": {"b": {}}}), value!({"a": {}}), true);
        check(value!({"a": ""}), value!({}), false);
        check(value!([1]), value!([1, 2]), false);
        check(value!([1]), Value::Null, false);
    }

    #[test]
    fn a_write_to_the_status_keeps_everything_else() {
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
