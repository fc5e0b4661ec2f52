//! `kubectl set image`.

use apimachinery::{Value, go};

use super::change::{self, Change, Edited};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag};
use crate::generate::pairs::{self, Arguments};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "image",
    summary: "Update the image of a pod template",
    description: "Update existing container image(s) of resources.

 Possible resources include (case insensitive):

        pod (po), replicationcontroller (rc), deployment (deploy), daemonset (ds), statefulset (sts), cronjob (cj), replicaset (rs)",
    examples: "  # Set a deployment's nginx container image to 'nginx:1.9.1', and its busybox container image to 'busybox'
  kubectl set image deployment/nginx busybox=busybox nginx=nginx:1.9.1
  
  # Update all deployments' and rc's nginx container's image to 'nginx:1.9.1'
  kubectl set image deployments,rc nginx=nginx:1.9.1 --all
  
  # Update image of all containers of daemonset abc to 'nginx:1.9.1'
  kubectl set image daemonset abc *=nginx:1.9.1
  
  # Print result (in yaml format) of updating nginx container image from local file, without hitting the server
  kubectl set image -f path/to/file.yaml nginx=nginx:1.9.1 --local -o yaml",
    usage: "kubectl set image (-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N [options]",
    flags: &[RECORD, flags::OUTPUT, flags::DRY_RUN, flags::SELECTOR, flags::DIRECTORY, &[
        Flag::bool("all", "Select all resources, in the namespace of the specified resource types"),
        flags::field_manager("kubectl-set"),
        flags::filename("Filename, directory, or URL to files identifying the resource to get from a server."),
        Flag::bool("local", "If true, set image will NOT contact api-server but run locally."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut change = Change::new(context, invocation)?;
    let Arguments { resources, pairs } = pairs::split(&invocation.args, "image")?;
    let images = pairs::parse(&pairs, "image")?;
    let infos = change.infos(&resources).await?;
    validate(invocation, &resources, &images, change.dry_run)?;
    for info in infos {
        let mut missing = Vec::new();
        let edit = |object: &mut Value| {
            missing = set::image(object, &images)?;
            Ok(Edited::Maybe)
        };
        let patched = change.apply(info, edit, "failed to patch image update to pod template: ").await;
        // A name without a container is reported before a failure to patch.
        change.failures.extend(
            missing
                .iter()
                .map(|name| Failure::new(format!("error: unable to find container named {}", go::quote(name)))),
        );
        change.keep(patched);
    }
    change.done()
}

fn validate(
    invocation: &Invocation,
    resources: &[String],
    images: &[(String, String)],
    dry_run: DryRun,
) -> Result<(), Failure> {
    let mut problems = Vec::new();
    if invocation.bool("all") && !invocation.text("selector").is_empty() {
        problems.push("cannot set --all and --selector at the same time");
    }
    if resources.is_empty() && invocation.list("filename").is_empty() && invocation.text("kustomize").is_empty() {
        problems.push("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    if images.is_empty() {
        problems.push("at least one image update is required");
    } else if images.len() > 1 && images.iter().any(|(name, _)| name == "*") {
        problems.push(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs",
        );
    }
    if invocation.bool("local") && dry_run == DryRun::Server {
        problems.push(change::LOCAL_SERVER);
    }
    Failure::all(problems.into_iter().map(Failure::new).collect())
}
