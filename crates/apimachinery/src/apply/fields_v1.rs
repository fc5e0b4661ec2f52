//! FieldsV1: the JSON form of a field set in a `managedFields` entry.

use super::fieldset::{Entry, FieldSet};
use super::gotext;
use super::path::{Element, ElementError};
use crate::{Object, Str, Value};

/// A value is not a valid FieldsV1 field set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    #[error("a field set must be an object, not {0}")]
    NotAnObject(&'static str),
    #[error("parsing key as path element: {0}")]
    Element(#[from] ElementError),
}

impl FieldSet {
    /// Parses the JSON form. Path elements of unknown kinds are skipped, since a later version may define them.
    pub fn from_value(value: &Value) -> Result<Self, FieldsError> {
        Ok(read(value)?.1)
    }

    /// Returns the JSON form as a tree, with keys sorted by their text.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_object(false))
    }

    /// Returns the JSON form as upstream prints it, with keys in the order of the path elements they represent.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        let mut key = String::new();
        self.write_json(&mut out, &mut key, false);
        out
    }

    fn to_object(&self, member: bool) -> Object {
        let mut entries: Vec<(Str, Value)> = Vec::with_capacity(self.entries().len() + 1);
        if member && !self.is_empty() {
            entries.push((Str::const_new("."), Value::object()));
        }
        for entry in self.entries() {
            entries.push((text(&entry.element), Value::Object(entry.below.to_object(entry.member))));
        }
        Object::from_entries(entries, |_| {})
    }

    fn write_json(&self, out: &mut String, key: &mut String, member: bool) {
        out.push('{');
        let mut first = true;
        if member && !self.is_empty() {
            out.push_str("\".\":{}");
            first = false;
        }
        for entry in self.entries() {
            if !first {
                out.push(',');
            }
            first = false;
            key.clear();
            entry.element.write(key);
            gotext::write_json_string(out, key, false);
            out.push(':');
            entry.below.write_json(out, key, entry.member);
        }
        out.push('}');
    }
}

fn text(element: &Element) -> Str {
    if let Element::Field(name) = element {
        let mut text = Str::with_capacity(name.len() + 2);
        text.push_str("f:");
        text.push_str(name);
        return text;
    }
    let mut text = String::new();
    element.write(&mut text);
    text.into()
}

/// Returns whether the path to this node is a member, and the set below it. A node without children is a member.
fn read(value: &Value) -> Result<(bool, FieldSet), FieldsError> {
    let object = match value {
        Value::Object(object) => object,
        Value::Null => return Ok((true, FieldSet::default())),
        other => return Err(FieldsError::NotAnObject(other.kind())),
    };
    let mut member = false;
    let mut entries = Vec::with_capacity(object.len());
    for (key, child) in object.iter() {
        if key == "." {
            member = true;
        } else if let Some(element) = Element::parse(key)? {
            let (member, below) = read(child)?;
            entries.push(Entry { element, member, below });
        }
    }
    if !entries.is_sorted_by(|a, b| a.element < b.element) {
        entries.sort_by(|a, b| a.element.cmp(&b.element));
        entries.dedup_by(|later, earlier| {
            let same = later.element == earlier.element;
            if same {
                earlier.member |= later.member;
                earlier.below = earlier.below.union(&later.below);
            }
            same
        });
    }
    Ok((member || entries.is_empty(), FieldSet::from_sorted(entries)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{json, value};

    fn read_json(text: &str) -> Result<FieldSet, FieldsError> {
        FieldSet::from_value(&json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn fields_v1_round_trips_unchanged() {
        for text in [
            "{}",
            r#"{"f:data":{".":{},"f:a":{},"f:b":{"f:c":{}}},"f:type":{}}"#,
            r#"{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{}}}}"#,
            r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"a\\u003cb\"":{},"v:\"c\"":{}}}}"#,
            r#"{"f:list":{"v:1":{},"i:0":{}}}"#,
        ] {
            let set = read_json(text).unwrap();
            assert_eq!(set.to_json(), text);
            assert_eq!(FieldSet::from_value(&set.to_value()).unwrap(), set);
        }
    }

    #[test]
    fn empty_nodes_are_members_and_unknown_elements_are_skipped() {
        assert_eq!(read_json(r#"{"f:a":null,"z:new":{"f:b":{}}}"#).unwrap().to_json(), r#"{"f:a":{}}"#);
        assert_eq!(read_json(r#"{"f:a":{"z:new":{}}}"#).unwrap().to_json(), r#"{"f:a":{}}"#);
    }

    #[test]
    fn differently_spelled_equal_keys_are_one_element() {
        let set = read_json(r#"{"k:{\"a\":1,\"b\":2}":{"f:x":{}},"k:{\"b\":2,\"a\":1}":{"f:y":{}}}"#).unwrap();
        assert_eq!(set.to_json(), r#"{"k:{\"a\":1,\"b\":2}":{"f:x":{},"f:y":{}}}"#);
    }

    #[test]
    fn invalid_fields_v1_is_rejected() {
        assert_eq!(read_json("[]"), Err(FieldsError::NotAnObject("array")));
        assert!(read_json(r#"{"f:a":1}"#).is_err());
        assert!(read_json(r#"{"a":{}}"#).is_err());
    }

    fn some_element() -> impl Strategy<Value = Element> {
        let scalar = || {
            prop_oneof![
                any::<i64>().prop_map(Value::from),
                "\\PC{0,5}".prop_map(Value::from),
                any::<bool>().prop_map(Value::from),
                (-1e9f64..1e9).prop_map(Value::Float),
            ]
        };
        prop_oneof![
            "\\PC{0,6}".prop_map(Element::field),
            prop::collection::btree_map("[a-z]{1,3}", scalar(), 1..3)
                .prop_map(|fields| Element::key(fields.into_iter().map(|(name, value)| (name.into(), value)))),
            scalar().prop_map(|value| Element::Value(Box::new(value))),
            any::<i64>().prop_map(Element::Index),
        ]
    }

    proptest! {
        #[test]
        fn any_set_round_trips_through_json(paths in prop::collection::vec(prop::collection::vec(some_element(), 1..4), 0..8)) {
            let set = paths.into_iter().fold(FieldSet::default(), |all, path| all.union(&FieldSet::of(path)));
            let text = set.to_json();
            prop_assert_eq!(&FieldSet::from_value(&json::parse(text.as_bytes()).unwrap()).unwrap(), &set);
            prop_assert_eq!(&FieldSet::from_value(&set.to_value()).unwrap(), &set);
            prop_assert_eq!(json::parse(text.as_bytes()).unwrap(), set.to_value());
        }
    }

    #[test]
    fn empty_set_is_an_empty_object() {
        assert_eq!(FieldSet::default().to_value(), value!({}));
    }
}
