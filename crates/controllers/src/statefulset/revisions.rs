//! The two revisions of a StatefulSet that count: the one that its pods have, and the one that they are to have.

use machinery::meta::{Meta, MetaMut};
use machinery::{Object, Value, value};
use reconcile::{Action, kinds};

use super::{ordinal, revision_of};
use crate::{claim, revision};

/// The revisions of a set that are there.
pub struct Revisions<'a> {
    all: Vec<&'a Value>,
    /// What pods have, or had before the update began.
    pub current: &'a Value,
    /// What pods are to have.
    pub update: &'a Value,
    /// How often a name was taken by another revision.
    pub collisions: i64,
}

impl<'a> Revisions<'a> {
    /// The revisions, or what must be written so that there are any.
    pub fn of(set: &'a Value, owned: &[&'a Value]) -> Result<Self, Vec<Action>> {
        let all = revision::sorted(owned.iter().copied());
        let data = revision::data(set);
        let next = all.last().map_or(0, |newest| revision::number(newest)) + 1;
        let collisions = set.at(&["status", "collisionCount"]).and_then(Value::as_int).unwrap_or(0);
        let Some(update) = revision::equal(&all, &data) else {
            return Err(vec![create(set, data, next, collisions, &all)]);
        };
        let is_newest = all.last().is_some_and(|newest| std::ptr::eq(*newest, update));
        if !is_newest && !Meta::of(set).is_deleting() {
            return Err(vec![revision::renumber(update, next)]);
        }
        let told = set.str_at(&["status", "currentRevision"]);
        let current = all.iter().copied().find(|one| Some(Meta::of(one).name()) == told).unwrap_or(update);
        Ok(Self { all, current, update, collisions })
    }

    /// What a new pod of a place is made from: below the partition the old revision is kept.
    pub fn for_new(&self, set: &Value, place: i64) -> &'a Value {
        let partition = set.at(&["spec", "updateStrategy", "rollingUpdate", "partition"]).and_then(Value::as_int);
        let rolls = set.str_at(&["spec", "updateStrategy", "type"]) == Some("RollingUpdate");
        let kept = rolls && partition.is_some_and(|partition| place < ordinal::start(set) + partition);
        if kept { self.current } else { self.update }
    }

    /// Revisions that nobody needs, beyond those that are to be kept.
    pub fn beyond_history(&self, set: &Value, pods: &[&Value]) -> Vec<Action> {
        let limit = set.at(&["spec", "revisionHistoryLimit"]).and_then(Value::as_int);
        revision::drop_old(&self.all, limit, |one| {
            let name = Meta::of(one).name();
            std::ptr::eq(one, self.current)
                || std::ptr::eq(one, self.update)
                || pods.iter().any(|pod| revision_of(pod) == name)
        })
    }
}

/// A new revision. A name that another revision has is not tried again.
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
        "metadata": {"namespace": (Meta::of(set).namespace()), "name": name, "ownerReferences": [(claim::reference(set))]},
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
    Action::Create { resource: kinds::CONTROLLER_REVISIONS.clone(), object, told: None }
}
