//! ControllerRevisions of a DaemonSet: the current revision and those kept for rollback.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Value, json, value};
use controller::{Action, Patch, Preconditions, kinds};

use super::make::HASH;
use crate::{adoption, revision};

/// The revisions of a DaemonSet, including the current one.
pub(super) struct History<'a> {
    all: Vec<&'a Value>,
    current: &'a Value,
    /// The controller-revision-hash label of pods with the current template.
    pub hash: String,
}

impl<'a> History<'a> {
    /// Returns the history, or the writes needed until exactly one revision has the current template.
    pub(super) fn of(set: &'a Value, owned: &[&'a Value], pods: &[&Value]) -> Result<Self, Vec<Action>> {
        let all = revision::sorted(owned.iter().copied());
        let data = revision::data(set);
        let next = all.last().map_or(0, |newest| revision::number(newest)) + 1;
        let Some(current) = revision::equal(&all, &data) else {
            return Err(vec![create(set, data, next, &all)]);
        };
        if !all.last().is_some_and(|newest| std::ptr::eq(*newest, current)) {
            return Err(vec![revision::renumber(current, next)]);
        }
        let hash = Meta::of(current).label(HASH).unwrap_or_default().to_owned();
        let twins: Vec<&Value> = revision::all_equal(&all, &data).filter(|one| !std::ptr::eq(*one, current)).collect();
        let actions = merge(&twins, &hash, pods);
        if actions.is_empty() { Ok(Self { all, current, hash }) } else { Err(actions) }
    }

    /// Deletes unused revisions beyond revisionHistoryLimit.
    pub(super) fn beyond_limit(&self, set: &Value, pods: &[&Value]) -> Vec<Action> {
        let limit = set.int_at(&["spec", "revisionHistoryLimit"]);
        revision::drop_old(&self.all, limit, |one| {
            let hash = Meta::of(one).label(HASH);
            std::ptr::eq(one, self.current) || pods.iter().any(|pod| Meta::of(pod).label(HASH) == hash)
        })
    }
}

/// Merges revisions with equal data into one. First the pods of the duplicates get the hash of the remaining revision,
/// because they are up to date. Then the duplicates are deleted.
// DEVIATION: only pods of the duplicates are relabelled; upstream relabels all pods of the DaemonSet, so outdated pods
// count as up to date.
fn merge(twins: &[&Value], hash: &str, pods: &[&Value]) -> Vec<Action> {
    let is_twin = |pod: &&&Value| {
        let label = Meta::of(pod).label(HASH);
        label.is_some_and(|label| label != hash) && twins.iter().any(|twin| Meta::of(twin).label(HASH) == label)
    };
    let labels: Object = [(HASH, hash)].into_iter().collect();
    let relabel = |pod: &&Value| Action::Patch {
        resource: kinds::PODS.clone(),
        key: Key::of(pod),
        subresource: "",
        only_if: Preconditions::same(pod),
        patch: Patch::Merge(value!({"metadata": {"labels": (labels.clone())}})),
    };
    let relabelled: Vec<Action> = pods.iter().filter(is_twin).map(relabel).collect();
    if !relabelled.is_empty() {
        return relabelled;
    }
    let to_delete = twins.iter().filter(|twin| !Meta::of(twin).is_deleting());
    to_delete.map(|twin| Action::delete(&kinds::CONTROLLER_REVISIONS, twin)).collect()
}

fn create(set: &Value, data: Value, number: i64, all: &[&Value]) -> Action {
    let collisions = set.int_at(&["status", "collisionCount"]).unwrap_or(0);
    let is_free = |hash: &String| all.iter().all(|one| Meta::of(one).name() != revision::name(set, hash));
    let hash = (collisions..).map(|collisions| hash(&data, collisions)).find(is_free).unwrap_or_default();
    let mut object = value!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"namespace": (Meta::of(set).namespace()), "name": (revision::name(set, &hash)),
            "ownerReferences": [(adoption::reference(set))]},
        "data": data, "revision": number,
    });
    if let Some(mut meta) = MetaMut::of(&mut object) {
        let labels = set.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object);
        for (label, value) in labels.into_iter().flat_map(Object::iter) {
            meta.set_label(label, value.as_str().unwrap_or_default());
        }
        meta.set_label(HASH, &hash);
        for (key, value) in Meta::of(set).annotations().into_iter().flat_map(Object::iter) {
            meta.set_annotation(key, value.as_str().unwrap_or_default());
        }
    }
    Action::Create { resource: kinds::CONTROLLER_REVISIONS.clone(), object, result_event: None }
}

/// Returns a hash of the template and the collision count.
// DEVIATION: the hash differs from upstream's, which hashes Go's dump of the template. Revisions are found by their
// data, so both controllers can take over from each other.
fn hash(data: &Value, collisions: i64) -> String {
    let salt = if collisions > 0 { collisions.to_le_bytes().to_vec() } else { Vec::new() };
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    revision::letters(json::to_vec(data).into_iter().chain(salt).fold(0x811c_9dc5, fnv))
}
