//! `knarr trace`: the chain of actions that an object caused, from objects, events and the records of nodes.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use apimachinery::meta::Scope;
use apimachinery::{Resource, Value};
use clap::{ArgMatches, Args, FromArgMatches};
use client::config::Kubeconfig;
use client::{Client, ListOptions, Target};
use diagnostics::chain;

use crate::admin_client;
use crate::output::out;
use crate::up::nodes::trace_records;

/// Short names of resources. Every resource is also found by its plural and its kind.
const SHORT: &[(&str, &str)] = &[
    ("cj", "cronjobs"),
    ("cm", "configmaps"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets"),
    ("sa", "serviceaccounts"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// Show the chain of actions that an object caused.
#[derive(Args, Debug)]
struct Trace {
    /// Object to trace: deployment/web, pod/web-1, svc/web, …
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Namespace of the object.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Data directory of the cluster on this host; its trace files contain when proxy rules were applied.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Path to the kubeconfig file of another cluster.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Trace::augment_args(command)
}

/// Prints the chain of an object.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let trace = Trace::from_arg_matches(matches)?;
    let config = match &trace.kubeconfig {
        Some(file) => Kubeconfig::load(std::slice::from_ref(file))?.config(None)?,
        None => admin_client::config(&trace.data_dir)?,
    };
    let records = match &trace.kubeconfig {
        Some(_) => Vec::new(),
        None => trace_records(&trace.data_dir)?,
    };
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let steps = executor.block_on(async {
        let client = admin_client::admin(&config)?;
        follow(&client, &trace, &records).await
    })?;
    out!("{}", chain::table(&steps));
    Ok(())
}

async fn follow(client: &Client, trace: &Trace, records: &[chain::NodeRecords]) -> Result<Vec<chain::TraceEvent>> {
    let (kind, name) =
        trace.object.split_once('/').context("the object must be given as KIND/NAME, such as deployment/web")?;
    let resource = resource(client, kind).await?;
    let is_cluster = resource.scope == Scope::Cluster;
    let namespace = if is_cluster { chain::CLUSTER_EVENTS_NAMESPACE } else { &trace.namespace };
    let own = if is_cluster { "" } else { namespace };
    let root = client.get(&Target::named(&resource, own, name)).await?;
    let root = with_kind(root, &resource);
    let mut objects = Vec::new();
    if resource.scope == Scope::Namespaced {
        for resource in chain::RELATED {
            let listed = client.list_all(&Target::within(resource, namespace), &ListOptions::default()).await?;
            objects.extend(listed.items.into_iter().map(|object| with_kind(object, resource)));
        }
    }
    let events = client.list_all(&Target::within(chain::EVENTS, namespace), &ListOptions::default()).await?.items;
    Ok(chain::chain(&root, &objects, &events, records))
}

/// Finds a resource by `deployments`, `deployment`, `deploy` or `deployments.apps`.
async fn resource(client: &Client, word: &str) -> Result<Resource> {
    let word = word.to_ascii_lowercase();
    let plural = SHORT.iter().find(|(short, _)| *short == word).map_or(word.as_str(), |(_, plural)| plural);
    let served = client::discovery::discover(client).await?.served;
    let is_meant = |resource: &Resource| {
        resource.plural == plural || resource.kind.eq_ignore_ascii_case(plural) || resource.to_string() == plural
    };
    let mut found = served.into_iter().filter(|served| served.preferred && is_meant(&served.resource));
    match found.next() {
        Some(served) => Ok(served.resource),
        None => bail!("the server does not have a resource type {word:?}"),
    }
}

/// Adds the kind, which items of a list do not have.
fn with_kind(mut object: Value, resource: &Resource) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind", resource.kind.clone());
    }
    object
}
