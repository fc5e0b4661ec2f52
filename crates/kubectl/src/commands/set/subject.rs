//! `kubectl set subject`.

use apimachinery::Value;

use super::change::{Change, Edited};
use crate::command::{Command, Flag};
use crate::generate::rbac::Subjects;
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "subject",
    summary: "Update the user, group, or service account in a role binding or cluster role binding",
    description: "Update the user, group, or service account in a role binding or cluster role binding.",
    examples: "  # Update a cluster role binding for serviceaccount1
  kubectl set subject clusterrolebinding admin --serviceaccount=namespace:serviceaccount1
  
  # Update a role binding for user1, user2, and group1
  kubectl set subject rolebinding admin --user=user1 --user=user2 --group=group1
  
  # Print the result (in YAML format) of updating rolebinding subjects from a local, without hitting the server
  kubectl create rolebinding admin --role=admin --user=admin -o yaml --dry-run=client | kubectl set subject --local -f - --user=foo -o yaml",
    usage: "kubectl set subject (-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[flags::OUTPUT, flags::DRY_RUN, flags::SELECTOR, flags::DIRECTORY, &[
        Flag::bool("all", "Select all resources, in the namespace of the specified resource types"),
        flags::field_manager("kubectl-set"),
        flags::filename("Filename, directory, or URL to files the resource to update the subjects"),
        Flag::array("group", "Groups to bind to the role"),
        Flag::bool("local", "If true, set subject will NOT contact api-server but run locally."),
        Flag::array("serviceaccount", "Service accounts to bind to the role"),
        Flag::array("user", "Usernames to bind to the role"),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut change = Change::new(context, invocation)?;
    let infos = change.infos(&invocation.args).await?;
    change.validate()?;
    let flags = Subjects {
        users: &invocation.list("user"),
        groups: &invocation.list("group"),
        service_accounts: &invocation.list("serviceaccount"),
    };
    let has_cluster_binding = infos.iter().any(|info| info.mapping.resource.kind == "ClusterRoleBinding");
    set::validate_subjects(flags, has_cluster_binding)?;
    let subjects = set::new_subjects(flags, &context.namespace()?.name);
    for info in infos {
        let edit = |object: &mut Value| Ok(if set::subjects(object, &subjects)? { Edited::Maybe } else { Edited::No });
        let patched = change.apply(info, edit, "failed to patch subjects to rolebinding: ").await;
        change.keep(patched);
    }
    change.done()
}
