//! `kubectl describe`: prints details of objects and of related objects.

use std::io::Write;

use crate::command::{Command, Flag, Group};
use crate::describe::{self, Clock, Settings};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "describe",
    group: Group::Troubleshooting,
    summary: "Show the details of objects and what relates to them",
    description: "Show objects in detail, together with related information such as their events. If no object has \
         the given name, all objects of the type whose names start with it are shown. Run 'kubectl api-resources' \
         to list the resource types.",
    examples: "  # Describe the pod web
  kubectl describe pod/web

  # Describe all pods whose names start with worker, unless a pod has this name
  kubectl describe pods worker

  # Describe the StatefulSets with the label app=db in all namespaces
  kubectl describe statefulsets -l app=db --all-namespaces

  # Describe the objects of a manifest, without their events
  kubectl describe -f web.yaml --show-events=false",
    usage: "kubectl describe (-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME) [options]",
    flags: &[
        flags::SELECTOR,
        flags::ALL_NAMESPACES,
        flags::CHUNK_SIZE,
        flags::DIRECTORY,
        &[
            flags::filename("Files, directories or URLs of manifests with the objects to describe."),
            Flag::bool(
                "show-events",
                "Show the events of each object; if not set, they are left out when there are several objects or names \
                 are matched by prefix.",
            )
            .default("true"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.args.is_empty() && invocation.list("filename").is_empty() && invocation.text("kustomize").is_empty() {
        return Err(Failure::new(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of \
             supported resources.",
        ));
    }
    let namespace = context.namespace()?;
    let found = Builder::new(context)
        .namespace(&namespace)
        .all_namespaces(invocation.bool("all-namespaces"))
        .filenames(invocation)
        .selector(invocation.text("selector"))
        .types_or_names(true, &invocation.args)
        .chunk_size(invocation.int("chunk-size"))
        .found()
        .await?;
    let several = !found.failures.is_empty() || found.infos.len() > 1;
    let settings = Settings {
        show_events: if several && !invocation.is_set("show-events") { false } else { invocation.bool("show-events") },
        chunk_size: invocation.int("chunk-size").try_into().unwrap_or(0),
    };
    if let ([failure], [resource, prefix]) = (found.failures.as_slice(), invocation.args.as_slice())
        && failure.is_not_found()
    {
        return describe_prefix(context, failure.clone(), resource, prefix, settings).await;
    }
    if found.infos.is_empty() && found.failures.is_empty() {
        match invocation.bool("all-namespaces") {
            true => writeln!(context.err(), "No resources found")?,
            false => writeln!(context.err(), "No resources found in {} namespace.", namespace.name)?,
        }
    }
    describe_all(context, found.infos, found.failures, settings).await
}

async fn describe_all(
    context: &Context,
    infos: Vec<Info>,
    mut failures: Vec<Failure>,
    settings: Settings,
) -> Result<(), Failure> {
    let mut first = true;
    for info in infos {
        match describe(context, &info, settings).await {
            Ok(text) => {
                write!(context.out(), "{}{text}", if first { "" } else { "\n\n" })?;
                first = false;
            }
            Err(failure) if failures.iter().any(|have| have.message == failure.message) => {}
            Err(failure) => failures.push(failure),
        }
    }
    Failure::all(failures)
}

/// Describes the objects whose name has a prefix, after no object had it as its name.
async fn describe_prefix(
    context: &Context,
    missing: Failure,
    resource: &str,
    prefix: &str,
    settings: Settings,
) -> Result<(), Failure> {
    let infos = Builder::new(context)
        .namespace(&context.namespace()?)
        .types_or_names(true, &[resource.to_owned()])
        .single_type()
        .chunk_size(settings.chunk_size.into())
        .infos()
        .await?;
    let mut found = false;
    for info in infos.iter().filter(|info| info.name.starts_with(prefix)) {
        found = true;
        let text = describe(context, info, settings).await?;
        writeln!(context.out(), "{text}")?;
    }
    if found { Ok(()) } else { Err(missing) }
}

async fn describe(context: &Context, info: &Info, settings: Settings) -> Result<String, Failure> {
    let name = (info.namespace.as_str(), info.name.as_str());
    let text = describe::describe(&context.client()?, &info.mapping.resource, name, settings, &Clock::system()).await;
    text.map_err(|error| match error {
        describe::Error::Client(error) => error.into(),
        describe::Error::Object(message) => Failure::new(message),
    })
}
