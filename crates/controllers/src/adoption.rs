//! Controller ownership: claims matching objects, adopts orphans, and releases objects that no longer match.

use apimachinery::labels::Selector;
use apimachinery::meta::Meta;
use apimachinery::{Key, Resource, Value, value};
use controller::{Action, Patch, Preconditions};

/// The owned objects, and the adoptions and releases still to be written.
#[derive(Debug, Default)]
pub struct Claims<'a> {
    /// Objects that the owner controls and selects.
    pub owned: Vec<&'a Value>,
    /// Adoptions and releases. An adopted object is owned once the adoption is observed.
    pub actions: Vec<Action>,
}

/// Claims the objects that `owner` controls and the matching orphans.
pub fn claim<'a>(
    owner: &Value,
    selector: &Selector,
    resource: &Resource,
    controlled: impl IntoIterator<Item = &'a Value>,
    orphans: impl IntoIterator<Item = &'a Value>,
) -> Claims<'a> {
    claim_with_finalizer(owner, selector, resource, controlled, orphans, None)
}

/// Like [`claim`]. Adoption adds `finalizer` and release removes it, in the same patch as the owner reference.
pub fn claim_with_finalizer<'a>(
    owner: &Value,
    selector: &Selector,
    resource: &Resource,
    controlled: impl IntoIterator<Item = &'a Value>,
    orphans: impl IntoIterator<Item = &'a Value>,
    finalizer: Option<&str>,
) -> Claims<'a> {
    let adoption = || match finalizer {
        Some(finalizer) => {
            value!({"metadata": {"ownerReferences": [(reference(owner))], "finalizers": [finalizer]}})
        }
        None => value!({"metadata": {"ownerReferences": [(reference(owner))]}}),
    };
    let release = || {
        let references = value!([{"$patch": "delete", "uid": (Meta::of(owner).uid())}]);
        match finalizer {
            Some(finalizer) => value!({"metadata": {
                "ownerReferences": (references), "$deleteFromPrimitiveList/finalizers": [finalizer],
            }}),
            None => value!({"metadata": {"ownerReferences": (references)}}),
        }
    };
    let mut claims = Claims::default();
    let going = Meta::of(owner).is_deleting();
    for object in controlled {
        if selector.matches_object(object) {
            claims.owned.push(object);
        } else if !going && !Meta::of(object).is_deleting() {
            claims.actions.push(patch(resource, object, release()));
        }
    }
    if !going {
        for object in orphans {
            if selector.matches_object(object) && !Meta::of(object).is_deleting() {
                claims.actions.push(patch(resource, object, adoption()));
            }
        }
    }
    claims
}

/// Returns the controller owner reference to `owner`.
pub fn reference(owner: &Value) -> Value {
    let meta = Meta::of(owner);
    let text = |field| owner.text_at(&[field]);
    value!({
        "apiVersion": (text("apiVersion")), "kind": (text("kind")), "name": (meta.name()), "uid": (meta.uid()),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Adds the keys of the controller of `object`, or of all candidates that would adopt it.
pub fn concerned(object: &Value, kind: &str, candidates: &controller::Objects, keys: &mut Vec<Key>) {
    let meta = Meta::of(object);
    match meta.controller() {
        Some(owner) if owner.kind() == kind => keys.push(Key::new(meta.namespace(), owner.name())),
        Some(_) => {}
        None => {
            for entry in candidates.in_namespace(meta.namespace()) {
                if selector(&entry.value).is_some_and(|selector| selector.matches_object(object)) {
                    keys.push(entry.key.clone());
                }
            }
        }
    }
}

/// Returns `spec.selector` of a workload; `None` if it is empty or invalid, because upstream treats both as selecting
/// nothing.
pub fn selector(owner: &Value) -> Option<Selector> {
    let stated = owner.at(&["spec", "selector"]);
    // A ReplicationController's selector is a plain label map.
    let old_form = stated.filter(|_| owner.str_at(&["kind"]) == Some("ReplicationController"));
    let old_form = old_form.map(|labels| value!({"matchLabels": (labels.clone())}));
    let selector = apimachinery::labels::from_object(old_form.as_ref().or(stated)).ok()?;
    (!selector.is_everything()).then_some(selector)
}

fn patch(resource: &Resource, object: &Value, change: Value) -> Action {
    Action::Patch {
        resource: resource.clone(),
        key: Key::of(object),
        subresource: "",
        only_if: Preconditions::same(object),
        patch: Patch::Strategic(change),
    }
}
