//! Content of configMap, secret, downwardAPI and projected volumes: files by path, with their modes.

use std::collections::BTreeMap;

use apimachinery::{Object, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Tokens;
use crate::environment::{self, EnvironmentError, Sources};
use crate::pod::Pod;

/// Files by their path in the volume.
pub type Files = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// UID of the owner; `None` for root.
    pub owner: Option<u32>,
}

/// The content of a volume could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("{kind} \"{name}\" not found")]
    Missing {
        /// `configmap` or `secret`.
        kind: &'static str,
        name: String,
    },
    #[error("references non-existent {kind} key: {key}")]
    Key {
        /// `config` or `secret`.
        kind: &'static str,
        key: String,
    },
    #[error("path {0:?} leads out of the volume")]
    Path(String),
    #[error(transparent)]
    Field(#[from] EnvironmentError),
    #[error("no token for {0:?} yet")]
    Token(String),
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoBundles,
    #[error("labelSelector of a clusterTrustBundle cannot be read")]
    Selector,
    #[error("projected source {0} is not supported by this node")]
    Unsupported(String),
}

const MODE: u32 = 0o644;

/// Returns the files of a volume.
pub fn of_volume(pod: Pod<'_>, volume: &Value, sources: &Sources<'_>, tokens: &Tokens) -> Result<Files, PayloadError> {
    let mut files = Files::new();
    let name = volume.str_at(&["name"]).unwrap_or_default();
    if let Some(source) = volume.get("configMap") {
        config_map(source, source.str_at(&["name"]), mode(source, MODE), sources, &mut files)?;
    } else if let Some(source) = volume.get("secret") {
        secret(source, source.str_at(&["secretName"]), mode(source, MODE), sources, &mut files)?;
    } else if let Some(source) = volume.get("downwardAPI") {
        downward(pod, source, mode(source, MODE), sources, &mut files)?;
    } else if let Some(projected) = volume.get("projected") {
        let mode = mode(projected, MODE);
        for source in projected["sources"].as_array().unwrap_or_default() {
            project(pod, name, source, mode, sources, tokens, &mut files)?;
        }
    }
    Ok(files)
}

fn project(
    pod: Pod<'_>,
    volume: &str,
    source: &Value,
    mode: u32,
    sources: &Sources<'_>,
    tokens: &Tokens,
    files: &mut Files,
) -> Result<(), PayloadError> {
    for (kind, source) in source.as_object().into_iter().flat_map(Object::iter).filter(|(_, source)| !source.is_null())
    {
        match kind {
            "configMap" => config_map(source, source.str_at(&["name"]), mode, sources, files)?,
            "secret" => secret(source, source.str_at(&["name"]), mode, sources, files)?,
            "downwardAPI" => downward(pod, source, mode, sources, files)?,
            "serviceAccountToken" => {
                let path = source.str_at(&["path"]).unwrap_or_default();
                let token = tokens.token(volume, path).ok_or_else(|| PayloadError::Token(path.to_owned()))?;
                let (owner, group) = (single_user(pod), pod.spec()["securityContext"]["fsGroup"].as_int());
                // With a single user or an fsGroup only these may read the token; otherwise every user of the pod may.
                let mode = if owner.is_some() || group.is_some() { 0o600 } else { mode };
                let file = File { bytes: token.as_bytes().to_vec(), mode, owner };
                add(path, file, files)?;
            }
            "clusterTrustBundle" => {
                let bytes = super::trust::anchors(source, sources.trust_bundles)?;
                add(source.str_at(&["path"]).unwrap_or_default(), File { bytes, mode, owner: None }, files)?;
            }
            other => return Err(PayloadError::Unsupported(other.to_owned())),
        }
    }
    Ok(())
}

/// Returns the UID that all containers of a pod run as, if they specify the same one.
fn single_user(pod: Pod<'_>) -> Option<u32> {
    let of_pod = pod.spec()["securityContext"]["runAsUser"].as_int();
    let mut users =
        pod.containers().map(|container| container.spec["securityContext"]["runAsUser"].as_int().or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(())?;
    u32::try_from(first).ok()
}

fn mode(source: &Value, default: u32) -> u32 {
    source["defaultMode"].as_int().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
}

fn config_map(
    source: &Value,
    name: Option<&str>,
    mode: u32,
    sources: &Sources<'_>,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let name = name.unwrap_or_default();
    let object = sources.config_maps.get(name).and_then(Option::as_ref);
    let Some(object) = object else { return missing("configmap", name, source) };
    let binary = object["binaryData"].as_object().into_iter().flat_map(Object::iter);
    let binary = binary.filter_map(|(key, value)| Some((key.to_owned(), STANDARD.decode(value.as_str()?).ok()?)));
    let texts = environment::config_map_entries(object).into_iter().map(|(key, text)| (key, text.into_bytes()));
    select("config", source, &texts.chain(binary).collect(), mode, files)
}

fn secret(
    source: &Value,
    name: Option<&str>,
    mode: u32,
    sources: &Sources<'_>,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let name = name.unwrap_or_default();
    let object = sources.secrets.get(name).and_then(Option::as_ref);
    let Some(object) = object else { return missing("secret", name, source) };
    select("secret", source, &environment::secret_entries(object), mode, files)
}

fn missing(kind: &'static str, name: &str, source: &Value) -> Result<(), PayloadError> {
    let optional = source["optional"].as_bool() == Some(true);
    if optional { Ok(()) } else { Err(PayloadError::Missing { kind, name: name.to_owned() }) }
}

/// Selects all entries, or the source's `items` with their paths.
fn select(
    kind: &'static str,
    source: &Value,
    entries: &BTreeMap<String, Vec<u8>>,
    mode: u32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let items = source["items"].as_array().unwrap_or_default();
    if items.is_empty() {
        for (key, bytes) in entries {
            add(key, File { bytes: bytes.clone(), mode, owner: None }, files)?;
        }
    }
    for item in items {
        let key = item.str_at(&["key"]).unwrap_or_default();
        let Some(bytes) = entries.get(key) else {
            if source["optional"].as_bool() == Some(true) {
                continue;
            }
            return Err(PayloadError::Key { kind, key: key.to_owned() });
        };
        let mode = item["mode"].as_int().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
        let file = File { bytes: bytes.clone(), mode, owner: None };
        add(item.str_at(&["path"]).unwrap_or_default(), file, files)?;
    }
    Ok(())
}

fn downward(
    pod: Pod<'_>,
    source: &Value,
    mode: u32,
    sources: &Sources<'_>,
    files: &mut Files,
) -> Result<(), PayloadError> {
    for item in source["items"].as_array().unwrap_or_default() {
        let text = if let Some(reference) = item.get("fieldRef") {
            environment::field(pod, reference.str_at(&["fieldPath"]).unwrap_or_default(), sources)?
        } else {
            let reference = &item["resourceFieldRef"];
            let name = reference.str_at(&["containerName"]).unwrap_or_default();
            let container = pod.container(name).ok_or_else(|| EnvironmentError::Resource(name.to_owned()))?;
            environment::resource(pod, container, reference, sources.allocatable)?
        };
        let mode = item["mode"].as_int().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
        add(item.str_at(&["path"]).unwrap_or_default(), File { bytes: text.into_bytes(), mode, owner: None }, files)?;
    }
    Ok(())
}

/// Adds a file; rejects paths that leave the volume. Later files replace earlier ones.
fn add(path: &str, file: File, files: &mut Files) -> Result<(), PayloadError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let bad = path.starts_with('/') || parts.is_empty() || parts.contains(&"..");
    if bad || parts[0].starts_with("..") {
        return Err(PayloadError::Path(path.to_owned()));
    }
    files.insert(parts.join("/"), file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use api::amounts::Amounts;

    fn files(volume: &Value) -> Result<Vec<String>, PayloadError> {
        let pod = value!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
        let config = value!({"data": {"k": "v", "l": "w"}, "binaryData": {"b": "AAE="}});
        let sources = Sources {
            config_maps: &BTreeMap::from([("c".to_owned(), Some(config)), ("no".to_owned(), None)]),
            secrets: &BTreeMap::from([("s".to_owned(), Some(value!({"data": {"p": "aGk="}})))]),
            trust_bundles: &BTreeMap::new(),
            files: &environment::Files::new(),
            services: &[],
            pod_ips: &[],
            host_ips: &[],
            allocatable: &Amounts::new(),
        };
        let found = of_volume(Pod(&pod), volume, &sources, &Tokens::default())?;
        let to_entry = |(path, file): (String, File)| {
            format!("{path} {:o} {}", file.mode, String::from_utf8_lossy(&file.bytes).escape_debug())
        };
        Ok(found.into_iter().map(to_entry).collect())
    }

    #[test]
    fn volumes_contain_the_files_of_their_sources() {
        let check = |volume: Value, expect: &[&str]| assert_eq!(files(&volume).unwrap(), expect, "{volume:?}");
        check(value!({"configMap": {"name": "c"}}), &["b 644 \\0\\u{1}", "k 644 v", "l 644 w"]);
        check(
            value!({"configMap": {"name": "c", "defaultMode": 256, "items": [{"key": "k", "path": "x/y"}]}}),
            &["x/y 400 v"],
        );
        check(value!({"configMap": {"name": "no", "optional": true}}), &[]);
        check(
            value!({"secret": {"secretName": "s", "items": [{"key": "p", "path": "q", "mode": 384}]}}),
            &["q 600 hi"],
        );
        check(
            value!({"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
            &["l 644 a=\\\"b\\\""],
        );
        check(
            value!({"projected": {"sources": [{"configMap": {"name": "c", "items": [{"key": "k", "path": "one"}]}},
            {"secret": {"name": "s"}}]}}),
            &["one 644 v", "p 644 hi"],
        );
    }

    #[test]
    fn missing_keys_and_paths_outside_the_volume_are_rejected() {
        let check = |volume: Value, expect: &str| assert_eq!(files(&volume).unwrap_err().to_string(), expect);
        check(value!({"configMap": {"name": "no"}}), "configmap \"no\" not found");
        check(
            value!({"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}),
            "references non-existent config key: z",
        );
        check(
            value!({"configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}),
            "path \"../x\" leads out of the volume",
        );
        check(
            value!({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}),
            "no token for \"token\" yet",
        );
    }
}
