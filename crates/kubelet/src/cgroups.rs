//! Pod cgroups: one for all pods, one per QoS class, and one per pod, created before its sandbox and removed after it.
//! With the `systemd` driver they are slices.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use api::amounts::Amounts;
use cgroups::systemd::{self, Systemd, SystemdError};
use cgroups::{Cgroup, Controller, Controllers};
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
    unenforced: Controllers,
    /// The last value written to the Burstable class, which is written only when it changes.
    weighed: Arc<Mutex<Option<i64>>>,
}

/// The host lacks controllers that limits of pods need.
// DEVIATION: the kubelet also checks the controllers on cgroup v2, and `--allow-missing-cgroup-controllers` runs pods
// without the limits that need missing ones; upstream has no such flag.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cgroup controllers {missing} are missing in {cgroup} (cgroup {version}), so limits of pods cannot be enforced: {remedy}; or run pods without these limits, with --allow-missing-cgroup-controllers"
)]
pub struct MissingControllers {
    missing: Controllers,
    /// Path of the cgroup of all pods.
    cgroup: String,
    version: &'static str,
    remedy: &'static str,
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
            unenforced: Controllers::default(),
            weighed: Arc::default(),
        })
    }

    /// Compares the needed controllers with those that the host has. If the configuration allows missing ones, their
    /// limits are not enforced from now on. Otherwise this is an error.
    pub fn check_controllers(&mut self, config: &Config, needed: Controllers) -> Result<(), MissingControllers> {
        let all = self.at(&resources::class_group(&self.root, ""));
        let existed = all.exists();
        if config.cgroups_per_qos {
            // On cgroup v2, a controller may exist and still be impossible to enable for children. A failure here is
            // reported by `prepare`.
            let _ = all.create();
        }
        let missing = needed.without(all.controllers());
        if missing.is_empty() || config.allow_missing_controllers {
            self.unenforced = missing;
            return Ok(());
        }
        if !existed {
            // Nothing was started below it.
            let _ = all.remove();
        }
        let (version, remedy) = if Cgroup::is_unified() {
            (
                "v2",
                "enable them in cgroup.subtree_control of every parent cgroup (systemd: Delegate=yes), none of which may contain processes, and do not disable them on the kernel's command line",
            )
        } else {
            ("v1", "mount their hierarchies, and do not disable them on the kernel's command line")
        };
        Err(MissingControllers { missing, cgroup: all.path().display().to_string(), version, remedy })
    }

    /// Returns the missing controllers whose limits are not enforced.
    pub const fn unenforced(&self) -> Controllers {
        self.unenforced
    }

    /// Creates the cgroup of all pods and those of the QoS classes. Limits all pods to `available` if Node Allocatable
    /// is enforced.
    pub fn prepare(&self, available: &Amounts) -> io::Result<()> {
        let all = resources::class_group(&self.root, "");
        self.start(&all)?;
        if self.enforced {
            self.limit(&self.at(&all), resources::of_all_pods(available))?;
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
        self.limit(&self.at(&resources::class_group(&self.root, class)), shares)
    }

    fn limit(&self, cgroup: &Cgroup, mut resources: serde_json::Value) -> io::Result<()> {
        self.unenforced.remove_limits(&mut resources);
        cgroup.update(&resources)
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
        resources::remove_limits(self.unenforced, of);
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
        self.limit(&self.of(pod), self.limits(pod))
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

/// Returns the controllers that the limits of this node's pods need.
pub(crate) fn needed_controllers(config: &Config, has_huge_pages: bool) -> Controllers {
    let is_needed = |controller: &Controller| match controller {
        Controller::Cpu | Controller::Memory => true,
        Controller::Cpuset => config.exclusive_cpus || config.memory_by_nodes,
        Controller::Hugetlb => has_huge_pages,
        Controller::Pids => config.pod_pids_max.is_some(),
    };
    Controller::ALL.into_iter().filter(is_needed).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use apimachinery::{Value, value};

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
            assert_eq!(resources::differences(&desired, &given), [""; 0], "the cgroup has the desired resources");
            assert_eq!(resources::actual(&container.spec["resources"], &given), container.spec["resources"]);
        };
        let memory = serde_json::json!({"limit": 64 << 20});
        let limited = serde_json::json!({"shares": 102, "quota": 20_000, "period": 100_000});
        check(true, serde_json::json!({"cpu": limited, "memory": memory}), (20_000, 100_000, 64 << 20));
        check(false, serde_json::json!({"cpu": {"shares": 102}, "memory": memory}), (0, 0, 64 << 20));
    }
    #[test]
    fn needed_controllers_follow_the_configuration() {
        let check = |change: fn(&mut Config), has_huge_pages: bool, expect: &str| {
            let mut config = Config::new("n");
            change(&mut config);
            assert_eq!(needed_controllers(&config, has_huge_pages).to_string(), expect);
        };
        check(|_| {}, false, "cpu, memory");
        check(|_| {}, true, "cpu, hugetlb, memory");
        check(|config| config.pod_pids_max = Some(9), false, "cpu, memory, pids");
        check(|config| config.exclusive_cpus = true, false, "cpu, cpuset, memory");
        check(|config| config.memory_by_nodes = true, false, "cpu, cpuset, memory");
        // Shares apply without quotas, and containers have limits without pod cgroups.
        check(|config| config.cpu_quotas = false, false, "cpu, memory");
        check(|config| config.cgroups_per_qos = false, false, "cpu, memory");
    }

    #[test]
    fn pods_and_containers_lose_the_limits_of_the_same_controllers() {
        let full = || v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 1000,
            cpu_shares: 2,
            memory_limit_in_bytes: 1 << 20,
            memory_swap_limit_in_bytes: 1 << 20,
            oom_score_adj: 7,
            cpuset_cpus: "0".into(),
            cpuset_mems: "0".into(),
            hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: 0 }],
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
        };
        let oci = |of: &v1::LinuxContainerResources| {
            let mut all = serde_json::json!({"cpu": {}, "unified": of.unified.clone()});
            for (name, value) in [("shares", of.cpu_shares), ("quota", of.cpu_quota), ("period", of.cpu_period)] {
                if value != 0 {
                    all["cpu"][name] = value.into();
                }
            }
            for (name, value) in [("cpus", &of.cpuset_cpus), ("mems", &of.cpuset_mems)] {
                if !value.is_empty() {
                    all["cpu"][name] = value.as_str().into();
                }
            }
            if of.memory_limit_in_bytes != 0 {
                all["memory"] =
                    serde_json::json!({"limit": of.memory_limit_in_bytes, "swap": of.memory_swap_limit_in_bytes});
            }
            if !of.hugepage_limits.is_empty() {
                all["hugepageLimits"] = serde_json::json!([{"pageSize": "2MB", "limit": 0}]);
            }
            all
        };
        for subset in 0..1_u8 << Controller::ALL.len() {
            let of: Controllers =
                (0_u8..).zip(Controller::ALL).filter(|(bit, _)| subset >> bit & 1 == 1).map(|(_, one)| one).collect();
            let (mut cri, mut expect) = (full(), oci(&full()));
            resources::remove_limits(of, &mut cri);
            of.remove_limits(&mut expect);
            assert_eq!(oci(&cri), expect, "{of}");
            assert_eq!(cri.oom_score_adj, 7);
        }
    }

    #[test]
    fn limits_of_missing_controllers_are_neither_applied_nor_reported_nor_retried() {
        let limits = value!({"cpu": "200m", "memory": "64Mi"});
        let resources = value!({"requests": {"cpu": "100m"}, "limits": (limits.clone())});
        let pod = value!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": resources}]}});
        let container = Pod(&pod).container("c").unwrap();
        let check = |missing: &str, expect: (i64, i64, i64), reported: Value| {
            let groups = Cgroups {
                unenforced: Controllers::named(missing.split(' ')),
                ..Cgroups::new(&Config::new("n")).unwrap()
            };
            let mut desired = resources::of_container(Pod(&pod), container, 1 << 30);
            let mut given = desired.clone();
            groups.keep_enforced(&mut given);
            assert_eq!((given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes), expect, "{missing}");
            resources::remove_limits(groups.unenforced(), &mut desired);
            assert_eq!(resources::differences(&desired, &given), [""; 0], "{missing}");
            let mut status = resources::actual(&container.spec["resources"], &given);
            resources::remove_reported_limits(groups.unenforced(), &mut status);
            assert_eq!(status["limits"], reported, "{missing}");
        };
        check("", (102, 20_000, 64 << 20), limits.clone());
        check("memory", (102, 20_000, 0), value!({"cpu": "200m"}));
        check("cpu", (0, 0, 64 << 20), value!({"memory": "64Mi"}));
        check("cpu memory", (0, 0, 0), Value::Null);
        check("pids cpuset", (102, 20_000, 64 << 20), limits);
    }
}
