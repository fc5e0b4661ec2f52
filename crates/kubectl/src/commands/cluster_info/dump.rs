//! `kubectl cluster-info dump`: objects and logs for diagnosis, on standard output or in a directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use apimachinery::meta::Meta;
use apimachinery::{Resource, Value, value};
use bytes::Bytes;
use client::{ListOptions, Target};
use http::Method;

use crate::changes::typed_json;
use crate::command::{Command, Flag};
use crate::print::format::PrinterKind;
use crate::print::{Format, Formats, Printer, omit_managed_fields};
use crate::request;
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "dump",
    summary: "Collect objects and logs for a diagnosis",
    description: "Print the nodes, and the workloads, services, events, and pod logs of namespaces, for the \
        diagnosis of a cluster. The namespaces are the current one and kube-system unless --namespaces or \
        --all-namespaces is given. With --output-directory, each list and each log becomes a file below \
        that directory.",
    examples: "  # Print the state of the current namespace and of kube-system
  kubectl cluster-info dump

  # Store the state of all namespaces in files
  kubectl cluster-info dump --all-namespaces --output-directory=cluster-state

  # Store the state of two namespaces as YAML
  kubectl cluster-info dump --namespaces=shop,billing --output-directory=cluster-state -o yaml",
    usage: "kubectl cluster-info dump [flags] [options]",
    flags: &[&[
        Flag::bool("all-namespaces", "Collect all namespaces and ignore --namespaces.").short('A'),
        Flag::bool(
            "allow-missing-template-keys",
            "Treat fields and keys that a Go template or JSONPath expression does not find as empty instead \
                of failing.",
        )
        .default("true"),
        Flag::list("namespaces", "Namespaces to collect, separated by commas."),
        Flag::text(
            "output",
            "json",
            "Print the result in another format. One of: (json, yaml, kyaml, name, go-template, \
                go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).",
        )
        .short('o'),
        Flag::text(
            "output-directory",
            "",
            "Directory for the files; without it, or with '-', everything goes to standard output.",
        ),
        Flag::duration(
            "pod-running-timeout",
            "20s",
            "Time to wait for a running pod, such as 5s, 2m, or 3h; it must be higher than zero.",
        ),
        Flag::bool("show-managed-fields", "Include metadata.managedFields in JSON and YAML output."),
        Flag::text(
            "template",
            "",
            "Go template, or the file that holds it, for -o=go-template and -o=go-template-file; the syntax \
                is described at http://golang.org/pkg/text/template/#pkg-overview.",
        ),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

static NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
static NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
/// The types of a namespace with their file names. Pods are the last, and their logs follow.
static TYPES: [(&str, Resource); 7] = [
    ("events", Resource::namespaced("", "v1", "events", "Event")),
    ("replication-controllers", Resource::namespaced("", "v1", "replicationcontrollers", "ReplicationController")),
    ("services", Resource::namespaced("", "v1", "services", "Service")),
    ("daemonsets", Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet")),
    ("deployments", Resource::namespaced("apps", "v1", "deployments", "Deployment")),
    ("replicasets", Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet")),
    ("pods", Resource::namespaced("", "v1", "pods", "Pod")),
];

struct Dump<'a> {
    context: &'a Context,
    printer: Printer,
    /// `None` for standard output.
    directory: Option<PathBuf>,
    extension: &'static str,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let directory = Some(invocation.text("output-directory")).filter(|text| !matches!(*text, "" | "-"));
    let extension = match invocation.text("output") {
        "json" => ".json",
        "yaml" => ".yaml",
        _ => ".txt",
    };
    let printer = Format::of(invocation, Formats::Common).printer()?;
    if matches!(printer.kind(), PrinterKind::Name) {
        return Err(Failure::new("list types are not supported by name printing: *v1.NodeList"));
    }
    let mut dump = Dump { context, printer, directory: directory.map(PathBuf::from), extension };
    let nodes = dump.list(&NODES, "").await?;
    dump.print(&nodes, "nodes")?;
    for namespace in namespaces(&dump, invocation).await? {
        for (file, resource) in &TYPES {
            let list = dump.list(resource, &namespace).await?;
            dump.print(&list, &format!("{namespace}/{file}"))?;
            if resource.plural == "pods" {
                dump.logs(&list).await?;
            }
        }
    }
    if let Some(directory) = directory {
        writeln!(context.out(), "Cluster info dumped to {directory}")?;
    }
    Ok(())
}

async fn namespaces(dump: &Dump<'_>, invocation: &Invocation) -> Result<Vec<String>, Failure> {
    if invocation.bool("all-namespaces") {
        let list = dump.list(&NAMESPACES, "").await?;
        let items = list.get("items").and_then(Value::as_array).unwrap_or_default();
        return Ok(items.iter().map(|item| Meta::of(item).name().to_owned()).collect());
    }
    let named = invocation.list("namespaces");
    if named.is_empty() {
        return Ok(vec!["kube-system".to_owned(), dump.context.namespace()?.name]);
    }
    Ok(named)
}

impl Dump<'_> {
    async fn list(&self, resource: &Resource, namespace: &str) -> Result<Value, Failure> {
        let target = Target::within(resource, namespace);
        let list = self.context.client()?.list_all(&target, &ListOptions::default()).await?;
        let mut items = list.items;
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.remove("kind");
            item.remove("apiVersion");
        }
        // Go prints an empty list of a typed client as null.
        let items = if items.is_empty() { Value::Null } else { Value::Array(items) };
        Ok(value!({
            "kind": (format!("{}List", resource.kind)), "apiVersion": (resource.api_version()),
            "metadata": {"resourceVersion": (list.resource_version)}, "items": items,
        }))
    }

    fn print(&mut self, list: &Value, file: &str) -> Result<(), Failure> {
        let text = match self.printer.kind() {
            PrinterKind::Json => {
                let mut list = list.clone();
                omit_managed_fields(&mut list);
                typed_json(&list)
            }
            _ => self.printer.print(list)?,
        };
        self.write(text.as_bytes(), &format!("{file}{}", self.extension))
    }

    fn write(&self, bytes: &[u8], file: &str) -> Result<(), Failure> {
        let Some(directory) = &self.directory else {
            return Ok(self.context.out().write_all(bytes)?);
        };
        let file = directory.join(file);
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        Ok(std::fs::write(file, bytes)?)
    }

    async fn logs(&self, pods: &Value) -> Result<(), Failure> {
        let client = self.context.client()?;
        for pod in pods.get("items").and_then(Value::as_array).unwrap_or_default() {
            let meta = Meta::of(pod);
            let (namespace, name) = (meta.namespace(), meta.name());
            let mut text: Vec<u8> = Vec::new();
            let containers = |field| pod.at(&["spec", field]).and_then(Value::as_array).unwrap_or_default();
            for container in containers("initContainers").iter().chain(containers("containers")) {
                let container = container.str_at(&["name"]).unwrap_or_default();
                let title = format!("logs for container {container} of pod {namespace}/{name}");
                writeln!(text, "==== START {title} ====")?;
                let target = Target::named(&TYPES[6].1, namespace, name).subresource("log");
                let path = request::Path::new(target.path().map_err(client::Error::from)?).with("container", container);
                match request::send(&client, Method::GET, path, "*/*", Bytes::new()).await {
                    Ok(response) => text.extend_from_slice(&request::collect(response.into_body()).await?),
                    Err(failure) => writeln!(
                        text,
                        "Request log error: {}",
                        failure.status().map_or(failure.message.as_str(), |status| status.message.as_str())
                    )?,
                }
                writeln!(text, "==== END {title} ====")?;
            }
            self.write(&text, &format!("{namespace}/{name}/logs.txt"))?;
        }
        Ok(())
    }
}
