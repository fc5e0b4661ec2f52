//! Node registration: creates the Node object and keeps its status up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::patch::strategic;
use apimachinery::{Object, Value, value};
use cgroups::Controllers;
use client::cache::Reader;
use client::{Client, Error, Patch, Target, WriteOptions};
use component_base::clock;
use controller::kinds;
use node_api::cri::v1;
use tokio::sync::watch;
use tokio::time::Instant;

use super::machine::Machine;
use super::{NodeEvents, Observation, RuntimeFacts, has_changed, object, own_labels, status, without_extended};
use crate::config::Config;
use crate::devices::Counts;
use crate::runtime::Runtime;

/// Delay after a failed update.
const RETRY: Duration = Duration::from_secs(2);

/// The node's pressure conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    /// Disk space or inodes.
    pub disk: bool,
    pub pids: bool,
}

/// Node state that other tasks of the kubelet determine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConditions {
    pub pressure: Pressure,
    /// Missing cgroup controllers whose limits are not enforced.
    pub unenforced: Controllers,
    /// The host is about to shut down.
    pub shutting_down: bool,
    /// Device counts by resource.
    pub devices: BTreeMap<String, Counts>,
    /// Unique names of volumes in use, which must stay attached.
    pub volumes_in_use: BTreeSet<String>,
}

/// The dependencies of node registration.
pub struct Registration {
    pub config: Config,
    pub client: Client,
    /// Cache of the Node object.
    pub node: Reader<Value>,
    pub runtime: Runtime,
    /// Addresses of the node.
    pub addresses: Vec<String>,
    /// Port of the kubelet's server.
    pub port: u16,
    pub node_conditions: watch::Receiver<NodeConditions>,
    pub events: NodeEvents,
    /// Notified when the runtime has received the pod CIDR and may be ready.
    pub connected: Arc<tokio::sync::Notify>,
    /// Notified when the node is registered.
    pub registered: Arc<tokio::sync::Notify>,
}

/// Keeps a node registered forever. Computes the status at intervals and after changes, and writes it if it changed or
/// if the report interval has passed.
pub async fn keep(mut it: Registration) {
    let mut written: Option<(Value, Instant)> = None;
    loop {
        let outcome = once(&it, written.take()).await;
        let wait = match outcome {
            Ok(done) => {
                written = Some(done);
                it.registered.notify_one();
                it.config.status_update
            }
            Err(error) => {
                tracing::warn!(node = it.config.node_name, error = %error, "failed to update the node status");
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = it.connected.notified() => {}
            changed = it.node_conditions.changed() => if changed.is_err() { tokio::time::sleep(wait).await },
            // Other clients also write to the Node and may have overwritten fields of this kubelet.
            advanced = it.node.advanced() => if advanced.is_err() { tokio::time::sleep(wait).await },
        }
    }
}

async fn once(it: &Registration, written: Option<(Value, Instant)>) -> Result<(Value, Instant), Error> {
    let machine = Machine::read(&it.config.root_dir);
    let runtime = query_runtime(&it.runtime).await;
    let (node, at) = match written {
        Some((node, at)) => (newest(it, node), Some(at)),
        None => (find_or_create(it, &machine, &runtime).await?, None),
    };
    let known = if at.is_some() { node["status"].clone() } else { without_extended(&node["status"]) };
    let desired = build_status(it, &machine, &runtime, &known);
    let due = at.is_none_or(|at| at.elapsed() >= it.config.status_report);
    if !due && !has_changed(&node["status"], &desired) {
        return Ok((node, at.unwrap_or_else(Instant::now)));
    }
    let schema = api::catalogue::schema(&kinds::NODES.group_version_kind()).expect("the catalogue has nodes");
    let with = |status: &Value| -> Object { [("status", status.clone())].into_iter().collect() };
    let patch =
        strategic::create_two_way(&with(&node["status"]), &with(&desired), schema).unwrap_or_else(|_| with(&desired));
    let target = Target::named(&kinds::NODES, "", it.config.node_name.as_str()).subresource("status");
    let written = it.client.patch(&target, &Patch::Strategic(Value::Object(patch)), &WriteOptions::default()).await?;
    it.events.record_changes(&node, &written);
    Ok((written, Instant::now()))
}

/// Returns the more recent of the cached Node and the one written last.
fn newest(it: &Registration, written: Value) -> Value {
    let revision = |node: &Value| Meta::of(node).resource_version().parse::<u64>().unwrap_or(0);
    let snapshot = it.node.snapshot();
    let seen = snapshot.objects.iter().next().map(|entry| &entry.value);
    seen.filter(|seen| revision(seen) > revision(&written)).cloned().unwrap_or(written)
}

fn build_status(it: &Registration, machine: &Machine, runtime: &RuntimeFacts, known: &Value) -> Value {
    let node_conditions = it.node_conditions.borrow().clone();
    status(&Observation {
        config: &it.config,
        machine,
        runtime,
        node_conditions: &node_conditions,
        addresses: &it.addresses,
        port: it.port,
        known,
        now: clock::now(),
    })
}

/// Returns the Node with the kubelet's own labels applied. Creates the Node if it does not exist.
async fn find_or_create(it: &Registration, machine: &Machine, runtime: &RuntimeFacts) -> Result<Value, Error> {
    let target = Target::named(&kinds::NODES, "", it.config.node_name.as_str());
    match it.client.get(&target).await {
        Ok(node) => relabel(it, machine, &target, node).await,
        Err(error) if error.is_not_found() && it.config.register_node => {
            let node = object(&it.config, machine, build_status(it, machine, runtime, &Value::Null));
            match it.client.create(&Target::all(&kinds::NODES), &node, &WriteOptions::default()).await {
                Err(error) if error.is_already_exists() => it.client.get(&target).await,
                created => created.inspect(|node| it.events.record_changes(&Value::Null, node)),
            }
        }
        Err(error) => Err(error),
    }
}

async fn relabel(it: &Registration, machine: &Machine, target: &Target<'_>, node: Value) -> Result<Value, Error> {
    let given = it.config.node_labels.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let desired_labels = own_labels(&it.config, machine).into_iter().chain(given);
    let missing: Object = desired_labels.filter(|(key, value)| Meta::of(&node).label(key) != Some(value)).collect();
    if missing.is_empty() {
        return Ok(node);
    }
    let patch = value!({"metadata": {"labels": missing}});
    it.client.patch(target, &Patch::Strategic(patch), &WriteOptions::default()).await
}

/// Queries the runtime's properties; a runtime that does not respond is not ready.
pub async fn query_runtime(runtime: &Runtime) -> RuntimeFacts {
    let mut client = runtime.runtime.clone();
    let mut facts = RuntimeFacts::default();
    let not_ready = |status: &tonic::Status| Some(format!("container runtime is down: {}", status.message()));
    match client.version(v1::VersionRequest::default()).await {
        Ok(response) => {
            let response = response.into_inner();
            (facts.name, facts.version) = (response.runtime_name, response.runtime_version);
        }
        Err(status) => facts.not_ready = not_ready(&status),
    }
    match client.status(v1::StatusRequest::default()).await {
        Ok(response) => {
            let response = response.into_inner();
            let conditions = response.status.unwrap_or_default().conditions;
            let bad = conditions.iter().find(|condition| !condition.status);
            // The failure of the first call remains the reason.
            facts.not_ready = facts.not_ready.or_else(|| bad.map(unmet_condition));
            facts.handlers = response.runtime_handlers.iter().map(handler).collect();
            facts.supplemental_groups = response.features.is_some_and(|features| features.supplemental_groups_policy);
        }
        Err(status) => facts.not_ready = not_ready(&status),
    }
    if let Ok(response) = runtime.images.clone().list_images(v1::ListImagesRequest::default()).await {
        let read = |image: v1::Image| {
            let names = image.repo_digests.into_iter().chain(image.repo_tags).collect();
            (names, i64::try_from(image.size).unwrap_or(i64::MAX))
        };
        facts.images = response.into_inner().images.into_iter().map(read).collect();
    }
    facts
}

fn unmet_condition(condition: &v1::RuntimeCondition) -> String {
    format!(
        "container runtime network not ready: {}={} reason:{} message:{}",
        condition.r#type, condition.status, condition.reason, condition.message
    )
}

fn handler(handler: &v1::RuntimeHandler) -> Value {
    let features = handler.features.unwrap_or_default();
    value!({"name": (handler.name.as_str()), "features": {
        "recursiveReadOnlyMounts": (features.recursive_read_only_mounts), "userNamespaces": (features.user_namespaces)}})
}

/// Passes the node's pod CIDRs to the runtime once they are assigned, and notifies `connected`.
pub async fn keep_network(mut node: Reader<Value>, runtime: Runtime, connected: Arc<tokio::sync::Notify>) {
    let mut configured_cidr = String::new();
    while node.advanced().await.is_ok() {
        let snapshot = node.snapshot();
        let cidr = snapshot.objects.iter().map(|entry| pod_cidrs(&entry.value)).next();
        if let Some(cidr) = cidr.filter(|cidr| !cidr.is_empty() && *cidr != configured_cidr)
            && configure_cidr(&runtime, &cidr).await
        {
            configured_cidr = cidr;
            connected.notify_one();
        }
    }
    std::future::pending::<()>().await;
}

/// Returns the node's pod CIDRs, one per IP family, in CRI format.
fn pod_cidrs(node: &Value) -> String {
    let all = node.at(&["spec", "podCIDRs"]).and_then(Value::as_array).unwrap_or_default();
    let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
    if all.is_empty() { node.str_at(&["spec", "podCIDR"]).unwrap_or_default().to_owned() } else { all.join(",") }
}

/// Passes the pod CIDR to the runtime. Returns whether the runtime accepted it.
async fn configure_cidr(runtime: &Runtime, cidr: &str) -> bool {
    let network_config = Some(v1::NetworkConfig { pod_cidr: cidr.to_owned() });
    let request = v1::UpdateRuntimeConfigRequest { runtime_config: Some(v1::RuntimeConfig { network_config }) };
    runtime.runtime.clone().update_runtime_config(request).await.is_ok()
}
