//! Pods that write more to the node's disk than they may.

use std::collections::BTreeMap;

use api::field_rules::quantity;
use machinery::Value;
use machinery::quantity::Quantity;

use crate::pod::Pod;
use crate::resources;
use crate::usage::Taken;

/// What a pod has on the node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// In emptyDir volumes, by name.
    pub volumes: BTreeMap<String, Taken>,
    /// In the roots and logs of its containers, by name.
    pub containers: BTreeMap<String, Taken>,
    /// In files of the kubelet that its containers can write: its hosts file and its termination logs.
    pub own: Taken,
}

impl Written {
    /// All of it; what is in memory is not on the disk.
    pub fn total(&self, pod: Pod<'_>) -> Taken {
        let in_memory = |name: &str| {
            let found = pod.list("volumes").iter().find(|volume| volume.str_at(&["name"]) == Some(name));
            found.is_some_and(|volume| volume.str_at(&["emptyDir", "medium"]) == Some("Memory"))
        };
        let on_disk = self.volumes.iter().filter(|(name, _)| !in_memory(name)).map(|(_, taken)| taken);
        self.containers.values().chain(on_disk).chain([&self.own]).copied().sum()
    }
}

/// The names of a pod's emptyDir volumes.
pub fn empty_dirs(pod: Pod<'_>) -> impl Iterator<Item = &str> {
    pod.list("volumes")
        .iter()
        .filter(|volume| volume.get("emptyDir").is_some_and(|source| !source.is_null()))
        .filter_map(|volume| volume.str_at(&["name"]))
}

/// Whether a pod is limited at all, so that it must be measured.
pub fn is_limited(pod: Pod<'_>) -> bool {
    pod.list("volumes").iter().any(|volume| size_limit(volume).is_some())
        || pod.containers().any(|container| storage_limit(container.spec).is_some())
}

/// Why a pod must go, if it has written too much, in upstream's words.
pub fn excess(pod: Pod<'_>, written: &Written) -> Option<String> {
    let volumes = pod.list("volumes").iter().filter_map(|volume| {
        let (name, limit) = (volume.str_at(&["name"])?, size_limit(volume)?);
        let used = written.volumes.get(name).copied().unwrap_or_default().bytes;
        exceeds(used, limit).then(|| format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "))
    });
    let total = written.total(pod).bytes;
    let of_pod = resources::total(pod, "limits").get("ephemeral-storage").copied();
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
    use machinery::value;

    use super::*;

    fn written(volume: u64, a: u64, b: u64) -> Written {
        let of = |name: &str, kib: u64| (name.to_owned(), Taken { bytes: kib << 10, inodes: 1 });
        let own = Taken::default();
        Written {
            volumes: BTreeMap::from([of("v", volume)]),
            containers: BTreeMap::from([of("a", a), of("b", b)]),
            own,
        }
    }

    #[test]
    fn a_pod_goes_for_a_volume_a_container_or_all_together() {
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

    /// A pod once filled the node's disk through its hosts file (CVE-2020-8557).
    #[test]
    fn what_a_pod_writes_into_its_hosts_file_counts() {
        let limits = value!({"limits": {"ephemeral-storage": "4Ki"}});
        let pod = value!({"spec": {"containers": [{"name": "a", "resources": limits}]}});
        let own = Taken { bytes: 8 << 10, inodes: 1 };
        let message = excess(Pod(&pod), &Written { own, ..written(0, 0, 0) });
        assert_eq!(
            message.as_deref(),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 4Ki. ")
        );
    }

    #[test]
    fn what_is_in_memory_is_not_on_the_disk_and_who_has_no_limit_is_not_measured() {
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
