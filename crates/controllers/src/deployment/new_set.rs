//! The new ReplicaSet of a Deployment: its name, template comparison, creation and annotations.

use std::collections::BTreeMap;

use apimachinery::meta::{Meta, MetaMut, NAME_ALPHABET};
use apimachinery::{Object, Value, json, value};
use controller::{Action, kinds};

use super::replicas;
use super::sets::{DESIRED, MAX, Sets, max_surge, resized};
use crate::adoption;

/// The label that distinguishes the pods of a Deployment's ReplicaSets.
pub(super) const HASH: &str = "pod-template-hash";
/// Annotations with the current revision and the earlier revisions of a ReplicaSet or Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotations that are not copied from the Deployment to its ReplicaSets.
const NOT_COPIED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// Maximum length of the revision history annotation.
const HISTORY_BYTES_MAX: usize = 2000;

/// Returns the name of the ReplicaSet for the current template.
pub(super) fn name(deployment: &Value) -> String {
    format!("{}-{}", Meta::of(deployment).name(), hash(deployment))
}

/// Whether ReplicaSet and Deployment have the same template, ignoring the pod-template-hash label.
pub(super) fn same_template(set: &Value, deployment: &Value) -> bool {
    stripped(set) == stripped(deployment)
}

/// Creates the new ReplicaSet with as many replicas as the rollout bounds allow.
pub(super) fn create(sets: &Sets<'_>) -> Action {
    let deployment = sets.deployment;
    let (name, hash) = (name(deployment), hash(deployment));
    let size = growth(sets, 0);
    let mut template = template(deployment).cloned().unwrap_or_else(Value::object);
    if let Some(mut meta) = MetaMut::of(&mut template) {
        meta.set_label(HASH, &hash);
    }
    let labels = template.at(&["metadata", "labels"]).cloned().unwrap_or_default();
    let mut selector = deployment.at(&["spec", "selector"]).cloned().unwrap_or_else(Value::object);
    if let Some(selector) = selector.as_object_mut()
        && let Some(labels) = selector.get_or_insert_with("matchLabels", Value::object).as_object_mut()
    {
        labels.insert(HASH, hash);
    }
    let newest = sets.old.iter().map(super::sets::Set::revision).max().unwrap_or(0);
    let mut annotations = annotations(deployment, None, newest + 1);
    annotations.insert(DESIRED.to_owned(), replicas(deployment).to_string());
    annotations.insert(MAX.to_owned(), (replicas(deployment) + max_surge(deployment)).to_string());
    let annotations: Object = annotations.into_iter().collect();
    let mut spec = Object::new();
    spec.insert("replicas", size);
    spec.insert("selector", selector);
    spec.insert("template", template);
    if let Some(seconds) = deployment.at(&["spec", "minReadySeconds"]) {
        spec.insert("minReadySeconds", seconds.clone());
    }
    let object = value!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": (Meta::of(deployment).namespace()), "name": (name.as_str()), "labels": labels,
            "annotations": annotations, "ownerReferences": [(adoption::reference(deployment))]},
        "spec": spec,
    });
    let mut result_event = resized(deployment, &name, 0, size);
    result_event.failed = Some(("ReplicaSetCreateError", "Failed to create new replica set".into()));
    Action::Create { resource: kinds::REPLICA_SETS.clone(), object, result_event: Some(Box::new(result_event)) }
}

/// Returns the size that the new ReplicaSet may grow to from `size`.
pub(super) fn growth(sets: &Sets<'_>, size: i64) -> i64 {
    let desired_replicas = replicas(sets.deployment);
    if super::is_recreate(sets.deployment) {
        return desired_replicas;
    }
    let max_growth = desired_replicas + max_surge(sets.deployment) - sets.present();
    if max_growth <= 0 { size } else { size + max_growth.min(desired_replicas - size) }
}

/// Returns the annotations of a ReplicaSet, without desired-replicas and max-replicas.
pub(super) fn annotations(deployment: &Value, set: Option<&Value>, revision: i64) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let own = Meta::of(deployment).annotations().into_iter().flat_map(Object::iter);
    for (key, value) in own.filter(|(key, _)| !NOT_COPIED.contains(key)) {
        out.insert(key.to_owned(), value.as_str().unwrap_or_default().to_owned());
    }
    let before = set.and_then(|set| Meta::of(set).annotation(REVISION));
    let before_number: i64 = before.and_then(|text| text.parse().ok()).unwrap_or(0);
    if before_number < revision {
        out.insert(REVISION.to_owned(), revision.to_string());
        if let (Some(set), Some(before)) = (set, before) {
            let history = Meta::of(set).annotation(HISTORY).unwrap_or_default();
            out.insert(HISTORY.to_owned(), with_history(history, before));
        }
    }
    out
}

/// Appends a revision and drops the oldest ones beyond the maximum length.
fn with_history(history: &str, revision: &str) -> String {
    let mut all: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).collect();
    all.push(revision);
    while all.len() > 1 && all.iter().map(|one| one.len() + 1).sum::<usize>() > HISTORY_BYTES_MAX + 1 {
        all.remove(0);
    }
    all.join(",")
}

/// Returns a hash of the template and the collision count.
// DEVIATION: the hash differs from upstream's, which hashes Go's dump of the template. ReplicaSets are found by their
// template, so both controllers can take over from each other.
fn hash(deployment: &Value) -> String {
    let text = template(deployment).map(json::to_vec).unwrap_or_default();
    let collisions = deployment.int_at(&["status", "collisionCount"]).unwrap_or(0);
    let salt = if collisions > 0 { collisions.to_le_bytes().to_vec() } else { Vec::new() };
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = text.into_iter().chain(salt).fold(0x811c_9dc5, fnv);
    let letter = |digit: char| char::from(NAME_ALPHABET[digit as usize % NAME_ALPHABET.len()]);
    hash.to_string().chars().map(letter).collect()
}

fn template(workload: &Value) -> Option<&Value> {
    workload.at(&["spec", "template"])
}

fn stripped(workload: &Value) -> Option<Value> {
    let mut template = template(workload)?.clone();
    let mut meta = MetaMut::of(&mut template)?;
    meta.remove_label(HASH);
    // Go serializes an unset creationTimestamp as null.
    meta.remove("creationTimestamp");
    Some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_history_drops_the_oldest_entries() {
        assert_eq!(with_history("", "1"), "1");
        assert_eq!(with_history("1,3", "5"), "1,3,5");
        let long = with_history(&"123456789,".repeat(250), "7");
        assert!(long.len() <= HISTORY_BYTES_MAX && long.ends_with(",7"), "{}", long.len());
    }

    #[test]
    fn replicaset_name_depends_on_template_and_collision_count() {
        let deployment = value!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {"x": 1}}}});
        let mut collided = deployment.clone();
        collided.as_object_mut().unwrap().insert("status", value!({"collisionCount": 1}));
        assert!(name(&deployment).starts_with("web-"));
        assert_ne!(name(&deployment), name(&collided));
        assert_eq!(name(&deployment), name(&deployment.clone()));
    }
}
