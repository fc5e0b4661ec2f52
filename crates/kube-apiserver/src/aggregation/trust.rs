//! The ConfigMap extension-apiserver-authentication: client CA, request-header CA and request-header names for
//! extension API servers.

use api_registry::strategy;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Object, Str, Value, json, value};

use super::Aggregation;
use crate::own_objects::create_missing;
use crate::storage::Storage;
use crate::transaction::ObjectKey;
use client::clock::now;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Publishes the authentication settings that are configured. Returns false if a write failed.
pub(super) async fn publish(aggregation: &Aggregation, storage: &Storage) -> bool {
    let data = desired_data(aggregation);
    if data.is_empty() {
        return true;
    }
    let written = write(storage, &data).await;
    if let Err(status) = &written {
        tracing::warn!(message = %status.message, "failed to publish the CAs in {NAMESPACE}/{NAME}; retrying");
    }
    written.is_ok()
}

async fn write(storage: &Storage, data: &Object) -> Result<(), Status> {
    storage.see_own_writes().await?;
    let Some(current) = storage.stored("", "configmaps", NAMESPACE, NAME).pop() else {
        return create_missing(
            storage,
            value!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": NAME},
                "data": (Value::Object(data.clone())),
            }),
        )
        .await;
    };
    let next = merged(&current, data);
    if next == current {
        return Ok(());
    }
    let table = storage.table();
    let kind = table.kind("", "configmaps").ok_or_else(|| Status::internal_error("configmaps are not served"))?;
    let target = strategy::Target {
        kind,
        version: &kind.versions[0],
        namespace: NAMESPACE,
        name: NAME,
        subresource: "",
        manager: "kube-apiserver",
    };
    let revision = Meta::of(&current).resource_version().parse().unwrap_or(0);
    let owned = strategy::own(&target, Some(&current), next, now());
    // A conflict is harmless: another API server publishes the same data.
    ObjectKey::new(storage, kind, NAMESPACE, NAME).replace(&owned, revision).submit().await.map(drop)
}

/// Returns the data of the ConfigMap according to the flags.
fn desired_data(aggregation: &Aggregation) -> Object {
    let config = &aggregation.config;
    let mut data = Object::new();
    let file = |file: &Option<std::path::PathBuf>| std::fs::read_to_string(file.as_ref()?).ok();
    if let Some(bundle) = file(&config.client_ca) {
        data.insert("client-ca-file", bundle);
    }
    if let (Some(bundle), Some(proxies)) = (file(&config.proxy_ca), &aggregation.request_header) {
        data.insert("requestheader-client-ca-file", bundle);
        for (key, list) in [
            ("requestheader-allowed-names", &proxies.allowed_names),
            ("requestheader-extra-headers-prefix", &proxies.extra_header_prefixes),
            ("requestheader-group-headers", &proxies.group_headers),
            ("requestheader-uid-headers", &proxies.uid_headers),
            ("requestheader-username-headers", &proxies.username_headers),
        ] {
            data.insert(key, as_json(list));
        }
    }
    data
}

fn as_json(list: &[Str]) -> String {
    let list: Vec<Value> = list.iter().map(|text| Value::from(text.clone())).collect();
    String::from_utf8(json::to_vec(&Value::Array(list))).unwrap_or_default()
}

/// Merges `data` into the published ConfigMap. CA certificates are added to those that other servers published.
fn merged(current: &Value, data: &Object) -> Value {
    let mut next = current.clone();
    let Value::Object(fields) = &mut next else { return next };
    let Value::Object(have) = fields.get_or_insert_with("data", Value::object) else { return next };
    for (key, desired) in data.iter() {
        let desired = desired.as_str().unwrap_or_default();
        let before = have.get(key).and_then(Value::as_str).unwrap_or_default();
        let together = if key.ends_with("ca-file") { with_certificates(before, desired) } else { desired.to_owned() };
        have.insert(key, together);
    }
    next
}

/// Returns the certificates of both PEM bundles without duplicates.
fn with_certificates(before: &str, desired: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let mut all: Vec<String> = Vec::new();
    for text in [before, desired] {
        for certificate in text.split_inclusive(END).map(str::trim).filter(|block| block.ends_with(END)) {
            let certificate = format!("{certificate}\n");
            if !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_certificates_of_several_servers_are_merged_without_duplicates() {
        let certificate = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
        let current = value!({"data": {"client-ca-file": (certificate("a")), "other": "x"}});
        let mut data = Object::new();
        data.insert("client-ca-file", format!("{}{}", certificate("b"), certificate("a")));
        let next = merged(&current, &data);
        assert_eq!(next["data"]["client-ca-file"], format!("{}{}", certificate("a"), certificate("b")).into());
        assert_eq!(merged(&next, &data), next);
    }
}
