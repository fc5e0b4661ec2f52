//! `kubectl create rolebinding`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Subjects};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "rolebinding",
    summary: "Create a role binding for a particular role or cluster role",
    description: "Create a role binding for a particular role or cluster role.",
    examples: "  # Create a role binding for user1, user2, and group1 using the admin cluster role
  kubectl create rolebinding admin --clusterrole=admin --user=user1 --user=user2 --group=group1
  
  # Create a role binding for service account monitoring:sa-dev using the admin role
  kubectl create rolebinding admin-binding --role=admin --serviceaccount=monitoring:sa-dev",
    usage: "kubectl create rolebinding NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("clusterrole", "", "ClusterRole this RoleBinding should reference"),
            flags::field_manager("kubectl-create"),
            Flag::array("group", "Groups to bind to the role. The flag can be repeated to add multiple groups."),
            Flag::text("role", "", "Role this RoleBinding should reference"),
            Flag::array(
                "serviceaccount",
                "Service accounts to bind to the role, in the format <namespace>:<name>. The flag can be repeated to add multiple service accounts.",
            ),
            Flag::array("user", "Usernames to bind to the role. The flag can be repeated to add multiple users."),
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
