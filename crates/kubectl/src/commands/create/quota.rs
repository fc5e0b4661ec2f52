//! `kubectl create quota`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "quota",
    aliases: &["resourcequota"],
    summary: "Create a resource quota",
    description: "Create a resource quota, which limits the total resource usage and the number of objects in a \
                  namespace. Scopes restrict the objects that count.",
    examples: "  # Limit the number of pods and the CPU and memory that they request
  kubectl create quota team-a --hard=pods=20,requests.cpu=8,requests.memory=16Gi
  
  # Limit the number of pods that have a deadline
  kubectl create quota batch --hard=pods=50 --scopes=Terminating",
    usage: "kubectl create quota NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("hard", "", "Limits as resource=quantity pairs, separated by commas."),
            Flag::text("scopes", "", "Scopes, separated by commas, that an object must all match to count."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = policy::quota(creation.name(), invocation.text("hard"), invocation.text("scopes"))?;
    creation.create(object, &creation::RESOURCE_QUOTAS, "failed to create quota: ").await
}
