//! The node's object in the API: made if it is not there, and its status kept true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::cache::Reader;
use client::{Client, Error, Patch, Target, WriteOptions};
use cri::v1;
use driver::clock;
use machinery::meta::Meta;
use machinery::patch::strategic;
use machinery::{Object, Value, value};
use reconcile::kinds;
use tokio::sync::watch;
use tokio::time::Instant;

use super::machine::Machine;
use super::{NodeEvents, Observed, RuntimeFacts, is_news, object, own_labels, status, without_extended};
use crate::config::Config;
use crate::devices::Counts;
use crate::runtime::Runtime;

/// After a failure the next attempt is not far.
const RETRY: Duration = Duration::from_secs(2);

/// What a node is short of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Room or names on a disk.
    pub disk: bool,
    /// Numbers for processes.
    pub pids: bool,
}

/// How a node is, apart from what it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// What it is short of.
    pub pressure: Pressure,
    /// The machine is about to be shut down.
    pub shutting_down: bool,
    /// The devices of its plug-ins, by resource.
    pub devices: BTreeMap<String, Counts>,
    /// The volumes that it uses and that must stay attached to it, by their unique names.
    pub volumes_in_use: BTreeSet<String>,
}

/// What keeping a node registered takes.
pub struct Registration {
    /// How the kubelet is set up.
    pub config: Config,
    /// The API server.
    pub client: Client,
    /// The node as the API server has it.
    pub node: Reader<Value>,
    /// The runtime.
    pub runtime: Runtime,
    /// The addresses of the node.
    pub addresses: Vec<String>,
    /// The port of the kubelet's server.
    pub port: u16,
    /// How the node is.
    pub situation: watch::Receiver<Situation>,
    /// Where what changes is recorded.
    pub events: NodeEvents,
    /// Told when the runtime has been given the node's share of addresses: it may be ready now.
    pub connected: Arc<tokio::sync::Notify>,
    /// Told when the node is registered.
    pub registered: Arc<tokio::sync::Notify>,
}

/// Keeps a node registered for ever: looks at it at intervals and writes when something changed, or now and then.
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
                tracing::warn!(node = it.config.node_name, error = %error, "the node's status could not be written");
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = it.connected.notified() => {}
            changed = it.situation.changed() => if changed.is_err() { tokio::time::sleep(wait).await },
            // Others write to it as well, and some of what they write is wrong by now.
            advanced = it.node.advanced() => if advanced.is_err() { tokio::time::sleep(wait).await },
        }
    }
}

async fn once(it: &Registration, written: Option<(Value, Instant)>) -> Result<(Value, Instant), Error> {
    let machine = Machine::read(&it.config.root_dir);
    let runtime = ask_runtime(&it.runtime).await;
    let (node, at) = match written {
        Some((node, at)) => (newest(it, node), Some(at)),
        None => (find_or_create(it, &machine, &runtime).await?, None),
    };
    let known = if at.is_some() { node["status"].clone() } else { without_extended(&node["status"]) };
    let wanted = wanted(it, &machine, &runtime, &known);
    let due = at.is_none_or(|at| at.elapsed() >= it.config.status_report);
    if !due && !is_news(&node["status"], &wanted) {
        return Ok((node, at.unwrap_or_else(Instant::now)));
    }
    let schema = api::catalogue::schema(&kinds::NODES.group_version_kind()).expect("the catalogue has nodes");
    let with = |status: &Value| -> Object { [("status", status.clone())].into_iter().collect() };
    let patch =
        strategic::create_two_way(&with(&node["status"]), &with(&wanted), schema).unwrap_or_else(|_| with(&wanted));
    let target = Target::named(&kinds::NODES, "", it.config.node_name.as_str()).subresource("status");
    let written = it.client.patch(&target, &Patch::Strategic(Value::Object(patch)), &WriteOptions::default()).await?;
    it.events.record_changes(&node, &written);
    Ok((written, Instant::now()))
}

/// The node as it was seen or written last, whichever is later.
fn newest(it: &Registration, written: Value) -> Value {
    let revision = |node: &Value| Meta::of(node).resource_version().parse::<u64>().unwrap_or(0);
    let snapshot = it.node.snapshot();
    let seen = snapshot.objects.iter().next().map(|entry| &entry.value);
    seen.filter(|seen| revision(seen) > revision(&written)).cloned().unwrap_or(written)
}

fn wanted(it: &Registration, machine: &Machine, runtime: &RuntimeFacts, known: &Value) -> Value {
    let situation = it.situation.borrow().clone();
    status(&Observed {
        config: &it.config,
        machine,
        runtime,
        situation: &situation,
        addresses: &it.addresses,
        port: it.port,
        known,
        now: clock::now(),
    })
}

/// The node as it is there, with the labels that are this kubelet's to set; made if it is not there.
async fn find_or_create(it: &Registration, machine: &Machine, runtime: &RuntimeFacts) -> Result<Value, Error> {
    let target = Target::named(&kinds::NODES, "", it.config.node_name.as_str());
    match it.client.get(&target).await {
        Ok(node) => relabel(it, machine, &target, node).await,
        Err(error) if error.is_not_found() && it.config.register_node => {
            let node = object(&it.config, machine, wanted(it, machine, runtime, &Value::Null));
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
    let wanted = own_labels(&it.config, machine).into_iter().chain(given);
    let missing: Object = wanted.filter(|(key, value)| Meta::of(&node).label(key) != Some(value)).collect();
    if missing.is_empty() {
        return Ok(node);
    }
    let patch = value!({"metadata": {"labels": missing}});
    it.client.patch(target, &Patch::Strategic(patch), &WriteOptions::default()).await
}

/// What the runtime says of itself; one that does not answer is not ready.
pub async fn ask_runtime(runtime: &Runtime) -> RuntimeFacts {
    let mut client = runtime.runtime.clone();
    let mut facts = RuntimeFacts::default();
    let not_ready = |status: &tonic::Status| Some(format!("container runtime is down: {}", status.message()));
    match client.version(v1::VersionRequest::default()).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            (facts.name, facts.version) = (answer.runtime_name, answer.runtime_version);
        }
        Err(status) => facts.not_ready = not_ready(&status),
    }
    match client.status(v1::StatusRequest::default()).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            let conditions = answer.status.unwrap_or_default().conditions;
            let bad = conditions.iter().find(|condition| !condition.status);
            facts.not_ready = bad.map(|bad| {
                format!(
                    "container runtime network not ready: {}={} reason:{} message:{}",
                    bad.r#type, bad.status, bad.reason, bad.message
                )
            });
            facts.handlers = answer.runtime_handlers.iter().map(handler).collect();
            facts.supplemental_groups = answer.features.is_some_and(|features| features.supplemental_groups_policy);
        }
        Err(status) => facts.not_ready = not_ready(&status),
    }
    if let Ok(answer) = runtime.images.clone().list_images(v1::ListImagesRequest::default()).await {
        let read = |image: v1::Image| {
            let names = image.repo_digests.into_iter().chain(image.repo_tags).collect();
            (names, i64::try_from(image.size).unwrap_or(i64::MAX))
        };
        facts.images = answer.into_inner().images.into_iter().map(read).collect();
    }
    facts
}

fn handler(handler: &v1::RuntimeHandler) -> Value {
    let features = handler.features.unwrap_or_default();
    value!({"name": (handler.name.as_str()), "features": {
        "recursiveReadOnlyMounts": (features.recursive_read_only_mounts), "userNamespaces": (features.user_namespaces)}})
}

/// Tells the runtime which share of the pods' addresses the node has, as soon as somebody gives it one, and `connected` of it.
pub async fn keep_network(mut node: Reader<Value>, runtime: Runtime, connected: Arc<tokio::sync::Notify>) {
    let mut told = String::new();
    while node.advanced().await.is_ok() {
        let snapshot = node.snapshot();
        let cidr = snapshot.objects.iter().map(|entry| pod_cidrs(&entry.value)).next();
        if let Some(cidr) = cidr.filter(|cidr| !cidr.is_empty() && *cidr != told)
            && tell_cidr(&runtime, &cidr).await
        {
            told = cidr;
            connected.notify_one();
        }
    }
    std::future::pending::<()>().await;
}

/// A node's shares of the pods' addresses, one a family, as CRI has them.
fn pod_cidrs(node: &Value) -> String {
    let all = node.at(&["spec", "podCIDRs"]).and_then(Value::as_array).unwrap_or_default();
    let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
    if all.is_empty() { node.str_at(&["spec", "podCIDR"]).unwrap_or_default().to_owned() } else { all.join(",") }
}

/// Tells the runtime its share of the pods' addresses; says whether it heard.
async fn tell_cidr(runtime: &Runtime, cidr: &str) -> bool {
    let network_config = Some(v1::NetworkConfig { pod_cidr: cidr.to_owned() });
    let request = v1::UpdateRuntimeConfigRequest { runtime_config: Some(v1::RuntimeConfig { network_config }) };
    runtime.runtime.clone().update_runtime_config(request).await.is_ok()
}
