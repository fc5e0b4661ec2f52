//! `kubectl create quota`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "quota",
    aliases: &["resourcequota"],
    summary: "Create a quota with the specified name",
    description: "Create a resource quota with the specified name, hard limits, and optional scopes.",
    examples: "  # Create a new resource quota named my-quota
  kubectl create quota my-quota --hard=cpu=1,memory=1G,pods=2,services=3,replicationcontrollers=2,resourcequotas=1,secrets=5,persistentvolumeclaims=10
  
  # Create a new resource quota named best-effort
  kubectl create quota best-effort --hard=pods=100 --scopes=BestEffort",
    usage: "kubectl create quota NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none] [options]",
    flags: &[flags::SAVE_CONFIG, flags::OUTPUT, flags::DRY_RUN, flags::VALIDATE, &[
        flags::field_manager("kubectl-create"),
        Flag::text("hard", "", "A comma-delimited set of resource=quantity pairs that define a hard limit."),
        Flag::text("scopes", "", "A comma-delimited set of quota scopes that must all match each object tracked by the quota."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = policy::quota(creation.name(), invocation.text("hard"), invocation.text("scopes"))?;
    creation.create(object, &creation::RESOURCE_QUOTAS, "failed to create quota: ").await
}
