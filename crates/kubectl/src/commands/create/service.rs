//! `kubectl create service`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::service::{self, Service, ServiceType};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "service",
    aliases: &["svc"],
    summary: "Create a service using a specified subcommand",
    description: "Create a service using a specified subcommand.",
    usage: "kubectl create service [flags] [options]",
    commands: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],

    ..Command::EMPTY
};

static CLUSTER_IP: Command = Command {
    name: "clusterip",
    summary: "Create a ClusterIP service",
    description: "Create a ClusterIP service with the specified name.",
    examples: r#"  # Create a new ClusterIP service named my-cs
  kubectl create service clusterip my-cs --tcp=5678:8080
  
  # Create a new ClusterIP service named my-cs (in headless mode)
  kubectl create service clusterip my-cs --clusterip="None""#,
    usage: "kubectl create service clusterip NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text(
                "clusterip",
                "",
                "Assign your own ClusterIP or set to 'None' for a 'headless' service (no loadbalancing).",
            ),
            flags::field_manager("kubectl-create"),
            Flag::list("tcp", "Port pairs can be specified as '<port>:<targetPort>'."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(cluster_ip(context, invocation))),
    ..Command::EMPTY
};

static EXTERNAL_NAME: Command = Command {
    name: "externalname",
    summary: "Create an ExternalName service",
    description: "Create an ExternalName service with the specified name.

 ExternalName service references to an external DNS address instead of only pods, which will allow application authors to reference services that exist off platform, on other clusters, or locally.",
    examples: "  # Create a new ExternalName service named my-ns
  kubectl create service externalname my-ns --external-name bar.com",
    usage: "kubectl create service externalname NAME --external-name external.name [--dry-run=server|client|none] [options]",
    flags: &[flags::SAVE_CONFIG, flags::OUTPUT, flags::DRY_RUN, flags::VALIDATE, &[
        Flag::text("external-name", "", "External name of service"),
        flags::field_manager("kubectl-create"),
        Flag::list("tcp", "Port pairs can be specified as '<port>:<targetPort>'."),
    ]],
    run: Some(|context, invocation| Box::pin(external_name(context, invocation))),
    ..Command::EMPTY
};

static LOAD_BALANCER: Command = Command {
    name: "loadbalancer",
    summary: "Create a LoadBalancer service",
    description: "Create a LoadBalancer service with the specified name.",
    examples: "  # Create a new LoadBalancer service named my-lbs
  kubectl create service loadbalancer my-lbs --tcp=5678:8080",
    usage: "kubectl create service loadbalancer NAME [--tcp=port:targetPort] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list("tcp", "Port pairs can be specified as '<port>:<targetPort>'."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(load_balancer(context, invocation))),
    ..Command::EMPTY
};

static NODE_PORT: Command = Command {
    name: "nodeport",
    summary: "Create a NodePort service",
    description: "Create a NodePort service with the specified name.",
    examples: "  # Create a new NodePort service named my-ns
  kubectl create service nodeport my-ns --tcp=5678:8080",
    usage: "kubectl create service nodeport NAME [--tcp=port:targetPort] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::int("node-port", "0", "Port used to expose the service on each node in a cluster."),
            Flag::list("tcp", "Port pairs can be specified as '<port>:<targetPort>'."),
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
