//! Nodes: conditions, capacity, and the resources that their pods request.

use api::amounts::{self, Amounts};
use api::view::{AmountsFrom, Pod};
use std::collections::{BTreeMap, BTreeSet};

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value};

use super::common;
use super::query::{LEASES, PODS, Query, RESOURCE_SLICES, Tolerate};
use super::read::{Read, name, namespace, quantity, quantity_text};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";
const POOLS_MAX: usize = 10;

pub(super) fn queries(node: &Value) -> Result<Vec<Query>, String> {
    let node = name(node);
    let pods = format!("spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded");
    Ok(vec![
        Query::list(&PODS, "").with_fields(pods).tolerating(Tolerate::Forbidden),
        Query::list(&RESOURCE_SLICES, "").with_fields(format!("spec.nodeName={node}")).tolerating(Tolerate::All),
        Query::get(&LEASES, "kube-node-lease", node).tolerating(Tolerate::All),
    ])
}

pub(super) fn node(w: &mut Writer<'_>, node: &Value, related: &RelatedObjects) -> WriteResult {
    let (spec, status) = (node.sub("spec"), node.sub("status"));
    line!(w, 0, "Name:\t{}", name(node));
    line!(w, 0, "Roles:\t{}", roles(node.map("metadata.labels")));
    common::metadata(w, node);
    common::time(w, "CreationTimestamp", node.text("metadata.creationTimestamp"));
    common::taints(w, spec.list("taints"));
    line!(w, 0, "Unschedulable:\t{}", spec.flag("unschedulable"));
    match related.list(&LEASES) {
        Ok(leases) => write_lease(w, leases.first().unwrap_or(&Value::Null)),
        Err(error) => line!(w, 0, "Lease:\tFailed to get lease: {error}"),
    }
    write_conditions(w, status.list("conditions"));
    line!(w, 0, "Addresses:");
    for address in status.list("addresses") {
        line!(w, 1, "{}:\t{}", address.text("type"), address.text("address"));
    }
    for (title, field) in [("Capacity", "capacity"), ("Allocatable", "allocatable")] {
        let amounts = status.map(field);
        if !amounts.is_empty() {
            line!(w, 0, "{title}:");
        }
        for (resource, amount) in amounts.iter() {
            line!(w, 1, "{resource}:\t{}", quantity_text(amount));
        }
    }
    write_slices(w, related.list(&RESOURCE_SLICES).unwrap_or_default());
    write_system_info(w, status.sub("nodeInfo"));
    let cidrs = spec.texts("podCIDRs").join(",");
    for (title, value) in
        [("PodCIDR", spec.text("podCIDR")), ("PodCIDRs", cidrs.as_str()), ("ProviderID", spec.text("providerID"))]
    {
        if !value.is_empty() {
            line!(w, 0, "{title}:\t{value}");
        }
    }
    match related.list(&PODS) {
        Ok(pods) => write_pods(w, pods, allocatable(status)),
        Err(_) => line!(w, 0, "Pods:\tnot authorized"),
    }
    Ok(())
}

fn roles(labels: &Object) -> String {
    let role = |(key, value): (&str, &Value)| match key.strip_prefix(ROLE_LABEL_PREFIX) {
        Some(role) => role.to_owned(),
        None if key == ROLE_LABEL => value.as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    };
    let roles: BTreeSet<String> = labels.iter().map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn write_lease(w: &mut Writer<'_>, lease: &Value) {
    line!(w, 0, "Lease:");
    line!(w, 1, "HolderIdentity:\t{}", lease.text_or("spec.holderIdentity", "<unset>"));
    for (title, field) in [("AcquireTime", "spec.acquireTime"), ("RenewTime", "spec.renewTime")] {
        let time = match lease.text(field) {
            "" => "<unset>".to_owned(),
            time => w.clock.rfc1123(time),
        };
        line!(w, 1, "{title}:\t{time}");
    }
}

fn write_conditions(w: &mut Writer<'_>, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    line!(w, 0, "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage");
    line!(w, 1, "----\t------\t-----------------\t------------------\t------\t-------");
    for condition in conditions {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| condition.text(field));
        let [heartbeat, transition] =
            ["lastHeartbeatTime", "lastTransitionTime"].map(|field| w.clock.rfc1123(condition.text(field)));
        line!(w, 1, "{kind} \t{status} \t{heartbeat} \t{transition} \t{reason} \t{message}");
    }
}

/// Writes the device pools of the node's ResourceSlices.
fn write_slices(w: &mut Writer<'_>, slices: &[Value]) {
    let mut pools: BTreeMap<String, (&str, &str, usize, usize)> = BTreeMap::new();
    for slice in slices {
        let (driver, pool) = (slice.text("spec.driver"), slice.text("spec.pool.name"));
        let entry = pools.entry(format!("{driver}/{pool}")).or_insert((driver, pool, 0, 0));
        entry.2 += 1;
        entry.3 += slice.list("spec.devices").len();
    }
    if pools.is_empty() {
        return;
    }
    line!(w, 0, "Node-Local ResourceSlices:");
    line!(w, 1, "Driver\tPool\tSlices\tDevices");
    line!(w, 1, "------\t----\t------\t-------");
    for (driver, pool, slices, devices) in pools.values().take(POOLS_MAX) {
        line!(w, 1, "{driver}\t{pool}\t{slices}\t{devices}");
    }
    if pools.len() > POOLS_MAX {
        line!(w, 1, "...and {} more pools", pools.len() - POOLS_MAX);
    }
}

fn write_system_info(w: &mut Writer<'_>, info: &Value) {
    let fields = [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ];
    line!(w, 0, "System Info:");
    for (title, field) in fields {
        line!(w, 1, "{title}:\t{}", info.text(field));
    }
}

fn allocatable(status: &Value) -> &Object {
    match status.map("allocatable") {
        allocatable if allocatable.is_empty() => status.map("capacity"),
        allocatable => allocatable,
    }
}

fn write_pods(w: &mut Writer<'_>, pods: &[Value], allocatable: &Object) {
    line!(w, 0, "Non-terminated Pods:\t({} in total)", pods.len());
    line!(w, 1, "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge");
    line!(w, 1, "---------\t----\t\t------------\t----------\t---------------\t-------------\t---");
    let total = |resource: &str| allocatable.get(resource).map(quantity).unwrap_or_default();
    for pod in pods {
        let requests = Pod(pod).requests(AmountsFrom::ContainerStatuses);
        let limits = Pod(pod).limits(AmountsFrom::ContainerStatuses);
        let cell = |amounts: &Amounts, resource: &str| {
            let amount = amounts.get(resource).copied().unwrap_or_default();
            format!("{amount} ({}%)", percent(resource, amount, total(resource)))
        };
        let [cpu, memory] = ["cpu", "memory"];
        let cells = [cell(&requests, cpu), cell(&limits, cpu), cell(&requests, memory), cell(&limits, memory)];
        let age = w.clock.since(pod.text("metadata.creationTimestamp"));
        line!(w, 1, "{}\t{}\t\t{}\t{age}", namespace(pod), name(pod), cells.join("\t"));
    }
    write_allocated(w, pods, allocatable);
}

fn write_allocated(w: &mut Writer<'_>, pods: &[Value], allocatable: &Object) {
    line!(w, 0, "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)");
    line!(w, 1, "Resource\tRequests\tLimits");
    line!(w, 1, "--------\t--------\t------");
    let [mut requests, mut limits] = [Amounts::new(), Amounts::new()];
    for pod in pods {
        amounts::add(&mut requests, &Pod(pod).requests(AmountsFrom::Spec));
        amounts::add(&mut limits, &Pod(pod).limits(AmountsFrom::Spec));
    }
    let standard = ["cpu", "memory", "ephemeral-storage"];
    let is_huge = |resource: &&str| resource.starts_with("hugepages-");
    let huge = allocatable.keys().filter(is_huge);
    for resource in standard.into_iter().chain(huge) {
        let total = allocatable.get(resource).map(quantity).unwrap_or_default();
        let cells = [&requests, &limits].map(|amounts| {
            let amount = amounts.get(resource).copied().unwrap_or_default();
            let percent = if total.is_zero() { 0 } else { percent(resource, amount, total) };
            format!("{amount} ({percent}%)")
        });
        line!(w, 1, "{resource}\t{}", cells.join("\t"));
    }
    let extended =
        allocatable.keys().filter(|resource| !standard.contains(resource) && !is_huge(resource) && *resource != "pods");
    for resource in extended {
        let cells = [&requests, &limits].map(|amounts| amounts.get(resource).copied().unwrap_or_default().to_string());
        line!(w, 1, "{resource}\t{}", cells.join("\t"));
    }
}

/// Returns the percentage of `total` that an amount is, rounded down.
fn percent(resource: &str, amount: Quantity, total: Quantity) -> i64 {
    let (amount, total) = match resource {
        "cpu" => (amount.milli_value(), total.milli_value()),
        _ => (amount.value(), total.value()),
    };
    let percent = amount as f64 / total as f64 * 100.0;
    // kubectl divides by zero too. Go converts infinity and NaN to the minimum on amd64.
    if percent.is_finite() { percent as i64 } else { i64::MIN }
}
