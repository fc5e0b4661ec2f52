use std::collections::BTreeSet;

use machinery::Value;
use machinery::time::Time;

use super::*;
use crate::kind::{Context, Keeping, Requester};

#[test]
fn names_are_unique() {
    let mut seen = BTreeSet::new();
    for kind in all() {
        for name in [&kind.plural, &kind.kind] {
            assert!(seen.insert((kind.group.clone(), name.clone())), "{}: {name} twice", kind.group);
        }
    }
}

#[test]
fn every_version_is_in_the_catalogue_and_the_stored_one_exists() {
    let kinds = all();
    for kind in &kinds {
        let Keeping::Stored { version, .. } = &kind.keeping else { continue };
        let owner = kinds.iter().find(|other| other.group == version.group && other.kind == kind.kind);
        let stored = owner.and_then(|owner| owner.version(&version.version));
        assert!(stored.is_some(), "{}: no version {version}", kind.qualified_resource());
    }
}

#[test]
fn empty_objects_are_defaulted_and_judged_without_a_panic() {
    let requester = Requester::default();
    for kind in all() {
        for version in &kind.versions {
            let mut object = Value::object();
            kind.rules.default(&mut object, &version.name);
            let once = object.clone();
            kind.rules.default(&mut object, &version.name);
            assert_eq!(object, once, "{}: defaulting again changes it", kind.qualified_resource());
            let context =
                Context { version, subresource: "", now: Time::from_unix(1_700_000_000, 0), requester: &requester };
            kind.rules.prepare_create(&mut object, &context);
            kind.rules.prepare_update(&mut object, &once, &context);
            let mut errors = Vec::new();
            kind.rules.validate(&object, &context, &mut errors);
            kind.rules.validate_update(&object, &once, &context, &mut errors);
            kind.rules.warnings(&object, Some(&once), &context);
            kind.rules.canonicalize(&mut object);
            for column in &version.columns {
                column.cell(&object, Time::from_unix(1_700_000_000, 0));
            }
            for field in &kind.selectable {
                field.of(&object);
            }
        }
    }
}
