//! `kubectl cluster-info`: the addresses of the control plane and of cluster services; everything with `dump`.

mod dump;

use std::io::Write;

use apimachinery::meta::Meta;
use apimachinery::{Resource, Value};
use client::{ListOptions, Target};

use crate::command::{Command, Group};
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "cluster-info",
    group: Group::ClusterManagement,
    summary: "Show the addresses of the cluster",
    description: "Print the addresses of the control plane and of the services with the label \
        kubernetes.io/cluster-service=true. Use \"kubectl cluster-info dump\" to collect data for a \
        diagnosis.",
    examples: "  # Print the addresses of the current cluster
  kubectl cluster-info

  # Print those of another context
  kubectl cluster-info --context=staging",
    usage: "kubectl cluster-info [flags] [options]",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    commands: &[&dump::COMMAND],
    ..Command::EMPTY
};

const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");

async fn run(context: &Context, _: &Invocation) -> Result<(), Failure> {
    let namespace = context.globals().namespace.clone().unwrap_or_else(|| "kube-system".to_owned());
    let server = context.config()?.server.to_string();
    let server = server.trim_end_matches('/');
    let options =
        ListOptions { label_selector: "kubernetes.io/cluster-service=true".to_owned(), ..ListOptions::default() };
    let listed = context.client()?.list_all(&Target::within(&SERVICES, namespace.as_str()), &options).await;
    let mut out = context.out();
    if let Ok(services) = &listed {
        writeln!(out, "Kubernetes control plane is running at {server}")?;
        for service in &services.items {
            let meta = Meta::of(service);
            let name = meta.label("kubernetes.io/name").unwrap_or(meta.name());
            writeln!(out, "{name} is running at {}", link(service, server))?;
        }
    }
    writeln!(out, "\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.")?;
    listed?;
    Ok(())
}

fn link(service: &Value, server: &str) -> String {
    let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
    let number = |port: &Value| port.get("port").and_then(Value::as_int).unwrap_or_default();
    let ingress = service.at(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array).unwrap_or_default();
    if let Some(ingress) = ingress.first() {
        let host = ingress.str_at(&["ip"]).or(ingress.str_at(&["hostname"])).unwrap_or_default();
        return ports.iter().map(|port| format!("http://{host}:{} ", number(port))).collect();
    }
    let meta = Meta::of(service);
    let mut name = meta.name().to_owned();
    if let Some(port) = ports.first() {
        let port_name = port.str_at(&["name"]).unwrap_or_default();
        let secure = port_name == "https" || number(port) == 443;
        if secure {
            name = format!("https:{name}:{port_name}");
        } else if !port_name.is_empty() {
            name = format!("{name}:{port_name}");
        }
    }
    format!("{server}/api/v1/namespaces/{}/services/{name}/proxy", meta.namespace())
}
