//! Objects made from command-line options, with kubectl's validation messages.
//!
//! A generator is a pure function from options to an object. The object has the form that Go gives its type: fields
//! that Go always encodes are present (`status: {}`, `resources: {}`), empty ones are not.

pub mod data;
pub mod expose;
pub mod ingress;
pub mod key_pair;
pub mod labels;
pub mod last_applied;
pub mod overrides;
pub mod pairs;
pub mod pod;
pub mod policy;
pub mod rbac;
pub mod service;
pub mod set;
pub mod sources;
pub mod token;
pub mod workload;

use apimachinery::conform::conform;
use apimachinery::{Object, Value, go, value};

use crate::Failure;

/// Options do not make a valid object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(String),
    /// The command line is wrong: the message is followed by a reference to the help.
    #[error("{0}")]
    Usage(String),
}

/// The name of a new object, and its namespace if the user gave one.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub name: &'a str,
    pub namespace: Option<&'a str>,
}

/// Returns a namespace.
pub fn namespace(name: &str) -> Result<Value, Error> {
    Name { name, namespace: None }.required()?;
    Ok(typed(Name { name, namespace: None }.object("v1", "Namespace")))
}

/// Returns a service account.
pub fn service_account(name: Name<'_>) -> Result<Value, Error> {
    name.required()?;
    Ok(typed(name.object("v1", "ServiceAccount")))
}

/// Gives an object the form of its Go type. An object of an unknown kind is unchanged.
pub fn typed(mut object: Value) -> Value {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    if let Some(schema) = api::catalogue::find(text("apiVersion"), text("kind")) {
        let before = object.clone();
        if conform(&mut object, schema).is_err() {
            return before;
        }
    }
    object
}

/// Sets the namespace of an object.
pub fn set_namespace(object: &mut Value, namespace: &str) {
    put(object, &["metadata", "namespace"], namespace);
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(message) => Self::new(message),
            // Only the options of `run` have such errors.
            Error::Usage(message) => Self::usage("kubectl run", message),
        }
    }
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }
}

impl<'a> Name<'a> {
    fn required(self) -> Result<(), Error> {
        if self.name.is_empty() { Err(Error::new("name must be specified")) } else { Ok(()) }
    }

    /// Returns an object with only its kind and its name.
    fn object(self, api_version: &str, kind: &str) -> Value {
        let mut metadata: Object = [("name", self.name)].into_iter().collect();
        if let Some(namespace) = self.namespace.filter(|namespace| !namespace.is_empty()) {
            metadata.insert("namespace", namespace);
        }
        value!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    }
}

/// Sets the value at a path of keys, and creates the objects on the path.
fn put(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for key in parents {
        let Value::Object(fields) = at else { return };
        at = fields.get_or_insert_with(key, Value::object);
        if at.is_null() {
            *at = Value::object();
        }
    }
    if let Value::Object(fields) = at {
        fields.insert(*last, value);
    }
}

/// Returns a list of texts.
fn texts(items: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::Array(items.into_iter().map(|item| Value::from(item.as_ref())).collect())
}

/// Parses an integer like Go's `strconv.Atoi`.
fn atoi(text: &str) -> Result<i64, Error> {
    text.parse().map_err(|_| Error::new(format!("strconv.Atoi: parsing {}: {}", go::quote(text), atoi_fault(text))))
}

/// Returns Go's error for a text that is not a number: invalid syntax, or out of range.
fn atoi_fault(text: &str) -> &'static str {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        "value out of range"
    } else {
        "invalid syntax"
    }
}

/// Returns a number if the text is a 32-bit one, otherwise the text.
fn int_or_string(text: &str) -> Value {
    text.parse::<i32>().map_or_else(|_| Value::from(text), Value::from)
}

#[cfg(test)]
mod tests;
