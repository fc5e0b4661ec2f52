//! Candidates that the server knows: types, names, containers and ports.

use std::time::Duration;

use apimachinery::Value;
use client::{ListOptions, Target};

use crate::pods::{self, ContainerKind};
use crate::resources::Builder;
use crate::{Context, Failure, Mapping};

/// The time to find a pod of another object.
const POD_TIMEOUT: Duration = Duration::from_millis(100);
/// Types whose objects have pods, offered with a slash.
const WITH_PODS: [&str; 8] =
    ["daemonsets", "deployments", "pods", "jobs", "replicasets", "replicationcontrollers", "services", "statefulsets"];

/// Candidates to request from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Types,
    /// The names of objects of a type.
    Names(String),
    /// The names of pods, and types of objects with pods.
    Pods,
    /// The containers of a pod or `TYPE/NAME`.
    Containers(String),
    /// The ports of a pod or `TYPE/NAME`.
    Ports(String),
    /// Namespaces and pods as parts of a path.
    Copied,
}

/// Requests the candidates for a word.
pub(super) async fn candidates(context: &Context, query: &Query, word: &str) -> Result<Vec<String>, Failure> {
    match query {
        Query::Types => types(context, word).await,
        Query::Names(resource) => names(context, resource, None).await,
        Query::Pods => {
            let mut found = names(context, "pods", None).await?;
            found.extend(WITH_PODS.map(|resource| format!("{resource}/")));
            Ok(found)
        }
        Query::Containers(object) => {
            let pod = pod(context, object).await?;
            let kinds = [ContainerKind::Init, ContainerKind::Regular];
            let found = kinds.into_iter().flat_map(|kind| pods::containers(&pod, kind));
            Ok(found.map(|container| container.name().to_owned()).collect())
        }
        Query::Ports(object) => ports(context, object, word).await,
        Query::Copied => copied(context, word).await,
    }
}

async fn types(context: &Context, word: &str) -> Result<Vec<String>, Failure> {
    // The last of several types is completed.
    let done = word.rfind(',').map_or("", |comma| &word[..=comma]);
    let mappings = context.mapper().await?.preferred().await?;
    let mut readable: Vec<_> = mappings.iter().filter(|mapping| mapping.allows("get")).collect();
    readable.sort_by(|a, b| {
        let (a, b) = (&a.resource, &b.resource);
        (&a.group, &a.plural).cmp(&(&b.group, &b.plural))
    });
    let name = |mapping: &Mapping| match mapping.resource.group.as_str() {
        "" => format!("{done}{}", mapping.resource.plural),
        group => format!("{done}{}.{group}", mapping.resource.plural),
    };
    Ok(readable.into_iter().map(name).collect())
}

async fn names(context: &Context, resource: &str, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
    let mapping = context.mapper().await?.resource(resource).await?;
    let namespace = match namespace {
        Some(namespace) => namespace.to_owned(),
        None if mapping.namespaced() => context.namespace()?.name,
        None => String::new(),
    };
    let target = Target::within(&mapping.resource, namespace.as_str());
    let list = context.client()?.metadata_only().list_all(&target, &ListOptions::default()).await?;
    let name = |object: &Value| object.str_at(&["metadata", "name"]).map(str::to_owned);
    Ok(list.items.iter().filter_map(name).collect())
}

/// Returns the object of a pod's name or `TYPE/NAME`.
async fn object(context: &Context, name: &str) -> Result<crate::resources::Info, Failure> {
    let builder = Builder::new(context).namespace(&context.namespace()?);
    let infos = builder.names("pods", &[name.to_owned()]).infos().await?;
    infos.into_iter().next().ok_or_else(|| Failure::new("no resources found"))
}

async fn pod(context: &Context, name: &str) -> Result<Value, Failure> {
    let info = object(context, name).await?;
    pods::attachable_pod(&context.client()?, &info, POD_TIMEOUT).await
}

/// Returns pairs such as `8080:80`, with the local port that was typed.
async fn ports(context: &Context, name: &str, word: &str) -> Result<Vec<String>, Failure> {
    let info = object(context, name).await?;
    let numbers: Vec<i64> = if info.mapping.resource.kind == "Service" {
        port_numbers(&info.object, &["spec", "ports"], "port")
    } else {
        let pod = pods::attachable_pod(&context.client()?, &info, POD_TIMEOUT).await?;
        let containers = pods::containers(&pod, ContainerKind::Regular);
        containers.flat_map(|container| port_numbers(container.spec, &["ports"], "containerPort")).collect()
    };
    let pair = |number: i64| match word.split(':').next().filter(|local| !local.is_empty()) {
        Some(local) => format!("{local}:{number}"),
        None => format!("{number}:{number}"),
    };
    Ok(numbers.into_iter().map(pair).collect())
}

fn port_numbers(object: &Value, path: &[&str], field: &str) -> Vec<i64> {
    let ports = object.at(path).and_then(Value::as_array).unwrap_or_default();
    ports.iter().filter_map(|port| port.get(field).and_then(Value::as_int)).collect()
}

/// Returns the names in the current directory, those of directories with a slash.
fn local_files() -> Vec<String> {
    let entries = std::fs::read_dir(".").into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() { format!("{name}/") } else { name }
        })
        .collect();
    names.sort();
    names
}

/// Returns `NAMESPACE/` and `POD:`, or `NAMESPACE/POD:` after a slash.
async fn copied(context: &Context, word: &str) -> Result<Vec<String>, Failure> {
    if let Some((namespace, _)) = word.split_once('/') {
        let pods = names(context, "pods", Some(namespace)).await?;
        return Ok(pods.into_iter().map(|pod| format!("{namespace}/{pod}:")).collect());
    }
    let namespaces = names(context, "namespaces", None).await?.into_iter().map(|name| format!("{name}/"));
    let pods = names(context, "pods", None).await?.into_iter().map(|name| format!("{name}:"));
    let mut found: Vec<String> = namespaces.chain(pods).collect();
    if word.is_empty() {
        found.extend(["./", "/"].map(str::to_owned));
    } else if found.iter().any(|name| name.starts_with(word)) {
        // The shell completes files only if there are no other candidates.
        found.extend(local_files());
    }
    Ok(found)
}
