//! The table of commands. A new command is a row here and a module beside this one.

use clap::ArgMatches;

use crate::{
    agent, apiserver, backup, certs, cni, completion, config, controller_manager, convert, cri, dashboard, dns, doctor,
    down, etcd, hello, hollow, image, ingress, install, kubeconfig, kubelet, licenses, local_path, logs, man,
    manifests, members, metrics_server, network, node, pause, proxy, scheduler, server, shim, status, store, token,
    trace, up,
};

/// A group of commands, in the order of `knarr --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Start, inspect and stop the cluster of this host.
    Cluster,
    /// Additional nodes and servers.
    Nodes,
    /// Commands that work on files and images.
    Tools,
    /// Single components, for service managers, container runtimes and images.
    Components,
}

impl Group {
    pub(crate) const ALL: [Self; 4] = [Self::Cluster, Self::Nodes, Self::Tools, Self::Components];

    pub(crate) const fn heading(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster Commands",
            Self::Nodes => "Node and Server Commands",
            Self::Tools => "Other Commands",
            Self::Components => "Components",
        }
    }
}

pub(crate) struct Command {
    /// The subcommand. A link to the binary with this name runs it too.
    pub name: &'static str,
    pub group: Group,
    /// The one-line description in `--help`.
    pub about: &'static str,
    pub arguments: fn(clap::Command) -> clap::Command,
    pub run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// All commands, sorted by name.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "agent",
        group: Group::Nodes,
        about: "Run a node that joins an existing cluster",
        arguments: agent::arguments,
        run: agent::run,
    },
    Command {
        name: "backup",
        group: Group::Cluster,
        about: "Save the store, the PKI and the settings of the cluster in one file",
        arguments: backup::arguments,
        run: backup::run,
    },
    Command {
        name: "certs",
        group: Group::Cluster,
        about: "List and rotate the certificates of the cluster on this host",
        arguments: certs::arguments,
        run: certs::run,
    },
    Command {
        name: "cni",
        group: Group::Components,
        about: "Run the built-in pod network as a CNI plugin",
        arguments: cni::arguments,
        run: cni::run,
    },
    Command {
        name: "completion",
        group: Group::Tools,
        about: "Print a script with which bash, zsh or fish completes knarr command lines",
        arguments: completion::arguments,
        run: completion::run,
    },
    Command {
        name: "config",
        group: Group::Cluster,
        about: "Check and show the settings of configuration files and the environment",
        arguments: config::arguments,
        run: config::run,
    },
    Command {
        name: "convert",
        group: Group::Tools,
        about: "Convert objects between JSON, YAML and Kubernetes protobuf",
        arguments: convert::arguments,
        run: convert::run,
    },
    Command {
        name: "cri",
        group: Group::Components,
        about: "Run the container runtime with a CRI socket",
        arguments: cri::arguments,
        run: cri::run,
    },
    Command {
        name: "dashboard",
        group: Group::Cluster,
        about: "Serve the dashboard of a cluster on this host's loopback address",
        arguments: dashboard::arguments,
        run: dashboard::run,
    },
    Command {
        name: "dns",
        group: Group::Components,
        about: "Run the cluster DNS server",
        arguments: dns::arguments,
        run: dns::run,
    },
    Command {
        name: "doctor",
        group: Group::Cluster,
        about: "Check this host and the cluster on it",
        arguments: doctor::arguments,
        run: doctor::run,
    },
    Command {
        name: "down",
        group: Group::Cluster,
        about: "Stop the cluster on this host",
        arguments: down::arguments,
        run: down::run,
    },
    Command {
        name: "etcd",
        group: Group::Components,
        about: "Run a store member, with etcd's API and flags",
        arguments: etcd::arguments,
        run: etcd::run,
    },
    Command {
        name: "hello",
        group: Group::Components,
        about: "Run a test web server (entry point of knarr.local/hello)",
        arguments: hello::arguments,
        run: hello::run,
    },
    Command {
        name: "hollow",
        group: Group::Tools,
        about: "Run simulated nodes, on which pods run without containers",
        arguments: hollow::arguments,
        run: hollow::run,
    },
    Command {
        name: "image",
        group: Group::Tools,
        about: "List, pull, import, export, build and remove images on this host",
        arguments: image::arguments,
        run: image::run,
    },
    Command {
        name: "ingress",
        group: Group::Components,
        about: "Run the ingress controller, which routes HTTP requests to Services",
        arguments: ingress::arguments,
        run: ingress::run,
    },
    Command {
        name: "install",
        group: Group::Cluster,
        about: "Install this binary as a service that runs a cluster or a node",
        arguments: install::arguments,
        run: install::run,
    },
    Command {
        name: "kube-apiserver",
        group: Group::Components,
        about: "Run the API server, with upstream's flags",
        arguments: apiserver::arguments,
        run: apiserver::run,
    },
    Command {
        name: "kube-controller-manager",
        group: Group::Components,
        about: "Run the controllers, with upstream's flags",
        arguments: controller_manager::arguments,
        run: controller_manager::run,
    },
    Command {
        name: "kube-proxy",
        group: Group::Components,
        about: "Run the Service proxy of a node, with upstream's flags",
        arguments: proxy::arguments,
        run: proxy::run,
    },
    Command {
        name: "kube-scheduler",
        group: Group::Components,
        about: "Run the scheduler, with upstream's flags",
        arguments: scheduler::arguments,
        run: scheduler::run,
    },
    Command {
        name: "kubeconfig",
        group: Group::Cluster,
        about: "Print or merge a kubeconfig for the cluster on this host",
        arguments: kubeconfig::arguments,
        run: kubeconfig::run,
    },
    Command {
        name: "kubectl",
        group: Group::Cluster,
        about: "Control any Kubernetes cluster: kubectl with upstream's commands and output",
        arguments: |command| command,
        run: |_| unreachable!("main runs kubectl before it parses the command line"),
    },
    Command {
        name: "kubelet",
        group: Group::Components,
        about: "Run the kubelet with the built-in or another CRI runtime, with upstream's flags",
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
        about: "Run the provisioner of volumes that are directories of this node",
        arguments: local_path::arguments,
        run: local_path::run,
    },
    Command {
        name: "logs",
        group: Group::Cluster,
        about: "Print the log of the components on this host",
        arguments: logs::arguments,
        run: logs::run,
    },
    Command {
        name: "man",
        group: Group::Tools,
        about: "Write the manual pages of all commands into a directory",
        arguments: man::arguments,
        run: man::run,
    },
    Command {
        name: "manifests",
        group: Group::Components,
        about: "Apply the objects in the files of a directory, and delete those that are no longer there",
        arguments: manifests::arguments,
        run: manifests::run,
    },
    Command {
        name: "members",
        group: Group::Nodes,
        about: "List and remove members of the replicated store",
        arguments: members::arguments,
        run: members::run,
    },
    Command {
        name: "metrics-server",
        group: Group::Components,
        about: "Run the resource metrics API, with upstream's flags",
        arguments: metrics_server::arguments,
        run: metrics_server::run,
    },
    Command {
        name: "network",
        group: Group::Components,
        about: "Run the pod network between nodes and enforce network policies on a node",
        arguments: network::arguments,
        run: network::run,
    },
    Command {
        name: "node",
        group: Group::Nodes,
        about: "Add, list and remove nodes in network namespaces of this host",
        arguments: node::arguments,
        run: node::run,
    },
    Command {
        name: "pause",
        group: Group::Components,
        about: "Wait for a signal (entry point of knarr.local/pause)",
        arguments: pause::arguments,
        run: pause::run,
    },
    Command {
        name: "restore",
        group: Group::Cluster,
        about: "Create the cluster of a backup on a host without a cluster",
        arguments: backup::restore_arguments,
        run: backup::restore,
    },
    Command {
        name: "server",
        group: Group::Nodes,
        about: "Run a control plane server of a cluster with several servers",
        arguments: server::arguments,
        run: server::run,
    },
    Command {
        name: "shim",
        group: Group::Components,
        about: "Supervise the containers of one sandbox (started by the runtime)",
        arguments: shim::arguments,
        run: shim::run,
    },
    Command {
        name: "status",
        group: Group::Cluster,
        about: "Show the state of the cluster on this host",
        arguments: status::arguments,
        run: status::run,
    },
    Command {
        name: "store",
        group: Group::Tools,
        about: "Manage snapshots of the store and check its data directory",
        arguments: store::arguments,
        run: store::run,
    },
    Command {
        name: "token",
        group: Group::Nodes,
        about: "Create, list and revoke join tokens",
        arguments: token::arguments,
        run: token::run,
    },
    Command {
        name: "trace",
        group: Group::Cluster,
        about: "Show the chain of actions that an object caused, with times",
        arguments: trace::arguments,
        run: trace::run,
    },
    Command {
        name: "uninstall",
        group: Group::Cluster,
        about: "Remove the service and the files of `knarr install`",
        arguments: install::uninstall_arguments,
        run: install::uninstall,
    },
    Command {
        name: "up",
        group: Group::Cluster,
        about: "Run a cluster on this host, in one process",
        arguments: up::arguments,
        run: |matches| up::run(matches, backup::keep),
    },
];
