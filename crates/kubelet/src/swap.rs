//! Swap limits of containers (`memorySwap.swapBehavior`).

use std::fs;
use std::path::Path;

use api::field_rules::quantity;
use apimachinery::quantity::Quantity;
use cgroups::Cgroup;
use node_api::cri::v1;

use crate::pod::{Container, Pod, QosClass};

/// Lowest priority of a critical pod.
const SYSTEM_CRITICAL: i64 = 2_000_000_000;
/// File of cgroup v2.
const SWAP_MAX: &str = "memory.swap.max";

/// Swap of the host and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Whether the behavior is `LimitedSwap` rather than `NoSwap`.
    pub limited: bool,
    /// Memory of the host in bytes.
    pub memory: i64,
    /// Swap of the host in bytes.
    pub capacity: i64,
    /// Whether the kernel accounts swap per cgroup.
    pub counted: bool,
    /// Whether the host uses cgroup v2.
    pub unified: bool,
}

impl Swap {
    // DEVIATION: a host with swap is always accepted; upstream's kubelet fails to start unless failSwapOn is false.
    /// Detects swap accounting of the host.
    pub fn read(limited: bool, memory: i64, capacity: i64) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let unified = Cgroup::is_unified();
        let groups = Path::new("/sys/fs/cgroup");
        let counted = match unified {
            true => groups.join(own).join(SWAP_MAX).exists(),
            false => groups.join("memory/memory.memsw.limit_in_bytes").exists(),
        };
        Self { limited, memory, capacity, counted, unified }
    }

    /// Adds the swap limit to a container's resources.
    pub fn add(&self, pod: Pod<'_>, container: Container<'_>, to: &mut v1::LinuxContainerResources) {
        if !self.counted {
            return;
        }
        if self.unified {
            to.unified.insert(SWAP_MAX.to_owned(), self.bytes(pod, container).to_string());
        } else {
            // cgroup v1 limits memory and swap together, so a limit for swap alone is impossible.
            to.memory_swap_limit_in_bytes = to.memory_limit_in_bytes;
        }
    }

    /// Returns the swap limit: for containers of Burstable pods in proportion to their memory request, otherwise zero.
    fn bytes(&self, pod: Pod<'_>, container: Container<'_>) -> i64 {
        let amount =
            |of: &str| container.spec.at(&["resources", of, "memory"]).map_or(Quantity::ZERO, quantity).value();
        let (request, limit) = (amount("requests"), amount("limits"));
        let critical = pod.spec()["priority"].as_int().unwrap_or(0) >= SYSTEM_CRITICAL;
        let burstable = pod.qos_class() == QosClass::Burstable;
        if !self.limited || critical || !burstable || request == 0 || request == limit {
            return 0;
        }
        let part = i128::from(request) * i128::from(self.capacity) / i128::from(self.memory.max(1));
        i64::try_from(part).unwrap_or(i64::MAX).min(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    #[test]
    fn only_burstable_containers_get_swap() {
        let check = |spec: Value, limited: bool, expect: i64| {
            let pod = value!({"spec": (spec.clone())});
            let swap = Swap { limited, memory: 8 << 30, capacity: 4 << 30, counted: true, unified: true };
            let container = Pod(&pod).app_containers().next().unwrap();
            let mut to = v1::LinuxContainerResources::default();
            swap.add(Pod(&pod), container, &mut to);
            assert_eq!(to.unified[SWAP_MAX], expect.to_string(), "{spec:?}");
        };
        let pod_with = |request: &str, limit: &str| {
            let memory = value!({"requests": {"memory": request}, "limits": {"memory": limit}});
            value!({"containers": [{"name": "c", "resources": memory}]})
        };
        check(pod_with("2Gi", "4Gi"), true, 1 << 30);
        check(pod_with("2Gi", "4Gi"), false, 0);
        check(pod_with("2Gi", "2Gi"), true, 0);
        check(value!({"containers": [{"name": "c"}]}), true, 0);
        let mut vital = pod_with("2Gi", "4Gi");
        vital.as_object_mut().unwrap().insert("priority", 2_000_000_000_i64);
        check(vital, true, 0);
    }
}
