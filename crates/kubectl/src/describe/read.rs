//! Reading fields by dotted path, where an absent field is its type's zero value.

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value, go};

static ABSENT: Value = Value::Null;
static EMPTY: Object = Object::new();

/// Fields of an object by path: `spec.nodeName`.
pub trait Read {
    /// Returns the field, `Null` if absent.
    fn sub(&self, path: &str) -> &Value;

    /// Whether the field is present and not null.
    fn has(&self, path: &str) -> bool {
        !self.sub(path).is_null()
    }

    fn text(&self, path: &str) -> &str {
        self.sub(path).as_str().unwrap_or_default()
    }

    /// Returns the text of a field, or `other` if it is absent.
    fn text_or<'a>(&'a self, path: &str, other: &'a str) -> &'a str {
        self.sub(path).as_str().unwrap_or(other)
    }

    fn int(&self, path: &str) -> i64 {
        self.sub(path).as_int().unwrap_or_default()
    }

    fn flag(&self, path: &str) -> bool {
        self.sub(path).as_bool().unwrap_or_default()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.sub(path).as_array().unwrap_or_default()
    }

    fn map(&self, path: &str) -> &Object {
        self.sub(path).as_object().unwrap_or(&EMPTY)
    }

    /// Returns the strings of a list.
    fn texts(&self, path: &str) -> Vec<&str> {
        self.list(path).iter().filter_map(Value::as_str).collect()
    }
}

impl Read for Value {
    fn sub(&self, path: &str) -> &Value {
        path.split('.').try_fold(self, |value, key| value.get(key)).unwrap_or(&ABSENT)
    }
}

pub fn name(object: &Value) -> &str {
    object.text("metadata.name")
}

pub fn namespace(object: &Value) -> &str {
    object.text("metadata.namespace")
}

/// Returns the value of a quantity; zero if it is absent or malformed.
pub fn quantity(value: &Value) -> Quantity {
    match value {
        Value::Int(int) => int.to_string().parse().unwrap_or_default(),
        Value::String(text) => text.parse().unwrap_or_default(),
        _ => Quantity::ZERO,
    }
}

/// Formats a quantity as it is stored; `0` if it is absent.
pub fn quantity_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Int(int) => int.to_string(),
        _ => "0".to_owned(),
    }
}

/// Formats a value like Go's `%v`: `[a b]`, `map[a:b]`, `<nil>`.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) => go::float(*float),
        Value::String(text) => text.to_string(),
        Value::Array(items) => go_list(items),
        Value::Object(entries) => go_map(entries),
    }
}

/// Formats a list like Go's `%v`: `[a b]`.
pub fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" "))
}

/// Formats a map like Go's `%v`: `map[a:b c:d]`.
pub fn go_map(entries: &Object) -> String {
    let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
    format!("map[{}]", entries.join(" "))
}

/// Formats an integer or a string, such as a target port; `<nil>` if it is absent.
pub fn int_or_string(value: &Value) -> String {
    go_value(value)
}

/// Joins a host and a port; an IPv6 address is enclosed in brackets.
pub fn join_host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
