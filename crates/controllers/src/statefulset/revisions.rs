//! StatefulSet revisions: currentRevision and updateRevision.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Object, Value, value};
use controller::{Action, kinds};

use super::{ordinal, revision_of};
use crate::{adoption, revision};

/// The existing revisions of a StatefulSet.
pub(super) struct Revisions<'a> {
    all: Vec<&'a Value>,
    /// The revision of the pods before the update.
    pub current: &'a Value,
    /// The target revision.
    pub update: &'a Value,
    /// The number of name collisions with other revisions.
    pub collisions: i64,
}

impl<'a> Revisions<'a> {
    /// Returns the revisions, or the writes needed until they exist.
    pub(super) fn of(set: &'a Value, owned: &[&'a Value]) -> Result<Self, Vec<Action>> {
        let all = revision::sorted(owned.iter().copied());
        let data = revision::data(set);
        let next = all.last().map_or(0, |newest| revision::number(newest)) + 1;
        let collisions = set.int_at(&["status", "collisionCount"]).unwrap_or(0);
        let Some(update) = revision::equal(&all, &data) else {
            return Err(vec![create(set, data, next, collisions, &all)]);
        };
        let is_newest = all.last().is_some_and(|newest| std::ptr::eq(*newest, update));
        if !is_newest && !Meta::of(set).is_deleting() {
            return Err(vec![revision::renumber(update, next)]);
        }
        let current_name = set.str_at(&["status", "currentRevision"]);
        let current = all.iter().copied().find(|one| Some(Meta::of(one).name()) == current_name).unwrap_or(update);
        Ok(Self { all, current, update, collisions })
    }

    /// Returns the revision for a new pod: ordinals below the partition keep the current revision.
    pub(super) fn for_new(&self, set: &Value, ordinal: i64) -> &'a Value {
        let partition = set.int_at(&["spec", "updateStrategy", "rollingUpdate", "partition"]);
        let rolls = set.str_at(&["spec", "updateStrategy", "type"]) == Some("RollingUpdate");
        let keeps_current = rolls && partition.is_some_and(|partition| ordinal < ordinal::start(set) + partition);
        if keeps_current { self.current } else { self.update }
    }

    /// Deletes unused revisions beyond revisionHistoryLimit.
    pub(super) fn beyond_history(&self, set: &Value, pods: &[&Value]) -> Vec<Action> {
        let limit = set.int_at(&["spec", "revisionHistoryLimit"]);
        revision::drop_old(&self.all, limit, |one| {
            let name = Meta::of(one).name();
            std::ptr::eq(one, self.current)
                || std::ptr::eq(one, self.update)
                || pods.iter().any(|pod| revision_of(pod) == name)
        })
    }
}

/// Creates a revision. Names of existing revisions are skipped.
fn create(set: &Value, data: Value, number: i64, collisions: i64, all: &[&Value]) -> Action {
    let named = |tries: i64| {
        let hash = revision::hash(&data, collisions + tries);
        (revision::name(set, &hash), hash)
    };
    let is_free = |name: &str| all.iter().all(|one| Meta::of(one).name() != name);
    let tries = (0..).find(|tries| is_free(&named(*tries).0)).unwrap_or(0);
    let (name, hash) = named(tries);
    let mut object = value!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"namespace": (Meta::of(set).namespace()), "name": name, "ownerReferences": [(adoption::reference(set))]},
        "data": data, "revision": number,
    });
    if let Some(mut meta) = MetaMut::of(&mut object) {
        let labels = set.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object);
        for (label, value) in labels.into_iter().flat_map(Object::iter) {
            meta.set_label(label, value.as_str().unwrap_or_default());
        }
        meta.set_label("controller.kubernetes.io/hash", &hash);
        for (key, value) in Meta::of(set).annotations().into_iter().flat_map(Object::iter) {
            meta.set_annotation(key, value.as_str().unwrap_or_default());
        }
    }
    Action::Create { resource: kinds::CONTROLLER_REVISIONS.clone(), object, result_event: None }
}
