//! ConfigMap: configuration data for pods.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::table::{Cell, Column};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value, names};

use crate::kind::{self, Context, Kind, Rules, UpdateChecks, age_column, name_column};

/// Maximum total size of keys and values in bytes.
pub const BYTES_MAX: usize = 1 << 20;

pub fn kind() -> Kind {
    Kind {
        short_names: kind::names(&["cm"]),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ConfigMap),
        ..Kind::stored("", "v1", "ConfigMap", "configmaps")
    }
    .with_columns(&[
        name_column(),
        Column::new("Data", "string", "How many entries.", Cell::Function(count)),
        age_column(),
    ])
}

#[derive(Debug)]
struct ConfigMap;

impl Rules for ConfigMap {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let (data, binary) = (root.get("data"), root.get("binaryData"));
        let mut bytes = 0;
        for (key, value) in data.entries() {
            errors
                .extend(names::config_map_key(key).into_iter().map(|detail| Error::invalid(value.path(), key, detail)));
            if binary.entry(key).is_present() {
                errors.push(Error::invalid(value.path(), key, "duplicate of key present in binaryData"));
            }
            bytes += value.str().len();
        }
        for (key, value) in binary.entries() {
            errors
                .extend(names::config_map_key(key).into_iter().map(|detail| Error::invalid(value.path(), key, detail)));
            bytes += decoded_length(value.str());
        }
        if bytes > BYTES_MAX {
            errors.push(Error::too_long(root.path(), BYTES_MAX));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        if before.get("immutable").bool() {
            if !root.get("immutable").bool() {
                errors.push(root.get("immutable").forbidden("field is immutable when `immutable` is set"));
            }
            for field in ["data", "binaryData"] {
                if root.get(field).value() != before.get(field).value() {
                    errors.push(root.get(field).forbidden("field is immutable when `immutable` is set"));
                }
            }
        }
        self.validate(object, context, errors);
    }
}

/// Returns the decoded size of well-formed base64 in bytes.
pub fn decoded_length(base64: &str) -> usize {
    base64.len() / 4 * 3 - base64.bytes().rev().take_while(|byte| *byte == b'=').count()
}

fn count(object: &Value, _now: Time) -> Value {
    let root = At::root(object);
    let entries = root.get("data").len() + root.get("binaryData").len();
    Value::Int(i64::try_from(entries).unwrap_or(i64::MAX))
}
