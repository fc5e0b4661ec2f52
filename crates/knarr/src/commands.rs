//! The table of commands: adding one is a row here and a module beside it.

use clap::ArgMatches;

use crate::{
    agent, apiserver, certs, cni, controller_manager, convert, cri, dns, doctor, down, etcd, hello, hollow, image,
    kubelet, licenses, local_path, members, metrics_server, network, node, pause, proxy, scheduler, server, shim,
    status, store, token, trace, up,
};

/// A command of the binary.
pub struct Command {
    /// What one types, and what a link to the binary may be called.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Adds the arguments it takes.
    pub arguments: fn(clap::Command) -> clap::Command,
    /// Does it.
    pub run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// Every command, sorted by name.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "agent",
        about: "A node of a cluster whose servers are elsewhere",
        arguments: agent::arguments,
        run: agent::run,
    },
    Command {
        name: "certs",
        about: "The certificates of this machine's cluster: list, rotate",
        arguments: certs::arguments,
        run: certs::run,
    },
    Command {
        name: "cni",
        about: "The built-in pod network as a CNI plug-in, for a runtime to call",
        arguments: cni::arguments,
        run: cni::run,
    },
    Command {
        name: "convert",
        about: "Write objects in another encoding: JSON, YAML or Kubernetes protobuf",
        arguments: convert::arguments,
        run: convert::run,
    },
    Command {
        name: "cri",
        about: "The container runtime, alone, on a socket for any CRI client",
        arguments: cri::arguments,
        run: cri::run,
    },
    Command { name: "dns", about: "The cluster's DNS server", arguments: dns::arguments, run: dns::run },
    Command {
        name: "doctor",
        about: "Whether this machine can carry a cluster, and how the one on it is",
        arguments: doctor::arguments,
        run: doctor::run,
    },
    Command { name: "down", about: "Stop the cluster of this machine", arguments: down::arguments, run: down::run },
    Command {
        name: "etcd",
        about: "The store, started alone, with etcd's own flags",
        arguments: etcd::arguments,
        run: etcd::run,
    },
    Command {
        name: "hello",
        about: "A web server that shows where it runs (the program of knarr.local/hello)",
        arguments: hello::arguments,
        run: hello::run,
    },
    Command {
        name: "hollow",
        about: "Simulated nodes, on which pods run without containers",
        arguments: hollow::arguments,
        run: hollow::run,
    },
    Command {
        name: "image",
        about: "Images of this machine: list, pull, import, export, build, remove",
        arguments: image::arguments,
        run: image::run,
    },
    Command {
        name: "kube-apiserver",
        about: "The API server, started alone, with upstream's flags",
        arguments: apiserver::arguments,
        run: apiserver::run,
    },
    Command {
        name: "kube-controller-manager",
        about: "The controllers, started alone, with upstream's flags",
        arguments: controller_manager::arguments,
        run: controller_manager::run,
    },
    Command {
        name: "kube-proxy",
        about: "Services on this node, with upstream's flags",
        arguments: proxy::arguments,
        run: proxy::run,
    },
    Command {
        name: "kube-scheduler",
        about: "The scheduler, started alone, with upstream's flags",
        arguments: scheduler::arguments,
        run: scheduler::run,
    },
    Command {
        name: "kubelet",
        about: "The node's agent, with the runtime inside or another one's socket, with upstream's flags",
        arguments: kubelet::arguments,
        run: kubelet::run,
    },
    Command {
        name: "licenses",
        about: "Print the licences of the third-party software in this binary",
        arguments: licenses::arguments,
        run: licenses::run,
    },
    Command {
        name: "local-path",
        about: "Volumes that are folders of this node",
        arguments: local_path::arguments,
        run: local_path::run,
    },
    Command {
        name: "members",
        about: "The members of the replicated store: list, remove",
        arguments: members::arguments,
        run: members::run,
    },
    Command {
        name: "metrics-server",
        about: "What nodes and pods use, as an API behind the API server",
        arguments: metrics_server::arguments,
        run: metrics_server::run,
    },
    Command {
        name: "network",
        about: "The ways to other nodes' pods, and network policies on this node",
        arguments: network::arguments,
        run: network::run,
    },
    Command {
        name: "node",
        about: "Nodes that are network namespaces of this machine: add, list, remove",
        arguments: node::arguments,
        run: node::run,
    },
    Command {
        name: "pause",
        about: "Wait to be ended (the program of knarr.local/pause)",
        arguments: pause::arguments,
        run: pause::run,
    },
    Command {
        name: "server",
        about: "A server of a cluster that has several, alone at first or joining others",
        arguments: server::arguments,
        run: server::run,
    },
    Command {
        name: "shim",
        about: "Keep the containers of one sandbox (started by the runtime)",
        arguments: shim::arguments,
        run: shim::run,
    },
    Command {
        name: "status",
        about: "How the cluster of this machine is",
        arguments: status::arguments,
        run: status::run,
    },
    Command {
        name: "store",
        about: "Snapshots of the store, and a check of its directory",
        arguments: store::arguments,
        run: store::run,
    },
    Command {
        name: "token",
        about: "What machines join the cluster with: create, list, remove",
        arguments: token::arguments,
        run: token::run,
    },
    Command {
        name: "trace",
        about: "What an object set in motion, step by step with times",
        arguments: trace::arguments,
        run: trace::run,
    },
    Command {
        name: "up",
        about: "A whole cluster on this machine, in one process",
        arguments: up::arguments,
        run: up::run,
    },
];
