//! `kubectl create deployment`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::workload::{self, Deployment};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "deployment",
    aliases: &["deploy"],
    summary: "Create a deployment with the specified name",
    description: "Create a deployment with the specified name.",
    examples: "  # Create a deployment named my-dep that runs the busybox image
  kubectl create deployment my-dep --image=busybox
  
  # Create a deployment with a command
  kubectl create deployment my-dep --image=busybox -- date
  
  # Create a deployment named my-dep that runs the nginx image with 3 replicas
  kubectl create deployment my-dep --image=nginx --replicas=3
  
  # Create a deployment named my-dep that runs the busybox image and expose port 5701
  kubectl create deployment my-dep --image=busybox --port=5701
  
  # Create a deployment named my-dep that runs multiple containers
  kubectl create deployment my-dep --image=busybox:latest --image=ubuntu:latest --image=nginx",
    usage: "kubectl create deployment NAME --image=image -- [COMMAND] [args...] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list(
                "image",
                "Image names to run. A deployment can have multiple images set for multi-container pod.",
            ),
            Flag::int("port", "-1", "The containerPort that this deployment exposes."),
            Flag::int("replicas", "1", "Number of replicas to create. Default is 1.").short('r'),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["image"])?;
    let creation = Creation::new(context, invocation)?;
    let options = Deployment {
        name: creation.name(),
        images: &invocation.list("image"),
        command: creation.command(),
        port: invocation.int("port"),
        replicas: invocation.int("replicas"),
    };
    let object = workload::deployment(options, creation::random_suffix)?;
    creation.create(object, &creation::DEPLOYMENTS, "failed to create deployment: ").await
}
