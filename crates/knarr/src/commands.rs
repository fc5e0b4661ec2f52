//! The table of commands. A new command is a row here and a module beside this one.

use clap::ArgMatches;

use crate::{
    agent, apiserver, certs, cni, controller_manager, convert, cri, dns, doctor, down, etcd, hello, hollow, image,
    kubelet, licenses, local_path, members, metrics_server, network, node, pause, proxy, scheduler, server, shim,
    status, store, token, trace, up,
};

/// A group of commands, in the order of `knarr --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Start, inspect and stop the cluster of this host.
    Cluster,
    /// Additional nodes and servers.
    Machines,
    /// Commands that work on files and images.
    Tools,
    /// Single components, for service managers, container runtimes and images.
    Components,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Cluster, Self::Machines, Self::Tools, Self::Components];

    pub const fn heading(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster on this machine",
            Self::Machines => "Several machines and nodes",
            Self::Tools => "Tools",
            Self::Components => "Components, started alone",
        }
    }
}

pub struct Command {
    /// The subcommand. A link to the binary with this name runs it too.
    pub name: &'static str,
    pub group: Group,
    /// The one-line description in `--help`.
    pub about: &'static str,
    pub arguments: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// All commands, sorted by name.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "agent",
        group: Group::Machines,
        about: "A node of a cluster whose servers are elsewhere",
        arguments: agent::arguments,
        run: agent::run,
    },
    Command {
        name: "certs",
        group: Group::Cluster,
        about: "The certificates of this machine's cluster: list, rotate",
        arguments: certs::arguments,
        run: certs::run,
    },
    Command {
        name: "cni",
        group: Group::Components,
        about: "The built-in pod network as a CNI plug-in, for a runtime to call",
        arguments: cni::arguments,
        run: cni::run,
    },
    Command {
        name: "convert",
        group: Group::Tools,
        about: "Write objects in another encoding: JSON, YAML or Kubernetes protobuf",
        arguments: convert::arguments,
        run: convert::run,
    },
    Command {
        name: "cri",
        group: Group::Components,
        about: "The container runtime, alone, on a socket for any CRI client",
        arguments: cri::arguments,
        run: cri::run,
    },
    Command {
        name: "dns",
        group: Group::Components,
        about: "The cluster's DNS server",
        arguments: dns::arguments,
        run: dns::run,
    },
    Command {
        name: "doctor",
        group: Group::Cluster,
        about: "Whether this machine can carry a cluster, and how the one on it is",
        arguments: doctor::arguments,
        run: doctor::run,
    },
    Command {
        name: "down",
        group: Group::Cluster,
        about: "Stop the cluster of this machine",
        arguments: down::arguments,
        run: down::run,
    },
    Command {
        name: "etcd",
        group: Group::Components,
        about: "The store, started alone, with etcd's own flags",
        arguments: etcd::arguments,
        run: etcd::run,
    },
    Command {
        name: "hello",
        group: Group::Components,
        about: "A web server that shows where it runs (the program of knarr.local/hello)",
        arguments: hello::arguments,
        run: hello::run,
    },
    Command {
        name: "hollow",
        group: Group::Tools,
        about: "Simulated nodes, on which pods run without containers",
        arguments: hollow::arguments,
        run: hollow::run,
    },
    Command {
        name: "image",
        group: Group::Tools,
        about: "Images of this machine: list, pull, import, export, build, remove",
        arguments: image::arguments,
        run: image::run,
    },
    Command {
        name: "kube-apiserver",
        group: Group::Components,
        about: "The API server, started alone, with upstream's flags",
        arguments: apiserver::arguments,
        run: apiserver::run,
    },
    Command {
        name: "kube-controller-manager",
        group: Group::Components,
        about: "The controllers, started alone, with upstream's flags",
        arguments: controller_manager::arguments,
        run: controller_manager::run,
    },
    Command {
        name: "kube-proxy",
        group: Group::Components,
        about: "Services on this node, with upstream's flags",
        arguments: proxy::arguments,
        run: proxy::run,
    },
    Command {
        name: "kube-scheduler",
        group: Group::Components,
        about: "The scheduler, started alone, with upstream's flags",
        arguments: scheduler::arguments,
        run: scheduler::run,
    },
    Command {
        name: "kubelet",
        group: Group::Components,
        about: "The node's agent, with the runtime inside or another one's socket, with upstream's flags",
        arguments: kubelet::arguments,
        run: kubelet::run,
    },
    Command {
        name: "licenses",
        group: Group::Tools,
        about: "Print the licences of the third-party software in this binary",
        arguments: licenses::arguments,
        run: licenses::run,
    },
    Command {
        name: "local-path",
        group: Group::Components,
        about: "Volumes that are folders of this node",
        arguments: local_path::arguments,
        run: local_path::run,
    },
    Command {
        name: "members",
        group: Group::Machines,
        about: "The members of the replicated store: list, remove",
        arguments: members::arguments,
        run: members::run,
    },
    Command {
        name: "metrics-server",
        group: Group::Components,
        about: "What nodes and pods use, as an API behind the API server",
        arguments: metrics_server::arguments,
        run: metrics_server::run,
    },
    Command {
        name: "network",
        group: Group::Components,
        about: "The ways to other nodes' pods, and network policies on this node",
        arguments: network::arguments,
        run: network::run,
    },
    Command {
        name: "node",
        group: Group::Machines,
        about: "Nodes that are network namespaces of this machine: add, list, remove",
        arguments: node::arguments,
        run: node::run,
    },
    Command {
        name: "pause",
        group: Group::Components,
        about: "Wait to be ended (the program of knarr.local/pause)",
        arguments: pause::arguments,
        run: pause::run,
    },
    Command {
        name: "server",
        group: Group::Machines,
        about: "A server of a cluster that has several, alone at first or joining others",
        arguments: server::arguments,
        run: server::run,
    },
    Command {
        name: "shim",
        group: Group::Components,
        about: "Keep the containers of one sandbox (started by the runtime)",
        arguments: shim::arguments,
        run: shim::run,
    },
    Command {
        name: "status",
        group: Group::Cluster,
        about: "How the cluster of this machine is",
        arguments: status::arguments,
        run: status::run,
    },
    Command {
        name: "store",
        group: Group::Tools,
        about: "Snapshots of the store, and a check of its directory",
        arguments: store::arguments,
        run: store::run,
    },
    Command {
        name: "token",
        group: Group::Machines,
        about: "What machines join the cluster with: create, list, remove",
        arguments: token::arguments,
        run: token::run,
    },
    Command {
        name: "trace",
        group: Group::Cluster,
        about: "What an object set in motion, step by step with times",
        arguments: trace::arguments,
        run: trace::run,
    },
    Command {
        name: "up",
        group: Group::Cluster,
        about: "A whole cluster on this machine, in one process",
        arguments: up::arguments,
        run: up::run,
    },
];
