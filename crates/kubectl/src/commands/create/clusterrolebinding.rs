//! `kubectl create clusterrolebinding`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Subjects};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "clusterrolebinding",
    summary: "Create a cluster role binding for a particular cluster role",
    description: "Create a cluster role binding for a particular cluster role.",
    examples: "  # Create a cluster role binding for user1, user2, and group1 using the cluster-admin cluster role
  kubectl create clusterrolebinding cluster-admin --clusterrole=cluster-admin --user=user1 --user=user2 --group=group1",
    usage: "kubectl create clusterrolebinding NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("clusterrole", "", "ClusterRole this ClusterRoleBinding should reference"),
            flags::field_manager("kubectl-create"),
            Flag::array("group", "Groups to bind to the clusterrole. The flag can be repeated to add multiple groups."),
            Flag::array(
                "serviceaccount",
                "Service accounts to bind to the clusterrole, in the format <namespace>:<name>. The flag can be repeated to add multiple service accounts.",
            ),
            Flag::array(
                "user",
                "Usernames to bind to the clusterrole. The flag can be repeated to add multiple users.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["clusterrole"])?;
    let creation = Creation::new(context, invocation)?;
    let subjects = Subjects {
        users: &invocation.list("user"),
        groups: &invocation.list("group"),
        service_accounts: &invocation.list("serviceaccount"),
    };
    let object = rbac::cluster_role_binding(creation.name().name, invocation.text("clusterrole"), subjects)?;
    creation.create(object, &creation::CLUSTER_ROLE_BINDINGS, "failed to create clusterrolebinding: ").await
}
