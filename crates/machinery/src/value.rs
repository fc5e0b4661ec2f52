//! The JSON tree that every write passes through: compact, ordered by key, integers apart from floats.
//!
//! A 4.6 KiB pod is 53 KiB as `serde_json::Value` and under 20 KiB here, because short strings live inside their
//! node and an object is one sorted vector instead of a tree of allocations. Sorted keys also make comparing,
//! merging and field sets linear walks, and make output deterministic.

use std::ops::Index;

use compact_str::CompactString;

/// A string that needs no allocation up to 24 bytes, which covers nearly every key and most values.
pub type Str = CompactString;

/// One JSON value.
///
/// Numbers follow Kubernetes' decoder: an integer literal that fits `i64` is an [`Value::Int`], any other number is a
/// [`Value::Float`], which is always finite. `1` and `1.0` are different values, as they are to an API field of type
/// integer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer that fits 64 signed bits.
    Int(i64),
    /// Any other number; never NaN nor infinite.
    Float(f64),
    /// A string.
    String(Str),
    /// A list.
    Array(Vec<Value>),
    /// A map from strings to values.
    Object(Object),
}

/// A JSON object: entries sorted by key, each key once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    entries: Vec<(Str, Value)>,
}

impl Value {
    /// An empty object.
    pub const fn object() -> Self {
        Self::Object(Object::new())
    }

    /// What a Go decoder calls this value in its errors: `bool`, `number`, `string`, `array`, `object` or `null`.
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

    /// Whether this is `null`.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The boolean, if it is one.
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The number as a float, whichever way it was written.
    pub const fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Float(f) => Some(*f),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The list for changing, if it is one.
    pub const fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub const fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(o) => Some(o),
            _ => None,
        }
    }

    /// The object for changing, if it is one.
    pub const fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Object(o) => Some(o),
            _ => None,
        }
    }

    /// The value of `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The value of `key` for changing, if this is an object that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Follows object keys from here: `at(&["metadata", "name"])`.
    pub fn at(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The string at the end of a walk over object keys.
    pub fn str_at(&self, keys: &[&str]) -> Option<&str> {
        self.at(keys)?.as_str()
    }

    /// Takes the value out, leaving `null`.
    pub const fn take(&mut self) -> Value {
        std::mem::replace(self, Self::Null)
    }
}

impl Object {
    /// No entries.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// No entries yet, room for `capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity) }
    }

    /// Sorts entries that came in any order. Of a key that occurs more than once the last value stays, as in every
    /// JSON decoder of Kubernetes; `repeated` is called with each such key.
    pub fn from_entries(mut entries: Vec<(Str, Value)>, mut repeated: impl FnMut(&str)) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            // `dedup_by` hands over the later entry first and drops it: swapping keeps its value.
            entries.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    repeated(&kept.0);
                    std::mem::swap(&mut later.1, &mut kept.1);
                }
                same
            });
        }
        Self { entries }
    }

    /// Takes entries that are sorted, each key once, as they are.
    pub(crate) fn from_sorted(entries: Vec<(Str, Value)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "a sorted object holds each key once, in order");
        Self { entries }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `key` is there.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|at| &self.entries[at].1)
    }

    /// The value of `key` for changing.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.find(key).map(|at| &mut self.entries[at].1)
    }

    /// Sets `key`, giving back what it held before.
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

    /// The value of `key`, put there by `make` if it was absent.
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

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).map(|at| self.entries.remove(at).1)
    }

    /// Keeps the entries for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The entries in the order of their keys, values for changing.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Value)> + ExactSizeIterator {
        self.entries.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The entries in the order of their keys, for access by position.
    pub(crate) fn entries(&self) -> &[(Str, Value)] {
        &self.entries
    }

    /// The entries themselves, for walks that go along a sorted list of fields. Whoever changes keys or their number
    /// keeps them sorted and each key once.
    pub(crate) const fn entries_mut(&mut self) -> &mut Vec<(Str, Value)> {
        &mut self.entries
    }

    /// Where `key` is. Most keys of an object differ in their length or their last letter, which is quicker to see than their order.
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

    /// Where `key` is, or belongs.
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

/// Reads as `null` where there is no such key, like most dynamic languages do: for tests and display.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Null)
    }
}

/// Reads as `null` past the end: for tests and display.
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

/// Builds a [`Value`] from JSON notation: `value!({"a": [1, null, name]})`. A value that is not a literal, a list or
/// an object is an expression that converts into one; more than one token goes into parentheses.
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
    fn entries_are_kept_sorted_whatever_order_they_came_in() {
        let object: Object = [("b", 2), ("a", 1), ("c", 3)].into_iter().collect();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn of_a_repeated_key_the_last_value_stays_and_the_repetition_is_told() {
        let mut repeated = Vec::new();
        let entries =
            vec![("a".into(), 1.into()), ("b".into(), 2.into()), ("a".into(), 3.into()), ("a".into(), 4.into())];
        let object = Object::from_entries(entries, |key| repeated.push(key.to_owned()));
        assert_eq!(object, [("a", 4), ("b", 2)].into_iter().collect());
        assert_eq!(repeated, ["a", "a"]);
    }

    #[test]
    fn a_node_stays_small() {
        assert_eq!(size_of::<Value>(), 32, "four words: a string inline and a tag");
    }

    #[test]
    fn an_integer_is_not_the_float_of_the_same_size() {
        assert_ne!(Value::Int(1), Value::Float(1.0));
    }

    #[test]
    fn walking_stops_at_what_is_not_there() {
        let pod = value!({"metadata": {"name": "a", "labels": {}}, "list": [1, null, (-2)]});
        assert_eq!(pod.str_at(&["metadata", "name"]), Some("a"));
        assert_eq!(pod.at(&["metadata", "uid"]), None);
        assert_eq!(pod["list"][2], Value::Int(-2));
        assert_eq!(pod["spec"]["containers"][3], Value::Null);
    }
}
