//! `kubectl set subject`.

use apimachinery::Value;

use super::change::{Change, EditResult};
use crate::command::{Command, Flag};
use crate::generate::rbac::Subjects;
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "subject",
    summary: "Add subjects to role bindings and cluster role bindings",
    description: "Add users, groups, and service accounts to a role binding or cluster role binding. Subjects that it \
                  already has are kept.",
    examples: "  # Add two users and a group to a role binding
  kubectl set subject rolebinding editors --user=alice --user=bob --group=support
  
  # Add a service account to a cluster role binding
  kubectl set subject clusterrolebinding monitor --serviceaccount=monitoring:collector
  
  # Change a manifest and print the result
  kubectl set subject --local -f editors.yaml --user=carol -o yaml",
    usage: "kubectl set subject (-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Change all objects of the given types in the namespace."),
            flags::field_manager("kubectl-set"),
            flags::filename("Files, directories, or URLs that contain the objects to change."),
            Flag::array("group", "Group to add; can be repeated."),
            Flag::bool("local", "Change the objects in the files without contacting the API server."),
            Flag::array("serviceaccount", "Service account to add, as <namespace>:<name>; can be repeated."),
            Flag::array("user", "User to add; can be repeated."),
        ],
    ],
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
        let edit = |object: &mut Value| {
            Ok(if set::subjects(object, &subjects)? { EditResult::IfChanged } else { EditResult::Skip })
        };
        let patched = change.apply(info, edit, "failed to patch subjects to rolebinding: ").await;
        change.keep(patched);
    }
    change.done()
}
