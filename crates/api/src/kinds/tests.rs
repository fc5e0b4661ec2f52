use std::collections::BTreeSet;

use apimachinery::time::Time;
use apimachinery::{Value, value};

use super::*;
use crate::kind::{Context, Persistence, Requester};

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
fn every_version_is_in_the_catalogue_and_the_storage_version_exists() {
    let kinds = all();
    for kind in &kinds {
        let Persistence::Stored { version, .. } = &kind.persistence else { continue };
        let owner = kinds.iter().find(|other| other.group == version.group && other.kind == kind.kind);
        let stored = owner.and_then(|owner| owner.version(&version.version));
        assert!(stored.is_some(), "{}: no version {version}", kind.qualified_resource());
    }
}

#[test]
fn empty_objects_are_defaulted_and_validated_without_panic() {
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

#[test]
fn status_write_changes_labels_only_where_upstream_allows_it() {
    let requester = Requester::default();
    let check = |group: &str, plural: &str, keeps: bool| {
        let kinds = all();
        let kind = kinds.iter().find(|kind| kind.group == group && kind.plural == plural);
        let kind = kind.unwrap_or_else(|| panic!("{plural}.{group}"));
        let now = Time::from_unix(1_700_000_000, 0);
        let context = Context { version: &kind.versions[0], subresource: "status", now, requester: &requester };
        let labelled =
            |labels: &str| value!({"metadata": {"name": "a", "labels": {"l": labels}}, "spec": {}, "status": {}});
        let (old, mut new) = (labelled("old"), labelled("new"));
        kind.rules.prepare_update(&mut new, &old, &context);
        assert_eq!(new["metadata"] == old["metadata"], keeps, "{plural}.{group}");
    };
    let keep = [
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("apiregistration.k8s.io", "apiservices"),
        ("apps", "deployments"),
        ("certificates.k8s.io", "podcertificaterequests"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("internal.apiserver.k8s.io", "storageversions"),
        ("resource.k8s.io", "devicetaintrules"),
        ("resource.k8s.io", "resourceclaims"),
        ("storage.k8s.io", "volumeattachments"),
        ("storagemigration.k8s.io", "storageversionmigrations"),
    ];
    let let_through = [
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "resourcequotas"),
        ("apps", "daemonsets"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("networking.k8s.io", "ingresses"),
        ("policy", "poddisruptionbudgets"),
    ];
    keep.iter().for_each(|(group, plural)| check(group, plural, true));
    let_through.iter().for_each(|(group, plural)| check(group, plural, false));
}
