//! `kubectl create secret`.

mod docker_registry;
mod generic;
mod tls;

use crate::command::Command;

pub(super) static COMMAND: Command = Command {
    name: "secret",
    summary: "Create a secret",
    description: "Create a secret: credentials for an image registry (docker-registry), arbitrary data (generic), or a \
                  certificate with its key (tls).",
    usage: "kubectl create secret (docker-registry | generic | tls) [options]",
    commands: &[&docker_registry::COMMAND, &generic::COMMAND, &tls::COMMAND],

    ..Command::EMPTY
};
