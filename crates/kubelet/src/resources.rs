//! What a pod and its containers may use, in the words of the kernel: shares, quotas, limits, scores and groups.

use std::collections::BTreeMap;

use api::field_rules::quantity;
use cri::v1;
use machinery::quantity::{Format, Quantity};
use machinery::{Object, Value};

use crate::pod::{Container, Pod, Role};

/// The period that quotas are counted in, in microseconds.
pub const CPU_PERIOD: i64 = 100_000;
/// The smallest share that the kernel knows.
const SHARES_MIN: i64 = 2;
/// The largest share that the kernel knows.
const SHARES_MAX: i64 = 262_144;
/// The smallest quota that the kernel takes, in microseconds.
const QUOTA_MIN: i64 = 1000;
/// From here on a pod is critical to its node.
const SYSTEM_NODE_CRITICAL: i64 = 2_000_001_000;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn qos_class(spec: &Value) -> &'static str {
    let pod = Value::Object([("spec", spec.clone())].into_iter().collect::<Object>());
    let pod = Pod(&pod);
    let all: Vec<&Value> = match spec.get("resources").filter(|resources| !resources.is_null()) {
        Some(resources) => vec![resources],
        None => pod.init_containers().chain(pod.app_containers()).map(|one| &one.spec["resources"]).collect(),
    };
    let amount = |resources: &Value, of: &str, name: &str| resources.at(&[of, name]).map_or(Quantity::ZERO, quantity);
    let sum = |of: &str, name: &str| {
        all.iter()
            .map(|one| amount(one, of, name))
            .fold(Quantity::ZERO, |sum, one| if one.is_negative() { sum } else { sum.add(one) })
    };
    let names = ["cpu", "memory"];
    let asks = |of: &str| names.map(|name| sum(of, name));
    let (requests, limits) = (asks("requests"), asks("limits"));
    if requests.iter().chain(&limits).all(|sum| sum.is_zero()) {
        return "BestEffort";
    }
    let limited = all.iter().all(|one| names.iter().all(|name| amount(one, "limits", name) > Quantity::ZERO));
    if limited && requests == limits { "Guaranteed" } else { "Burstable" }
}

/// What a pod asks for in all: its containers together with its sidecars, or more if an init container needs more.
pub fn pod_requests(pod: Pod<'_>) -> Amounts {
    total(pod, "requests")
}

/// What a pod is limited to in all; only resources that all its containers limit.
pub fn pod_limits(pod: Pod<'_>) -> Amounts {
    let mut limits = total(pod, "limits");
    let unlimited = |name: &str| {
        let containers = pod.init_containers().chain(pod.app_containers());
        containers.filter(|one| one.role != Role::Init).any(|one| one.spec["resources"].at(&["limits", name]).is_none())
    };
    let of_pod = pod.spec()["resources"].get("limits").is_some();
    if !of_pod {
        limits.retain(|name, _| !unlimited(name));
    }
    limits
}

/// What its containers ask for or are limited to together; who says nothing counts for nothing.
pub fn total(pod: Pod<'_>, of: &str) -> Amounts {
    let mut sum = Amounts::new();
    let mut peak = Amounts::new();
    let mut sidecars = Amounts::new();
    for container in pod.init_containers() {
        let own = amounts(&container.spec["resources"][of]);
        if container.role == Role::Sidecar {
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &own);
            raise(&mut peak, &together);
        }
    }
    for container in pod.app_containers() {
        add(&mut sum, &amounts(&container.spec["resources"][of]));
    }
    add(&mut sum, &sidecars);
    raise(&mut sum, &peak);
    for (name, amount) in amounts(&pod.spec()["resources"][of]) {
        sum.insert(name, amount);
    }
    let overhead = amounts(&pod.spec()["overhead"]);
    if of == "requests" {
        add(&mut sum, &overhead);
    } else {
        let known: Amounts = overhead.into_iter().filter(|(name, _)| sum.contains_key(name)).collect();
        add(&mut sum, &known);
    }
    sum
}

/// Reads a map of quantities.
pub fn amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flat_map(Object::iter);
    entries.map(|(name, value)| (name.to_owned(), quantity(value))).collect()
}

/// Adds amounts to others.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let known = sum.get(name).copied().unwrap_or(Quantity::ZERO.with_format(amount.format()));
        sum.insert(name.clone(), known.add(*amount));
    }
}

fn raise(peak: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        if peak.get(name).is_none_or(|known| known < amount) {
            peak.insert(name.clone(), *amount);
        }
    }
}

/// The part of a processor as the kernel's shares.
pub fn cpu_shares(milli: i64) -> i64 {
    if milli == 0 { SHARES_MIN } else { (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX) }
}

/// The limit on a processor as microseconds of each period; -1 for none.
pub fn cpu_quota(milli: i64) -> i64 {
    if milli == 0 { -1 } else { (milli.saturating_mul(CPU_PERIOD) / 1000).max(QUOTA_MIN) }
}

/// How soon the kernel kills a container when memory is short: the more memory it asked for, the later.
pub fn oom_score(pod: Pod<'_>, container: Container<'_>, memory_capacity: i64) -> i64 {
    if pod.spec()["priority"].as_int().unwrap_or(0) >= SYSTEM_NODE_CRITICAL {
        return -997;
    }
    match qos_class(pod.spec()) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let request =
                container.spec.at(&["resources", "requests", "memory"]).map_or(0, |value| quantity(value).value());
            let score = 1000 - i128::from(request) * 1000 / i128::from(memory_capacity.max(1));
            // Below every guaranteed container and above every one that asks for nothing.
            score.clamp(3, 999) as i64
        }
    }
}

/// What a container may use, for the runtime.
pub fn of_container(pod: Pod<'_>, container: Container<'_>, memory_capacity: i64) -> v1::LinuxContainerResources {
    let resources = &container.spec["resources"];
    let amount = |of: &str, name: &str| resources.at(&[of, name]).map(quantity);
    let limit = amount("limits", "cpu");
    let request = amount("requests", "cpu").or(limit).unwrap_or(Quantity::ZERO);
    // Without a limit of its own, a container is held by its pod's.
    let pod_limits = amounts(&pod.spec()["resources"]["limits"]);
    let memory = amount("limits", "memory").or(pod_limits.get("memory").copied());
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

/// What a pod's containers may use together, and what its sandbox needs besides: runtimes that make a machine of it size it so.
pub fn of_sandbox(pod: Pod<'_>) -> (v1::LinuxContainerResources, v1::LinuxContainerResources) {
    let overhead = amounts(&pod.spec()["overhead"]);
    let without = |mut sum: Amounts| {
        for (name, amount) in &overhead {
            if let Some(known) = sum.get_mut(name) {
                *known = known.sub(*amount);
            }
        }
        sum
    };
    // What a sandbox needs is both, a request and a limit.
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
    let together = of(&without(pod_requests(pod)), &without(pod_limits(pod)));
    (together, if overhead.is_empty() { v1::LinuxContainerResources::default() } else { of(&overhead, &overhead) })
}

/// The names of the resources by which a running container differs from what is wanted of it.
pub fn differences(wanted: &v1::LinuxContainerResources, actual: &v1::LinuxContainerResources) -> Vec<&'static str> {
    let mut names = Vec::new();
    // A quota that nobody ever set is none that this node enforces; who has no limit has one of -1.
    let quota = actual.cpu_quota != 0 && wanted.cpu_quota != actual.cpu_quota;
    let cpu = wanted.cpu_shares != actual.cpu_shares || quota;
    if cpu && actual.cpu_shares != 0 {
        names.push("cpu");
    }
    // A limit that is no longer wanted cannot be told from one that was never said.
    if wanted.memory_limit_in_bytes != 0 && wanted.memory_limit_in_bytes != actual.memory_limit_in_bytes {
        names.push("memory");
    }
    names
}

/// What a running container has of what its pod says it should have.
pub fn actual(spec: &Value, actual: &v1::LinuxContainerResources) -> Value {
    let mut shown = spec.clone();
    // A runtime that tells shares tells everything: what it does not tell is not there yet.
    let missing = [("cpu", actual.cpu_quota < 0), ("memory", actual.memory_limit_in_bytes <= 0)];
    for (name, _) in missing.into_iter().filter(|(_, missing)| *missing && actual.cpu_shares > 0) {
        if let Some(limits) = shown.get_mut("limits").and_then(Value::as_object_mut) {
            limits.remove(name);
        }
    }
    if let Some(shown) = shown.as_object_mut()
        && shown.get("limits").and_then(Value::as_object).is_some_and(Object::is_empty)
    {
        shown.remove("limits");
    }
    let mut set = |of: &str, name: &str, amount: Quantity| {
        if let Some(entry) = shown.get_mut(of).and_then(|of| of.get_mut(name)) {
            *entry = amount.to_string().into();
        }
    };
    let asked = |of: &str, name: &str| spec.at(&[of, name]).map_or(0, |value| quantity(value).milli_value());
    if actual.cpu_quota > 0 && cpu_quota(asked("limits", "cpu")) != actual.cpu_quota {
        let milli = actual.cpu_quota * 1000 / actual.cpu_period.max(1);
        set("limits", "cpu", Quantity::milli(milli, Format::DecimalSI));
    }
    if actual.cpu_shares > 0 && cpu_shares(asked("requests", "cpu")) != actual.cpu_shares {
        set("requests", "cpu", Quantity::milli((actual.cpu_shares * 1000).div_euclid(1024), Format::DecimalSI));
    }
    let memory = actual.memory_limit_in_bytes;
    if memory > 0 && asked("limits", "memory") / 1000 != memory {
        set("limits", "memory", Quantity::new(memory, Format::BinarySI));
    }
    shown
}

/// `2Mi` as the kernel calls it: `2MB`.
fn page_size(size: &str) -> String {
    format!("{}B", size.trim_end_matches('i'))
}

/// The part of a group's path that is of pods that ask for less than they may use.
pub const BURSTABLE: &str = "/burstable";
/// And of those that ask for nothing.
pub const BEST_EFFORT: &str = "/besteffort";

/// The group of a pod, below the class that it belongs to.
pub fn cgroup(root: &str, pod: Pod<'_>) -> String {
    let class = match qos_class(pod.spec()) {
        "Guaranteed" => "",
        "BestEffort" => BEST_EFFORT,
        _ => BURSTABLE,
    };
    group_in(root, class, pod.uid())
}

/// The group of a class, or of all pods if it is none.
pub fn class_group(root: &str, class: &str) -> String {
    format!("{}/kubepods{class}", root.trim_end_matches('/'))
}

/// What the group of all pods may use, as the OCI runtime specification says it.
pub fn of_all_pods(available: &Amounts) -> serde_json::Value {
    let amount = |name: &str| available.get(name).copied().unwrap_or(Quantity::ZERO);
    let mut all = serde_json::json!({"cpu": {"shares": (cpu_shares(amount("cpu").milli_value()))}});
    if !amount("memory").is_zero() {
        all["memory"] = serde_json::json!({"limit": (amount("memory").value())});
    }
    all
}

/// What the pods of the class between the others ask for of the processors together, in thousandths of one.
pub fn burstable_milli<'a>(pods: impl Iterator<Item = Pod<'a>>) -> i64 {
    let asked = |pod: Pod<'_>| pod_requests(pod).get("cpu").map_or(0, |amount| amount.milli_value());
    pods.filter(|pod| !pod.is_ended() && qos_class(pod.spec()) == "Burstable").map(asked).sum()
}

/// Where the group of a pod may be of which nothing but its uid is known.
pub fn cgroups_of(root: &str, uid: &str) -> [String; 3] {
    ["", BURSTABLE, BEST_EFFORT].map(|class| group_in(root, class, uid))
}

fn group_in(root: &str, class: &str, uid: &str) -> String {
    format!("{}/pod{uid}", class_group(root, class))
}

/// What a pod's group may use, as the OCI runtime specification says it, with at most so many processes.
pub fn of_pod(pod: Pod<'_>, pids_max: Option<i64>) -> serde_json::Value {
    let (requests, limits) = (pod_requests(pod), pod_limits(pod));
    let milli = |amounts: &Amounts| amounts.get("cpu").map_or(0, |amount| amount.milli_value());
    let shares = cpu_shares(milli(&requests));
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
    use machinery::value;

    use super::*;

    fn container(name: &str, cpu: &str, limit: &str) -> Value {
        value!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": limit, "memory": "64Mi"}}})
    }

    #[test]
    fn shares_and_quotas_are_the_kernels() {
        assert_eq!([0, 1, 100, 2000, 1 << 40].map(cpu_shares), [2, 2, 102, 2048, 262_144]);
        assert_eq!([0, 1, 100, 2000].map(cpu_quota), [-1, 1000, 10_000, 200_000]);
    }

    #[test]
    fn a_pod_asks_for_its_containers_together_or_for_its_largest_init_container() {
        let mut sidecar = container("s", "50m", "50m");
        sidecar.as_object_mut().unwrap().insert("restartPolicy", "Always");
        let pod = value!({"metadata": {"uid": "u"}, "spec": {
            "initContainers": [sidecar, (container("i", "500m", "500m"))],
            "containers": [(container("a", "100m", "200m")), (container("b", "100m", "200m"))]}});
        assert_eq!(pod_requests(Pod(&pod))["cpu"].milli_value(), 550);
        assert_eq!(pod_limits(Pod(&pod))["cpu"].milli_value(), 550);
        assert_eq!(pod_requests(Pod(&pod))["memory"].value(), 192 << 20);
        assert_eq!(cgroup("/", Pod(&pod)), "/kubepods/burstable/podu");
    }

    #[test]
    fn a_pod_is_held_to_what_its_containers_are_limited_to_together() {
        let pod =
            value!({"spec": {"containers": [(container("a", "100m", "200m")), (container("b", "100m", "300m"))]}});
        let expect = serde_json::json!({"cpu": {"shares": 204, "quota": 50_000, "period": 100_000},
            "memory": {"limit": 128 << 20}, "pids": {"limit": 7}});
        assert_eq!(of_pod(Pod(&pod), Some(7)), expect);
        assert!(of_pod(Pod(&pod), None).get("pids").is_none());
    }

    #[test]
    fn a_sandbox_is_told_what_is_its_own_and_what_its_containers_have() {
        let mut pod =
            value!({"spec": {"containers": [(container("a", "100m", "200m")), (container("b", "100m", "300m"))]}});
        let shown = |one: &v1::LinuxContainerResources| (one.cpu_shares, one.cpu_quota, one.memory_limit_in_bytes);
        let (together, own) = of_sandbox(Pod(&pod));
        assert_eq!(shown(&together), (204, 50_000, 128 << 20));
        assert_eq!(own, v1::LinuxContainerResources::default());
        let overhead = value!({"cpu": "250m", "memory": "32Mi"});
        pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("overhead", overhead);
        let (together, own) = of_sandbox(Pod(&pod));
        assert_eq!(shown(&together), (204, 50_000, 128 << 20));
        assert_eq!(shown(&own), (256, 25_000, 32 << 20));
    }

    #[test]
    fn the_group_of_a_class_weighs_what_its_pods_ask_for() {
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
            Amounts::from([("cpu".to_owned(), "2".parse().unwrap()), ("memory".to_owned(), "1Gi".parse().unwrap())]);
        assert_eq!(of_all_pods(&available), serde_json::json!({"cpu": {"shares": 2048}, "memory": {"limit": 1 << 30}}));
    }

    #[test]
    fn a_container_that_was_resized_shows_what_it_has_until_it_has_what_it_should() {
        let spec = container("a", "100m", "200m");
        let pod = value!({"spec": {"containers": [(spec.clone())]}});
        let wanted = of_container(Pod(&pod), Pod(&pod).app_containers().next().unwrap(), 1 << 30);
        assert_eq!(differences(&wanted, &wanted), [""; 0]);
        assert_eq!(actual(&spec["resources"], &wanted), spec["resources"]);
        let old = v1::LinuxContainerResources { cpu_quota: 10_000, memory_limit_in_bytes: 32 << 20, ..wanted.clone() };
        assert_eq!(differences(&wanted, &old), ["cpu", "memory"]);
        let shown = actual(&spec["resources"], &old);
        assert_eq!(shown["limits"], value!({"cpu": "100m", "memory": "32Mi"}));
        assert_eq!(shown["requests"], spec["resources"]["requests"]);
        let unlimited = v1::LinuxContainerResources { cpu_quota: -1, memory_limit_in_bytes: 0, ..wanted };
        assert!(actual(&spec["resources"], &unlimited).get("limits").is_none());
    }

    #[test]
    fn who_asks_for_more_memory_is_killed_later() {
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
