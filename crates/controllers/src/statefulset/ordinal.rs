//! StatefulSet ordinals: name, labels and volumes of the pod with an ordinal.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Object, Value, value};
use controller::{Action, Preconditions, kinds};

use super::claims;
use crate::{adoption, pod, revision};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// An ordinal, and its pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub ordinal: i64,
    pub pod: Option<&'a Value>,
}

/// Returns `spec.ordinals.start`.
pub(super) fn start(set: &Value) -> i64 {
    set.int_at(&["spec", "ordinals", "start"]).unwrap_or(0)
}

/// Returns the ordinal in the pod's name, if the name has the StatefulSet's form.
pub(super) fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    let rest = Meta::of(pod).name().strip_prefix(Meta::of(set).name())?.strip_prefix('-')?;
    // Only the canonical form: no sign, no leading zeros.
    rest.parse().ok().filter(|number: &i64| *number >= 0 && number.to_string() == rest)
}

impl Slot<'_> {
    pub(super) fn name(self, set: &Value) -> String {
        format!("{}-{}", Meta::of(set).name(), self.ordinal)
    }

    /// Returns the pod for this ordinal from the template of a revision.
    pub(super) fn make(self, set: &Value, from: &Value) -> Value {
        let name = self.name(set);
        let prefix = format!("{}-", Meta::of(set).name());
        let template = revision::template(from);
        let namespace = Meta::of(set).namespace();
        let mut pod = pod::from_template(&template, namespace, &name, &prefix, adoption::reference(set));
        if let Some(mut meta) = MetaMut::of(&mut pod) {
            for (label, value) in self.labels(&name) {
                meta.set_label(label, &value);
            }
            meta.set_label("controller-revision-hash", Meta::of(from).name());
        }
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("hostname", name);
            if let Some(service) = set.str_at(&["spec", "serviceName"]).filter(|service| !service.is_empty()) {
                spec.insert("subdomain", service);
            }
            self.mount(set, spec);
        }
        pod
    }

    /// Restores the pod's name and index labels if they differ.
    pub(super) fn identity(self, set: &Value) -> Option<Action> {
        let pod = self.pod?;
        let wrong: Object = self
            .labels(Meta::of(pod).name())
            .into_iter()
            .filter(|(label, value)| Meta::of(pod).label(label) != Some(value))
            .collect();
        if wrong.is_empty() || Meta::of(set).is_deleting() {
            return None;
        }
        Some(Action::Patch {
            resource: kinds::PODS.clone(),
            key: apimachinery::Key::of(pod),
            subresource: "",
            only_if: Preconditions::same(pod),
            patch: controller::Patch::Merge(value!({"metadata": {"labels": wrong}})),
        })
    }

    fn labels(self, name: &str) -> [(&'static str, String); 2] {
        [(POD_NAME, name.to_owned()), (POD_INDEX, self.ordinal.to_string())]
    }

    /// Adds volumes for the claims, which replace volumes with the same names.
    fn mount(self, set: &Value, spec: &mut Object) {
        let templates = claims::templates(set);
        if templates.is_empty() {
            return;
        }
        let name = |template: &Value| Meta::of(template).name().to_owned();
        let mut volumes: Vec<Value> = templates
            .iter()
            .map(|template| {
                let claim = claims::name(set, template, self.ordinal);
                value!({"name": (name(template)), "persistentVolumeClaim": {"claimName": claim}})
            })
            .collect();
        let others = spec.get("volumes").and_then(Value::as_array).unwrap_or_default();
        let is_replaced = |volume: &&Value| templates.iter().any(|one| volume.str_at(&["name"]) == Some(&name(one)));
        volumes.extend(others.iter().filter(|volume| !is_replaced(volume)).cloned());
        spec.insert("volumes", volumes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_parsed_from_pod_names() {
        let check = |pod: &str, expect: Option<i64>| {
            let set = value!({"metadata": {"name": "db"}});
            assert_eq!(ordinal(&set, &value!({"metadata": {"name": pod}})), expect, "{pod}");
        };
        check("db-0", Some(0));
        check("db-12", Some(12));
        check("db-01", None);
        check("db--1", None);
        check("db-x", None);
        check("dbx-1", None);
        check("db", None);
    }
}
