//! Device allocation: pure decisions about which container gets which devices.

use std::collections::{BTreeMap, BTreeSet};

use api::field_rules::quantity;
use apimachinery::Object;
use node_api::devices::ContainerAllocateResponse;

use crate::admission::Rejection;
use crate::pod::{Container, Pod, Role};
use crate::topology::{Hint, Hints, Nodes, Provider};

/// Device counts of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub capacity: i64,
    /// Number of healthy devices.
    pub allocatable: i64,
}

/// Devices of one resource that are allocated to a container.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAllocation {
    /// UID of the pod.
    pub uid: String,
    pub container: String,
    pub resource: String,
    pub ids: BTreeSet<String>,
    /// The plugin's Allocate response, once received.
    pub response: Option<ContainerAllocateResponse>,
}

/// A device as reported by its plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub healthy: bool,
    /// NUMA nodes of the device, if its plugin reports them.
    pub nodes: Option<Nodes>,
}

/// All devices of the node and their allocations.
#[derive(Clone, Debug, Default)]
pub struct DeviceAllocator {
    /// Devices by resource and ID.
    devices: BTreeMap<String, BTreeMap<String, Device>>,
    given: Vec<DeviceAllocation>,
}

impl DeviceAllocator {
    /// Creates an allocator with the allocations of a checkpoint and without devices.
    pub fn new(given: Vec<DeviceAllocation>) -> Self {
        Self { devices: BTreeMap::new(), given }
    }

    pub fn given(&self) -> &[DeviceAllocation] {
        &self.given
    }

    /// Replaces the devices of a resource by those that its plugin reports.
    pub fn set(&mut self, resource: &str, devices: BTreeMap<String, Device>) {
        self.devices.insert(resource.to_owned(), devices);
    }

    /// Marks all devices of a disconnected plugin as unhealthy.
    pub fn lost(&mut self, resource: &str) {
        let devices = self.devices.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut);
        devices.for_each(|device| device.healthy = false);
    }

    /// Returns the device counts by resource.
    pub fn counts(&self) -> BTreeMap<String, Counts> {
        let count = |devices: &BTreeMap<String, Device>| Counts {
            capacity: i64::try_from(devices.len()).unwrap_or(i64::MAX),
            allocatable: i64::try_from(devices.values().filter(|device| device.healthy).count()).unwrap_or(i64::MAX),
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), count(devices))).collect()
    }

    /// Returns the IDs of healthy devices by resource.
    pub fn healthy(&self) -> BTreeMap<String, Vec<String>> {
        let names = |devices: &BTreeMap<String, Device>| {
            devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect()
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), names(devices))).collect()
    }

    /// Releases the devices of deleted pods. Returns whether any were released.
    pub fn keep_only(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        let before = self.given.len();
        self.given.retain(|given| is_here(&given.uid));
        self.given.len() != before
    }

    /// Stores the plugin's Allocate response in the allocation.
    pub fn set_response(&mut self, allocation: &DeviceAllocation, response: ContainerAllocateResponse) {
        let same = |given: &&mut DeviceAllocation| {
            given.uid == allocation.uid
                && given.container == allocation.container
                && given.resource == allocation.resource
        };
        if let Some(given) = self.given.iter_mut().find(same) {
            given.response = Some(response);
        }
    }

    fn has(&self, pod: Pod<'_>, container: Container<'_>, resource: &str) -> bool {
        let own = |given: &DeviceAllocation| given.uid == pod.uid() && given.container == container.name();
        self.given.iter().any(|given| own(given) && given.resource == resource)
    }

    /// Returns the devices that a container requests from plugins, as (resource, count).
    fn requested_devices(&self, container: Container<'_>) -> Vec<(String, usize)> {
        let limits = container.spec["resources"]["limits"].as_object().into_iter().flat_map(Object::iter);
        limits
            .filter(|(name, _)| self.devices.contains_key(*name))
            .map(|(name, value)| (name.to_owned(), usize::try_from(quantity(value).value()).unwrap_or(0)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Returns the devices of a pod's init containers that its other containers can reuse.
    fn reusable(&self, pod: Pod<'_>, resource: &str) -> BTreeSet<String> {
        let of = |is_init: bool| -> BTreeSet<String> {
            let containers = pod.init_containers().chain(pod.app_containers());
            let same = containers.filter(|one| (one.role == Role::Init) == is_init);
            let names: BTreeSet<&str> = same.map(Container::name).collect();
            let own = self.given.iter().filter(|given| given.uid == pod.uid() && given.resource == resource);
            own.filter(|given| names.contains(given.container.as_str())).flat_map(|given| given.ids.clone()).collect()
        };
        of(true).difference(&of(false)).cloned().collect()
    }

    /// Returns the healthy devices of a resource that are not allocated.
    fn free(&self, resource: &str) -> Vec<(&String, &Device)> {
        let others = self.given.iter().filter(|given| given.resource == resource);
        let used: BTreeSet<&String> = others.flat_map(|given| &given.ids).collect();
        let all = self.devices.get(resource).into_iter().flatten();
        all.filter(|(id, device)| device.healthy && !used.contains(id)).collect()
    }

    fn choose(
        &self,
        resource: &str,
        count: usize,
        again: &BTreeSet<String>,
        near: Option<Nodes>,
    ) -> Result<BTreeSet<String>, Rejection> {
        let mut free = self.free(resource);
        // Devices near the preferred NUMA nodes come first, then devices without topology information.
        free.sort_by_key(|(_, device)| match (near, device.nodes) {
            (Some(near), Some(nodes)) if near.and(nodes).count() > 0 => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        });
        let available: Vec<&String> = again.iter().chain(free.into_iter().map(|(id, _)| id)).collect();
        if available.len() < count {
            let message = format!(
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for {resource}. \
                 Requested: {count}, Available: {}, which is unexpected",
                available.len()
            );
            return Err(Rejection { reason: "UnexpectedAdmissionError".to_owned(), message });
        }
        Ok(available.into_iter().take(count).cloned().collect())
    }

    /// Returns the sets of NUMA nodes that can provide `count` devices; `None` (no preference) if no device has
    /// topology information.
    fn hints_for(&self, resource: &str, count: usize, reusable: &BTreeSet<String>) -> Option<Vec<Hint>> {
        let all = self.devices.get(resource)?;
        let machine = Nodes::of(all.values().filter_map(|device| device.nodes).flat_map(Nodes::iter));
        if machine.count() == 0 {
            return None;
        }
        let free = self.free(resource);
        let is_in = |set: Nodes, device: &Device| device.nodes.is_some_and(|nodes| nodes.and(set).count() > 0);
        let placed: Vec<&Device> =
            reusable.iter().filter_map(|id| all.get(id)).filter(|device| device.nodes.is_some()).collect();
        let mut smallest = machine.count();
        let mut found = Vec::new();
        for set in machine.subsets() {
            if all.values().filter(|device| is_in(set, device)).count() >= count {
                smallest = smallest.min(set.count());
            }
            let near = free.iter().filter(|(_, device)| is_in(set, device)).count();
            if placed.iter().all(|device| is_in(set, device)) && placed.len() + near >= count {
                found.push(set);
            }
        }
        Some(found.into_iter().map(|set| Hint { nodes: Some(set), preferred: set.count() == smallest }).collect())
    }
}

impl Provider for DeviceAllocator {
    fn hints(&self, pod: Pod<'_>, container: Container<'_>) -> Hints {
        let hints = |(resource, count): (String, usize)| {
            let hints = self.hints_for(&resource, count, &self.reusable(pod, &resource));
            (resource, hints)
        };
        self.requested_devices(container)
            .into_iter()
            .filter(|(resource, _)| !self.has(pod, container, resource))
            .map(hints)
            .collect()
    }

    fn pod_hints(&self, pod: Pod<'_>) -> Hints {
        let mut lasting: BTreeMap<String, usize> = BTreeMap::new();
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for container in pod.init_containers().chain(pod.app_containers()) {
            for (resource, count) in self.requested_devices(container) {
                if container.role == Role::Init {
                    let most = first.entry(resource).or_default();
                    *most = count.max(*most);
                } else {
                    *lasting.entry(resource).or_default() += count;
                }
            }
        }
        for (resource, count) in first {
            let most = lasting.entry(resource).or_default();
            *most = count.max(*most);
        }
        let hints = |(resource, count): (String, usize)| {
            let hints = self.hints_for(&resource, count, &BTreeSet::new());
            (resource, hints)
        };
        lasting.into_iter().map(hints).collect()
    }

    fn allocate(&mut self, pod: Pod<'_>, container: Container<'_>, near: Option<Nodes>) -> Result<(), Rejection> {
        for (resource, count) in self.requested_devices(container) {
            if self.has(pod, container, &resource) {
                continue;
            }
            let ids = self.choose(&resource, count, &self.reusable(pod, &resource), near)?;
            let (uid, name) = (pod.uid().to_owned(), container.name().to_owned());
            self.given.push(DeviceAllocation { uid, container: name, resource, ids, response: None });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    fn pod(uid: &str, init: i64, app: i64) -> Value {
        let container = |name: &str, count: i64| value!({"name": name, "resources": {"limits": {"example.com/d": (count.to_string()), "cpu": "1"}}});
        value!({"metadata": {"uid": uid}, "spec": {"initContainers": [(container("i", init))],
            "containers": [(container("c", app))]}})
    }

    fn ledger() -> DeviceAllocator {
        let mut ledger = DeviceAllocator::default();
        let devices = [("a", true), ("b", true), ("c", true), ("d", false)];
        let device = |(id, healthy): (&str, bool)| (id.to_owned(), Device { healthy, nodes: None });
        ledger.set("example.com/d", devices.map(device).into());
        ledger
    }

    /// Allocates devices to all containers of a pod or to none. Returns whether any were allocated.
    fn admit(ledger: &mut DeviceAllocator, pod: &Value) -> Result<bool, Rejection> {
        let (before, pod) = (ledger.clone(), Pod(pod));
        let mut containers = pod.init_containers().chain(pod.app_containers());
        let outcome = containers.try_for_each(|container| ledger.allocate(pod, container, None));
        let any = ledger.given().len() > before.given().len();
        outcome.map(|()| any).inspect_err(|_| *ledger = before)
    }

    #[test]
    fn devices_are_allocated_from_the_preferred_numa_nodes() {
        let mut ledger = DeviceAllocator::default();
        let device = |(id, node): (&str, Option<u32>)| {
            (id.to_owned(), Device { healthy: true, nodes: node.map(|node| Nodes::of([node])) })
        };
        ledger.set("example.com/d", [("a", Some(0)), ("b", Some(1)), ("c", Some(1)), ("d", None)].map(device).into());
        let check = |ledger: &DeviceAllocator, count: i64, expect: &[(u32, bool)]| {
            let pod = pod("new", 0, count);
            let hints = ledger.hints(Pod(&pod), Pod(&pod).app_containers().next().unwrap());
            let found =
                hints["example.com/d"].iter().flatten().map(|hint| (hint.nodes.unwrap().count(), hint.preferred));
            assert_eq!(found.collect::<Vec<_>>(), expect, "{count}");
            assert_eq!(ledger.pod_hints(Pod(&pod)), hints);
        };
        check(&ledger, 1, &[(1, true), (1, true), (2, false)]);
        check(&ledger, 2, &[(1, true), (2, false)]);
        check(&ledger, 3, &[(2, true)]);
        check(&ledger, 4, &[]);
        let (first, second) = (pod("p", 0, 1), pod("q", 0, 2));
        ledger.allocate(Pod(&first), Pod(&first).app_containers().next().unwrap(), Some(Nodes::of([1]))).unwrap();
        ledger.allocate(Pod(&second), Pod(&second).app_containers().next().unwrap(), Some(Nodes::of([1]))).unwrap();
        assert_eq!(render(&ledger), ["p c b", "q c c+d"]);
        check(&ledger, 1, &[(1, true), (2, false)]);
    }

    fn render(ledger: &DeviceAllocator) -> Vec<String> {
        let ids = |given: &DeviceAllocation| given.ids.iter().cloned().collect::<Vec<_>>().join("+");
        ledger.given().iter().map(|given| format!("{} {} {}", given.uid, given.container, ids(given))).collect()
    }

    #[test]
    fn devices_are_allocated_once_and_reused_from_init_containers() {
        let mut ledger = ledger();
        assert_eq!(ledger.counts()["example.com/d"], Counts { capacity: 4, allocatable: 3 });
        assert_eq!(admit(&mut ledger, &pod("p", 2, 1)), Ok(true));
        assert_eq!(admit(&mut ledger, &pod("p", 2, 1)), Ok(false));
        assert_eq!(render(&ledger), ["p i a+b", "p c a"]);
        assert_eq!(admit(&mut ledger, &pod("q", 0, 1)), Ok(true));
        let rejection = admit(&mut ledger, &pod("r", 0, 1)).unwrap_err();
        let expect = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/d. \
            Requested: 1, Available: 0, which is unexpected";
        assert_eq!(rejection.message, expect);
        assert!(ledger.keep_only(|uid| uid != "p"));
        assert_eq!(admit(&mut ledger, &pod("r", 0, 2)), Ok(true));
        assert_eq!(render(&ledger), ["q c c", "r c a+b"]);
    }

    #[test]
    fn pod_gets_all_of_its_devices_or_none() {
        let mut ledger = ledger();
        let mut greedy = pod("p", 0, 2);
        let container = value!({"name": "other", "resources": {"limits": {"example.com/d": "2"}}});
        greedy.get_mut("spec").unwrap().get_mut("containers").unwrap().as_array_mut().unwrap().push(container);
        assert!(admit(&mut ledger, &greedy).is_err());
        assert!(ledger.given().is_empty());
    }

    #[test]
    fn devices_of_a_disconnected_plugin_are_not_allocated() {
        let mut ledger = ledger();
        ledger.lost("example.com/d");
        assert_eq!(ledger.counts()["example.com/d"], Counts { capacity: 4, allocatable: 0 });
        assert!(admit(&mut ledger, &pod("p", 0, 1)).is_err());
    }
}
