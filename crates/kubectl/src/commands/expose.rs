//! `kubectl expose`: creates a service for the pods of an object.

use apimachinery::{Resource, Value};
use client::Target;

use crate::changes::{self, DryRun, Form, RECORD, Results};
use crate::command::{Command, Flag, Group};
use crate::generate::expose::{self, Exposure};
use crate::generate::{self, last_applied, overrides};
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation, flags};

static SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");

/// The maximum length of a service's name.
const NAME_MAX: usize = 63;

pub(super) static COMMAND: Command = Command {
    name: "expose",
    group: Group::BasicBeginner,
    summary: "Create a service for the pods of an object",
    description: "Create a service that selects the same pods as a deployment, replica set, replication controller, \
                  service, or pod. Ports and labels are copied from the object unless flags set them. The selector of \
                  a deployment or replica set must consist of matchLabels only.",
    examples: "  # Forward port 80 of a service to port 8080 of the pods of a deployment
  kubectl expose deployment web --port=80 --target-port=8080
  
  # Make a deployment reachable on every node, with another name for the service
  kubectl expose deployment web --name=web-public --type=NodePort --port=80
  
  # Create a headless service for the object in a manifest
  kubectl expose -f db.yaml --cluster-ip=None --port=5432
  
  # Create a service for UDP traffic to a pod
  kubectl expose pod dns --port=53 --protocol=UDP",
    usage: "kubectl expose (-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::DIRECTORY,
        &[
            Flag::text(
                "cluster-ip",
                "",
                "IP address of the service; empty to allocate one, 'None' for a headless service.",
            ),
            Flag::text(
                "external-ip",
                "",
                "Additional IP address, routed to a node by other means, on which the service accepts traffic.",
            ),
            flags::field_manager("kubectl-expose"),
            flags::filename("Files, directories, or URLs that contain the objects to expose."),
            Flag::text("labels", "", "Labels of the service, which default to those of the object.").short('l'),
            Flag::text("load-balancer-ip", "", "IP address of the load balancer; if empty, the provider chooses one."),
            Flag::text("name", "", "Name of the service, which defaults to that of the object."),
            Flag::text("override-type", "merge", "How --overrides is applied: json, merge, or strategic."),
            Flag::text(
                "overrides",
                "",
                "Inline JSON that changes the generated object, in the way of --override-type.",
            ),
            Flag::text("port", "", "Port of the service, which defaults to the ports of the object."),
            Flag::text("protocol", "", "Network protocol of the service, TCP by default."),
            Flag::text(
                "selector",
                "",
                "Equality-based labels of the pods, which default to those that the object selects.",
            ),
            Flag::text("session-affinity", "", "Session affinity of the service: 'None' or 'ClientIP'."),
            Flag::text("target-port", "", "Name or number of the port of the container that receives the traffic."),
            Flag::text(
                "type",
                "",
                "Type of the service: ClusterIP (the default), NodePort, LoadBalancer, or ExternalName.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let mut results = Results::new(context, invocation, dry_run, Form::Typed)?;
    let namespace = context.namespace()?;
    let builder =
        Builder::new(context).namespace(&namespace).filenames(invocation).types_or_names(false, &invocation.args);
    let Found { infos, mut failures, .. } = builder.found().await?;
    // Values that are taken from one object also apply to the objects after it.
    let mut flags = Flags {
        selector: invocation.text("selector").to_owned(),
        labels: invocation.text("labels").to_owned(),
        port: invocation.text("port").to_owned(),
        ..Flags::default()
    };
    for info in infos {
        if let Err(failure) = expose(context, invocation, &info, &mut flags, dry_run, &mut results).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

#[derive(Default)]
struct Flags {
    selector: String,
    labels: String,
    port: String,
    ports: Vec<String>,
    protocols: Vec<(String, Vec<String>)>,
}

async fn expose(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    flags: &mut Flags,
    dry_run: DryRun,
    results: &mut Results<'_>,
) -> Result<(), Failure> {
    let Resource { group, kind, .. } = &info.mapping.resource;
    let kind = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
    expose::validate_kind(&kind)?;
    let service = service(invocation, info, flags)?;
    let patch = (invocation.text("overrides"), invocation.text("override-type"));
    let mut service = overrides::apply(service, patch.0, patch.1)?;
    changes::record(invocation, &mut service);
    let namespace = context.namespace()?;
    if dry_run == DryRun::Client {
        if namespace.explicit {
            generate::set_namespace(&mut service, &namespace.name);
        }
        return results.print(&service, "exposed");
    }
    if invocation.bool("save-config") || last_applied::is_saved(&service) {
        last_applied::save(&mut service);
    }
    let target = Target::within(&SERVICES, namespace.name.as_str());
    let options = changes::write_options(invocation, dry_run)?;
    let created = context.client()?.create(&target, &service, &options).await?;
    results.print(&generate::typed(created), "exposed")
}

fn service(invocation: &Invocation, info: &Info, flags: &mut Flags) -> Result<Value, Failure> {
    if flags.selector.is_empty() {
        flags.selector = expose::selector_of(&info.object)?;
    }
    let cluster_ip = invocation.text("cluster-ip");
    if flags.port.is_empty() {
        match expose::ports_of(&info.object).as_slice() {
            [] if cluster_ip == "None" => {}
            [] => return Err(Failure::new("couldn't find port via --port flag or introspection")),
            [port] => flags.port.clone_from(port),
            ports => flags.ports = ports.to_vec(),
        }
    }
    let protocols = expose::protocols_of(&info.object);
    if !protocols.is_empty() {
        flags.protocols = protocols;
    }
    if flags.labels.is_empty() {
        flags.labels = expose::labels_of(&info.object);
    }
    let name = match invocation.text("name") {
        "" => &info.name[..info.name.len().min(NAME_MAX)],
        name => name,
    };
    Ok(expose::service(&Exposure {
        name,
        selector: flags.selector.clone(),
        labels: flags.labels.clone(),
        ports: if flags.ports.is_empty() { vec![flags.port.clone()] } else { flags.ports.clone() },
        protocols: flags.protocols.clone(),
        protocol: invocation.text("protocol"),
        target_port: invocation.text("target-port"),
        external_ip: invocation.text("external-ip"),
        load_balancer_ip: invocation.text("load-balancer-ip"),
        service_type: invocation.text("type"),
        session_affinity: invocation.text("session-affinity"),
        cluster_ip,
    })?)
}
