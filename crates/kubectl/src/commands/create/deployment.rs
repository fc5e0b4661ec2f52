//! `kubectl create deployment`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::workload::{self, Deployment};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "deployment",
    aliases: &["deploy"],
    summary: "Create a deployment",
    description: "Create a deployment that runs one or more images. Arguments after -- replace the command of the \
                  image, which is possible with a single image only.",
    examples: "  # Run three replicas of an image that listens on port 8080
  kubectl create deployment web --image=registry.example/web:2 --replicas=3 --port=8080
  
  # Run a command
  kubectl create deployment worker --image=python:3 -- python -m http.server
  
  # Run two containers in each pod
  kubectl create deploy db --image=postgres:17 --image=registry.example/exporter:1
  
  # Print the manifest of a deployment without creating it
  kubectl create deploy web --image=registry.example/web:2 --dry-run=client -o yaml",
    usage: "kubectl create deployment NAME --image=image -- [COMMAND] [args...] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::list("image", "Image of the container; give several for several containers in each pod."),
            Flag::int32("port", "-1", "Port on which the container listens."),
            Flag::int32("replicas", "1", "Number of pods.").short('r'),
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
