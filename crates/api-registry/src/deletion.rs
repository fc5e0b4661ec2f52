//! Deletion: whether a delete removes an object, marks it with deletionTimestamp, or changes nothing.

use api::kind::{Dependents, Kind};
use apimachinery::Value;
use apimachinery::meta::{FINALIZER_DELETE_DEPENDENTS, FINALIZER_ORPHAN_DEPENDENTS, Meta, MetaMut};
use apimachinery::status::{Details, Status};
use apimachinery::time::{Duration, Time};

use crate::decode::{kind_name, resource_name};
use crate::options::{DeleteOptions, Propagation};

/// The result of a delete.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// The object is already being deleted, and this delete changes nothing.
    Keep,
    /// The object is stored with a deletionTimestamp and removed later.
    Mark(Value),
    /// The object is removed now; this is its last state.
    Remove(Value),
}

/// Plans the delete of `object`, which contains its resourceVersion.
pub fn plan(kind: &Kind, object: &Value, options: &DeleteOptions, now: Time) -> Result<Plan, Status> {
    check_preconditions(kind, object, options)?;
    let meta = Meta::of(object);
    let grace = kind.rules.grace_seconds(object, options.grace_period_seconds);
    let grace = match (grace, meta.is_deleting()) {
        (None, _) => None,
        (Some(grace), false) => Some(grace),
        // A negative grace period is replaced by 1, as in the first delete.
        (Some(_), true) => match (meta.deletion_grace_period_seconds(), options.grace_period_seconds.map(not_negative))
        {
            (Some(have), Some(requested)) if requested < have => return Ok(shorten(object, have, requested)),
            _ => return Ok(Plan::Keep),
        },
    };
    let first = !meta.is_deleting();
    let mut object = object.clone();
    if first {
        kind.rules.prepare_delete(&mut object, now);
    }
    set_propagation(kind, &mut object, options.propagation);
    let is_blocked = Meta::of(&object).finalizers().next().is_some() || kind.rules.blocks_deletion(&object);
    match grace {
        None if !is_blocked => Ok(Plan::Remove(object)),
        None if Meta::of(&object).is_deleting() => Ok(Plan::Mark(object)),
        None => {
            mark(kind, &mut object, now, 0);
            Ok(Plan::Mark(object))
        }
        Some(seconds) => {
            mark(kind, &mut object, now, seconds);
            Ok(if is_blocked || seconds > 0 { Plan::Mark(object) } else { Plan::Remove(object) })
        }
    }
}

/// Whether an update completes a deletion: the old object was being deleted with a grace period of 0, and nothing
/// blocks the deletion any more.
pub fn ends(kind: &Kind, object: &Value, old: &Value) -> bool {
    let old = Meta::of(old);
    old.is_deleting()
        && old.deletion_grace_period_seconds().unwrap_or_default() == 0
        && Meta::of(object).finalizers().next().is_none()
        && !kind.rules.blocks_deletion(object)
}

/// Returns the success Status of a delete, which identifies the object.
pub fn deleted(kind: &Kind, object: &Value) -> Status {
    let meta = Meta::of(object);
    Status::success().with_details(Details {
        name: meta.name().to_owned(),
        group: kind.group.to_string(),
        kind: kind.plural.to_string(),
        uid: meta.uid().to_owned(),
        ..Details::default()
    })
}

fn check_preconditions(kind: &Kind, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let meta = Meta::of(object);
    if kind.is_dismantled {
        return check_before_dismantling(kind, &meta, options);
    }
    let conflict = |cause: String| Err(Status::conflict(kind_name(kind), meta.name(), cause));
    if let Some(uid) = &options.uid
        && uid != meta.uid()
    {
        let have = meta.uid();
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({have}). The object might have been \
             deleted and then recreated"
        ));
    }
    if let Some(version) = &options.resource_version
        && version != meta.resource_version()
    {
        let have = meta.resource_version();
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({have}). \
             The object might have been modified"
        ));
    }
    Ok(())
}

fn check_before_dismantling(kind: &Kind, meta: &Meta<'_>, options: &DeleteOptions) -> Result<(), Status> {
    let expected = [
        ("UID", options.uid.as_deref(), meta.uid()),
        ("ResourceVersion", options.resource_version.as_deref(), meta.resource_version()),
    ];
    for (what, expected, have) in expected {
        if let Some(expected) = expected.filter(|expected| *expected != have) {
            let cause =
                format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {have}");
            return Err(Status::conflict(resource_name(kind), meta.name(), cause));
        }
    }
    Ok(())
}

const fn not_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Shortens the grace period; a second delete can never extend it.
fn shorten(object: &Value, have: i64, requested: i64) -> Plan {
    let mut object = object.clone();
    let end = Meta::of(&object).deletion_timestamp();
    if let (Some(mut meta), Some(end)) = (MetaMut::of(&mut object), end) {
        meta.set_deletion(end.plus(Duration::from_seconds(requested - have)), requested);
    }
    let is_blocked = Meta::of(&object).finalizers().next().is_some();
    if is_blocked || requested > 0 { Plan::Mark(object) } else { Plan::Remove(object) }
}

fn mark(kind: &Kind, object: &mut Value, now: Time, seconds: i64) {
    let Some(mut meta) = MetaMut::of(object) else { return };
    // The generation is incremented so that controllers observe the deletion.
    let generation = meta.view().generation();
    if generation > 0 {
        meta.set("generation", generation + 1);
    }
    meta.set_deletion(now.plus(Duration::from_seconds(seconds)), seconds);
    kind.rules.mark_deleted(object);
}

/// Sets the finalizers that tell the garbage collector how to handle dependents.
fn set_propagation(kind: &Kind, object: &mut Value, requested: Option<Propagation>) {
    let meta = Meta::of(object);
    let has = |name: &str| meta.finalizers().any(|finalizer| finalizer == name);
    let chosen = match (requested, kind.dependents) {
        (_, Dependents::None) => Propagation::Background,
        (Some(requested), _) => requested,
        (None, _) if has(FINALIZER_ORPHAN_DEPENDENTS) => Propagation::Orphan,
        (None, _) if has(FINALIZER_DELETE_DEPENDENTS) => Propagation::Foreground,
        (None, Dependents::Orphan) => Propagation::Orphan,
        (None, Dependents::Delete) => Propagation::Background,
    };
    let Some(mut meta) = MetaMut::of(object) else { return };
    for (finalizer, when) in
        [(FINALIZER_ORPHAN_DEPENDENTS, Propagation::Orphan), (FINALIZER_DELETE_DEPENDENTS, Propagation::Foreground)]
    {
        if chosen == when {
            meta.add_finalizer(finalizer);
        } else {
            meta.remove_finalizer(finalizer);
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    const NOW: Time = Time::from_unix(1_700_000_000, 0);

    fn check(object: &str, options: &DeleteOptions, expect: &str) {
        let kind = api::core::config_map::kind();
        let object = json::parse(object.as_bytes()).unwrap();
        let found = match plan(&kind, &object, options, NOW) {
            Ok(Plan::Keep) => "keep".to_owned(),
            Ok(Plan::Mark(object)) => format!("mark {}", object["metadata"]),
            Ok(Plan::Remove(_)) => "remove".to_owned(),
            Err(status) => status.message,
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn object_is_removed_immediately_unless_finalizers_or_grace_period_keep_it() {
        let plain = r#"{"metadata": {"name": "a", "uid": "u"}}"#;
        check(plain, &DeleteOptions::default(), "remove");
        let with_finalizer = r#"{"metadata": {"name": "a", "finalizers": ["example.com/x"]}}"#;
        let marked = r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2023-11-14T22:13:20Z","finalizers":["example.com/x"],"name":"a"}"#;
        check(with_finalizer, &DeleteOptions::default(), marked);
        let foreground = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
        let waits = r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2023-11-14T22:13:20Z","finalizers":["foregroundDeletion"],"name":"a","uid":"u"}"#;
        check(plain, &foreground, waits);
        let other = DeleteOptions { uid: Some("v".into()), ..DeleteOptions::default() };
        check(
            plain,
            &other,
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (v) does not match the UID in \
             record (u). The object might have been deleted and then recreated",
        );
    }
}
