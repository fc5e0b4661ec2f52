//! The JSON tree of API objects: compact, sorted by key, with integers distinct from floats.
//!
//! A 4.6 KiB pod takes 53 KiB as `serde_json::Value` and less than 20 KiB here, because short strings are stored inline
//! and an object is one sorted vector instead of a tree of allocations. Sorted keys also make comparing, merging and
//! field sets linear walks, and make output deterministic.

use std::ops::Index;

use compact_str::CompactString;

/// A string that needs no allocation up to 24 bytes, which covers nearly every key and most values.
pub type Str = CompactString;

/// A JSON value.
///
/// Numbers follow Kubernetes' decoder: an integer literal that fits `i64` is an [`Value::Int`], any other number is a
/// [`Value::Float`], which is always finite. `1` and `1.0` are different values, as they are for an API field of type
/// integer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    /// Any number that is not an `Int`; never NaN nor infinite.
    Float(f64),
    String(Str),
    Array(Vec<Value>),
    Object(Object),
}

/// A JSON object: entries sorted by key, keys unique.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    entries: Vec<(Str, Value)>,
}

impl Value {
    /// Returns an empty object.
    pub const fn object() -> Self {
        Self::Object(Object::new())
    }

    /// Returns the type name in Go decoder errors: `bool`, `number`, `string`, `array`, `object` or `null`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Float(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the integer; [`None`] for a float, even if it is whole.
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// Returns the number as a float, also if it is an integer.
    pub const fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Float(f) => Some(*f),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    pub const fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    pub const fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(o) => Some(o),
            _ => None,
        }
    }

    pub const fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Object(o) => Some(o),
            _ => None,
        }
    }

    /// Returns the value of `key`; [`None`] if this is not an object or lacks the key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Follows object keys: `at(&["metadata", "name"])`.
    pub fn at(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(self, |value, key| value.get(key))
    }

    /// Returns the string at a path of object keys.
    pub fn str_at(&self, keys: &[&str]) -> Option<&str> {
        self.at(keys)?.as_str()
    }

    /// Returns the string at a path of object keys; empty if there is none.
    pub fn text_at(&self, keys: &[&str]) -> &str {
        self.str_at(keys).unwrap_or_default()
    }

    /// Returns the list at a path of object keys; empty if there is none.
    pub fn list_at(&self, keys: &[&str]) -> &[Value] {
        self.at(keys).and_then(Self::as_array).unwrap_or_default()
    }

    /// Returns the integer at a path of object keys.
    pub fn int_at(&self, keys: &[&str]) -> Option<i64> {
        self.at(keys)?.as_int()
    }

    /// Whether the value at a path of object keys is `true`.
    pub fn is_true_at(&self, keys: &[&str]) -> bool {
        matches!(self.at(keys), Some(Self::Bool(true)))
    }

    /// Returns the entries of the map of strings at a path of object keys.
    pub fn entries_at<'a>(&'a self, keys: &[&str]) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let entries = self.at(keys).and_then(Self::as_object).into_iter().flat_map(Object::iter);
        entries.filter_map(|(key, value)| Some((key, value.as_str()?)))
    }

    /// Replaces the value with `null` and returns it.
    pub const fn take(&mut self) -> Value {
        std::mem::replace(self, Self::Null)
    }
}

impl Object {
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity) }
    }

    /// Builds an object from entries in any order. The last value of a duplicate key counts, as in every JSON decoder
    /// of Kubernetes; `repeated` is called with each such key.
    pub fn from_entries(mut entries: Vec<(Str, Value)>, mut repeated: impl FnMut(&str)) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            // `dedup_by` passes the later entry first and drops it: swapping keeps its value.
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    repeated(&earlier.0);
                    std::mem::swap(&mut later.1, &mut earlier.1);
                }
                same
            });
        }
        Self { entries }
    }

    /// Builds an object from entries that are already sorted, with unique keys.
    pub(crate) fn from_sorted(entries: Vec<(Str, Value)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "a sorted object holds each key once, in order");
        Self { entries }
    }

    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|at| &self.entries[at].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.find(key).map(|at| &mut self.entries[at].1)
    }

    /// Sets `key` and returns its previous value.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.position(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// Returns the value of `key`, inserting `make()` if absent.
    pub fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        let at = match self.position(key) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (key.into(), make()));
                at
            }
        };
        &mut self.entries[at].1
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).map(|at| self.entries.remove(at).1)
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Returns the entries sorted by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Value)> + ExactSizeIterator {
        self.entries.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// Returns the values sorted by key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator {
        self.entries.iter().map(|(_, value)| value)
    }

    /// Returns the entries sorted by key, for access by index.
    pub(crate) fn entries(&self) -> &[(Str, Value)] {
        &self.entries
    }

    /// Returns the entries for walks along a sorted list of fields. The caller must keep the keys sorted and unique.
    pub(crate) const fn entries_mut(&mut self) -> &mut Vec<(Str, Value)> {
        &mut self.entries
    }

    /// Finds the index of `key`. Most keys of an object differ in length or last letter, which is faster to compare
    /// than their order.
    fn find(&self, key: &str) -> Option<usize> {
        const FEW: usize = 32;
        if self.entries.len() > FEW {
            return self.position(key).ok();
        }
        let key = key.as_bytes();
        self.entries.iter().position(|(have, _)| {
            let have = have.as_bytes();
            have.len() == key.len() && have.last() == key.last() && have == key
        })
    }

    /// Returns the index of `key`, or the index at which to insert it.
    fn position(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(have, _)| have.as_str().cmp(key))
    }
}

impl IntoIterator for Object {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::from_entries(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect(), |_| {})
    }
}

/// Returns `null` for an absent key: for tests and display.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Null)
    }
}

/// Returns `null` beyond the end: for tests and display.
impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, at: usize) -> &Value {
        self.as_array().and_then(|items| items.get(at)).unwrap_or(&Value::Null)
    }
}

macro_rules! from {
    ($($from:ty => |$it:ident| $into:expr),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from($it: $from) -> Self {
                $into
            }
        })*
    };
}

from! {
    bool => |it| Self::Bool(it),
    i32 => |it| Self::Int(it.into()),
    i64 => |it| Self::Int(it),
    u32 => |it| Self::Int(it.into()),
    f64 => |it| if it.is_finite() { Self::Float(it) } else { Self::Null },
    &str => |it| Self::String(it.into()),
    String => |it| Self::String(it.into()),
    Str => |it| Self::String(it),
    Object => |it| Self::Object(it),
    Vec<Value> => |it| Self::Array(it),
}

/// Builds a [`Value`] from JSON notation: `value!({"a": [1, null, name]})`. A value that is not a literal, a list or an
/// object is an expression that converts into one; an expression of several tokens needs parentheses.
#[macro_export]
macro_rules! value {
    (null) => { $crate::Value::Null };
    ([ $($item:tt),* $(,)? ]) => { $crate::Value::Array(vec![ $($crate::value!($item)),* ]) };
    ({ $($key:literal : $value:tt),* $(,)? }) => {
        $crate::Value::Object(<$crate::Object as FromIterator<($crate::Str, $crate::Value)>>::from_iter([
            $(($crate::Str::from($key), $crate::value!($value))),*
        ]))
    };
    ($other:expr) => { $crate::Value::from($other) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_by_key() {
        let object: Object = [("b", 2), ("a", 1), ("c", 3)].into_iter().collect();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn last_value_of_a_duplicate_key_counts_and_the_key_is_reported() {
        let mut repeated = Vec::new();
        let entries =
            vec![("a".into(), 1.into()), ("b".into(), 2.into()), ("a".into(), 3.into()), ("a".into(), 4.into())];
        let object = Object::from_entries(entries, |key| repeated.push(key.to_owned()));
        assert_eq!(object, [("a", 4), ("b", 2)].into_iter().collect());
        assert_eq!(repeated, ["a", "a"]);
    }

    #[test]
    fn value_size_stays_small() {
        assert_eq!(size_of::<Value>(), 32, "four words: a string inline and a tag");
    }

    #[test]
    fn integer_differs_from_the_equal_float() {
        assert_ne!(Value::Int(1), Value::Float(1.0));
    }

    #[test]
    fn typed_accessors_return_a_default_for_absent_keys_and_other_types() {
        let pod = value!({"metadata": {"name": "a", "labels": {"x": "y", "n": 1}}, "spec": {"on": true, "count": 3, "list": [1]}});
        assert_eq!(
            (pod.text_at(&["metadata", "name"]), pod.text_at(&["spec", "count"]), pod.text_at(&["x"])),
            ("a", "", "")
        );
        assert_eq!((pod.list_at(&["spec", "list"]), pod.list_at(&["spec", "on"])), (&[Value::Int(1)][..], &[][..]));
        assert_eq!((pod.int_at(&["spec", "count"]), pod.int_at(&["spec", "on"])), (Some(3), None));
        assert!(pod.is_true_at(&["spec", "on"]) && !pod.is_true_at(&["spec", "count"]));
        assert_eq!(pod.entries_at(&["metadata", "labels"]).collect::<Vec<_>>(), [("x", "y")]);
        assert_eq!(pod.entries_at(&["spec", "list"]).count(), 0);
    }

    #[test]
    fn at_returns_none_for_absent_keys() {
        let pod = value!({"metadata": {"name": "a", "labels": {}}, "list": [1, null, (-2)]});
        assert_eq!(pod.str_at(&["metadata", "name"]), Some("a"));
        assert_eq!(pod.at(&["metadata", "uid"]), None);
        assert_eq!(pod["list"][2], Value::Int(-2));
        assert_eq!(pod["spec"]["containers"][3], Value::Null);
    }
}
