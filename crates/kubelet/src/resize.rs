//! Changes of what containers may use while they run: whether the node has room for them, and what is in force until it has.

mod kept;

use machinery::{Object, Value};

use crate::admission;
use crate::pod::{Container, Pod};
use crate::resources::{self, Amounts};
pub use kept::{read, write};

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred` if it may be made later, `Infeasible` if this node never can.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// What a pod was given of its node: its own resources under no name, those of its containers by theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation(Object);

impl Allocation {
    /// What a pod says it should have.
    pub fn of(pod: Pod<'_>) -> Self {
        let containers = pod.init_containers().chain(pod.app_containers());
        let named = containers.map(|container| (container.name(), &container.spec["resources"]));
        let all = std::iter::once(("", &pod.spec()["resources"])).chain(named);
        Self(
            all.filter(|(_, resources)| is_said(resources))
                .map(|(name, resources)| (name, resources.clone()))
                .collect(),
        )
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A pod as it is in force: with what it was given instead of what it should have.
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

fn is_said(resources: &Value) -> bool {
    resources.as_object().is_some_and(|resources| !resources.is_empty())
}

/// Whether a node has room for a pod as it should be, beside the others as they are.
pub fn judge(pod: Pod<'_>, others: &[Pod<'_>], allocatable: &Amounts, exclusive_cpus: bool) -> Result<(), Pending> {
    let infeasible = |message: String| Err(Pending { reason: "Infeasible", message });
    if exclusive_cpus && resources::qos_class(pod.spec()) == "Guaranteed" {
        let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";
        return infeasible(message.to_owned());
    }
    let asked = resources::pod_requests(pod);
    for name in ["memory", "cpu"] {
        let (Some(asked), Some(all)) = (asked.get(name), allocatable.get(name)) else { continue };
        let number = |amount: machinery::quantity::Quantity| match name {
            "cpu" => amount.milli_value(),
            _ => amount.value(),
        };
        if asked > all {
            let (asked, all) = (number(*asked), number(*all));
            return infeasible(format!(
                "Node didn't have enough capacity: {name}, requested: {asked}, capacity: {all}"
            ));
        }
    }
    admission::admit(pod, others, allocatable).map_err(|refusal| {
        let message = refusal.message.trim_start_matches("Pod was rejected: ").to_owned();
        Pending { reason: "Deferred", message }
    })
}

/// Whether a running container has yet to get what its pod was given for it.
pub fn is_under_way(pod: Pod<'_>, container: Container<'_>, known: &crate::observed::Container) -> bool {
    // Scores are not changed in place, so that the node's memory does not matter here.
    let wanted = resources::of_container(pod, container, 1);
    let actual = known.resources.as_ref().filter(|_| known.is_running());
    actual.is_some_and(|actual| !resources::differences(&wanted, actual).is_empty())
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    fn pod(cpu: &str) -> Value {
        let resources = value!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu, "memory": "1Mi"}});
        value!({"metadata": {"uid": cpu}, "spec": {"containers": [{"name": "a", "resources": resources}, {"name": "b"}]}})
    }

    #[test]
    fn a_change_is_made_now_or_later_or_never() {
        let allocatable = Amounts::from([("cpu".to_owned(), "2".parse().unwrap())]);
        let other = pod("1500m");
        let check = |wanted: &Value, exclusive_cpus: bool, expect: Option<(&str, &str)>| {
            let found = judge(Pod(wanted), &[Pod(&other)], &allocatable, exclusive_cpus).err();
            let found = found.as_ref().map(|pending| (pending.reason, pending.message.as_str()));
            assert_eq!(found, expect, "{wanted:?}");
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
    fn until_a_change_is_made_a_pod_is_as_it_was() {
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
