//! Pod admission: rejects pods that the node cannot run, by its remaining resources, host ports, labels and features.

use api::amounts::{self, Amounts};
use apimachinery::Value;
use apimachinery::quantity::Quantity;

use crate::node::NodeConditions;
use crate::pod::{AmountsFrom, Node, Pod, QosClass, Taint};

/// Lowest priority of a critical pod.
const SYSTEM_CRITICAL: i64 = 2_000_000_000;

/// The value of the `kubernetes.io/os` label and of `spec.os.name` that this node supports.
const OS: &str = "linux";

/// The taint of a node under memory pressure.
const MEMORY_PRESSURE: Taint<'_> = Taint { key: "node.kubernetes.io/memory-pressure", value: "", effect: "NoSchedule" };

/// The reason and message of a rejected pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

/// Namespaced sysctls, which cannot affect other pods.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Rejects all pods during node shutdown, and pods that are not critical under node pressure. Memory pressure alone
/// rejects only BestEffort pods that do not tolerate it.
pub fn check_conditions(pod: Pod<'_>, node_conditions: &NodeConditions) -> Result<(), Rejection> {
    if node_conditions.shutting_down {
        let message = "Pod was rejected as the node is shutting down.".to_owned();
        return Err(Rejection { reason: "NodeShutdown".to_owned(), message });
    }
    let pressure = &node_conditions.pressure;
    let active = [("MemoryPressure", pressure.memory), ("DiskPressure", pressure.disk), ("PIDPressure", pressure.pids)];
    let active: Vec<&str> = active.into_iter().filter(|(_, active)| *active).map(|(name, _)| name).collect();
    let modest =
        active == ["MemoryPressure"] && (pod.qos_class() != QosClass::BestEffort || pod.tolerates(MEMORY_PRESSURE));
    if active.is_empty() || is_critical(pod) || modest {
        return Ok(());
    }
    let message = format!("The node had condition: [{}]. ", active.join(" "));
    Err(Rejection { reason: "Evicted".to_owned(), message })
}

/// Rejects a pod whose node selector or affinity does not match this node. A pod that already started is kept, even if
/// the node's labels changed.
pub fn node(pod: Pod<'_>, node: Option<&Value>) -> Result<(), Rejection> {
    let has_started = pod.0.at(&["status", "startTime"]).is_some();
    if has_started || node.is_none_or(|node| pod.pod_spec().selects(Node(node))) {
        return Ok(());
    }
    let message = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    Err(Rejection { reason: "NodeAffinity".to_owned(), message: message.to_owned() })
}

/// Rejects a pod for another operating system, by its `kubernetes.io/os` label and by `spec.os`.
pub fn os(pod: Pod<'_>) -> Result<(), Rejection> {
    let rejection = |reason: &str, message: &str| Rejection { reason: reason.to_owned(), message: message.to_owned() };
    if pod.meta().label("kubernetes.io/os").is_some_and(|os| os != OS) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(rejection("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec().str_at(&["os", "name"]).is_some_and(|os| os != OS) {
        return Err(rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"));
    }
    Ok(())
}

/// Rejects sysctls that are neither safe nor allowed by the node's configuration.
pub fn sysctls(pod: Pod<'_>, allowed: &[String]) -> Result<(), Rejection> {
    let allowed = |name: &str| {
        SAFE_SYSCTLS.contains(&name)
            || allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern,
            })
    };
    let list = pod.spec()["securityContext"]["sysctls"].as_array().unwrap_or_default();
    let names = list.iter().filter_map(|sysctl| sysctl.str_at(&["name"])).map(|name| name.replace('/', "."));
    match names.into_iter().find(|name| !allowed(name)) {
        Some(name) => Err(Rejection {
            reason: "SysctlForbidden".to_owned(),
            message: format!("forbidden sysctl: \"{name}\" not allowlisted"),
        }),
        None => Ok(()),
    }
}

/// Rejects pods with an AppArmor profile if the host does not support AppArmor.
pub fn app_armor(pod: Pod<'_>, is_enabled: bool) -> Result<(), Rejection> {
    let requests_profile = |context: &Value| {
        let kind = context.str_at(&["appArmorProfile", "type"]);
        kind.is_some_and(|kind| kind != "Unconfined")
    };
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let mut contexts = containers.into_iter().flat_map(|list| pod.list(list)).map(|one| &one["securityContext"]);
    if is_enabled || !(requests_profile(&pod.spec()["securityContext"]) || contexts.any(requests_profile)) {
        return Ok(());
    }
    let message = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    Err(Rejection { reason: "AppArmor".to_owned(), message: message.to_owned() })
}

/// Rejects `supplementalGroupsPolicy: Strict` if the node's runtime does not support it.
pub fn groups(pod: Pod<'_>, node: Option<&Value>) -> Result<(), Rejection> {
    let strict = pod.spec().str_at(&["securityContext", "supplementalGroupsPolicy"]) == Some("Strict");
    let can = node.and_then(|node| node.at(&["status", "features", "supplementalGroupsPolicy"])?.as_bool());
    // A node that has not reported its runtime features yet may support the policy.
    if !strict || can != Some(false) {
        return Ok(());
    }
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    Err(Rejection { reason: "SupplementalGroupsPolicyNotSupported".to_owned(), message: message.to_owned() })
}

/// Checks host ports and resource requests of a pod against the pods that are already admitted.
pub fn admit(pod: Pod<'_>, others: &[Pod<'_>], allocatable: &Amounts) -> Result<(), Rejection> {
    let mut used = Amounts::new();
    for other in others {
        amounts::add(&mut used, &other.requests(AmountsFrom::Spec));
    }
    let requested = pod.requests(AmountsFrom::Spec);
    for (name, amount) in &requested {
        // Extended resources unknown to the node are not counted here. Huge pages belong to the host, so an unknown
        // size has zero capacity.
        let none = name.starts_with("hugepages-").then_some(&Quantity::ZERO);
        let Some(all) = allocatable.get(name).or(none) else { continue };
        let taken = used.get(name).copied().unwrap_or(Quantity::ZERO);
        if !amount.is_zero() && taken.add(*amount) > *all {
            let number = |amount: Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
            return Err(out_of(name, number(*amount), number(taken), number(*all)));
        }
    }
    if let Some(most) = allocatable.get("pods").map(|most| most.value())
        && i64::try_from(others.len()).unwrap_or(i64::MAX) >= most
    {
        return Err(out_of("pods", 1, i64::try_from(others.len()).unwrap_or(i64::MAX), most));
    }
    let taken: Vec<Port<'_>> = others.iter().flat_map(|other| host_ports(*other)).collect();
    if host_ports(pod).iter().any(|port| taken.iter().any(|other| port.collides(other))) {
        let message =
            "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Err(Rejection { reason: "NodePorts".to_owned(), message: message.to_owned() });
    }
    Ok(())
}

/// Returns the pods to terminate so that a critical pod fits: as few as possible, lowest QoS class and priority first.
/// Returns none if preemption would not make the pod fit.
pub fn preempted<'a>(pod: Pod<'_>, others: &[Pod<'a>], allocatable: &Amounts) -> Vec<Pod<'a>> {
    let short = admit(pod, others, allocatable).is_err_and(|rejection| rejection.reason.starts_with("OutOf"));
    if !short || !is_critical(pod) {
        return Vec::new();
    }
    let fits = |victims: &[Pod<'a>]| {
        let stays = |other: &&Pod<'a>| !victims.iter().any(|victims| victims.uid() == other.uid());
        let left: Vec<Pod<'a>> = others.iter().filter(stays).copied().collect();
        admit(pod, &left, allocatable).is_ok()
    };
    let mut victims: Vec<Pod<'a>> = others.iter().filter(|other| !is_critical(**other)).copied().collect();
    victims.sort_by_key(|pod| (pod.qos_class(), priority(*pod)));
    if !fits(&victims) {
        return Vec::new();
    }
    // Pods that need not be preempted are kept, the most important first.
    for at in (0..victims.len()).rev() {
        let spared = victims.remove(at);
        if !fits(&victims) {
            victims.insert(at, spared);
        }
    }
    victims
}

fn priority(pod: Pod<'_>) -> i64 {
    pod.spec()["priority"].as_int().unwrap_or(0)
}

fn is_critical(pod: Pod<'_>) -> bool {
    pod.is_static() || pod.is_mirror() || priority(pod) >= SYSTEM_CRITICAL
}

fn out_of(name: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let message = format!(
        "Pod was rejected: Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    Rejection { reason: format!("OutOf{name}"), message }
}

struct Port<'a> {
    ip: &'a str,
    protocol: &'a str,
    number: i64,
}

impl Port<'_> {
    fn collides(&self, other: &Self) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.number == other.number
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(self.ip) || any(other.ip))
    }
}

fn host_ports(pod: Pod<'_>) -> Vec<Port<'_>> {
    let containers =
        pod.init_containers().filter(|one| one.role == crate::pod::Role::Sidecar).chain(pod.app_containers());
    let ports = containers.flat_map(|container| container.spec["ports"].as_array().unwrap_or_default());
    let read = |port: &'_ Value| port["hostPort"].as_int().filter(|number| *number > 0);
    ports
        .filter_map(|port| {
            let text = |field: &str, default| port.str_at(&[field]).unwrap_or(default);
            Some(Port { ip: text("hostIP", ""), protocol: text("protocol", "TCP"), number: read(port)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(cpu: &str, port: i64) -> Value {
        value!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}],
            "resources": {"requests": {"cpu": cpu}}}]}})
    }

    #[test]
    fn node_under_pressure_or_shutting_down_admits_only_exempt_pods() {
        let check = |spec: Value, memory: bool, disk: bool, expect: &str| {
            let pod = value!({"spec": (spec.clone())});
            let mut node_conditions = NodeConditions::default();
            (node_conditions.pressure.memory, node_conditions.pressure.disk) = (memory, disk);
            let found = check_conditions(Pod(&pod), &node_conditions)
                .map_or_else(|rejection| rejection.message, |()| String::new());
            assert_eq!(found, expect, "{spec:?}");
        };
        let idle = value!({"containers": [{"name": "c"}]});
        let with_requests = value!({"containers": [{"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]});
        let tolerant = value!({"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]});
        check(idle.clone(), false, false, "");
        check(idle.clone(), true, false, "The node had condition: [MemoryPressure]. ");
        check(with_requests.clone(), true, false, "");
        check(tolerant, true, false, "");
        // A toleration without a key applies to all of them, also if it compares the value.
        check(value!({"tolerations": [{"operator": "Equal"}]}), true, false, "");
        check(with_requests, true, true, "The node had condition: [MemoryPressure DiskPressure]. ");
        check(value!({"priority": 2_000_000_000_i64}), true, true, "");
        let pod = value!({"spec": idle});
        let down = NodeConditions { shutting_down: true, ..NodeConditions::default() };
        assert_eq!(check_conditions(Pod(&pod), &down).unwrap_err().reason, "NodeShutdown");
    }

    #[test]
    fn unavailable_huge_pages_are_rejected_and_unknown_extended_resources_are_not() {
        let pod_requesting = |name: &str| value!({"spec": {"containers": [{"name": "c", "resources": {"requests": (apimachinery::Object::from_iter([(name, Value::from("2Mi"))]))}}]}});
        let admitted =
            |name: &str| admit(Pod(&pod_requesting(name)), &[], &Amounts::new()).map_err(|rejection| rejection.reason);
        assert_eq!(admitted("hugepages-2Mi"), Err("OutOfhugepages-2Mi".to_owned()));
        assert_eq!(admitted("example.com/thing"), Ok(()));
    }

    #[test]
    fn apparmor_profiles_are_rejected_without_host_support() {
        let check = |spec: Value, is_enabled: bool, expect: bool| {
            let pod = value!({"spec": spec});
            assert_eq!(app_armor(Pod(&pod), is_enabled).is_ok(), expect, "{pod:?}");
        };
        let context = |kind: &str| value!({"appArmorProfile": {"type": kind}});
        let of_pod = |kind: &str| value!({"securityContext": (context(kind)), "containers": [{"name": "c"}]});
        let of_container = |kind: &str| value!({"containers": [{"name": "c", "securityContext": (context(kind))}]});
        check(value!({"containers": [{"name": "c"}]}), false, true);
        check(of_pod("RuntimeDefault"), false, false);
        check(of_pod("RuntimeDefault"), true, true);
        check(of_pod("Unconfined"), false, true);
        check(of_container("Localhost"), false, false);
    }

    #[test]
    fn only_safe_or_allowed_sysctls_are_admitted() {
        let check = |name: &str, allowed: &str, expect: bool| {
            let pod = value!({"spec": {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
            assert_eq!(sysctls(Pod(&pod), &[allowed.to_owned()]).is_ok(), expect, "{name} {allowed}");
        };
        check("kernel.shm_rmid_forced", "", true);
        check("kernel/shm_rmid_forced", "", true);
        check("kernel.msgmax", "", false);
        check("kernel.msgmax", "kernel.msg*", true);
    }

    #[test]
    fn pod_for_another_operating_system_is_rejected() {
        let check = |label: Option<&str>, os: Option<&str>, expect: Option<&str>| {
            let mut pod = value!({"metadata": {}, "spec": {}});
            let mut set = |part: &str, field: &str, value: Value| {
                pod.get_mut(part).unwrap().as_object_mut().unwrap().insert(field, value);
            };
            if let Some(label) = label {
                set("metadata", "labels", value!({"kubernetes.io/os": label}));
            }
            if let Some(os) = os {
                set("spec", "os", value!({"name": os}));
            }
            let found = super::os(Pod(&pod)).err().map(|rejection| rejection.reason);
            assert_eq!(found.as_deref(), expect, "{label:?} {os:?}");
        };
        check(None, None, None);
        check(Some("linux"), Some("linux"), None);
        check(None, Some("windows"), Some("PodOSNotSupported"));
        check(Some("windows"), None, Some("PodOSSelectorNodeLabelDoesNotMatch"));
        check(Some("windows"), Some("windows"), Some("PodOSSelectorNodeLabelDoesNotMatch"));
    }

    #[test]
    fn pod_with_mismatched_node_affinity_is_rejected_unless_started() {
        let here = value!({"metadata": {"name": "n", "labels": {"disk": "fast"}}});
        let check = |spec: Value, status: Value, expect: bool| {
            let pod = value!({"spec": (spec.clone()), "status": (status.clone())});
            assert_eq!(node(Pod(&pod), Some(&here)).is_ok(), expect, "{spec:?} {status:?}");
            assert!(node(Pod(&pod), None).is_ok(), "the node is unknown");
        };
        check(value!({}), value!({}), true);
        check(value!({"nodeSelector": {"disk": "fast"}}), value!({}), true);
        check(value!({"nodeSelector": {"disk": "slow"}}), value!({}), false);
        check(value!({"nodeSelector": {"disk": "slow"}}), value!({"startTime": "2026-01-01T00:00:00Z"}), true);
    }

    #[test]
    fn critical_pod_preempts_fewest_and_least_important_pods() {
        let pod = |uid: &str, cpu: &str, priority: i64| {
            value!({"metadata": {"uid": uid}, "spec": {"priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
        };
        let allocatable = Amounts::from([("cpu".into(), "4".parse().unwrap()), ("pods".into(), "9".parse().unwrap())]);
        let here = [
            pod("idle", "0", 0),
            pod("small", "1", 0),
            pod("dear", "1", 9),
            pod("large", "2", 0),
            pod("vital", "0", 2_000_000_000),
        ];
        let others: Vec<Pod<'_>> = here.iter().map(Pod).collect();
        let check = |critical_pod: Value, expect: &[&str]| {
            let found = preempted(Pod(&critical_pod), &others, &allocatable);
            let found: Vec<&str> = found.iter().map(|pod| pod.uid()).collect();
            assert_eq!(found, expect, "{critical_pod:?}");
        };
        check(pod("new", "1", 0), &[]);
        check(pod("new", "0", 2_000_000_000), &[]);
        check(pod("new", "1", 2_000_000_000), &["small"]);
        check(pod("new", "2", 2_000_000_000), &["large"]);
        check(pod("new", "4", 2_000_000_000), &["small", "large", "dear"]);
        check(pod("new", "5", 2_000_000_000), &[]);
    }

    #[test]
    fn pod_that_does_not_fit_is_rejected_with_a_reason() {
        let allocatable = Amounts::from([("cpu".into(), "2".parse().unwrap()), ("pods".into(), "2".parse().unwrap())]);
        let check = |pods: &[Value], expect: Option<&str>| {
            let others: Vec<Pod<'_>> = pods[1..].iter().map(Pod).collect();
            let found = admit(Pod(&pods[0]), &others, &allocatable).err().map(|rejection| rejection.reason);
            assert_eq!(found.as_deref(), expect);
        };
        check(&[pod("2", 0)], None);
        check(&[pod("2100m", 0)], Some("OutOfcpu"));
        check(&[pod("1", 0), pod("1500m", 0)], Some("OutOfcpu"));
        check(&[pod("0", 80), pod("0", 81)], None);
        check(&[pod("0", 80), pod("0", 80)], Some("NodePorts"));
        check(&[pod("0", 0), pod("0", 0), pod("0", 0)], Some("OutOfpods"));
    }

    #[test]
    fn strict_supplemental_groups_policy_requires_runtime_support() {
        let check = |policy: &str, node: Option<Value>, expect: bool| {
            let pod = value!({"spec": {"securityContext": {"supplementalGroupsPolicy": policy}}});
            assert_eq!(groups(Pod(&pod), node.as_ref()).is_ok(), expect, "{policy} {node:?}");
        };
        let can = |can: bool| Some(value!({"status": {"features": {"supplementalGroupsPolicy": can}}}));
        check("Strict", can(true), true);
        check("Strict", can(false), false);
        check("Strict", Some(value!({"status": {}})), true);
        check("Strict", None, true);
        check("Merge", can(false), true);
    }
}
