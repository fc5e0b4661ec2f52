//! `kubectl set serviceaccount`.

use apimachinery::Value;

use super::change::{self, Change, EditResult};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    summary: "Change the service account of pod templates",
    description: "Change the service account under which the pods of an object run. Supported types are \
                  replicationcontroller, deployment, daemonset, job, replicaset, and statefulset.",
    examples: "  # Run the pods of a deployment as the service account web
  kubectl set serviceaccount deployment web web
  
  # Change a manifest and print the result
  kubectl set sa --local -f worker.yaml queue-reader -o yaml",
    usage: "kubectl set serviceaccount (-f FILENAME | TYPE NAME) SERVICE_ACCOUNT [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Change all objects of the given types in the namespace."),
            flags::field_manager("kubectl-set"),
            flags::filename("Files, directories, or URLs that contain the objects to change."),
            Flag::bool("local", "Change the objects in the files without contacting the API server."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut change = Change::new(context, invocation)?;
    if invocation.bool("local") && change.dry_run == DryRun::Server {
        return Err(Failure::new(change::LOCAL_SERVER));
    }
    let Some((account, resources)) = invocation.args.split_last() else {
        return Err(Failure::new("serviceaccount is required"));
    };
    for info in change.infos(resources).await? {
        let edit = |object: &mut Value| {
            set::service_account(object, account)?;
            Ok(EditResult::Always)
        };
        let patched = change.apply(info, edit, "failed to patch ServiceAccountName ").await;
        change.keep(patched);
    }
    change.done()
}
