//! Local storage eviction: pods that exceed their ephemeral-storage limits or emptyDir size limits.

use std::collections::BTreeMap;

use api::field_rules::quantity;
use apimachinery::Value;
use apimachinery::quantity::Quantity;

use crate::pod::{AmountsFrom, Pod};
use crate::usage::DiskUsage;

/// Disk usage of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDiskUsage {
    /// emptyDir volumes by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Writable layers and logs of containers by name.
    pub containers: BTreeMap<String, DiskUsage>,
    /// Kubelet files that containers can write: the hosts file and the termination logs.
    pub own: DiskUsage,
}

impl PodDiskUsage {
    /// Returns the total disk usage; excludes emptyDir volumes in memory.
    pub fn total(&self, pod: Pod<'_>) -> DiskUsage {
        let in_memory = |name: &str| {
            let found = pod.list("volumes").iter().find(|volume| volume.str_at(&["name"]) == Some(name));
            found.is_some_and(|volume| volume.str_at(&["emptyDir", "medium"]) == Some("Memory"))
        };
        let on_disk = self.volumes.iter().filter(|(name, _)| !in_memory(name)).map(|(_, taken)| taken);
        self.containers.values().chain(on_disk).chain([&self.own]).copied().sum()
    }
}

/// Returns the names of a pod's emptyDir volumes.
pub fn empty_dirs(pod: Pod<'_>) -> impl Iterator<Item = &str> {
    pod.list("volumes")
        .iter()
        .filter(|volume| volume.get("emptyDir").is_some_and(|source| !source.is_null()))
        .filter_map(|volume| volume.str_at(&["name"]))
}

/// Whether a pod has any ephemeral storage limit, so that its usage must be measured.
pub fn is_limited(pod: Pod<'_>) -> bool {
    pod.list("volumes").iter().any(|volume| size_limit(volume).is_some())
        || pod.containers().any(|container| storage_limit(container.spec).is_some())
}

/// Returns upstream's eviction message if a pod exceeds a limit.
pub fn excess(pod: Pod<'_>, written: &PodDiskUsage) -> Option<String> {
    let volumes = pod.list("volumes").iter().filter_map(|volume| {
        let (name, limit) = (volume.str_at(&["name"])?, size_limit(volume)?);
        let used = written.volumes.get(name).copied().unwrap_or_default().bytes;
        exceeds(used, limit).then(|| format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "))
    });
    let total = written.total(pod).bytes;
    let of_pod = pod.limits(AmountsFrom::Spec).get("ephemeral-storage").copied();
    let of_pod = of_pod
        .filter(|limit| exceeds(total, *limit))
        .map(|limit| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    let containers = pod.containers().filter_map(|container| {
        let (name, limit) = (container.name(), storage_limit(container.spec)?);
        let used = written.containers.get(name).copied().unwrap_or_default().bytes;
        exceeds(used, limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    });
    volumes.chain(of_pod).chain(containers).next()
}

fn exceeds(used: u64, limit: Quantity) -> bool {
    i64::try_from(used).unwrap_or(i64::MAX) > limit.value()
}

fn size_limit(volume: &Value) -> Option<Quantity> {
    volume
        .at(&["emptyDir", "sizeLimit"])
        .filter(|limit| !limit.is_null())
        .map(quantity)
        .filter(|limit| !limit.is_zero())
}

fn storage_limit(container: &Value) -> Option<Quantity> {
    container.at(&["resources", "limits", "ephemeral-storage"]).map(quantity)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn written(volume: u64, a: u64, b: u64) -> PodDiskUsage {
        let of = |name: &str, kib: u64| (name.to_owned(), DiskUsage { bytes: kib << 10, inodes: 1 });
        let own = DiskUsage::default();
        PodDiskUsage {
            volumes: BTreeMap::from([of("v", volume)]),
            containers: BTreeMap::from([of("a", a), of("b", b)]),
            own,
        }
    }

    #[test]
    fn pod_is_evicted_for_volume_container_or_pod_limits() {
        let container =
            |name: &str, limit: &str| value!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}});
        let pod = value!({"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "8Ki"}}],
            "containers": [(container("a", "4Ki")), (container("b", "10Ki"))]}});
        assert!(is_limited(Pod(&pod)));
        let check = |volume: u64, a: u64, b: u64, expect: &str| {
            assert_eq!(excess(Pod(&pod), &written(volume, a, b)).unwrap_or_default(), expect, "{volume} {a} {b}");
        };
        check(8, 4, 2, "");
        check(9, 0, 0, "Usage of EmptyDir volume \"v\" exceeds the limit \"8Ki\". ");
        check(0, 5, 0, "Container a exceeded its local ephemeral storage limit \"4Ki\". ");
        check(8, 4, 3, "Pod ephemeral local storage usage exceeds the total limit of containers 14Ki. ");
    }

    /// A pod could fill the node's disk through its hosts file (CVE-2020-8557).
    #[test]
    fn hosts_file_counts_towards_ephemeral_storage() {
        let limits = value!({"limits": {"ephemeral-storage": "4Ki"}});
        let pod = value!({"spec": {"containers": [{"name": "a", "resources": limits}]}});
        let own = DiskUsage { bytes: 8 << 10, inodes: 1 };
        let message = excess(Pod(&pod), &PodDiskUsage { own, ..written(0, 0, 0) });
        assert_eq!(
            message.as_deref(),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 4Ki. ")
        );
    }

    #[test]
    fn memory_volumes_do_not_count_and_unlimited_pods_are_not_measured() {
        let limits = value!({"limits": {"ephemeral-storage": "4Ki"}});
        let pod = value!({"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
            "containers": [{"name": "a", "resources": limits}]}});
        assert_eq!(excess(Pod(&pod), &written(1000, 4, 0)), None);
        let free = value!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "a"}]}});
        assert!(!is_limited(Pod(&free)));
        assert_eq!(excess(Pod(&free), &written(1000, 1000, 0)), None);
        assert_eq!(empty_dirs(Pod(&free)).collect::<Vec<_>>(), ["v"]);
    }
}
