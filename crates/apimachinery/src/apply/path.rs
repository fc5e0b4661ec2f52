//! A path element of a field path as spelled in `managedFields`: `f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::gotext;
use crate::{Str, Value, go, json};

/// A path element: selects a child of an object or list.
///
/// Ordered as in `managedFields`: fields, then keyed items, then set items, then indexes.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of an object, or an entry of a map.
    Field(Str),
    /// The list item whose key fields have these values; sorted by field name.
    Key(Arc<[(Str, Value)]>),
    /// The item of a set with this value.
    Value(Box<Value>),
    /// The list item at this index.
    Index(i64),
}

/// The text is not a valid path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    #[error("key must be 2 characters long:")]
    Short,
    #[error("missing colon: {0}")]
    NoColon(String),
    /// Invalid JSON after `v:`, or not a JSON object after `k:`.
    #[error("invalid JSON in path element {0}")]
    Json(String),
    /// Not an integer after `i:`.
    #[error("strconv.Atoi: parsing {0}: invalid syntax")]
    Index(String),
}

impl Element {
    pub fn field(name: impl Into<Str>) -> Self {
        Self::Field(name.into())
    }

    /// Returns the element of the list item whose key fields have these values.
    pub fn key(fields: impl IntoIterator<Item = (Str, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields.into())
    }

    /// Parses the form used in `managedFields`. Returns [`None`] for an unknown kind of element, which a later version
    /// may define.
    pub fn parse(text: &str) -> Result<Option<Self>, ElementError> {
        let (&[kind, colon], Some(rest)) =
            (text.as_bytes().first_chunk::<2>().ok_or(ElementError::Short)?, text.get(2..))
        else {
            return Err(ElementError::NoColon(text.to_owned()));
        };
        if colon != b':' {
            return Err(ElementError::NoColon(text.to_owned()));
        }
        let bad_json = |_| ElementError::Json(text.to_owned());
        Ok(Some(match kind {
            b'f' => Self::Field(rest.into()),
            b'v' => Self::Value(Box::new(json::parse(rest.as_bytes()).map_err(bad_json)?)),
            b'k' => match plain_key(rest) {
                Some(fields) => Self::Key(fields),
                None => match json::parse(rest.as_bytes()).map_err(bad_json)? {
                    Value::Object(fields) => Self::Key(fields.into_iter().collect()),
                    _ => return Err(ElementError::Json(text.to_owned())),
                },
            },
            b'i' => Self::Index(rest.parse().map_err(|_| ElementError::Index(go::quote(rest)))?),
            _ => return Ok(None),
        }))
    }

    /// Writes the form used in `managedFields`.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    gotext::write_json_string(out, name, false);
                    out.push(':');
                    gotext::write_json(out, value);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                gotext::write_json(out, value);
            }
            Self::Index(at) => {
                out.push_str("i:");
                out.push_str(&at.to_string());
            }
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Parses a key that is sorted and has no escapes, which nearly all keys are, at a fraction of a JSON decoder's cost.
fn plain_key(text: &str) -> Option<Arc<[(Str, Value)]>> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut fields: Vec<(Str, Value)> = Vec::with_capacity(2);
    loop {
        let (name, after) = plain_string(rest)?;
        let after = after.strip_prefix(':')?;
        let (value, after) = match plain_string(after) {
            Some((text, after)) => (Value::from(text), after),
            None => {
                let (digits, after) = after.split_at(after.find(',').unwrap_or(after.len()));
                (Value::Int(plain_number(digits)?), after)
            }
        };
        fields.push((name.into(), value));
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return fields.is_sorted_by(|a, b| a.0 < b.0).then(|| fields.into()),
            None => return None,
        }
    }
}

fn plain_string(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let end = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
    Some((&text[..end], text[end..].strip_prefix('"')?))
}

fn plain_number(text: &str) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if digits { text.parse().ok() } else { None }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b.iter());
                pairs
                    .map(|((a_name, a), (b_name, b))| a_name.cmp(b_name).then_with(|| order(a, b)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

/// The form used in messages: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Key(fields) => write_key(out, fields.iter().map(|(name, value)| (name.as_str(), value))),
            Self::Value(value) => write!(out, "[={}]", show(value)),
            Self::Index(at) => write!(out, "[{at}]"),
        }
    }
}

/// Writes the key of a list item in the form used in messages.
pub(super) fn write_key<'a>(
    out: &mut fmt::Formatter<'_>,
    fields: impl Iterator<Item = (&'a str, &'a Value)>,
) -> fmt::Result {
    out.write_str("[")?;
    for (at, (name, value)) in fields.enumerate() {
        write!(out, "{}{name}={}", if at > 0 { "," } else { "" }, show(value))?;
    }
    out.write_str("]")
}

/// Formats a value inside a path of a message.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) => go::float(*f),
        Value::String(s) => go::quote(s),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        Value::Object(object) => object.iter().map(|(key, value)| format!("{key}={}", show(value))).collect(),
    }
}

/// Orders values in keys and sets: numbers, strings, booleans, lists, maps, null; `1` and `1.0` are equal.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            a.as_float().partial_cmp(&b.as_float()).expect("floats of a tree are finite")
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| order(a, b));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b.iter()).map(|(a, b)| a.0.cmp(b.0).then_with(|| order(a.1, b.1)));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

const fn rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let element = Element::parse(text).unwrap().unwrap();
        let mut written = String::new();
        element.write(&mut written);
        assert_eq!(written, text);
        assert_eq!(element.to_string(), expected);
    }

    #[test]
    fn elements_parse_serialize_and_display() {
        check("f:name", ".name");
        check("f:a.b/c", ".a.b/c");
        check(r#"k:{"port":80,"protocol":"TCP"}"#, r#"[port=80,protocol="TCP"]"#);
        check(r#"v:"a b""#, r#"[="a b"]"#);
        check("v:true", "[=true]");
        check("i:7", "[7]");
        check("k:{\"name\":\"a\\u003cb\"}", r#"[name="a<b"]"#);
    }

    #[test]
    fn key_fields_are_sorted() {
        let element = Element::parse(r#"k:{"protocol":"TCP","port":80}"#).unwrap().unwrap();
        assert_eq!(element.to_string(), r#"[port=80,protocol="TCP"]"#);
        assert_eq!(element, Element::key([("protocol".into(), value!("TCP")), ("port".into(), value!(80))]));
    }

    #[test]
    fn plain_key_parser_agrees_with_json_decoder() {
        #[track_caller]
        fn check(text: &str, plain: bool) {
            let fields = plain_key(text);
            assert_eq!(fields.is_some(), plain, "{text}");
            if let Some(fields) = fields {
                let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
                assert!(fields.iter().cloned().eq(object), "{text}");
            }
        }
        check(r#"{"name":"a b/é"}"#, true);
        check(r#"{"port":80,"protocol":"TCP"}"#, true);
        check(r#"{"a":0,"b":9223372036854775807}"#, true);
        for text in [
            "{}",
            "",
            "{",
            r#"{"a":"x\\u0041"}"#,
            r#"{"b":1,"a":1}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":01}"#,
            r#"{"a":-1}"#,
            r#"{"a":1.5}"#,
            r#"{"a":true}"#,
            r#"{"a": 1}"#,
            r#"{"a":1,}"#,
            r#"{"a":9223372036854775808}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":}"#,
        ] {
            check(text, false);
        }
    }

    #[test]
    fn unknown_element_kinds_are_skipped_and_malformed_elements_are_errors() {
        assert_eq!(Element::parse("z:new"), Ok(None));
        for text in ["", "f", "fname", "é", "v:{", "k:1", "k:", "i:x"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn elements_sort_by_kind_then_by_content() {
        let sorted = [
            "f:a",
            "f:b",
            r#"k:{"n":1}"#,
            r#"k:{"n":80}"#,
            r#"k:{"n":443}"#,
            r#"k:{"n":"a"}"#,
            "v:1",
            r#"v:"a""#,
            "v:false",
            "v:null",
            "i:0",
            "i:2",
        ];
        let elements: Vec<_> = sorted.iter().map(|text| Element::parse(text).unwrap().unwrap()).collect();
        assert!(elements.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn equal_numbers_compare_equal_in_any_notation() {
        assert_eq!(order(&value!(1), &Value::Float(1.0)), Ordering::Equal);
        assert_eq!(order(&value!(2), &Value::Float(1.5)), Ordering::Greater);
    }

    #[test]
    fn element_size_stays_small() {
        assert_eq!(size_of::<Element>(), 24);
    }
}
