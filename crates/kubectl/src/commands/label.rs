//! `kubectl label`: changes the labels of objects.

use std::io::Write;

use apimachinery::{Value, go, names};

use super::metadata::{self, Arguments, Changes, Effect, Kind};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag, Group};
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "label",
    group: Group::Settings,
    summary: "Update the labels on a resource",
    description: "Update the labels on a resource.

  *  A label key and value must begin with a letter or number, and may contain letters, numbers, hyphens, dots, and underscores, up to 63 characters each.
  *  Optionally, the key can begin with a DNS subdomain prefix and a single '/', like example.com/my-app.
  *  If --overwrite is true, then existing labels can be overwritten, otherwise attempting to overwrite a label will result in an error.
  *  If --resource-version is specified, then updates will use this resource version, otherwise the existing resource-version will be used.",
    examples: r#"  # Update pod 'foo' with the label 'unhealthy' and the value 'true'
  kubectl label pods foo unhealthy=true

  # Update pod 'foo' with the label 'status' and the value 'unhealthy', overwriting any existing value
  kubectl label --overwrite pods foo status=unhealthy

  # Update all pods in the namespace
  kubectl label pods --all status=unhealthy

  # Update a pod identified by the type and name in "pod.json"
  kubectl label -f pod.json status=unhealthy

  # Update pod 'foo' only if the resource is unchanged from version 1
  kubectl label pods foo status=unhealthy --resource-version=1

  # Update pod 'foo' by removing a label named 'bar' if it exists
  # Does not require the --overwrite flag
  kubectl label pods foo bar-"#,
    usage: "kubectl label [--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
    flags: &[RECORD, flags::OUTPUT, flags::DRY_RUN, flags::SELECTOR, flags::FIELD_SELECTOR, flags::DIRECTORY, &[
    Flag::bool("all", "Select all resources, in the namespace of the specified resource types"),
    Flag::bool("all-namespaces", "If true, check the specified action in all namespaces.").short('A'),
    flags::field_manager("kubectl-label"),
    flags::filename("Filename, directory, or URL to files identifying the resource to update the labels"),
    Flag::bool("list", "If true, display the labels for a given resource."),
    Flag::bool("local", "If true, label will NOT contact api-server but run locally."),
    Flag::bool("overwrite", "If true, allow labels to be overwritten, otherwise reject label updates that overwrite existing labels."),
    Flag::text("resource-version", "", "If non-empty, the labels update will only succeed if this is the current resource-version for the object. Only valid when specifying a single resource."),
]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let arguments = Arguments::split(Kind::Labels, &invocation.args)?;
    let changes = parse(&arguments.changes)?;
    let mut results = metadata::results(context, invocation, dry_run)?;
    let found = metadata::find(context, invocation, Kind::Labels, &arguments, &changes).await?;
    let mut failures = found.failures;
    for info in &found.infos {
        let done = match change(context, invocation, info, &changes, dry_run).await {
            Ok((object, _)) if invocation.bool("list") => {
                metadata::list(context, Kind::Labels, info, &object, found.single)
            }
            Ok((object, effect)) => results.print(&object, message(effect)),
            Err(failure) => Err(failure),
        };
        failures.extend(done.err());
    }
    Failure::all(failures)
}

async fn change(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    changes: &Changes,
    dry_run: DryRun,
) -> Result<(Value, Effect), Failure> {
    let is_local = dry_run == DryRun::Client || invocation.bool("local") || invocation.bool("list");
    if !is_local {
        for key in &changes.removed {
            if info.object.str_at(&["metadata", "labels", key]).is_none() {
                writeln!(context.out(), "label {} not found.", go::quote(key))?;
            }
        }
    }
    if !invocation.bool("overwrite") {
        let overwritten = changes.overwritten(&info.object, Kind::Labels);
        let failures = overwritten
            .into_iter()
            .map(|(key, old)| Failure::new(format!("'{key}' already has a value ({old}), and --overwrite is false")));
        Failure::all(failures.collect())?;
    }
    let mut object = info.object.clone();
    let effect = changes.apply(&mut object, Kind::Labels);
    metadata::record_command(invocation, &mut object);
    if !is_local && effect != Effect::default() {
        let patch = metadata::patch(invocation, &info.object, &mut object);
        metadata::send(context, invocation, info, &patch, dry_run).await?;
    }
    Ok((object, effect))
}

const fn message(effect: Effect) -> &'static str {
    match (effect.added, effect.removed) {
        (true, true) => "modified",
        (true, false) => "labeled",
        (false, true) => "unlabeled",
        (false, false) => "not labeled",
    }
}

fn parse(texts: &[String]) -> Result<Changes, Failure> {
    let mut changes = Changes::default();
    for text in texts {
        if !text.contains('=') {
            changes.removed.push(text.trim_end_matches('-').to_owned());
            continue;
        }
        let parts: Vec<&str> = text.split('=').collect();
        let [key, value] = parts.as_slice() else {
            return Err(Failure::new(format!("invalid label spec: {text}")));
        };
        let problems = names::label_value(value);
        if !problems.is_empty() {
            let problem = format!("invalid label value: {}: {}", go::quote(text), problems.join(";"));
            return Err(Failure::new(problem));
        }
        changes.new.insert((*key).to_owned(), (*value).to_owned());
    }
    match changes.removed.iter().any(|key| changes.new.contains_key(key)) {
        true => Err(Failure::new("can not both modify and remove a label in the same command")),
        false => Ok(changes),
    }
}
