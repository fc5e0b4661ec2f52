//! `kubectl port-forward`: forwards local ports to a pod.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use client::Target;

use super::exec::pod_running_timeout;
use crate::command::{Command, Flag, Group};
use crate::pods::{self, PODS, attachable_pod};
use crate::resources::{Builder, Info};
use crate::stream::forward::{self, Notice};
use crate::stream::listen::listen;
use crate::stream::path::subresource_path;
use crate::stream::ports;
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "port-forward",
    group: Group::Troubleshooting,
    summary: "Forward local ports to a pod",
    description: "Listen on local ports and forward their connections to ports of a pod. If the object is not a \
         pod, such as a Deployment or a Service, kubectl chooses one of its pods. Forwarding stops when that pod \
         ends; run the command again to use another pod.",
    examples: "  # Make port 5432 of the pod db available on the same local port
  kubectl port-forward pod/db 5432

  # Forward local port 8080 to the port http of the Service web
  kubectl port-forward service/web 8080:http

  # Forward a free local port to port 9090 of a pod of the Deployment worker
  kubectl port-forward deployment/worker :9090

  # Accept connections from other machines too
  kubectl port-forward --address 0.0.0.0 pod/web 8080:80",
    usage: "kubectl port-forward TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::list(
        "address",
        "Addresses to listen on, separated by commas: IP addresses, or localhost for both 127.0.0.1 and ::1, of \
         which at least one must be available.",
    )
    .default("[localhost]"),
    Flag::duration(
        "pod-running-timeout",
        "1m0s",
        "Time to wait for a running pod, such as 5s, 2m or 3h; must be greater than zero.",
    ),
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [resource, specs @ ..] = invocation.args.as_slice() else { return Err(usage(invocation)) };
    if specs.is_empty() {
        return Err(usage(invocation));
    }
    let timeout = pod_running_timeout(invocation).map_err(|error| Failure::usage(&invocation.name(), error))?;
    let client = context.client()?;
    let builder = Builder::new(context).namespace(&context.namespace()?);
    let infos = builder.names("pods", std::slice::from_ref(resource)).infos().await?;
    let info = infos.first().ok_or_else(|| Failure::new("pod name or resource type/name must be specified"))?;
    let pod = attachable_pod(&client, info, timeout).await?;
    let specs = resolve_ports(specs, info, &pod).map_err(Failure::new)?;
    let meta = Meta::of(&pod);
    let pod = client.get(&Target::named(&PODS, meta.namespace(), meta.name())).await?;
    if pods::phase(&pod) != "Running" {
        return Err(Failure::new(format!(
            "unable to forward port because pod is not running. Current status={}",
            pods::phase(&pod)
        )));
    }
    let addresses = invocation.list("address");
    if addresses.is_empty() {
        return Err(Failure::new("you must specify at least 1 address"));
    }
    let addresses = ports::parse_addresses(&addresses).map_err(Failure::new)?;
    let ports = ports::parse_ports(&specs).map_err(Failure::new)?;
    let path = subresource_path(meta.namespace(), meta.name(), "portforward", &[])?;
    let session = forward::open(&client, &path)
        .await
        .map_err(|error| Failure::new(format!("error upgrading connection: {error}")))?;
    let (listeners, outcome) = listen(&ports, &addresses);
    let mut out = context.out();
    for line in &listeners.lines {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    for line in &listeners.failures {
        writeln!(context.err(), "{line}")?;
    }
    outcome.map_err(Failure::new)?;
    tokio::select! {
        lost = forward::run(session, listeners.all, |notice| report(context, &notice)) => Err(lost.into()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

fn usage(invocation: &Invocation) -> Failure {
    Failure::usage(&invocation.name(), "TYPE/NAME and list of ports are required for port-forward")
}

/// Returns the ports with the numbers of the pod: those of a Service are translated.
fn resolve_ports(specs: &[String], info: &Info, pod: &Value) -> Result<Vec<String>, String> {
    let resource = &info.mapping.resource;
    if resource.group.is_empty() && resource.kind == "Service" {
        ports::check_service_protocols(specs, &info.object)?;
        return ports::translate_service_ports(specs, &info.object, pod);
    }
    ports::check_pod_protocols(specs, pod)?;
    ports::resolve_pod_ports(specs, pod)
}

fn report(context: &Context, notice: &Notice) {
    match notice {
        Notice::Handling { local } => {
            let mut out = context.out();
            let _ = writeln!(out, "Handling connection for {local}");
            let _ = out.flush();
        }
        Notice::Failed(reason) => {
            let _ = writeln!(context.err(), "{}", log_line(now(), reason));
        }
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Returns an error in the form of kubectl's log.
fn log_line(now: Time, reason: &str) -> String {
    // 2026-11-18T09:00:00.000000Z
    let text = now.micro().to_string();
    let date: String = text.get(5..10).unwrap_or_default().replace('-', "");
    let time = text.get(11..26).unwrap_or_default();
    let process = std::process::id();
    format!(
        "E{date} {time} {process:>7} portforward.go:522] \"Unhandled Error\" err={}",
        apimachinery::go::quote(reason)
    )
}
