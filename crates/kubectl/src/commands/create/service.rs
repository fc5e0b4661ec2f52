//! `kubectl create service`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::service::{self, Service, ServiceType};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "service",
    aliases: &["svc"],
    summary: "Create a service",
    description: "Create a service of the type that the subcommand names.",
    usage: "kubectl create service [flags] [options]",
    commands: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],

    ..Command::EMPTY
};

static CLUSTER_IP: Command = Command {
    name: "clusterip",
    summary: "Create a service with an IP inside the cluster",
    description: "Create a ClusterIP service, which is reachable inside the cluster only. It selects the pods with the \
                  label app=NAME.",
    examples: "  # Forward port 80 of the service to port 8080 of the pods
  kubectl create service clusterip web --tcp=80:8080
  
  # Create a headless service
  kubectl create service clusterip db --clusterip=None --tcp=5432",
    usage: "kubectl create service clusterip NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("clusterip", "", "IP address of the service, or 'None' for a headless service."),
            flags::field_manager("kubectl-create"),
            Flag::list("tcp", "Port of the service and of the pods, as '<port>:<targetPort>'; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(cluster_ip(context, invocation))),
    ..Command::EMPTY
};

static EXTERNAL_NAME: Command = Command {
    name: "externalname",
    summary: "Create a service that is an alias of a DNS name",
    description: "Create an ExternalName service, which cluster DNS resolves to a host name outside of the cluster.",
    examples: "  # Make an external database available as db
  kubectl create service externalname db --external-name=postgres.example.com
  
  # Print the manifest of the service without creating it
  kubectl create service externalname db --external-name=postgres.example.com --dry-run=client -o yaml",
    usage: "kubectl create service externalname NAME --external-name external.name [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("external-name", "", "DNS name to which the service resolves."),
            flags::field_manager("kubectl-create"),
            Flag::list("tcp", "Port of the service and of the pods, as '<port>:<targetPort>'; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(external_name(context, invocation))),
    ..Command::EMPTY
};

static LOAD_BALANCER: Command = Command {
    name: "loadbalancer",
    summary: "Create a service behind an external load balancer",
    description: "Create a LoadBalancer service, for which the provider of the cluster sets up an external load \
                  balancer. It selects the pods with the label app=NAME.",
    examples: "  # Forward port 443 of the load balancer to port 8443 of the pods
  kubectl create service loadbalancer web --tcp=443:8443
  
  # Forward two ports
  kubectl create service loadbalancer web --tcp=80:8080 --tcp=443:8443",
    usage: "kubectl create service loadbalancer NAME [--tcp=port:targetPort] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list("tcp", "Port of the service and of the pods, as '<port>:<targetPort>'; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(load_balancer(context, invocation))),
    ..Command::EMPTY
};

static NODE_PORT: Command = Command {
    name: "nodeport",
    summary: "Create a service on a port of every node",
    description: "Create a NodePort service, which is reachable on the same port of every node. It selects the pods \
                  with the label app=NAME.",
    examples: "  # Let the server choose the port of the nodes
  kubectl create service nodeport web --tcp=80:8080
  
  # Choose the port of the nodes
  kubectl create service nodeport web --tcp=80:8080 --node-port=30080",
    usage: "kubectl create service nodeport NAME [--tcp=port:targetPort] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::int("node-port", "0", "Port of the service on every node."),
            Flag::list("tcp", "Port of the service and of the pods, as '<port>:<targetPort>'; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(node_port(context, invocation))),
    ..Command::EMPTY
};

async fn cluster_ip(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    run(context, invocation, ServiceType::ClusterIp).await
}

async fn external_name(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["external-name"])?;
    run(context, invocation, ServiceType::ExternalName).await
}

async fn load_balancer(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    run(context, invocation, ServiceType::LoadBalancer).await
}

async fn node_port(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    run(context, invocation, ServiceType::NodePort).await
}

async fn run(context: &Context, invocation: &Invocation, kind: ServiceType) -> Result<(), Failure> {
    // kubectl ignores --save-config here.
    let creation = Creation::new(context, invocation)?.without_saving();
    let text = |name| if invocation.has(name) { invocation.text(name) } else { "" };
    let object = service::service(Service {
        name: creation.name(),
        kind,
        tcp: &invocation.list("tcp"),
        cluster_ip: text("clusterip"),
        node_port: if invocation.has("node-port") { invocation.int("node-port") } else { 0 },
        external_name: text("external-name"),
    })?;
    let what = format!("failed to create {} service: ", kind.as_str());
    creation.create(object, &creation::SERVICES, &what).await
}
