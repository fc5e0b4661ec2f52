//! `kubectl set image`.

use apimachinery::{Value, go};

use super::change::{self, Change, EditResult};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag};
use crate::generate::pairs::{self, Arguments};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "image",
    summary: "Change the images of containers",
    description: "Change the images of containers in pods and pod templates, by container name. The name * stands for \
                  all containers. Supported types are pod, replicationcontroller, deployment, daemonset, statefulset, \
                  cronjob, and replicaset.",
    examples: "  # Change the images of two containers
  kubectl set image deployment/web app=registry.example/web:3 proxy=envoyproxy/envoy:v1.34.0
  
  # Change the container app in all deployments that have a label
  kubectl set image deployments -l stage=test app=registry.example/web:3
  
  # Change all containers of a stateful set
  kubectl set image statefulset db '*=postgres:17'
  
  # Change a manifest and print the result
  kubectl set image --local -f worker.yaml worker=registry.example/worker:5 -o yaml",
    usage: "kubectl set image (-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
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
    let Arguments { resources, pairs } = pairs::split(&invocation.args, "image")?;
    let images = pairs::parse(&pairs, "image")?;
    let infos = change.infos(&resources).await?;
    validate(invocation, &resources, &images, change.dry_run)?;
    for info in infos {
        let mut missing = Vec::new();
        let edit = |object: &mut Value| {
            missing = set::image(object, &images)?;
            Ok(EditResult::IfChanged)
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
