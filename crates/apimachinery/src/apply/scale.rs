//! Translation of replicas ownership between the `scale` subresource and its parent object.

use super::fieldset::FieldSet;
use super::managers::{Operation, Owner, Owners};
use super::path::Element;
use crate::Str;

/// The version of the `scale` objects of every kind.
const SCALE_VERSION: &str = "autoscaling/v1";

/// The path of the replicas field per version of a kind; [`None`] for versions without `scale`.
#[derive(Clone, Debug, Default)]
pub struct ReplicasPaths(pub Vec<(String, Option<Vec<Element>>)>);

impl ReplicasPaths {
    /// Returns the paths of a kind with one version and the common path `.spec.replicas`.
    pub fn spec_replicas(api_version: &str) -> Self {
        Self(vec![(api_version.to_owned(), Some(replicas_in_scale()))])
    }

    /// Builds the paths from field names per version, such as `["spec", "replicas"]`.
    pub fn of_steps<'s>(versions: impl IntoIterator<Item = (String, Option<&'s [Str]>)>) -> Self {
        let path = |steps: &[Str]| steps.iter().map(|step| Element::field(step.clone())).collect();
        Self(versions.into_iter().map(|(version, steps)| (version, steps.map(path))).collect())
    }

    fn of(&self, api_version: &str) -> Option<Option<&[Element]>> {
        self.0.iter().find(|(version, _)| version == api_version).map(|(_, path)| path.as_deref())
    }
}

/// Translates the owners of the parent's replicas field to owners of the replicas of its `scale`.
pub fn owners_of_scale(parent: &Owners, paths: &ReplicasPaths) -> Owners {
    let owners = parent.list().iter().filter(|owner| {
        let path = paths.of(&owner.api_version).flatten();
        path.is_some_and(|path| owner.fields.has(path))
    });
    let owners = owners.map(|owner| Owner {
        api_version: SCALE_VERSION.into(),
        fields: FieldSet::of(replicas_in_scale()),
        ..owner.clone()
    });
    Owners(owners.collect())
}

/// Returns the parent's owners after a write to its `scale`, whose owners are `scale`. `api_version` is the version of
/// the parent. Entries in unknown versions are dropped.
pub fn owners_after_scale(parent: &Owners, scale: &Owners, api_version: &str, paths: &ReplicasPaths) -> Owners {
    let mut result = Owners::default();
    for owner in parent.list() {
        let Some(path) = paths.of(&owner.api_version) else { continue };
        let lost = path.filter(|path| owner.fields.has(path) && !still_owns(scale, owner));
        let fields = match lost {
            Some(path) => owner.fields.difference(&FieldSet::of(path.iter().cloned())),
            None => owner.fields.clone(),
        };
        if !fields.is_empty() {
            result.put(Owner { fields, ..owner.clone() });
        }
    }
    let Some(path) = paths.of(api_version).flatten() else { return result };
    let replicas = FieldSet::of(path.iter().cloned());
    for owner in scale.list().iter().filter(|owner| owner.fields.has(&replicas_in_scale())) {
        if parent.list().iter().any(|before| same_owner(before, owner) && owns_replicas(before, paths)) {
            continue;
        }
        // As in upstream, an owner that appears first through `scale` has no time.
        let fields = replicas.clone();
        let mut owner = Owner { api_version: api_version.into(), fields, time: None, ..owner.clone() };
        if let Some(at) = result.find(&owner) {
            owner.fields = owner.fields.union(&result.0[at].fields);
            owner.time.clone_from(&result.0[at].time);
        }
        result.put(owner);
    }
    result
}

fn still_owns(scale: &Owners, owner: &Owner) -> bool {
    scale.list().iter().any(|other| same_owner(owner, other) && other.fields.has(&replicas_in_scale()))
}

fn owns_replicas(owner: &Owner, paths: &ReplicasPaths) -> bool {
    paths.of(&owner.api_version).flatten().is_some_and(|path| owner.fields.has(path))
}

/// Whether an owner of the parent and an owner of its `scale` are the same, ignoring their necessarily different
/// versions.
fn same_owner(of_object: &Owner, of_scale: &Owner) -> bool {
    let known = of_scale.operation == Operation::Apply || of_scale.api_version == SCALE_VERSION;
    known
        && of_object.operation == of_scale.operation
        && of_object.manager == of_scale.manager
        && of_object.subresource == of_scale.subresource
}

fn replicas_in_scale() -> Vec<Element> {
    vec![Element::field("spec"), Element::field("replicas")]
}
