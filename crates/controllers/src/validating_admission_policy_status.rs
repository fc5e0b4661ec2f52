//! ValidatingAdmissionPolicy status: type-checks the expressions and reports warnings.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use api::admissionregistration::type_check::{self, KindRef};
use api::apiextensions::custom_resource::kind_of;
use api::kind::Kind;
use api::resources::{CUSTOM_RESOURCE_DEFINITIONS, VALIDATING_ADMISSION_POLICIES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

// DEVIATION: types of aggregated API servers are not checked; expressions on them get no warnings.
pub struct ValidatingAdmissionPolicyStatus;

/// A policy, and all CRDs.
pub struct Observation<'a> {
    policy: &'a Value,
    definitions: Vec<&'a Value>,
}

/// The built-in kinds.
static BUILT_IN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(api::kinds::all);

impl Controller for ValidatingAdmissionPolicyStatus {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const READS: &'static [GroupResource] = &[VALIDATING_ADMISSION_POLICIES, CUSTOM_RESOURCE_DEFINITIONS];
    const WRITES: &'static [Write] = &[(VALIDATING_ADMISSION_POLICIES, "status")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            VALIDATING_ADMISSION_POLICIES => keys.push(Key::of(object)),
            // A policy may refer to any kind, also to one that does not exist yet.
            _ => keys.extend(cache.of(VALIDATING_ADMISSION_POLICIES).iter().map(|entry| entry.key.clone())),
        }
    }

    fn is_relevant_change(kind: GroupResource, old: &Value, new: &Value) -> bool {
        kind == VALIDATING_ADMISSION_POLICIES || old.get("spec") != new.get("spec")
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let policy = cache.get(VALIDATING_ADMISSION_POLICIES, key)?;
        Some(Observation {
            policy,
            definitions: cache.of(CUSTOM_RESOURCE_DEFINITIONS).iter().map(|entry| &entry.value).collect(),
        })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let policy = Meta::of(observed.policy);
        let warnings =
            type_check::warnings(observed.policy, &|group, called| find(&observed.definitions, group, called));
        let checked = if warnings.is_empty() { Value::object() } else { value!({"expressionWarnings": warnings}) };
        let status = value!({"observedGeneration": (policy.generation()), "typeChecking": checked});
        let stored_field = |field: &str| observed.policy.at(&["status", field]).cloned().unwrap_or_default();
        if stored_field("observedGeneration") == status["observedGeneration"]
            && stored_field("typeChecking") == status["typeChecking"]
        {
            return Plan::default();
        }
        let object = value!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": (policy.name())}, "status": status});
        Plan::of(Action::Apply {
            resource: kinds::VALIDATING_ADMISSION_POLICIES.clone(),
            subresource: "status",
            object,
        })
    }
}

fn find(definitions: &[&Value], group: &str, called: KindRef<'_>) -> Option<Arc<Kind>> {
    if let Some(kind) = BUILT_IN.iter().find(|kind| kind.group == group && called.is(&kind.plural, &kind.kind)) {
        return Some(Arc::clone(kind));
    }
    let is = |definition: &&&Value| {
        let name = |field: &str| definition.text_at(&["spec", "names", field]);
        definition.str_at(&["spec", "group"]) == Some(group) && called.is(name("plural"), name("kind"))
    };
    definitions.iter().find(is).and_then(|definition| kind_of(definition).ok()).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    fn policy(name: &str, group: &str, resource: &str, expression: &str) -> Value {
        value!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]},
            "validations": [{"expression": expression}]}})
    }

    fn widgets(properties: Value) -> Value {
        value!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": properties}}}]}})
    }

    #[test]
    fn type_checking_warnings_and_observed_generation_are_reported() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let resource = &kinds::VALIDATING_ADMISSION_POLICIES;
        cluster.add(resource, policy("good", "apps", "deployments", "object.spec.replicas <= 5"));
        cluster.add(resource, policy("bad", "apps", "deployments", "object.replicas <= 5"));
        cluster.add(resource, policy("custom", "example.com", "widgets", "object.size <= 5"));
        check_properties::<ValidatingAdmissionPolicyStatus>(&cluster, |_| false);
        run_until_stable::<ValidatingAdmissionPolicyStatus>(&mut cluster, |_| false);
        let status =
            |cluster: &FakeCluster, name: &str| cluster.get(resource, &Key::cluster(name)).unwrap()["status"].clone();
        let fine = value!({"observedGeneration": 1, "typeChecking": {}});
        assert_eq!(status(&cluster, "good"), fine);
        assert_eq!(status(&cluster, "custom"), fine);
        let warning = "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas <= 5\n | ......^\n";
        let expected = value!([{"fieldRef": "spec.validations[0].expression", "warning": warning}]);
        assert_eq!(status(&cluster, "bad")["typeChecking"]["expressionWarnings"], expected);

        cluster.add(&kinds::CUSTOM_RESOURCE_DEFINITIONS, widgets(value!({"weight": {"type": "integer"}})));
        run_until_stable::<ValidatingAdmissionPolicyStatus>(&mut cluster, |_| false);
        let warned = status(&cluster, "custom");
        let warned = warned["typeChecking"]["expressionWarnings"][0].str_at(&["warning"]).unwrap();
        assert!(
            warned.starts_with("example.com/v1, Kind=Widget: ERROR: <input>:1:7: undefined field 'size'"),
            "{warned}"
        );
        assert_eq!(status(&cluster, "good"), fine);
    }
}
