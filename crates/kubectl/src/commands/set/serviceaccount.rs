//! `kubectl set serviceaccount`.

use apimachinery::Value;

use super::change::{self, Change, Edited};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    summary: "Update the service account of a resource",
    description: "Update the service account of pod template resources.

 Possible resources (case insensitive) can be:

 replicationcontroller (rc), deployment (deploy), daemonset (ds), job, replicaset (rs), statefulset",
    examples: "  # Set deployment nginx-deployment's service account to serviceaccount1
  kubectl set serviceaccount deployment nginx-deployment serviceaccount1
  
  # Print the result (in YAML format) of updated nginx deployment with the service account from local file, without hitting the API server
  kubectl set sa -f nginx-deployment.yaml serviceaccount1 --local --dry-run=client -o yaml",
    usage: "kubectl set serviceaccount (-f FILENAME | TYPE NAME) SERVICE_ACCOUNT [options]",
    flags: &[RECORD, flags::OUTPUT, flags::DRY_RUN, flags::DIRECTORY, &[
        Flag::bool("all", "Select all resources, in the namespace of the specified resource types"),
        flags::field_manager("kubectl-set"),
        flags::filename("Filename, directory, or URL to files identifying the resource to get from a server."),
        Flag::bool("local", "If true, set serviceaccount will NOT contact api-server but run locally."),
    ]],
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
            Ok(Edited::Yes)
        };
        let patched = change.apply(info, edit, "failed to patch ServiceAccountName ").await;
        change.keep(patched);
    }
    change.done()
}
