//! Pod helpers that several admission plugins share.

use apimachinery::{Object, Value};

/// The container lists in a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Returns the spec, `null` if absent.
pub(crate) fn spec(pod: &Value) -> &Value {
    &pod["spec"]
}

pub(crate) fn spec_mut(pod: &mut Value) -> Option<&mut Object> {
    pod.get_mut("spec")?.as_object_mut()
}

/// Returns the list in `field`, which is created if absent.
pub(crate) fn list_mut<'a>(object: &'a mut Object, field: &str) -> &'a mut Vec<Value> {
    let list = object.get_or_insert_with(field, || Value::Array(Vec::new()));
    if list.as_array().is_none() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut().expect("the value was made a list above")
}

/// Returns the containers of these lists, in order.
pub(crate) fn containers<'a>(spec: &'a Value, lists: &'a [&'a str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().flat_map(|list| spec.list_at(&[list]))
}

/// Volume types with a Secret under `secretRef`.
const WITH_SECRET_REF: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

/// Whether a pod references any Secret.
pub(crate) fn references_secrets(spec: &Value) -> bool {
    let in_volume = |volume: &Value| {
        let named = |path: &[&str]| volume.str_at(path).is_some();
        named(&["secret", "secretName"])
            || named(&["azureFile", "secretName"])
            || named(&["csi", "nodePublishSecretRef", "name"])
            || WITH_SECRET_REF.iter().any(|kind| named(&[kind, "secretRef", "name"]))
    };
    !spec.list_at(&["imagePullSecrets"]).is_empty()
        || spec.list_at(&["volumes"]).iter().any(in_volume)
        || references(spec, "secretKeyRef", "secretRef", "secret")
}

/// Whether a pod references any ConfigMap.
pub(crate) fn references_config_maps(spec: &Value) -> bool {
    spec.list_at(&["volumes"]).iter().any(|volume| volume.get("configMap").is_some())
        || references(spec, "configMapKeyRef", "configMapRef", "configMap")
}

fn references(spec: &Value, in_env: &str, in_env_from: &str, projected: &str) -> bool {
    let in_container = |container: &Value| {
        container.list_at(&["env"]).iter().any(|variable| variable.at(&["valueFrom", in_env]).is_some())
            || container.list_at(&["envFrom"]).iter().any(|source| source.get(in_env_from).is_some())
    };
    let in_volume = |volume: &Value| {
        let sources = volume.get("projected").map(|projected| projected.list_at(&["sources"])).unwrap_or_default();
        sources.iter().any(|source| source.get(projected).is_some())
    };
    containers(spec, &CONTAINER_LISTS).any(in_container) || spec.list_at(&["volumes"]).iter().any(in_volume)
}
