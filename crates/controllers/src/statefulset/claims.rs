//! StatefulSet claims: one per template and ordinal, created before the pod, owned according to the retention policy.

use api::resources::STATEFUL_SETS;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Value, value};
use controller::{Action, Cache, EventOnResult, Preconditions, Regarding, kinds};

use super::Slots;

pub(super) fn templates(set: &Value) -> &[Value] {
    set.list_at(&["spec", "volumeClaimTemplates"])
}

/// Returns the name of the claim for a template and ordinal.
pub(super) fn name(set: &Value, template: &Value, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", Meta::of(template).name(), Meta::of(set).name())
}

/// Whether the claim's name belongs to an ordinal of the StatefulSet.
pub(super) fn is_of(set: &Value, claim: &Value) -> bool {
    ordinal(set, claim).is_some()
}

/// Returns the StatefulSets that the claim may belong to.
pub(super) fn set_of(cache: &Cache, claim: &Value) -> Vec<Key> {
    let sets = cache.of(STATEFUL_SETS);
    let near = sets.in_namespace(Meta::of(claim).namespace());
    near.filter(|set| is_of(&set.value, claim)).map(|set| set.key.clone()).collect()
}

/// Creates the missing claims of an ordinal.
pub(super) fn missing(set: &Value, ordinal: i64, have: &[&Value]) -> Vec<Action> {
    let missing = templates(set).iter().map(|template| (template, name(set, template, ordinal)));
    let missing = missing.filter(|(_, name)| !have.iter().any(|claim| Meta::of(claim).name() == name));
    missing.map(|(template, name)| create(set, template, &name, ordinal)).collect()
}

fn create(set: &Value, template: &Value, name: &str, ordinal: i64) -> Action {
    let meta = Meta::of(set);
    let mut object = template.clone();
    if let Some(root) = object.as_object_mut() {
        root.insert("apiVersion", "v1");
        root.insert("kind", "PersistentVolumeClaim");
        root.remove("status");
    }
    if let Some(mut claim) = MetaMut::of(&mut object) {
        claim.set("name", name);
        claim.set("namespace", meta.namespace());
        let labels = set.at(&["spec", "selector", "matchLabels"]).and_then(Value::as_object);
        for (label, value) in labels.into_iter().flat_map(Object::iter) {
            claim.set_label(label, value.as_str().unwrap_or_default());
        }
    }
    let what = format!("create Claim {name} Pod {}-{ordinal} in StatefulSet {}", meta.name(), meta.name());
    let result_event = EventOnResult {
        regarding: Regarding::object(set),
        done_reason: "SuccessfulCreate",
        done_message: format!("{what} success"),
        failed: Some(("FailedCreate", format!("{what} failed error").into())),
    };
    Action::Create {
        resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(),
        object,
        result_event: Some(Box::new(result_event)),
    }
}

/// Sets the owner of claims by the retention policy: the StatefulSet or the pod if they are deleted with it, otherwise
/// none.
pub(super) fn retention(set: &Value, slots: &Slots<'_>, claims: &[&Value]) -> Vec<Action> {
    let policy = |field| set.str_at(&["spec", "persistentVolumeClaimRetentionPolicy", field]) == Some("Delete");
    let (when_deleted, when_scaled) = (policy("whenDeleted"), policy("whenScaled"));
    let mut actions = Vec::new();
    for claim in claims.iter().filter(|claim| !Meta::of(claim).is_deleting()) {
        let Some(claim_ordinal) = ordinal(set, claim) else { continue };
        let beyond = slots.beyond.iter().find(|pod| super::ordinal(set, pod) == Some(claim_ordinal));
        // An ordinal out of range without a pod: the owner of its claim stays unchanged.
        if beyond.is_none() && !slots.row.iter().any(|slot| slot.ordinal == claim_ordinal) {
            continue;
        }
        let by_pod = beyond.filter(|_| when_scaled);
        let by_set = when_deleted && by_pod.is_none();
        actions.extend(owned(claim, set, by_set, by_pod.copied()));
    }
    actions
}

fn owned(claim: &Value, set: &Value, by_set: bool, by_pod: Option<&Value>) -> Option<Action> {
    let meta = Meta::of(claim);
    let set_uid = Meta::of(set).uid();
    let others =
        meta.owner_references().any(|owner| owner.is_controller() && owner.uid() != set_uid && owner.kind() != "Pod");
    if others {
        // Another controller manages the claim.
        return None;
    }
    let mut desired: Vec<Value> = meta
        .value("ownerReferences")
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .filter(|owner| owner.str_at(&["uid"]) != Some(set_uid) && owner.str_at(&["kind"]) != Some("Pod"))
        .cloned()
        .collect();
    if by_set {
        desired.push(reference(set, "apps/v1", "StatefulSet"));
    }
    if let Some(pod) = by_pod {
        desired.push(reference(pod, "v1", "Pod"));
    }
    let uids = |owners: &[Value]| -> Vec<String> {
        owners.iter().filter_map(|owner| owner.str_at(&["uid"]).map(str::to_owned)).collect()
    };
    let have = meta.value("ownerReferences").and_then(Value::as_array).unwrap_or_default();
    if uids(have) == uids(&desired) {
        return None;
    }
    Some(Action::Patch {
        resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(),
        key: Key::of(claim),
        subresource: "",
        only_if: Preconditions::unchanged(claim),
        patch: controller::Patch::Merge(value!({"metadata": {"ownerReferences": desired}})),
    })
}

fn reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    let meta = Meta::of(owner);
    value!({"apiVersion": api_version, "kind": kind, "name": (meta.name()), "uid": (meta.uid()), "controller": true})
}

/// Returns the ordinal in the claim's name.
fn ordinal(set: &Value, claim: &Value) -> Option<i64> {
    let claim = Meta::of(claim).name();
    templates(set).iter().find_map(|template| {
        let rest = claim.strip_prefix(Meta::of(template).name())?.strip_prefix('-')?;
        let rest = rest.strip_prefix(Meta::of(set).name())?.strip_prefix('-')?;
        rest.parse().ok().filter(|number: &i64| *number >= 0 && number.to_string() == rest)
    })
}
