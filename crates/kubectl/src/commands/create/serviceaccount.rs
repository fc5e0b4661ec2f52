//! `kubectl create serviceaccount`.

use super::creation::{self, Creation};
use crate::command::Command;
use crate::generate;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    summary: "Create a service account",
    description: "Create a service account, the identity of processes in pods towards the API server.",
    examples: "  # Create the service account worker
  kubectl create serviceaccount worker
  
  # Create a service account in another namespace
  kubectl create sa backup -n jobs",
    usage: "kubectl create serviceaccount NAME [--dry-run=server|client|none] [options]",
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
    let object = generate::service_account(creation.name())?;
    creation.create(object, &creation::SERVICE_ACCOUNTS, "failed to create serviceaccount: ").await
}
