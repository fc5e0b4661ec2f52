//! `kubectl auth`: shows what a user may do, and who the user is.

mod can_i;
mod reconcile;
mod whoami;

use crate::command::{Command, Group};

pub(super) static COMMAND: Command = Command {
    name: "auth",
    group: Group::Troubleshooting,
    summary: "Check permissions and identity",
    description: "Check what the current user may do, show who that user is, and reconcile RBAC objects.",
    usage: "kubectl auth [flags] [options]",
    commands: &[&can_i::COMMAND, &reconcile::COMMAND, &whoami::COMMAND],
    ..Command::EMPTY
};
