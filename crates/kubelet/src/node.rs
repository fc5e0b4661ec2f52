//! The Node object: capacity, labels, conditions and status of the node.

mod events;
mod lease;
pub mod machine;
mod oom;
mod register;

use api::amounts::{self, Amounts};
use apimachinery::quantity::{Format, Quantity};
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};
use cgroups::Controllers;

use crate::config::Config;
use machine::Machine;

pub use events::NodeEvents;
pub use lease::keep as keep_lease;
pub use oom::watch as watch_oom;
pub use register::{NodeConditions, Pressure, Registration, keep as keep_registered, keep_network, query_runtime};

/// The Kubernetes version of this kubelet.
pub const VERSION: &str = "v1.36.4";

/// Type of the condition, and reason of the event, of a node without some cgroup controllers.
// DEVIATION: a node with `--allow-missing-cgroup-controllers` that lacks controllers has the condition
// `LimitsUnenforced`.
pub const UNENFORCED: &str = "LimitsUnenforced";

/// Returns the message of [`UNENFORCED`].
pub fn unenforced_message(controllers: Controllers) -> String {
    format!("limits of pods that need these cgroup controllers are not enforced: {controllers}")
}

/// The properties that the runtime reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFacts {
    /// Such as `knarr` or `containerd`.
    pub name: String,
    pub version: String,
    /// The reason if the runtime is not ready.
    pub not_ready: Option<String>,
    /// Runtime handlers with their features, as in the node status.
    pub handlers: Vec<Value>,
    /// Whether the runtime supports `supplementalGroupsPolicy`.
    pub supplemental_groups: bool,
    /// Names and size in bytes of each image.
    pub images: Vec<(Vec<String>, i64)>,
}

/// Returns the node's capacity.
pub fn capacity(config: &Config, machine: &Machine) -> Amounts {
    let number = |value: i64, format| Quantity::new(value, format);
    let mut all = Amounts::from([
        ("cpu".into(), number(machine.cpus, Format::DecimalSI)),
        ("memory".into(), number(machine.memory_bytes / 1024 * 1024, Format::BinarySI)),
        ("ephemeral-storage".into(), number(machine.disk_bytes / 1024 * 1024, Format::BinarySI)),
        ("pods".into(), number(config.max_pods.into(), Format::DecimalSI)),
    ]);
    for (size, bytes) in &machine.hugepages {
        all.insert(format!("hugepages-{size}").into(), number(*bytes, Format::BinarySI));
    }
    all
}

/// Returns the node's allocatable resources: the capacity less reserved amounts and hard eviction thresholds.
pub fn allocatable(config: &Config, machine: &Machine) -> Amounts {
    let capacity = capacity(config, machine);
    let mut all = capacity.clone();
    for (name, amount) in &mut all {
        let mut reserved = config.reserved.get(name).copied().unwrap_or(Quantity::ZERO);
        let signal = match name.as_str() {
            "memory" => "memory.available",
            "ephemeral-storage" => "nodefs.available",
            _ => "",
        };
        if let Some(limit) = config.eviction_hard.get(signal) {
            reserved = reserved.add(threshold(limit, *amount));
        }
        let left = amount.sub(reserved);
        *amount = if left.is_negative() { Quantity::ZERO.with_format(amount.format()) } else { left };
    }
    all
}

/// Converts an eviction threshold to an amount; percentages are relative to `of`.
pub fn threshold(text: &str, of: Quantity) -> Quantity {
    match text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok()) {
        Some(percent) => Quantity::new((of.value() as f64 * percent / 100.0) as i64, of.format()),
        None => text.parse().unwrap_or(Quantity::ZERO),
    }
}

/// Returns the Node object that the kubelet creates.
pub fn object(config: &Config, machine: &Machine, status: Value) -> Value {
    let mut labels: Object = config.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    for (key, value) in own_labels(config, machine) {
        labels.insert(key, value);
    }
    let mut spec = Object::new();
    if !config.taints.is_empty() {
        spec.insert("taints", config.taints.clone());
    }
    if !config.provider_id.is_empty() {
        spec.insert("providerID", config.provider_id.as_str());
    }
    value!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": (config.node_name.as_str()), "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": spec, "status": status})
}

/// Returns the labels that every node has.
pub fn own_labels(config: &Config, machine: &Machine) -> [(&'static str, String); 5] {
    [
        ("beta.kubernetes.io/arch", machine.architecture.to_owned()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", machine.architecture.to_owned()),
        ("kubernetes.io/hostname", config.node_name.clone()),
        ("kubernetes.io/os", "linux".to_owned()),
    ]
}

/// The inputs of the node status.
pub struct Observation<'a> {
    pub config: &'a Config,
    pub machine: &'a Machine,
    pub runtime: &'a RuntimeFacts,
    pub node_conditions: &'a NodeConditions,
    pub addresses: &'a [String],
    /// Port of the kubelet's server.
    pub port: u16,
    /// The current status of the Node object.
    pub known: &'a Value,
    pub now: Time,
}

/// Returns the node status. Keeps transition times and fields of other writers.
pub fn status(observed: &Observation<'_>) -> Value {
    let Observation { config, machine, runtime, known, .. } = *observed;
    let amounts = |amounts: Amounts| -> Object {
        amounts.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect()
    };
    let mut addresses: Vec<Value> =
        observed.addresses.iter().map(|ip| value!({"type": "InternalIP", "address": (ip.as_str())})).collect();
    // DEVIATION: the kubelet reports the addresses of `--node-external-ip`; upstream leaves external addresses to cloud
    // providers.
    addresses.extend(config.external_ips.iter().map(|ip| value!({"type": "ExternalIP", "address": (ip.to_string())})));
    addresses.push(value!({"type": "Hostname", "address": (config.node_name.as_str())}));
    let mut status = known.as_object().cloned().unwrap_or_default();
    let (mut all, mut free) = (capacity(config, machine), allocatable(config, machine));
    for (resource, counts) in &observed.node_conditions.devices {
        all.insert(resource.as_str().into(), Quantity::new(counts.capacity, Format::DecimalSI));
        free.insert(resource.as_str().into(), Quantity::new(counts.allocatable, Format::DecimalSI));
    }
    for (name, amount) in extended(known) {
        all.entry(name.clone()).or_insert(amount);
        free.entry(name).or_insert(amount);
    }
    status.insert("capacity", amounts(all));
    status.insert("allocatable", amounts(free));
    status.insert("addresses", addresses);
    status.insert("daemonEndpoints", value!({"kubeletEndpoint": {"Port": (u32::from(observed.port))}}));
    status.insert(
        "nodeInfo",
        value!({
        "machineID": (machine.machine_id.as_str()), "systemUUID": (machine.system_uuid.as_str()),
        "bootID": (machine.boot_id.as_str()), "kernelVersion": (machine.kernel.as_str()),
        "osImage": (machine.os.as_str()), "operatingSystem": "linux", "architecture": (machine.architecture),
        "containerRuntimeVersion": (format!("{}://{}", runtime.name, runtime.version)),
        "kubeletVersion": VERSION, "kubeProxyVersion": "", "swap": {"capacity": (machine.swap_bytes)}}),
    );
    let in_use: Vec<Value> = observed.node_conditions.volumes_in_use.iter().map(|name| name.as_str().into()).collect();
    match in_use.is_empty() {
        true => drop(status.remove("volumesInUse")),
        false => drop(status.insert("volumesInUse", in_use)),
    }
    status.insert("images", images(config, runtime));
    if !runtime.handlers.is_empty() {
        status.insert("runtimeHandlers", runtime.handlers.clone());
    }
    status.insert("declaredFeatures", declared(runtime));
    status.insert("features", value!({"supplementalGroupsPolicy": (runtime.supplemental_groups)}));
    status.insert("conditions", conditions(observed));
    Value::Object(status)
}

/// Returns the node's declared features in alphabetical order, which the scheduler matches with pods that need them.
fn declared(runtime: &RuntimeFacts) -> Vec<Value> {
    // The built-in runtime accepts WebSocket streams, so the API server need not translate them to SPDY.
    let streams = (runtime.name == "knarr").then_some("ExtendWebSocketsToKubelet");
    streams.into_iter().chain(["RestartAllContainersOnContainerExits"]).map(Value::from).collect()
}

/// Returns the extended resources in the known status: names with a domain other than Kubernetes' own.
fn extended(known: &Value) -> Amounts {
    let is_extended = |name: &str| name.contains('/') && !name.contains("kubernetes.io/");
    let mut all = amounts::read(known.get("capacity"));
    all.retain(|name, _| is_extended(name));
    all
}

/// Returns the status of an existing node with zero capacity for extended resources, until their owners report them
/// again.
pub fn without_extended(known: &Value) -> Value {
    let mut status = known.clone();
    for name in extended(known).keys() {
        if let Some(capacity) = status.get_mut("capacity").and_then(Value::as_object_mut) {
            capacity.insert(name.as_str(), "0");
        }
    }
    status
}

fn images(config: &Config, runtime: &RuntimeFacts) -> Vec<Value> {
    let mut images = runtime.images.clone();
    images.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    if let Ok(most) = usize::try_from(config.status_images_max) {
        images.truncate(most);
    }
    let to_value = |(names, size): &(Vec<String>, i64)| {
        let names: Vec<Value> = names.iter().take(5).map(|name| Value::from(name.as_str())).collect();
        value!({"names": names, "sizeBytes": (*size)})
    };
    images.iter().map(to_value).collect()
}

fn conditions(observed: &Observation<'_>) -> Vec<Value> {
    let pressure = &observed.node_conditions.pressure;
    let pressure_condition = |kind: &'static str, short: bool, yes: [&'static str; 2], no: [&'static str; 2]| {
        let [reason, message] = if short { yes } else { no };
        (kind, short, reason, message.to_owned())
    };
    let shutting_down = observed.node_conditions.shutting_down.then(|| "node is shutting down".to_owned());
    let ready = match &shutting_down.or_else(|| observed.runtime.not_ready.clone()) {
        None => ("Ready", true, "KubeletReady", "kubelet is posting ready status".to_owned()),
        Some(cause) => ("Ready", false, "KubeletNotReady", cause.clone()),
    };
    let known = observed.known["conditions"].as_array().unwrap_or_default();
    let find = |kind: &str| known.iter().find(|condition| condition.str_at(&["type"]) == Some(kind));
    let mut own = vec![
        pressure_condition(
            "MemoryPressure",
            pressure.memory,
            ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
            ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
        ),
        pressure_condition(
            "DiskPressure",
            pressure.disk,
            ["KubeletHasDiskPressure", "kubelet has disk pressure"],
            ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
        ),
        pressure_condition(
            "PIDPressure",
            pressure.pids,
            ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
            ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
        ),
        ready,
    ];
    let unenforced = observed.node_conditions.unenforced;
    if !unenforced.is_empty() {
        own.insert(0, (UNENFORCED, true, "ControllersMissing", unenforced_message(unenforced)));
    } else if find(UNENFORCED).is_some() {
        own.insert(0, (UNENFORCED, false, "ControllersAvailable", "all limits of pods are enforced".to_owned()));
    }
    let now = observed.now.to_string();
    let mut list: Vec<Value> = own
        .iter()
        .map(|(kind, holds, reason, message)| {
            let status = if *holds { "True" } else { "False" };
            let before = find(kind).filter(|before| before.str_at(&["status"]) == Some(status));
            let since = before.and_then(|before| before.str_at(&["lastTransitionTime"])).unwrap_or(&now);
            value!({"type": (*kind), "status": status, "lastHeartbeatTime": (now.as_str()), "lastTransitionTime": since,
                "reason": (*reason), "message": (message.as_str())})
        })
        .collect();
    let mine = |kind: Option<&str>| own.iter().any(|(own, ..)| Some(*own) == kind);
    let others = known.iter().filter(|condition| !mine(condition.str_at(&["type"])));
    list.splice(0..0, others.cloned());
    list
}

/// Whether a status differs from the known one in anything except heartbeat times.
pub fn has_changed(known: &Value, status: &Value) -> bool {
    without_heartbeats(known) != without_heartbeats(status)
}

fn without_heartbeats(status: &Value) -> Value {
    let mut status = status.clone();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastHeartbeatTime");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { cpus: 4, memory_bytes: 8 << 30, disk_bytes: 100 << 30, ..Machine::default() }
    }

    #[test]
    fn reserved_resources_and_eviction_thresholds_are_not_allocatable() {
        let mut config = Config::new("n");
        config.reserved = Amounts::from([("cpu".into(), "500m".parse().unwrap())]);
        let amount = |amounts: &Amounts, name: &str| amounts[name].to_string();
        let (all, free) = (capacity(&config, &machine()), allocatable(&config, &machine()));
        assert_eq!((amount(&all, "cpu"), amount(&free, "cpu")), ("4".into(), "3500m".into()));
        assert_eq!((amount(&all, "memory"), amount(&free, "memory")), ("8Gi".into(), "8092Mi".into()));
        assert_eq!(free["ephemeral-storage"].value(), 90 << 30);
        assert_eq!(amount(&free, "pods"), "110");
    }

    #[test]
    fn extended_resources_stay_until_removed_or_kubelet_restarts() {
        let (config, machine, runtime) = (Config::new("n"), machine(), RuntimeFacts::default());
        let devices = [("example.com/device".to_owned(), crate::devices::Counts { capacity: 2, allocatable: 1 })];
        let node_conditions = NodeConditions { devices: devices.into(), ..NodeConditions::default() };
        let describe = |known: &Value| {
            let now = Time::from_unix(1, 0);
            let (addresses, port) = (&[][..], 10250);
            let observed = Observation {
                config: &config,
                machine: &machine,
                runtime: &runtime,
                node_conditions: &node_conditions,
                addresses,
                port,
                known,
                now,
            };
            let status = status(&observed);
            let of = |field: &str| {
                let mut amounts = amounts::read(status.get(field));
                amounts.retain(|name, _| !["cpu", "memory", "ephemeral-storage", "pods"].contains(&name.as_str()));
                amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
            };
            (of("capacity"), of("allocatable"))
        };
        let check = |known: &Value, capacity: &str, allocatable: &str| {
            assert_eq!(describe(known), (capacity.to_owned(), allocatable.to_owned()), "{known:?}");
        };
        let known = value!({"capacity": {"example.com/foo": "5", "example.com/device": "9", "cpu": "77", "hugepages-3Mi": "3Mi",
            "kubernetes.io/own": "1"}, "allocatable": {"example.com/foo": "1", "example.com/gone": "4"}});
        check(&known, "example.com/device=2 example.com/foo=5", "example.com/device=1 example.com/foo=5");
        check(
            &without_extended(&known),
            "example.com/device=2 example.com/foo=0",
            "example.com/device=1 example.com/foo=0",
        );
        check(&value!({"allocatable": {"example.com/foo": "1"}}), "example.com/device=2", "example.com/device=1");
    }

    #[test]
    fn status_has_internal_and_external_addresses() {
        let config = Config { external_ips: vec![[203, 0, 113, 5].into()], ..Config::new("n") };
        let (machine, node_conditions) = (machine(), NodeConditions::default());
        let status = status(&Observation {
            config: &config,
            machine: &machine,
            runtime: &RuntimeFacts::default(),
            node_conditions: &node_conditions,
            addresses: &["192.0.2.1".to_owned()],
            port: 10250,
            known: &Value::Null,
            now: Time::from_unix(1, 0),
        });
        let expect = value!([
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "ExternalIP", "address": "203.0.113.5"},
            {"type": "Hostname", "address": "n"},
        ]);
        assert_eq!(status["addresses"], expect);
    }

    #[test]
    fn heartbeats_alone_do_not_count_as_a_status_change() {
        let (config, machine) = (Config::new("n"), machine());
        let make = |known: &Value, runtime: &RuntimeFacts, now: i64| {
            let (node_conditions, addresses) = (NodeConditions::default(), ["192.0.2.1".to_owned()]);
            let now = Time::from_unix(now, 0);
            status(&Observation {
                config: &config,
                machine: &machine,
                runtime,
                node_conditions: &node_conditions,
                addresses: &addresses,
                port: 10250,
                known,
                now,
            })
        };
        let mut runtime = RuntimeFacts { name: "knarr".into(), version: "0.1".into(), ..RuntimeFacts::default() };
        let first = make(&Value::Null, &runtime, 1);
        let later = make(&first, &runtime, 100);
        assert!(!has_changed(&first, &later));
        assert_ne!(first, later);
        runtime.not_ready = Some("no network".into());
        let broken = make(&later, &runtime, 200);
        assert!(has_changed(&later, &broken));
        let ready = &broken["conditions"][3];
        assert_eq!(ready["lastTransitionTime"], Value::from("1970-01-01T00:03:20Z"));
        assert_eq!((&ready["status"], &ready["reason"]), (&Value::from("False"), &Value::from("KubeletNotReady")));
    }
    #[test]
    fn unenforced_limits_are_a_condition_until_the_controllers_are_available() {
        let (config, machine, runtime) = (Config::new("n"), machine(), RuntimeFacts::default());
        let report = |missing: &[&str], known: &Value| {
            let unenforced = Controllers::named(missing.iter().copied());
            let node_conditions = NodeConditions { unenforced, ..NodeConditions::default() };
            status(&Observation {
                config: &config,
                machine: &machine,
                runtime: &runtime,
                node_conditions: &node_conditions,
                addresses: &[],
                port: 10250,
                known,
                now: Time::from_unix(100, 0),
            })
        };
        let condition = |status: &Value| {
            let list = status["conditions"].as_array().unwrap();
            let found = list.iter().find(|one| one.str_at(&["type"]) == Some(UNENFORCED))?;
            Some(["status", "message"].map(|field| found.str_at(&[field]).unwrap().to_owned()).join(": "))
        };
        assert_eq!(condition(&report(&[], &Value::Null)), None);
        let without = report(&["memory", "cpu"], &Value::Null);
        let expect = "True: limits of pods that need these cgroup controllers are not enforced: cpu, memory";
        assert_eq!(condition(&without).as_deref(), Some(expect));
        let with = report(&[], &without);
        assert_eq!(condition(&with).as_deref(), Some("False: all limits of pods are enforced"));
    }
}
