//! Local APIServices: created at startup for built-in groups, and kept in sync with CRDs.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::{Kind, Shape};
use apimachinery::meta::Meta;
use apimachinery::{Value, value};

/// The label of APIServices that the server manages.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The label value of APIServices created at startup and not updated afterwards.
const ON_START: &str = "onstart";
/// The label value of APIServices kept in sync while a CRD exists.
const ALWAYS: &str = "true";

/// groupPriorityMinimum of the built-in groups; upstream's values.
const GROUPS: [(&str, i64); 21] = [
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("internal.apiserver.k8s.io", 16_000),
];
/// groupPriorityMinimum of built-in groups that are not in [`GROUPS`]: the lowest value there.
const OTHER_GROUP: i64 = 16_000;
/// groupPriorityMinimum of custom resource groups.
const CUSTOM_GROUP: i64 = 1000;
const CUSTOM_VERSION: i64 = 100;

/// A change of an APIService.
#[derive(Clone, Debug, PartialEq)]
pub enum Registration {
    Create(Value),
    Replace(Value),
    /// The name of an APIService whose group version is no longer served.
    Delete(String),
}

/// Returns a local APIService per served group version of these kinds.
pub fn own(kinds: &[Arc<Kind>]) -> Vec<Value> {
    let mut versions: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| kind.group != "apiregistration.k8s.io") {
        for version in kind.versions.iter().filter(|version| version.served) {
            let custom = matches!(version.shape, Shape::Custom(..));
            *versions.entry((&kind.group, &version.name)).or_insert(true) &= custom;
        }
    }
    versions.into_iter().map(|((group, version), custom)| registered(group, version, custom)).collect()
}

/// Returns the changes that make the APIServices match the served versions. `starting` is true once, at startup.
pub fn register(desired: &[Value], have: &[Value], starting: bool) -> Vec<Registration> {
    let find = |all: &'_ [Value], name: &str| all.iter().find(|one| Meta::of(one).name() == name).cloned();
    let mut plan = Vec::new();
    for object in desired {
        match find(have, Meta::of(object).name()) {
            None if starting || managed(object) == Some(ALWAYS) => plan.push(Registration::Create(object.clone())),
            None => {}
            Some(current) => {
                let is_managed = managed(&current).is_some();
                let should_sync = starting || (managed(&current) == Some(ALWAYS) && managed(object) == Some(ALWAYS));
                if is_managed && should_sync && current.get("spec") != object.get("spec") {
                    plan.push(Registration::Replace(with_spec(current, object)));
                }
            }
        }
    }
    for object in have.iter().filter(|object| find(desired, Meta::of(object).name()).is_none()) {
        match managed(object) {
            Some(ALWAYS) => plan.push(Registration::Delete(Meta::of(object).name().to_owned())),
            Some(ON_START) if starting => plan.push(Registration::Delete(Meta::of(object).name().to_owned())),
            _ => {}
        }
    }
    plan
}

fn managed(object: &Value) -> Option<&str> {
    Meta::of(object).label(MANAGED)
}

fn with_spec(mut current: Value, desired: &Value) -> Value {
    if let (Value::Object(fields), Some(spec)) = (&mut current, desired.get("spec")) {
        fields.insert("spec", spec.clone());
    }
    current
}

fn registered(group: &str, version: &str, custom: bool) -> Value {
    let (managed, group_priority, version_priority) = if custom {
        (ALWAYS, CUSTOM_GROUP, CUSTOM_VERSION)
    } else {
        let known = GROUPS.iter().find(|(name, _)| *name == group);
        (ON_START, known.map_or(OTHER_GROUP, |(_, priority)| *priority), version_priority(group, version))
    };
    let mut object = value!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": (format!("{version}.{group}")), "labels": {"kube-aggregator.kubernetes.io/automanaged": managed}},
        "spec": {
            "version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
        },
    });
    if let (Some(Value::Object(spec)), false) = (object.get_mut("spec"), group.is_empty()) {
        spec.insert("group", group);
    }
    object
}

/// Returns the versionPriority: stable before beta before alpha; upstream's values.
fn version_priority(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        (_, version) if version.contains("alpha") => 1,
        (_, version) if version.contains("beta") => 9,
        _ => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summarize(plan: &[Registration]) -> Vec<String> {
        let name = |object: &Value| Meta::of(object).name().to_owned();
        plan.iter()
            .map(|step| match step {
                Registration::Create(object) => format!("create {}", name(object)),
                Registration::Replace(object) => format!("replace {}", name(object)),
                Registration::Delete(name) => format!("delete {name}"),
            })
            .collect()
    }

    #[test]
    fn served_versions_are_registered_and_others_are_removed() {
        let (core, custom) = (registered("", "v1", false), registered("example.com", "v1", true));
        let desired = [core.clone(), custom.clone()];
        assert_eq!(summarize(&register(&desired, &[], true)), ["create v1.", "create v1.example.com"]);
        assert_eq!(
            summarize(&register(&desired, &[], false)),
            ["create v1.example.com"],
            "who deleted it wants it gone"
        );
        assert_eq!(summarize(&register(&[], &desired, false)), ["delete v1.example.com"]);
        assert_eq!(summarize(&register(&[], &desired, true)), ["delete v1.", "delete v1.example.com"]);
        assert!(register(&desired, &desired, true).is_empty());
    }

    #[test]
    fn unmanaged_api_services_are_not_changed() {
        let mut other = registered("example.com", "v1", true);
        if let Some(Value::Object(metadata)) = other.get_mut("metadata") {
            metadata.remove("labels");
        }
        assert!(register(&[registered("example.com", "v1", true)], &[other.clone()], true).is_empty());
        assert!(register(&[], &[other], true).is_empty());
    }

    #[test]
    fn compare_priorities_of_groups() {
        let text = std::fs::read(test_requirements::upstream("reference/bootstrap/apiservices.json")).unwrap();
        let expected = apimachinery::json::parse(&text).unwrap();
        let actual = own(&api::kinds::all());
        for object in expected.as_array().unwrap() {
            let name = object.str_at(&["metadata", "name"]).unwrap();
            let own = actual.iter().find(|own| Meta::of(own).name() == name);
            assert_eq!(own.map(|own| &own["spec"]), Some(&object["spec"]), "{name}");
        }
        assert_eq!(actual.len(), expected.as_array().unwrap().len());
    }
}
