//! `kubectl create clusterrolebinding`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::rbac::{self, Subjects};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "clusterrolebinding",
    summary: "Bind a cluster role in the whole cluster",
    description: "Create a cluster role binding, which grants the permissions of a cluster role to users, groups, and \
                  service accounts in all namespaces.",
    examples: "  # Let a user and a group read all namespaces
  kubectl create clusterrolebinding viewers --clusterrole=view --user=alice --group=support
  
  # Grant a cluster role to a service account
  kubectl create clusterrolebinding monitor --clusterrole=metrics-reader --serviceaccount=monitoring:collector",
    usage: "kubectl create clusterrolebinding NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("clusterrole", "", "Cluster role to bind."),
            flags::field_manager("kubectl-create"),
            Flag::array("group", "Group that receives the permissions; can be repeated."),
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
