//! `kubectl create rolebinding`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Subjects};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "rolebinding",
    summary: "Bind a role or cluster role within a namespace",
    description: "Create a role binding, which grants the permissions of a role or cluster role to users, groups, and \
                  service accounts within one namespace.",
    examples: "  # Let two users edit the objects of a namespace
  kubectl create rolebinding editors --clusterrole=edit --user=alice --user=bob -n staging
  
  # Grant a role to a service account
  kubectl create rolebinding worker-config --role=config-reader --serviceaccount=jobs:worker
  
  # Grant a cluster role to a group
  kubectl create rolebinding support-view --clusterrole=view --group=support",
    usage: "kubectl create rolebinding NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("clusterrole", "", "Cluster role to bind."),
            flags::field_manager("kubectl-create"),
            Flag::array("group", "Group that receives the permissions; can be repeated."),
            Flag::text("role", "", "Role to bind."),
            Flag::array(
                "serviceaccount",
                "Service account that receives the permissions, as <namespace>:<name>; can be repeated.",
            ),
            Flag::array("user", "User who receives the permissions; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let subjects = Subjects {
        users: &invocation.list("user"),
        groups: &invocation.list("group"),
        service_accounts: &invocation.list("serviceaccount"),
    };
    let (cluster_role, role) = (invocation.text("clusterrole"), invocation.text("role"));
    let object = rbac::role_binding(creation.name(), cluster_role, role, subjects)?;
    creation.create(object, &creation::ROLE_BINDINGS, "failed to create rolebinding: ").await
}
