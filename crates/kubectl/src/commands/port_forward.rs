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

pub static COMMAND: Command = Command {
    name: "port-forward",
    group: Group::Troubleshooting,
    summary: "Forward one or more local ports to a pod",
    description: "Forward one or more local ports to a pod.

 Use resource type/name such as deployment/mydeployment to select a pod. Resource type defaults to 'pod' if omitted.

 If there are multiple pods matching the criteria, a pod will be selected automatically. The forwarding session ends when the selected pod terminates, and a rerun of the command is needed to resume forwarding.",
    examples: r#"  # Listen on ports 5000 and 6000 locally, forwarding data to/from ports 5000 and 6000 in the pod
  kubectl port-forward pod/mypod 5000 6000

  # Listen on ports 5000 and 6000 locally, forwarding data to/from ports 5000 and 6000 in a pod selected by the deployment
  kubectl port-forward deployment/mydeployment 5000 6000

  # Listen on port 8443 locally, forwarding to the targetPort of the service's port named "https" in a pod selected by the service
  kubectl port-forward service/myservice 8443:https

  # Listen on port 8888 locally, forwarding to 5000 in the pod
  kubectl port-forward pod/mypod 8888:5000

  # Listen on port 8888 on all addresses, forwarding to 5000 in the pod
  kubectl port-forward --address 0.0.0.0 pod/mypod 8888:5000

  # Listen on port 8888 on localhost and selected IP, forwarding to 5000 in the pod
  kubectl port-forward --address localhost,10.19.21.23 pod/mypod 8888:5000

  # Listen on a random port locally, forwarding to 5000 in the pod
  kubectl port-forward pod/mypod :5000"#,
    usage: "kubectl port-forward TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    flags: &[FLAGS],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::list("address", "Addresses to listen on (comma separated). Only accepts IP addresses or localhost as a value. When localhost is supplied, kubectl will try to bind on both 127.0.0.1 and ::1 and will fail if neither of these addresses are available to bind.").default("[localhost]"),
    Flag::duration("pod-running-timeout", "1m0s", "The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running"),
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
        Notice::Failed(why) => {
            let _ = writeln!(context.err(), "{}", log_line(now(), why));
        }
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Returns an error in the form of kubectl's log.
fn log_line(now: Time, why: &str) -> String {
    // 2026-11-18T09:00:00.000000Z
    let text = now.micro().to_string();
    let date: String = text.get(5..10).unwrap_or_default().replace('-', "");
    let time = text.get(11..26).unwrap_or_default();
    let process = std::process::id();
    format!("E{date} {time} {process:>7} portforward.go:522] \"Unhandled Error\" err={}", apimachinery::go::quote(why))
}
