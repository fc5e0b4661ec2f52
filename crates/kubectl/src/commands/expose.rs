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

pub static COMMAND: Command = Command {
    name: "expose",
    group: Group::BasicBeginner,
    summary: "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    description: "Expose a resource as a new Kubernetes service.

 Looks up a deployment, service, replica set, replication controller or pod by name and uses the selector for that resource as the selector for a new service on the specified port. A deployment or replica set will be exposed as a service only if its selector is convertible to a selector that service supports, i.e. when the selector contains only the matchLabels component. Note that if no port is specified via --port and the exposed resource has multiple ports, all will be re-used by the new service. Also if no labels are specified, the new service will re-use the labels from the resource it exposes.

 Possible resources include (case insensitive):

 pod (po), service (svc), replicationcontroller (rc), deployment (deploy), replicaset (rs)",
    examples: r#"  # Create a service for a replicated nginx, which serves on port 80 and connects to the containers on port 8000
  kubectl expose rc nginx --port=80 --target-port=8000
  
  # Create a service for a replication controller identified by type and name specified in "nginx-controller.yaml", which serves on port 80 and connects to the containers on port 8000
  kubectl expose -f nginx-controller.yaml --port=80 --target-port=8000
  
  # Create a service for a pod valid-pod, which serves on port 444 with the name "frontend"
  kubectl expose pod valid-pod --port=444 --name=frontend
  
  # Create a second service based on the above service, exposing the container port 8443 as port 443 with the name "nginx-https"
  kubectl expose service nginx --port=443 --target-port=8443 --name=nginx-https
  
  # Create a service for a replicated streaming application on port 4100 balancing UDP traffic and named 'video-stream'.
  kubectl expose rc streamer --port=4100 --protocol=UDP --name=video-stream
  
  # Create a service for a replicated nginx using replica set, which serves on port 80 and connects to the containers on port 8000
  kubectl expose rs nginx --port=80 --target-port=8000
  
  # Create a service for an nginx deployment, which serves on port 80 and connects to the containers on port 8000
  kubectl expose deployment nginx --port=80 --target-port=8000"#,
    usage: "kubectl expose (-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type] [options]",
    flags: &[flags::SAVE_CONFIG, RECORD, flags::OUTPUT, flags::DRY_RUN, flags::DIRECTORY, &[
        Flag::text("cluster-ip", "", "ClusterIP to be assigned to the service. Leave empty to auto-allocate, or set to 'None' to create a headless service."),
        Flag::text("external-ip", "", "Additional external IP address (not managed by Kubernetes) to accept for the service. If this IP is routed to a node, the service can be accessed by this IP in addition to its generated service IP."),
        flags::field_manager("kubectl-expose"),
        flags::filename("Filename, directory, or URL to files identifying the resource to expose a service"),
        Flag::text("labels", "", "Labels to apply to the service created by this call.").short('l'),
        Flag::text("load-balancer-ip", "", "IP to assign to the LoadBalancer. If empty, an ephemeral IP will be created and used (cloud-provider specific)."),
        Flag::text("name", "", "The name for the newly created object."),
        Flag::text("override-type", "merge", "The method used to override the generated object: json, merge, or strategic."),
        Flag::text("overrides", "", "An inline JSON override for the generated object. If this is non-empty, it is used to override the generated object. Requires that the object supply a valid apiVersion field."),
        Flag::text("port", "", "The port that the service should serve on. Copied from the resource being exposed, if unspecified"),
        Flag::text("protocol", "", "The network protocol for the service to be created. Default is 'TCP'."),
        Flag::text("selector", "", "A label selector to use for this service. Only equality-based selector requirements are supported. If empty (the default) infer the selector from the resource being exposed."),
        Flag::text("session-affinity", "", "If non-empty, set the session affinity for the service to this; legal values: 'None', 'ClientIP'"),
        Flag::text("target-port", "", "Name or number for the port on the container that the service should direct traffic to. Optional."),
        Flag::text("type", "", "Type for this service: ClusterIP, NodePort, LoadBalancer, or ExternalName. Default is 'ClusterIP'."),
    ]],
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
