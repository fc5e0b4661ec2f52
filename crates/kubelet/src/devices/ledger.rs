//! Which devices there are and who has them: decided without asking anybody.

use std::collections::{BTreeMap, BTreeSet};

use api::field_rules::quantity;
use machinery::Object;
use plugins::devices::ContainerAllocateResponse;

use crate::admission::Refusal;
use crate::pod::{Container, Pod, Role};

/// How many devices of a resource there are: in all, and to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In all.
    pub capacity: i64,
    /// Those that are healthy.
    pub allocatable: i64,
}

/// Devices of one resource that a container has.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Its pod.
    pub uid: String,
    /// Its name.
    pub container: String,
    /// The resource.
    pub resource: String,
    /// The devices.
    pub ids: BTreeSet<String>,
    /// What they need in the container, once the plug-in was asked.
    pub answer: Option<ContainerAllocateResponse>,
}

/// All devices, and who has which.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Whether each device is healthy, by resource and device.
    devices: BTreeMap<String, BTreeMap<String, bool>>,
    given: Vec<Given>,
}

impl Ledger {
    /// No devices yet, but it is known who has which.
    pub fn new(given: Vec<Given>) -> Self {
        Self { devices: BTreeMap::new(), given }
    }

    /// Who has which.
    pub fn given(&self) -> &[Given] {
        &self.given
    }

    /// A plug-in says what it has.
    pub fn set(&mut self, resource: &str, devices: BTreeMap<String, bool>) {
        self.devices.insert(resource.to_owned(), devices);
    }

    /// A plug-in is gone: nobody knows how its devices are.
    pub fn lost(&mut self, resource: &str) {
        self.devices.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut).for_each(|healthy| *healthy = false);
    }

    /// How many there are of each.
    pub fn counts(&self) -> BTreeMap<String, Counts> {
        let count = |devices: &BTreeMap<String, bool>| Counts {
            capacity: i64::try_from(devices.len()).unwrap_or(i64::MAX),
            allocatable: i64::try_from(devices.values().filter(|healthy| **healthy).count()).unwrap_or(i64::MAX),
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), count(devices))).collect()
    }

    /// The healthy ones of each.
    pub fn healthy(&self) -> BTreeMap<String, Vec<String>> {
        let names = |devices: &BTreeMap<String, bool>| {
            devices.iter().filter(|(_, healthy)| **healthy).map(|(id, _)| id.clone()).collect()
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), names(devices))).collect()
    }

    /// Takes devices for a pod's containers, all or none; says whether any were taken.
    pub fn admit(&mut self, pod: Pod<'_>) -> Result<bool, Refusal> {
        let mut taken: Vec<Given> = Vec::new();
        // What an init container had is free for those that come after it has ended.
        let mut reusable: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for container in pod.init_containers().chain(pod.app_containers()) {
            for (resource, count) in self.wishes(container) {
                let has = |given: &&Given| {
                    given.uid == pod.uid() && given.container == container.name() && given.resource == resource
                };
                if self.given.iter().any(|given| has(&given)) {
                    continue;
                }
                let again = reusable.entry(resource.clone()).or_default();
                let ids = self.choose(&resource, count, again, &taken)?;
                if container.role == Role::Init {
                    again.extend(ids.iter().cloned());
                } else {
                    again.retain(|id| !ids.contains(id));
                }
                let (uid, name) = (pod.uid().to_owned(), container.name().to_owned());
                taken.push(Given { uid, container: name, resource, ids, answer: None });
            }
        }
        let any = !taken.is_empty();
        self.given.extend(taken);
        Ok(any)
    }

    /// Forgets pods that are gone; says whether there were any.
    pub fn keep_only(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        let before = self.given.len();
        self.given.retain(|given| is_here(&given.uid));
        self.given.len() != before
    }

    /// A plug-in has said what devices need.
    pub fn answered(&mut self, asked: &Given, answer: ContainerAllocateResponse) {
        let same = |given: &&mut Given| {
            given.uid == asked.uid && given.container == asked.container && given.resource == asked.resource
        };
        if let Some(given) = self.given.iter_mut().find(same) {
            given.answer = Some(answer);
        }
    }

    /// What a container wants of resources that plug-ins have.
    fn wishes(&self, container: Container<'_>) -> Vec<(String, usize)> {
        let limits = container.spec["resources"]["limits"].as_object().into_iter().flat_map(Object::iter);
        limits
            .filter(|(name, _)| self.devices.contains_key(*name))
            .map(|(name, value)| (name.to_owned(), usize::try_from(quantity(value).value()).unwrap_or(0)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn choose(
        &self,
        resource: &str,
        count: usize,
        again: &BTreeSet<String>,
        taken: &[Given],
    ) -> Result<BTreeSet<String>, Refusal> {
        let others = self.given.iter().chain(taken).filter(|given| given.resource == resource);
        let used: BTreeSet<&String> = others.flat_map(|given| &given.ids).collect();
        let free =
            self.devices.get(resource).into_iter().flatten().filter(|(id, healthy)| **healthy && !used.contains(id));
        let available: Vec<&String> = again.iter().chain(free.map(|(id, _)| id)).collect();
        if available.len() < count {
            let message = format!(
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for {resource}. \
                 Requested: {count}, Available: {}, which is unexpected",
                available.len()
            );
            return Err(Refusal { reason: "UnexpectedAdmissionError".to_owned(), message });
        }
        Ok(available.into_iter().take(count).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use machinery::{Value, value};

    use super::*;

    fn pod(uid: &str, init: i64, app: i64) -> Value {
        let container = |name: &str, count: i64| value!({"name": name, "resources": {"limits": {"example.com/d": (count.to_string()), "cpu": "1"}}});
        value!({"metadata": {"uid": uid}, "spec": {"initContainers": [(container("i", init))],
            "containers": [(container("c", app))]}})
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let devices = [("a", true), ("b", true), ("c", true), ("d", false)];
        ledger.set("example.com/d", devices.map(|(id, healthy)| (id.to_owned(), healthy)).into());
        ledger
    }

    fn shown(ledger: &Ledger) -> Vec<String> {
        let ids = |given: &Given| given.ids.iter().cloned().collect::<Vec<_>>().join("+");
        ledger.given().iter().map(|given| format!("{} {} {}", given.uid, given.container, ids(given))).collect()
    }

    #[test]
    fn no_device_has_two_owners_and_what_init_containers_had_is_used_again() {
        let mut ledger = ledger();
        assert_eq!(ledger.counts()["example.com/d"], Counts { capacity: 4, allocatable: 3 });
        assert_eq!(ledger.admit(Pod(&pod("p", 2, 1))), Ok(true));
        assert_eq!(ledger.admit(Pod(&pod("p", 2, 1))), Ok(false));
        assert_eq!(shown(&ledger), ["p i a+b", "p c a"]);
        assert_eq!(ledger.admit(Pod(&pod("q", 0, 1))), Ok(true));
        let refusal = ledger.admit(Pod(&pod("r", 0, 1))).unwrap_err();
        let expect = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/d. \
            Requested: 1, Available: 0, which is unexpected";
        assert_eq!(refusal.message, expect);
        assert!(ledger.keep_only(|uid| uid != "p"));
        assert_eq!(ledger.admit(Pod(&pod("r", 0, 2))), Ok(true));
        assert_eq!(shown(&ledger), ["q c c", "r c a+b"]);
    }

    #[test]
    fn a_pod_gets_all_of_its_devices_or_none() {
        let mut ledger = ledger();
        let mut greedy = pod("p", 0, 2);
        let container = value!({"name": "other", "resources": {"limits": {"example.com/d": "2"}}});
        greedy.get_mut("spec").unwrap().get_mut("containers").unwrap().as_array_mut().unwrap().push(container);
        assert!(ledger.admit(Pod(&greedy)).is_err());
        assert!(ledger.given().is_empty());
    }

    #[test]
    fn nobody_gets_devices_of_a_plug_in_that_is_gone() {
        let mut ledger = ledger();
        ledger.lost("example.com/d");
        assert_eq!(ledger.counts()["example.com/d"], Counts { capacity: 4, allocatable: 0 });
        assert!(ledger.admit(Pod(&pod("p", 0, 1))).is_err());
    }
}
