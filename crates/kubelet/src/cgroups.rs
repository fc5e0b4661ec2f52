//! Pod cgroups: one for all pods, one per QoS class, and one per pod, created before its sandbox and removed after it.
//! With the `systemd` driver they are slices.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use api::amounts::Amounts;
use cgroups::Cgroup;
use cgroups::systemd::{self, Systemd, SystemdError};
use node_api::cri::v1;

use crate::config::Config;
use crate::pod::Pod;
use crate::resources;

/// The cgroups of a node's pods.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: String,
    are_slices: bool,
    pids_max: Option<i64>,
    cpu_quotas: bool,
    enforced: bool,
    oom_group: bool,
    /// The last value written to the Burstable class, which is written only when it changes.
    weighed: Arc<Mutex<Option<i64>>>,
}

impl Cgroups {
    /// Creates the cgroup manager of a configuration. Fails if the systemd driver is configured and systemd is
    /// unavailable.
    pub fn new(config: &Config) -> Result<Self, SystemdError> {
        if config.systemd_groups {
            Systemd::of_machine()?;
        }
        Ok(Self {
            root: config.cgroup_root.clone(),
            are_slices: config.systemd_groups,
            pids_max: config.pod_pids_max,
            cpu_quotas: config.cpu_quotas,
            enforced: config.enforce_allocatable,
            oom_group: Cgroup::is_unified() && !config.single_process_oom_kill,
            weighed: Arc::default(),
        })
    }

    /// Creates the cgroup of all pods and those of the QoS classes. Limits all pods to `available` if Node Allocatable
    /// is enforced.
    pub fn prepare(&self, available: &Amounts) -> io::Result<()> {
        let all = resources::class_group(&self.root, "");
        self.start(&all)?;
        if self.enforced {
            self.at(&all).update(&resources::of_all_pods(available))?;
        }
        for class in [resources::BURSTABLE, resources::BEST_EFFORT] {
            self.start(&resources::class_group(&self.root, class))?;
        }
        self.share(resources::BEST_EFFORT, 0)
    }

    /// Sets the CPU weight of the Burstable class to the sum of its pods' requests, in millicores.
    pub fn weigh(&self, burstable_milli: i64) -> io::Result<()> {
        let mut weighed = self.weighed.lock().unwrap_or_else(PoisonError::into_inner);
        if *weighed == Some(burstable_milli) {
            return Ok(());
        }
        self.share(resources::BURSTABLE, burstable_milli)?;
        *weighed = Some(burstable_milli);
        Ok(())
    }

    fn share(&self, class: &str, milli: i64) -> io::Result<()> {
        let shares = serde_json::json!({"cpu": {"shares": (resources::cpu_shares(milli))}});
        self.at(&resources::class_group(&self.root, class)).update(&shares)
    }

    /// Adds the settings that apply to every container.
    pub fn add(&self, to: &mut v1::LinuxContainerResources) {
        if self.oom_group {
            // A container rarely works after the OOM killer has killed one of its processes, so all are killed.
            to.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        }
    }

    /// Removes limits that are not enforced on this node.
    pub fn keep_enforced(&self, of: &mut v1::LinuxContainerResources) {
        if !self.cpu_quotas {
            (of.cpu_quota, of.cpu_period) = (0, 0);
        }
    }

    /// Returns the cgroup of a pod.
    pub fn of(&self, pod: Pod<'_>) -> Cgroup {
        self.at(&resources::cgroup(&self.root, pod))
    }

    /// Returns the cgroup parent for the runtime: a path, or the name of a slice.
    pub fn cgroup_parent(&self, pod: Pod<'_>) -> String {
        let path = resources::cgroup(&self.root, pod);
        if self.are_slices { systemd::slice_of(&path) } else { path }
    }

    /// Creates a pod's cgroup with its limits. With the systemd driver, waits until the slice has started.
    pub fn make(&self, pod: Pod<'_>) -> io::Result<()> {
        self.start(&resources::cgroup(&self.root, pod))?;
        self.update(pod)
    }

    fn start(&self, path: &str) -> io::Result<()> {
        self.at(path).create()
    }

    /// Updates the limits of a pod's cgroup.
    pub fn update(&self, pod: Pod<'_>) -> io::Result<()> {
        self.of(pod).update(&self.limits(pod))
    }

    fn limits(&self, pod: Pod<'_>) -> serde_json::Value {
        let mut all = resources::of_pod(pod, self.pids_max);
        if let Some(cpu) = all["cpu"].as_object_mut().filter(|_| !self.cpu_quotas) {
            cpu.retain(|name, _| name == "shares");
        }
        all
    }

    /// Removes a pod's cgroup; a missing cgroup is not an error.
    pub fn remove(&self, pod: Pod<'_>) -> io::Result<()> {
        self.remove_at(&resources::cgroup(&self.root, pod))
    }

    /// Removes all possible cgroups of a pod of which only the UID is known.
    pub fn remove_all(&self, uid: &str) -> io::Result<()> {
        resources::cgroups_of(&self.root, uid).iter().try_for_each(|path| self.remove_at(path))
    }

    fn remove_at(&self, path: &str) -> io::Result<()> {
        self.at(path).remove()
    }

    fn at(&self, path: &str) -> Cgroup {
        let of_slice = self.are_slices.then(|| systemd::path_of(&systemd::slice_of(path))).flatten();
        Cgroup::at(of_slice.as_deref().unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use apimachinery::value;

    use super::*;

    #[test]
    fn systemd_driver_fails_without_systemd() {
        let mut config = Config::new("n");
        let pod = value!({"metadata": {"uid": "a-b"}, "spec": {"containers": [{"name": "c"}]}});
        let groups = Cgroups::new(&config).unwrap();
        assert_eq!(groups.cgroup_parent(Pod(&pod)), "/kubepods/besteffort/poda-b");
        assert_eq!(groups.of(Pod(&pod)).path(), Path::new("/kubepods/besteffort/poda-b"));
        config.systemd_groups = true;
        match Cgroups::new(&config) {
            Err(error) => assert!(matches!(error, SystemdError::Absent(_) | SystemdError::CgroupV1), "{error}"),
            Ok(groups) => assert_eq!(groups.cgroup_parent(Pod(&pod)), "kubepods-besteffort-poda_b.slice"),
        }
    }

    #[test]
    fn without_cpu_quotas_only_memory_limits_are_enforced() {
        let resources = value!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
        let pod = value!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": resources}]}});
        let container = Pod(&pod).container("c").unwrap();
        let check = |cpu_quotas: bool, of_pod: serde_json::Value, of_container: (i64, i64, i64)| {
            let groups = Cgroups::new(&Config { cpu_quotas, ..Config::new("n") }).unwrap();
            assert_eq!(groups.limits(Pod(&pod)), of_pod);
            let desired = resources::of_container(Pod(&pod), container, 1 << 30);
            let mut given = desired.clone();
            groups.keep_enforced(&mut given);
            assert_eq!((given.cpu_quota, given.cpu_period, given.memory_limit_in_bytes), of_container);
            assert_eq!(resources::differences(&desired, &given), [""; 0], "it has what it gets here");
            assert_eq!(resources::actual(&container.spec["resources"], &given), container.spec["resources"]);
        };
        let memory = serde_json::json!({"limit": 64 << 20});
        let limited = serde_json::json!({"shares": 102, "quota": 20_000, "period": 100_000});
        check(true, serde_json::json!({"cpu": limited, "memory": memory}), (20_000, 100_000, 64 << 20));
        check(false, serde_json::json!({"cpu": {"shares": 102}, "memory": memory}), (0, 0, 64 << 20));
    }
}
