//! `kubectl create namespace`.

use super::creation::{self, Creation};
use crate::command::Command;
use crate::generate;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "namespace",
    aliases: &["ns"],
    summary: "Create a namespace",
    description: "Create an empty namespace.",
    examples: "  # Create the namespace staging
  kubectl create namespace staging
  
  # Print the manifest of a namespace without creating it
  kubectl create ns staging --dry-run=client -o yaml",
    usage: "kubectl create namespace NAME [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[flags::field_manager("kubectl-create")],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = generate::namespace(creation.name().name)?;
    creation.create(object, &creation::NAMESPACES, "").await
}
