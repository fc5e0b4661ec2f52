//! `knarr trace`: what an object set in motion, step by step, as objects, events and the log tell it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Args, FromArgMatches};
use client::config::Kubeconfig;
use client::{Client, ListOptions, Target};
use machinery::meta::Scope;
use machinery::{Resource, Value};
use operate::chain;

use crate::ask;
use crate::output::out;
use crate::up::nodes::Nodes;

/// What is read of the log, from its end: lines of rules are short, and older ones tell of nothing that is asked for.
const LOG_MAX: u64 = 16 << 20;

/// What others' short names stand for; any kind is also known by its plural and by its own name.
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

/// What comes of other objects, and the services that endpoints are of.
static FOLLOWERS: &[Resource] = &[
    Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"),
    Resource::namespaced("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Resource::namespaced("batch", "v1", "jobs", "Job"),
    Resource::namespaced("", "v1", "pods", "Pod"),
    Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Resource::namespaced("", "v1", "services", "Service"),
    Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
];
static EVENTS: Resource = Resource::namespaced("events.k8s.io", "v1", "events", "Event");

/// What to follow.
#[derive(Args, Debug)]
struct Trace {
    /// The object: deployment/web, pod/web-1, svc/web, …
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Its namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// The folder of the cluster of this machine, whose log and those of its further nodes tell when rules came into place.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Another cluster.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Trace::augment_args(command)
}

/// Prints the chain of an object.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let trace = Trace::from_arg_matches(matches)?;
    let config = match &trace.kubeconfig {
        Some(file) => Kubeconfig::load(std::slice::from_ref(file))?.config(None)?,
        None => ask::config(&trace.data_dir)?,
    };
    let records = match &trace.kubeconfig {
        Some(_) => Vec::new(),
        None => records(&trace.data_dir)?,
    };
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let steps = executor.block_on(async {
        let client = ask::admin(&config)?;
        follow(&client, &trace, &records).await
    })?;
    out!("{}", chain::table(&steps));
    Ok(())
}

async fn follow(client: &Client, trace: &Trace, records: &[chain::Record]) -> Result<Vec<chain::Step>> {
    let (kind, name) = trace.object.split_once('/').context("say which object, as in deployment/web")?;
    let resource = resource(client, kind).await?;
    // What is told of objects in no namespace is told in the default one.
    let namespace = if resource.scope == Scope::Cluster { "default" } else { &trace.namespace };
    let own = if resource.scope == Scope::Cluster { "" } else { namespace };
    let root = client.get(&Target::named(&resource, own, name)).await?;
    let root = with_kind(root, &resource);
    let mut objects = Vec::new();
    if resource.scope == Scope::Namespaced {
        for resource in FOLLOWERS {
            let listed = client.list_all(&Target::within(resource, namespace), &ListOptions::default()).await?;
            objects.extend(listed.items.into_iter().map(|object| with_kind(object, resource)));
        }
    }
    let events = client.list_all(&Target::within(&EVENTS, namespace), &ListOptions::default()).await?.items;
    Ok(chain::chain(&root, &objects, &events, records))
}

/// The kind that a word stands for: `deployments`, `deployment`, `deploy`, `deployments.apps`.
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
        None => bail!("the server has no kind {word:?}"),
    }
}

/// Objects of a list do not say what they are.
fn with_kind(mut object: Value, resource: &Resource) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind", resource.kind.clone());
    }
    object
}

/// What the machine wrote down, and the nodes that are namespaces of it: each has a proxy of its own.
fn records(data_dir: &Path) -> Result<Vec<chain::Record>> {
    let nodes = Nodes::open(data_dir);
    // One that has not started yet has written nothing.
    let of = |folder: &Path, by: &str| chain::records(&log(&folder.join("knarr.log")).unwrap_or_default(), by);
    let mut records = of(data_dir, "kube-proxy");
    for name in nodes.names()? {
        records.extend(of(&nodes.folder_of(&name), &format!("kube-proxy on {name}")));
    }
    Ok(records)
}

/// The end of a log, from the beginning of a line.
fn log(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
