//! Secret: confidential data.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::{At, Errors, Value, json, names};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::core::config_map::decoded_length;
use crate::field_rules::{column, count_cell, default_empty_to, immutable};
use crate::kind::{Context, Kind, Rules, Selectable, UpdateChecks, age_column, name_column};

/// Maximum total size of values in bytes.
pub const BYTES_MAX: usize = 1 << 20;

const WHEN_IMMUTABLE: &str = "field is immutable when `immutable` is set";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub fn kind() -> Kind {
    Kind {
        rules: Arc::new(Secret),
        selectable: vec![Selectable::new("type", |object| object.text_at(&["type"]).into())],
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("", "v1", "Secret", "secrets")
    }
    .with_columns(&[
        name_column(),
        column("Type", "string", "Type of the data.", |object, _| At::root(object).get("type").str().into()),
        column("Data", "string", "Number of entries.", |object, _| count_cell(&At::root(object).get("data"))),
        age_column(),
    ])
}

#[derive(Debug)]
struct Secret;

impl Rules for Secret {
    fn default(&self, object: &mut Value, _version: &str) {
        default_empty_to(object, "type", "Opaque");
        let Some(object) = object.as_object_mut() else { return };
        // `stringData` is write-only: its values are stored base64-encoded in `data`.
        if let Some(Value::Object(texts)) = object.remove("stringData") {
            let data = object.get_or_insert_with("data", Value::object);
            if data.is_null() {
                *data = Value::object();
            }
            if let Some(data) = data.as_object_mut() {
                for (key, text) in texts {
                    data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()));
                }
            }
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let data = root.get("data");
        let mut bytes = 0;
        for (key, value) in data.entries() {
            errors
                .extend(names::config_map_key(key).into_iter().map(|detail| Error::invalid(value.path(), key, detail)));
            bytes += decoded_length(value.str());
        }
        if bytes > BYTES_MAX {
            errors.push(Error::too_long(data.path(), BYTES_MAX));
        }
        validate_type(object, &data, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        immutable(&root.get("type"), &before.get("type"), errors);
        if before.get("immutable").bool() {
            if !root.get("immutable").bool() {
                errors.push(root.get("immutable").forbidden(WHEN_IMMUTABLE));
            }
            if root.get("data").value() != before.get("data").value() {
                errors.push(root.get("data").forbidden(WHEN_IMMUTABLE));
            }
        }
        self.validate(object, context, errors);
    }
}

/// Validates the data that well-known Secret types require.
fn validate_type(object: &Value, data: &At<'_>, errors: &mut Errors) {
    let root = At::root(object);
    let needs = |key: &str, errors: &mut Errors| {
        if data.entry(key).is_absent() {
            errors.push(data.entry(key).required(""));
        }
    };
    match root.get("type").str() {
        "kubernetes.io/service-account-token"
            if Meta::of(object).annotation(SERVICE_ACCOUNT_NAME).unwrap_or_default().is_empty() =>
        {
            let metadata = root.get("metadata");
            let annotations = metadata.get("annotations");
            errors.push(annotations.entry(SERVICE_ACCOUNT_NAME).required(""));
        }
        "kubernetes.io/dockercfg" => docker_config(&data.entry(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => docker_config(&data.entry(".dockerconfigjson"), errors),
        "kubernetes.io/basic-auth" if data.entry("username").is_absent() && data.entry("password").is_absent() => {
            needs("username", errors);
            needs("password", errors);
        }
        "kubernetes.io/ssh-auth" if data.entry("ssh-privatekey").is_empty() => {
            errors.push(data.entry("ssh-privatekey").required(""));
        }
        "kubernetes.io/tls" => {
            needs("tls.crt", errors);
            needs("tls.key", errors);
        }
        _ => {}
    }
}

/// Requires a JSON object. Error messages must not contain its content.
fn docker_config(at: &At<'_>, errors: &mut Errors) {
    if at.is_absent() {
        errors.push(at.required(""));
        return;
    }
    let bytes = STANDARD.decode(at.str()).unwrap_or_default();
    let wrong = match json::parse(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", other.kind())
        }
        Err(error) => error.to_string(),
    };
    errors.push(Error::invalid(at.path(), "<secret contents redacted>", wrong));
}
