//! `kubectl create role`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Rule};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "role",
    summary: "Create a role with one rule",
    description: "Create a role, which grants verbs on resources within one namespace. The role has a single rule; use \
                  a manifest for more.",
    examples: "  # Allow reading config maps and secrets
  kubectl create role config-reader --verb=get,list,watch --resource=configmaps,secrets
  
  # Allow changing two deployments only
  kubectl create role deployer --verb=get,patch --resource=deployments.apps --resource-name=web --resource-name=worker
  
  # Allow reading the logs of pods, which are a subresource
  kubectl create role log-reader --verb=get --resource=pods/log",
    usage: "kubectl create role NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list("resource", "Resource of the rule, as resource, resource.group, or either with /subresource."),
            Flag::array("resource-name", "Name of an object to which the rule is restricted; can be repeated."),
            Flag::list("verb", "Verb that the rule allows on the resources."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let (verbs, resources) = (invocation.list("verb"), invocation.list("resource"));
    let rule = Rule::new(&verbs, &resources, &invocation.list("resource-name"), &[]);
    let types = creation::find_types(context, &rule).await?;
    let role = rbac::role(creation.name(), &rule, |group, name| types.find(group, name))?;
    creation.warn(&role.warnings)?;
    creation.create(role.object, &creation::ROLES, "").await
}
