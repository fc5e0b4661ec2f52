//! `kubectl create role`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Rule};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "role",
    summary: "Create a role with single rule",
    description: "Create a role with single rule.",
    examples: r#"  # Create a role named "pod-reader" that allows user to perform "get", "watch" and "list" on pods
  kubectl create role pod-reader --verb=get --verb=list --verb=watch --resource=pods
  
  # Create a role named "pod-reader" with ResourceName specified
  kubectl create role pod-reader --verb=get --resource=pods --resource-name=readablepod --resource-name=anotherpod
  
  # Create a role named "foo" with API Group specified
  kubectl create role foo --verb=get,list,watch --resource=rs.apps
  
  # Create a role named "foo" with SubResource specified
  kubectl create role foo --verb=get,list,watch --resource=pods,pods/status"#,
    usage: "kubectl create role NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list("resource", "Resource that the rule applies to"),
            Flag::array(
                "resource-name",
                "Resource in the white list that the rule applies to, repeat this flag for multiple items",
            ),
            Flag::list("verb", "Verb that applies to the resources contained in the rule"),
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
