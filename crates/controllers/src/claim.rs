//! Which objects belong to a controller: those it controls and selects; it adopts orphans and releases what no longer fits.

use machinery::labels::Selector;
use machinery::meta::Meta;
use machinery::{Key, Resource, Value, value};
use reconcile::{Action, Patch, Preconditions};

/// What a controller has, and what must be written so that it has it.
#[derive(Debug, Default)]
pub struct Claims<'a> {
    /// Objects that are controlled and selected.
    pub owned: Vec<&'a Value>,
    /// Adoptions and releases. What is adopted is owned once the adoption is observed.
    pub actions: Vec<Action>,
}

/// Sorts out the objects that `owner` controls and the orphans beside it.
pub fn claim<'a>(
    owner: &Value,
    selector: &Selector,
    resource: &Resource,
    controlled: impl IntoIterator<Item = &'a Value>,
    orphans: impl IntoIterator<Item = &'a Value>,
) -> Claims<'a> {
    claim_with_finalizer(owner, selector, resource, controlled, orphans, None)
}

/// Like [`claim`]; adoption adds `finalizer` and release removes it, in the same patch as the owner reference.
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

/// How an object names the one that controls it.
pub fn reference(owner: &Value) -> Value {
    let meta = Meta::of(owner);
    let text = |field| owner.str_at(&[field]).unwrap_or_default();
    value!({
        "apiVersion": (text("apiVersion")), "kind": (text("kind")), "name": (meta.name()), "uid": (meta.uid()),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The keys of the owners of a kind that an object concerns: the one that controls it, or all that would adopt it.
pub fn concerned(object: &Value, kind: &str, candidates: &reconcile::Objects, keys: &mut Vec<Key>) {
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

/// The selector in the specification of a workload. One that is empty or cannot be read selects nothing, as upstream has it.
pub fn selector(owner: &Value) -> Option<Selector> {
    let stated = owner.at(&["spec", "selector"]);
    // The oldest of the workloads states labels only.
    let old_form = stated.filter(|_| owner.str_at(&["kind"]) == Some("ReplicationController"));
    let old_form = old_form.map(|labels| value!({"matchLabels": (labels.clone())}));
    let selector = machinery::labels::from_object(old_form.as_ref().or(stated)).ok()?;
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
