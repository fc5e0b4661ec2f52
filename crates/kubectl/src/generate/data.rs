//! `create configmap` and `create secret`.

use apimachinery::{Object, Value, go, names, value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::sources::Entry;
use super::{Error, Name, put, typed};

/// Credentials of `create secret docker-registry`.
#[derive(Clone, Copy, Debug)]
pub struct Registry<'a> {
    pub server: &'a str,
    pub username: &'a str,
    pub password: &'a str,
    pub email: &'a str,
}

/// The key of registry credentials in a secret.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Returns a config map. Values that are not UTF-8 become binary data.
pub fn config_map(
    name: Name<'_>,
    entries: impl IntoIterator<Item = Result<Entry, Error>>,
    append_hash: bool,
) -> Result<Value, Error> {
    name.required()?;
    let (mut data, mut binary) = (Object::new(), Object::new());
    for entry in entries {
        let Entry { key, data: bytes } = entry?;
        let faults = names::config_map_key(&key);
        if !faults.is_empty() {
            let (key, faults) = (go::quote(&key), faults.join(","));
            return Err(Error::new(format!("{key} is not a valid key name for a ConfigMap: {faults}")));
        }
        for (have, field) in [(&data, "Data"), (&binary, "BinaryData")] {
            if have.contains_key(&key) {
                return Err(Error::new(format!(
                    "cannot add key {}, another key by that name already exists in {field} for ConfigMap {}",
                    go::quote(&key),
                    go::quote(name.name)
                )));
            }
        }
        match String::from_utf8(bytes) {
            Ok(text) => data.insert(key, text),
            Err(error) => binary.insert(key, STANDARD.encode(error.as_bytes())),
        };
    }
    let mut object = name.object("v1", "ConfigMap");
    if append_hash {
        let mut hashed = value!({"kind": "ConfigMap", "name": (name.name), "data": (data.clone())});
        if !binary.is_empty() {
            put(&mut hashed, &["binaryData"], binary.clone());
        }
        put(&mut object, &["metadata", "name"], format!("{}-{}", name.name, hash(&hashed)));
    }
    put(&mut object, &["data"], data);
    put(&mut object, &["binaryData"], binary);
    Ok(typed(object))
}

/// Returns a secret of a type; an empty type is chosen by the server.
pub fn secret(
    name: Name<'_>,
    kind: &str,
    entries: impl IntoIterator<Item = Result<Entry, Error>>,
    append_hash: bool,
) -> Result<Value, Error> {
    name.required()?;
    let mut data = Object::new();
    for entry in entries {
        let Entry { key, data: bytes } = entry?;
        let faults = names::config_map_key(&key);
        if !faults.is_empty() {
            let (key, faults) = (go::quote(&key), faults.join(";"));
            return Err(Error::new(format!("{key} is not valid key name for a Secret {faults}")));
        }
        if data.contains_key(&key) {
            return Err(Error::new(format!("cannot add key {key}, another key by that name already exists")));
        }
        data.insert(key, STANDARD.encode(bytes));
    }
    let mut object = name.object("v1", "Secret");
    if append_hash {
        let hashed = value!({"kind": "Secret", "type": kind, "name": (name.name), "data": (data.clone())});
        put(&mut object, &["metadata", "name"], format!("{}-{}", name.name, hash(&hashed)));
    }
    put(&mut object, &["type"], kind);
    put(&mut object, &["data"], data);
    Ok(typed(object))
}

/// Returns a configuration file of Docker with the credentials of one registry.
pub fn docker_config(registry: Registry<'_>) -> Entry {
    let Registry { server, username, password, email } = registry;
    let auth = STANDARD.encode(format!("{username}:{password}"));
    let fields = [("username", username), ("password", password), ("email", email), ("auth", auth.as_str())];
    let text = |text: &str| go::json(&Value::from(text));
    // The fields have the order of Docker's type and are not sorted.
    let fields: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{}:{}", text(key), text(value)))
        .collect();
    let json = format!("{{\"auths\":{{{}:{{{}}}}}}}", text(server), fields.join(","));
    Entry { key: DOCKER_CONFIG_KEY.to_owned(), data: json.into_bytes() }
}

/// Checks that credentials are complete, or replaced by a file.
pub fn validate_registry(registry: Registry<'_>, has_files: bool) -> Result<(), Error> {
    let complete = !(registry.username.is_empty() || registry.password.is_empty() || registry.server.is_empty());
    if has_files || complete {
        return Ok(());
    }
    Err(Error::new(
        "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
    ))
}

/// Returns ten characters derived from the content, without vowels.
fn hash(content: &Value) -> String {
    let digest = Sha256::digest(go::json(content).as_bytes());
    let hex: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let consonant = |digit| match digit {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    hex.chars().map(consonant).collect()
}
