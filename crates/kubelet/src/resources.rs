//! Resource requests and limits as cgroup settings: CPU shares and quotas, memory limits, OOM scores and cgroup paths.

use api::amounts::Amounts;
use api::field_rules::quantity;
use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Object, Value};
use cgroups::{Controller, Controllers};
use node_api::cri::v1;

use crate::pod::{AmountsFrom, Container, Pod, QosClass, Role};

/// CFS period in microseconds.
pub const CPU_PERIOD: i64 = 100_000;
/// Minimum CPU shares of the kernel.
const SHARES_MIN: i64 = 2;
/// Maximum CPU shares of the kernel.
const SHARES_MAX: i64 = 262_144;
/// Minimum CFS quota of the kernel in microseconds.
const QUOTA_MIN: i64 = 1000;
/// Priority of `system-node-critical`.
const SYSTEM_NODE_CRITICAL: i64 = 2_000_001_000;

/// Returns the limits of a pod's cgroup: its total limits of the resources that are limited at pod level or by all
/// containers. A limit of zero counts as none. An init container may rely on the limits of the sidecars before it, with
/// which it shares the cgroup.
pub fn pod_limits(pod: Pod<'_>) -> Amounts {
    let limit = |resources: &Value, name: &str| resources.at(&["limits", name]).map_or(Quantity::ZERO, quantity);
    let is_limited = |name: &str| {
        let of = |container: Container<'_>| !limit(&container.spec["resources"], name).is_zero();
        let mut after_limited_sidecar = false;
        !limit(&pod.spec()["resources"], name).is_zero()
            || pod.app_containers().all(of)
                && pod.init_containers().all(|container| {
                    let is_limited = after_limited_sidecar || of(container);
                    after_limited_sidecar |= container.role == Role::Sidecar && is_limited;
                    is_limited
                })
    };
    let mut limits = pod.limits(AmountsFrom::Spec);
    limits.retain(|name, _| is_limited(name));
    limits
}

/// Converts millicores to CPU shares.
pub fn cpu_shares(milli: i64) -> i64 {
    if milli == 0 { SHARES_MIN } else { (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX) }
}

/// Converts a CPU limit in millicores to a CFS quota in microseconds; -1 for no limit.
pub fn cpu_quota(milli: i64) -> i64 {
    if milli == 0 { -1 } else { (milli.saturating_mul(CPU_PERIOD) / 1000).max(QUOTA_MIN) }
}

/// Returns the `oom_score_adj` of a container; a larger memory request gives a lower score.
pub fn oom_score(pod: Pod<'_>, container: Container<'_>, memory_capacity: i64) -> i64 {
    if pod.spec()["priority"].as_int().unwrap_or(0) >= SYSTEM_NODE_CRITICAL {
        return -997;
    }
    match pod.qos_class() {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request =
                container.spec.at(&["resources", "requests", "memory"]).map_or(0, |value| quantity(value).value());
            let score = 1000 - i128::from(request) * 1000 / i128::from(memory_capacity.max(1));
            // The score stays above that of Guaranteed containers and below that of BestEffort ones.
            score.clamp(3, 999) as i64
        }
    }
}

/// Returns the CRI resources of a container.
pub fn of_container(pod: Pod<'_>, container: Container<'_>, memory_capacity: i64) -> v1::LinuxContainerResources {
    let resources = &container.spec["resources"];
    let amount = |of: &str, name: &str| resources.at(&[of, name]).map(quantity);
    let limit = amount("limits", "cpu");
    let request = amount("requests", "cpu").or(limit).unwrap_or(Quantity::ZERO);
    // A container without a memory limit gets the limit of its pod.
    let memory = amount("limits", "memory").or(pod.spec().at(&["resources", "limits", "memory"]).map(quantity));
    let hugepages = resources["limits"].as_object().into_iter().flat_map(Object::iter).filter_map(|(name, value)| {
        let size = name.strip_prefix("hugepages-")?;
        let limit = quantity(value).value().try_into().unwrap_or(0);
        Some(v1::HugepageLimit { page_size: page_size(size), limit })
    });
    v1::LinuxContainerResources {
        cpu_period: CPU_PERIOD,
        cpu_quota: cpu_quota(limit.map_or(0, Quantity::milli_value)),
        cpu_shares: cpu_shares(request.milli_value()),
        memory_limit_in_bytes: memory.map_or(0, Quantity::value),
        oom_score_adj: oom_score(pod, container, memory_capacity),
        hugepage_limits: hugepages.collect(),
        ..Default::default()
    }
}

/// Removes the limits of the given controllers from CRI resources.
/// [`Controllers::remove_limits`] does the same to OCI resources.
pub fn remove_limits(of: Controllers, from: &mut v1::LinuxContainerResources) {
    if of.contains(Controller::Cpu) {
        (from.cpu_shares, from.cpu_quota, from.cpu_period) = (0, 0, 0);
    }
    if of.contains(Controller::Cpuset) {
        from.cpuset_cpus.clear();
        from.cpuset_mems.clear();
    }
    if of.contains(Controller::Hugetlb) {
        from.hugepage_limits.clear();
    }
    if of.contains(Controller::Memory) {
        (from.memory_limit_in_bytes, from.memory_swap_limit_in_bytes) = (0, 0);
    }
    from.unified.retain(|file, _| !of.affect_file(file));
}

/// Returns the resources of all containers together and the pod's overhead, by which VM-based runtimes size the
/// sandbox.
pub fn of_sandbox(pod: Pod<'_>) -> (v1::LinuxContainerResources, v1::LinuxContainerResources) {
    let overhead = pod.overhead();
    // Overhead is both a request and a limit.
    let of = |requests: &Amounts, limits: &Amounts| {
        let milli = |amounts: &Amounts| amounts.get("cpu").map(|amount| amount.milli_value());
        v1::LinuxContainerResources {
            cpu_period: CPU_PERIOD,
            cpu_quota: cpu_quota(milli(limits).unwrap_or(0)),
            cpu_shares: cpu_shares(milli(requests).or(milli(limits)).unwrap_or(0)),
            memory_limit_in_bytes: limits.get("memory").map_or(0, |memory| memory.value()),
            ..Default::default()
        }
    };
    let together = of(&pod.requests_without_overhead(), &pod.limits_without_overhead());
    (together, if overhead.is_empty() { v1::LinuxContainerResources::default() } else { of(&overhead, &overhead) })
}

/// Returns the names of resources in which a running container differs from the desired state.
pub fn differences(desired: &v1::LinuxContainerResources, actual: &v1::LinuxContainerResources) -> Vec<&'static str> {
    let mut names = Vec::new();
    // A quota of zero means that this node does not enforce quotas; a container without a limit has -1.
    let quota = actual.cpu_quota != 0 && desired.cpu_quota != actual.cpu_quota;
    let cpu = desired.cpu_shares != actual.cpu_shares || quota;
    if cpu && actual.cpu_shares != 0 {
        names.push("cpu");
    }
    // A removed memory limit cannot be distinguished from one that was never set.
    if desired.memory_limit_in_bytes != 0 && desired.memory_limit_in_bytes != actual.memory_limit_in_bytes {
        names.push("memory");
    }
    names
}

/// Returns the actual resources of a running container, in the form of its spec.
pub fn actual(spec: &Value, actual: &v1::LinuxContainerResources) -> Value {
    let mut reported = spec.clone();
    // A runtime that reports shares reports everything: a limit that it omits is not applied yet.
    let missing = [("cpu", actual.cpu_quota < 0), ("memory", actual.memory_limit_in_bytes <= 0)];
    for (name, _) in missing.into_iter().filter(|(_, missing)| *missing && actual.cpu_shares > 0) {
        if let Some(limits) = reported.get_mut("limits").and_then(Value::as_object_mut) {
            limits.remove(name);
        }
    }
    if let Some(reported) = reported.as_object_mut()
        && reported.get("limits").and_then(Value::as_object).is_some_and(Object::is_empty)
    {
        reported.remove("limits");
    }
    let mut set = |of: &str, name: &str, amount: Quantity| {
        if let Some(entry) = reported.get_mut(of).and_then(|of| of.get_mut(name)) {
            *entry = amount.to_string().into();
        }
    };
    let specified = |of: &str, name: &str| spec.at(&[of, name]).map_or(0, |value| quantity(value).milli_value());
    if actual.cpu_quota > 0 && cpu_quota(specified("limits", "cpu")) != actual.cpu_quota {
        let milli = actual.cpu_quota * 1000 / actual.cpu_period.max(1);
        set("limits", "cpu", Quantity::milli(milli, Format::DecimalSI));
    }
    if actual.cpu_shares > 0 && cpu_shares(specified("requests", "cpu")) != actual.cpu_shares {
        set("requests", "cpu", Quantity::milli((actual.cpu_shares * 1000).div_euclid(1024), Format::DecimalSI));
    }
    let memory = actual.memory_limit_in_bytes;
    if memory > 0 && specified("limits", "memory") / 1000 != memory {
        set("limits", "memory", Quantity::new(memory, Format::BinarySI));
    }
    reported
}

/// Removes the limits of the given controllers from a container's reported resources.
pub fn remove_reported_limits(of: Controllers, from: &mut Value) {
    let Some(reported) = from.as_object_mut() else { return };
    let Some(limits) = reported.get_mut("limits").and_then(Value::as_object_mut) else { return };
    let is_removed = |name: &str| match name {
        "cpu" => of.contains(Controller::Cpu),
        "memory" => of.contains(Controller::Memory),
        name => name.starts_with("hugepages-") && of.contains(Controller::Hugetlb),
    };
    limits.retain(|name, _| !is_removed(name));
    if limits.is_empty() {
        reported.remove("limits");
    }
}

/// Converts a huge page size such as `2Mi` to the kernel's form `2MB`.
fn page_size(size: &str) -> String {
    format!("{}B", size.trim_end_matches('i'))
}

/// Path component of the Burstable class.
pub const BURSTABLE: &str = "/burstable";
/// Path component of the BestEffort class.
pub const BEST_EFFORT: &str = "/besteffort";

/// Returns the cgroup path of a pod, below its QoS class.
pub fn cgroup(root: &str, pod: Pod<'_>) -> String {
    let class = match pod.qos_class() {
        QosClass::Guaranteed => "",
        QosClass::Burstable => BURSTABLE,
        QosClass::BestEffort => BEST_EFFORT,
    };
    group_in(root, class, pod.uid())
}

/// Returns the cgroup path of a QoS class; an empty class is that of all pods.
pub fn class_group(root: &str, class: &str) -> String {
    format!("{}/kubepods{class}", root.trim_end_matches('/'))
}

/// Returns the OCI resources of the cgroup of all pods.
pub fn of_all_pods(available: &Amounts) -> serde_json::Value {
    let amount = |name: &str| available.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut all = serde_json::json!({"cpu": {"shares": (cpu_shares(amount("cpu").milli_value()))}});
    if !amount("memory").is_zero() {
        all["memory"] = serde_json::json!({"limit": (amount("memory").value())});
    }
    all
}

/// Returns the sum of CPU requests of Burstable pods in millicores.
pub fn burstable_milli<'a>(pods: impl Iterator<Item = Pod<'a>>) -> i64 {
    let cpu_request =
        |pod: Pod<'_>| pod.requests(AmountsFrom::Spec).get("cpu").map_or(0, |amount| amount.milli_value());
    pods.filter(|pod| !pod.is_terminal() && pod.qos_class() == QosClass::Burstable).map(cpu_request).sum()
}

/// Returns the possible cgroup paths of a pod of which only the UID is known.
pub fn cgroups_of(root: &str, uid: &str) -> [String; 3] {
    ["", BURSTABLE, BEST_EFFORT].map(|class| group_in(root, class, uid))
}

fn group_in(root: &str, class: &str, uid: &str) -> String {
    format!("{}/pod{uid}", class_group(root, class))
}

/// Returns the OCI resources of a pod's cgroup, with a PID limit if given.
pub fn of_pod(pod: Pod<'_>, pids_max: Option<i64>) -> serde_json::Value {
    let (requests, limits) = (pod.requests(AmountsFrom::Spec), pod_limits(pod));
    let milli = |amounts: &Amounts| amounts.get("cpu").map_or(0, |amount| amount.milli_value());
    let shares = match pod.qos_class() {
        QosClass::BestEffort => SHARES_MIN,
        QosClass::Burstable | QosClass::Guaranteed => cpu_shares(milli(&requests)),
    };
    let mut all = serde_json::json!({"cpu": {"shares": shares}});
    if milli(&limits) > 0 {
        all["cpu"]["quota"] = cpu_quota(milli(&limits)).into();
        all["cpu"]["period"] = CPU_PERIOD.into();
    }
    if let Some(memory) = limits.get("memory").filter(|memory| !memory.is_zero()) {
        all["memory"] = serde_json::json!({"limit": memory.value()});
    }
    if let Some(most) = pids_max {
        all["pids"] = serde_json::json!({"limit": most});
    }
    all
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn container(name: &str, cpu: &str, limit: &str) -> Value {
        value!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": limit, "memory": "64Mi"}}})
    }

    #[test]
    fn cpu_shares_and_quotas_respect_kernel_bounds() {
        assert_eq!([0, 1, 100, 2000, 1 << 40].map(cpu_shares), [2, 2, 102, 2048, 262_144]);
        assert_eq!([0, 1, 100, 2000].map(cpu_quota), [-1, 1000, 10_000, 200_000]);
    }

    #[test]
    fn pod_cgroup_is_limited_only_if_the_pod_or_every_container_is() {
        let check = |spec: Value, expect: Option<i64>| {
            let pod = value!({"spec": (spec.clone())});
            let quota = of_pod(Pod(&pod), None)["cpu"].get("quota").and_then(serde_json::Value::as_i64);
            assert_eq!(quota, expect, "{spec:?}");
        };
        let limits = |cpu: &str| value!({"limits": {"cpu": cpu}});
        let app = || value!({"name": "a", "resources": (limits("1"))});
        let init = |restart: &str, resources: Value| value!({"restartPolicy": restart, "resources": resources});
        check(value!({"containers": [(app())]}), Some(100_000));
        check(value!({"containers": [(app()), {"name": "b"}]}), None);
        check(value!({"containers": [(app()), {"name": "b", "resources": (limits("0"))}]}), None);
        // An init container without a limit may use more than the app containers.
        check(value!({"containers": [(app())], "initContainers": [(init("", value!({})))]}), None);
        let after_sidecar = value!([(init("Always", limits("1"))), (init("", value!({})))]);
        check(value!({"containers": [(app())], "initContainers": after_sidecar}), Some(200_000));
        // A limit of memory at pod level does not limit CPU.
        let memory = value!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}});
        check(value!({"containers": [(app()), {"name": "b"}], "resources": memory}), None);
        check(value!({"containers": [{"name": "b"}], "resources": (limits("3"))}), Some(300_000));
    }

    #[test]
    fn sandbox_resources_include_containers_without_limits() {
        let pod = value!({"spec": {"containers": [(container("a", "100m", "200m")), {"name": "b"}], "overhead": {"cpu": "1"}}});
        let (together, _) = of_sandbox(Pod(&pod));
        assert_eq!((together.cpu_shares, together.cpu_quota), (102, 20_000));
    }

    #[test]
    fn pod_cgroup_is_below_its_qos_class() {
        let pod = value!({"metadata": {"uid": "u"}, "spec": {"containers": [(container("a", "100m", "200m"))]}});
        assert_eq!(cgroup("/", Pod(&pod)), "/kubepods/burstable/podu");
    }

    #[test]
    fn pod_limits_are_the_sum_of_container_limits() {
        let pod =
            value!({"spec": {"containers": [(container("a", "100m", "200m")), (container("b", "100m", "300m"))]}});
        let expect = serde_json::json!({"cpu": {"shares": 204, "quota": 50_000, "period": 100_000},
            "memory": {"limit": 128 << 20}, "pids": {"limit": 7}});
        assert_eq!(of_pod(Pod(&pod), Some(7)), expect);
        assert!(of_pod(Pod(&pod), None).get("pids").is_none());
    }

    #[test]
    fn sandbox_gets_overhead_and_container_resources() {
        let mut pod =
            value!({"spec": {"containers": [(container("a", "100m", "200m")), (container("b", "100m", "300m"))]}});
        let fields = |one: &v1::LinuxContainerResources| (one.cpu_shares, one.cpu_quota, one.memory_limit_in_bytes);
        let (together, own) = of_sandbox(Pod(&pod));
        assert_eq!(fields(&together), (204, 50_000, 128 << 20));
        assert_eq!(own, v1::LinuxContainerResources::default());
        let overhead = value!({"cpu": "250m", "memory": "32Mi"});
        pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("overhead", overhead);
        let (together, own) = of_sandbox(Pod(&pod));
        assert_eq!(fields(&together), (204, 50_000, 128 << 20));
        assert_eq!(fields(&own), (256, 25_000, 32 << 20));
    }

    #[test]
    fn class_cpu_shares_are_the_sum_of_pod_requests() {
        let pod =
            |phase: &str, containers: Value| value!({"status": {"phase": phase}, "spec": {"containers": containers}});
        let pods = [
            pod("Running", value!([(container("a", "100m", "200m")), (container("b", "150m", "300m"))])),
            pod("Pending", value!([(container("a", "50m", "200m"))])),
            pod("Succeeded", value!([(container("a", "500m", "2"))])),
            pod("Running", value!([(container("guaranteed", "1", "1"))])),
            pod("Running", value!([{"name": "asks for nothing"}])),
        ];
        assert_eq!(burstable_milli(pods.iter().map(Pod)), 300);
        let available =
            Amounts::from([("cpu".into(), "2".parse().unwrap()), ("memory".into(), "1Gi".parse().unwrap())]);
        assert_eq!(of_all_pods(&available), serde_json::json!({"cpu": {"shares": 2048}, "memory": {"limit": 1 << 30}}));
    }

    #[test]
    fn status_has_actual_resources_during_a_resize() {
        let spec = container("a", "100m", "200m");
        let pod = value!({"spec": {"containers": [(spec.clone())]}});
        let desired = of_container(Pod(&pod), Pod(&pod).app_containers().next().unwrap(), 1 << 30);
        assert_eq!(differences(&desired, &desired), [""; 0]);
        assert_eq!(actual(&spec["resources"], &desired), spec["resources"]);
        let old = v1::LinuxContainerResources { cpu_quota: 10_000, memory_limit_in_bytes: 32 << 20, ..desired.clone() };
        assert_eq!(differences(&desired, &old), ["cpu", "memory"]);
        let reported = actual(&spec["resources"], &old);
        assert_eq!(reported["limits"], value!({"cpu": "100m", "memory": "32Mi"}));
        assert_eq!(reported["requests"], spec["resources"]["requests"]);
        let unlimited = v1::LinuxContainerResources { cpu_quota: -1, memory_limit_in_bytes: 0, ..desired };
        assert!(actual(&spec["resources"], &unlimited).get("limits").is_none());
    }

    #[test]
    fn larger_memory_request_gives_lower_oom_score() {
        let check = |spec: Value, expect: i64| {
            let pod = value!({"spec": (spec.clone())});
            let container = Pod(&pod).app_containers().next().unwrap();
            assert_eq!(oom_score(Pod(&pod), container, 1 << 30), expect, "{spec:?}");
        };
        check(value!({"containers": [{"name": "a"}]}), 1000);
        check(value!({"containers": [(container("a", "1", "1"))]}), -997);
        check(value!({"containers": [(container("a", "1", "2"))]}), 938);
        check(value!({"priority": 2_000_001_000_i64, "containers": [{"name": "a"}]}), -997);
    }
}
