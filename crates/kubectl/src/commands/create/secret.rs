//! `kubectl create secret`.

mod docker_registry;
mod generic;
mod tls;

use crate::command::Command;

pub static COMMAND: Command = Command {
    name: "secret",
    summary: "Create a secret using a specified subcommand",
    description: "Create a secret with specified type.

 A docker-registry type secret is for accessing a container registry.

 A generic type secret indicate an Opaque secret type.

 A tls type secret holds TLS certificate and its associated key.",
    usage: "kubectl create secret (docker-registry | generic | tls) [options]",
    commands: &[&docker_registry::COMMAND, &generic::COMMAND, &tls::COMMAND],

    ..Command::EMPTY
};
