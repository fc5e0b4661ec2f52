//! Pruning: removes the fields that an applier applied before and no longer applies.

use std::borrow::Cow;

use super::collect::field_set;
use super::fieldset::{Entry, FieldSet};
use super::managers::{Owner, Owners};
use super::path::Element;
use super::reconcile::with_named_fields;
use super::remove::remove;
use super::typed::{Atom, Node};
use super::write::{Error, Versions};
use crate::{Schema, Str, Value};

/// Removes from `merged` the fields that `last` owned and that no owner, including the applier with its new
/// configuration, owns now. Fields that never had an owner stay, even inside a removed container.
pub(super) fn prune(
    versions: &dyn Versions,
    api_version: &str,
    merged: Value,
    owners: &Owners,
    applied: &FieldSet,
    last: &Owner,
) -> Result<Value, Error> {
    // A configuration's field set contains every container of its fields, so no field can be removed with an ancestor.
    if last.fields.is_empty() || last.api_version == api_version && last.fields.difference(applied).is_empty() {
        return Ok(merged);
    }
    let Some(schema) = versions.schema(&last.api_version) else { return Ok(merged) };
    if owners.list().iter().all(|owner| owner.api_version == api_version) && last.api_version == api_version {
        return Ok(prune_one_version(schema, merged, owners, last));
    }
    let before = convert(versions, &merged, &last.api_version)?;
    let mut pruned = before.clone().into_owned();
    let last_fields = with_named_fields(schema, &last.fields);
    remove(schema, &mut pruned, &last_fields);
    let pruned = add_back_owned(versions, owners, &last.api_version, &before, pruned)?;
    let pruned = convert(versions, &pruned, &last.api_version)?;
    let retained = with_named_fields(schema, &field_set(schema, &pruned));
    let all = with_named_fields(schema, &field_set(schema, &before));
    let mut result = before.into_owned();
    remove(schema, &mut result, &all.difference(&retained).intersection(&last_fields));
    Ok(convert(versions, &result, api_version)?.into_owned())
}

/// Implements [`prune`] for the common case that all owners use one version. One walk over the sets finds the fields to
/// remove, without upstream's intermediate objects.
fn prune_one_version(schema: Schema<'_>, mut merged: Value, owners: &Owners, last: &Owner) -> Value {
    let owned = owners.list().iter().fold(FieldSet::EMPTY, |all, owner| all.union(&owner.fields));
    let all = field_set(schema, &merged);
    let removed = dropped(Some(Node::root(schema)), &all, &last.fields, &owned, Fate::default());
    remove(schema, &mut merged, &removed);
    merged
}

/// The ownership of the containers above a field.
#[derive(Clone, Copy, Default)]
struct Fate {
    /// The applier owned an ancestor before this write.
    left: bool,
    /// The applier owned an ancestor before this write, and that ancestor has no owner now.
    orphaned: bool,
}

/// Returns the fields of `last` within `all` that are removed themselves or with an ancestor.
fn dropped(node: Option<Node<'_>>, all: &FieldSet, last: &FieldSet, owned: &FieldSet, above: Fate) -> FieldSet {
    let atom = node.map(Node::declared);
    let mut entries = Vec::new();
    for was in last.entries() {
        let Some(is) = all.entry(&was.element) else { continue };
        let owner = owned.entry(&was.element);
        let (child, named) = match (&atom, &was.element) {
            (Some(Atom::Map(fields)), Element::Field(name)) => {
                fields.child(name).map_or((None, false), |child| (Some(child.node), child.named))
            }
            (Some(Atom::List(list)), Element::Key(_)) => (Some(list.item), false),
            _ => (None, false),
        };
        // A named field is an implicit member of each set that has members below it.
        let has = |entry: &Entry| entry.member || named && !entry.below.is_empty();
        let left = above.left || has(was);
        let orphaned = above.orphaned || left && has(is) && !owner.is_some_and(has);
        if orphaned && has(was) && has(is) {
            entries.push(Entry { element: was.element.clone(), member: true, below: FieldSet::EMPTY });
            continue;
        }
        let owned = owner.map_or(&FieldSet::EMPTY, |owner| &owner.below);
        let below = dropped(child, &is.below, &was.below, owned, Fate { left, orphaned });
        if !below.is_empty() {
            entries.push(Entry { element: was.element.clone(), member: false, below });
        }
    }
    FieldSet::from_sorted(entries)
}

/// Restores the fields that any owner owns, in the version in which the owner owns them.
fn add_back_owned(
    versions: &dyn Versions,
    owners: &Owners,
    first_version: &str,
    merged: &Value,
    mut pruned: Value,
) -> Result<Value, Error> {
    let mut merged = Cow::Borrowed(merged);
    for (version, owned) in owned_by_version(owners, first_version) {
        let Some(schema) = versions.schema(&version) else { continue };
        merged = Cow::Owned(convert(versions, &merged, &version)?.into_owned());
        let converted = convert(versions, &pruned, &version)?;
        let retained = retained_fields(schema, &converted, &owned);
        let all = with_named_fields(schema, &field_set(schema, &merged));
        pruned = merged.clone().into_owned();
        remove(schema, &mut pruned, &all.difference(&retained));
    }
    Ok(pruned)
}

fn retained_fields(schema: Schema<'_>, pruned: &Value, owned: &FieldSet) -> FieldSet {
    let pruned = with_named_fields(schema, &field_set(schema, pruned));
    pruned.union(&with_named_fields(schema, owned))
}

/// Returns the owned fields per version. The version of the pruned object comes first, since that object may lack
/// fields that conversion needs.
fn owned_by_version(owners: &Owners, first_version: &str) -> Vec<(Str, FieldSet)> {
    let mut by_version: Vec<(Str, FieldSet)> = Vec::new();
    for owner in owners.list() {
        match by_version.iter_mut().find(|(version, _)| *version == owner.api_version) {
            Some((_, owned)) => *owned = owned.union(&owner.fields),
            None => by_version.push((owner.api_version.clone(), owner.fields.clone())),
        }
    }
    by_version.sort_by_key(|(version, _)| version != first_version);
    by_version
}

/// Returns the object converted to `api_version`, or borrowed if it already has that version.
pub(super) fn convert<'a>(
    versions: &dyn Versions,
    object: &'a Value,
    api_version: &str,
) -> Result<Cow<'a, Value>, Error> {
    if object.str_at(&["apiVersion"]) == Some(api_version) {
        return Ok(Cow::Borrowed(object));
    }
    versions.convert(object, api_version).map(Cow::Owned).map_err(Error::Convert)
}
