//! In-place pod resize: decides whether new resources fit; the allocated resources stay effective until they do.

mod allocation_checkpoint;

use api::amounts::Amounts;
use apimachinery::{Object, Value};
use cgroups::Controllers;

use crate::admission;
use crate::pod::{Container, Pod, QosClass};
use crate::resources;
pub use allocation_checkpoint::{read, write};

/// A resize that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred` if the resize may fit later, `Infeasible` if it never fits this node.
    pub reason: &'static str,
    pub message: String,
}

/// The allocated resources of a pod: pod-level resources under an empty name, those of containers by container name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation(Object);

impl Allocation {
    /// Returns the desired resources of a pod.
    pub fn of(pod: Pod<'_>) -> Self {
        let containers = pod.init_containers().chain(pod.app_containers());
        let named = containers.map(|container| (container.name(), &container.spec["resources"]));
        let all = std::iter::once(("", &pod.spec()["resources"])).chain(named);
        Self(
            all.filter(|(_, resources)| is_specified(resources))
                .map(|(name, resources)| (name, resources.clone()))
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pod with its allocated resources instead of the desired ones.
    pub fn in_force(&self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        let Some(spec) = pod.get_mut("spec") else { return pod };
        self.put("", spec);
        for field in ["initContainers", "containers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                let name = container.str_at(&["name"]).unwrap_or_default().to_owned();
                self.put(&name, container);
            }
        }
        pod
    }

    fn put(&self, name: &str, holder: &mut Value) {
        let Some(holder) = holder.as_object_mut() else { return };
        match self.0.get(name) {
            Some(resources) => drop(holder.insert("resources", resources.clone())),
            None => drop(holder.remove("resources")),
        }
    }
}

fn is_specified(resources: &Value) -> bool {
    resources.as_object().is_some_and(|resources| !resources.is_empty())
}

/// Checks whether the desired resources of a pod fit the node beside the other pods.
pub fn evaluate(pod: Pod<'_>, others: &[Pod<'_>], allocatable: &Amounts, exclusive_cpus: bool) -> Result<(), Pending> {
    let infeasible = |message: String| Err(Pending { reason: "Infeasible", message });
    if exclusive_cpus && pod.qos_class() == QosClass::Guaranteed {
        let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";
        return infeasible(message.to_owned());
    }
    for name in ["memory", "cpu"] {
        let (requested, Some(all)) = (pod.request(name), allocatable.get(name)) else { continue };
        let number = |amount: apimachinery::quantity::Quantity| match name {
            "cpu" => amount.milli_value(),
            _ => amount.value(),
        };
        if requested > *all {
            let (requested, all) = (number(requested), number(*all));
            return infeasible(format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {all}"
            ));
        }
    }
    admission::admit(pod, others, allocatable).map_err(|rejection| {
        let message = rejection.message.trim_start_matches("Pod was rejected: ").to_owned();
        Pending { reason: "Deferred", message }
    })
}

/// Whether a running container does not have its allocated resources yet, as far as this node enforces them.
pub fn is_under_way(
    pod: Pod<'_>,
    container: Container<'_>,
    known: &crate::runtime_status::Container,
    unenforced: Controllers,
) -> bool {
    // The OOM score is not changed in place, so the node's memory does not matter here.
    let mut desired = resources::of_container(pod, container, 1);
    resources::remove_limits(unenforced, &mut desired);
    let actual = known.resources.as_ref().filter(|_| known.is_running());
    actual.is_some_and(|actual| !resources::differences(&desired, actual).is_empty())
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(cpu: &str) -> Value {
        let resources = value!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu, "memory": "1Mi"}});
        value!({"metadata": {"uid": cpu}, "spec": {"containers": [{"name": "a", "resources": resources}, {"name": "b"}]}})
    }

    #[test]
    fn resize_is_accepted_deferred_or_infeasible() {
        let allocatable = Amounts::from([("cpu".into(), "2".parse().unwrap())]);
        let other = pod("1500m");
        let check = |desired: &Value, exclusive_cpus: bool, expect: Option<(&str, &str)>| {
            let found = evaluate(Pod(desired), &[Pod(&other)], &allocatable, exclusive_cpus).err();
            let found = found.as_ref().map(|pending| (pending.reason, pending.message.as_str()));
            assert_eq!(found, expect, "{desired:?}");
        };
        check(&pod("500m"), false, None);
        let message = "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000";
        check(&pod("600m"), false, Some(("Deferred", message)));
        let message = "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000";
        check(&pod("3"), false, Some(("Infeasible", message)));
        let mut guaranteed = pod("100m");
        let containers = guaranteed.get_mut("spec").unwrap().get_mut("containers").unwrap().as_array_mut().unwrap();
        containers.truncate(1);
        let resources =
            value!({"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "100m", "memory": "1Mi"}});
        containers[0].as_object_mut().unwrap().insert("resources", resources);
        check(&guaranteed, false, None);
        let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";
        check(&guaranteed, true, Some(("Infeasible", message)));
    }

    #[test]
    fn allocated_resources_are_effective_until_the_resize_is_accepted() {
        let (before, mut after) = (pod("1"), pod("2"));
        let containers = after.get_mut("spec").unwrap().get_mut("containers").unwrap().as_array_mut().unwrap();
        containers[1].as_object_mut().unwrap().insert("resources", value!({"requests": {"cpu": "1"}}));
        containers[1].as_object_mut().unwrap().insert("image", "new");
        let given = Allocation::of(Pod(&before));
        assert_ne!(given, Allocation::of(Pod(&after)));
        let in_force = given.in_force(&after);
        assert_eq!(given, Allocation::of(Pod(&in_force)));
        assert_eq!(in_force["spec"]["containers"][1], value!({"name": "b", "image": "new"}));
        assert!(Allocation::of(Pod(&value!({"spec": {"containers": [{"name": "a", "resources": {}}]}}))).is_empty());
    }
}
