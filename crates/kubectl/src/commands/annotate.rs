//! `kubectl annotate`: changes the annotations of objects.

use apimachinery::Value;

use super::metadata::{self, Arguments, Changes, Kind};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag, Group};
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "annotate",
    group: Group::Settings,
    summary: "Add, change, or remove annotations",
    description: "Set annotations with KEY=VALUE, and remove them with KEY-. Values are arbitrary strings, so \
        annotations suit data that selectors do not need. An annotation that has another value already is changed \
        only with --overwrite.",
    examples: "  # Add an annotation to a deployment
  kubectl annotate deployment web owner='team storefront'

  # Change one annotation and remove another
  kubectl annotate deployment web --overwrite owner=platform note-

  # Annotate all pods with a label in every namespace
  kubectl annotate pods -A -l app=worker checked=yes

  # Annotate an object only if nobody changed it
  kubectl annotate pvc db-data keep=true --resource-version=4711

  # Print the annotations of a service
  kubectl annotate service db --list",
    usage: "kubectl annotate [--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::FIELD_SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Select all objects of the given types in the namespace."),
            Flag::bool("all-namespaces", "Select objects in all namespaces instead of one.").short('A'),
            flags::field_manager("kubectl-annotate"),
            flags::filename("Files, directories, or URLs that identify the objects to change."),
            Flag::bool("list", "Print the annotations of the objects."),
            Flag::bool("local", "Change the contents of the files and print them, without contacting the server."),
            Flag::bool("overwrite", "Replace annotations that have another value already, instead of failing."),
            Flag::text(
                "resource-version",
                "",
                "Change the object only if it has this resource version; requires a single object.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// This annotation can always be overwritten.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let mut results = metadata::results(context, invocation, dry_run)?;
    let arguments = Arguments::split(Kind::Annotations, &invocation.args)?;
    let changes = parse(&arguments.changes);
    let found = metadata::find(context, invocation, Kind::Annotations, &arguments, &changes).await?;
    let both: Vec<&str> =
        changes.removed.iter().filter(|key| changes.new.contains_key(*key)).map(String::as_str).collect();
    if !both.is_empty() {
        let problem = "can not both modify and remove the following annotation(s) in the same command";
        return Err(Failure::new(format!("{problem}: {}", both.join(", "))));
    }
    let mut failures = found.failures;
    for info in &found.infos {
        let done = match change(context, invocation, info, &changes, dry_run).await {
            Ok(object) if invocation.bool("list") => {
                metadata::list(context, Kind::Annotations, info, &object, found.single)
            }
            Ok(object) => results.print(&object, "annotated"),
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
) -> Result<Value, Failure> {
    if !invocation.bool("overwrite") {
        let overwritten = changes.overwritten(&info.object, Kind::Annotations);
        let conflicts: Vec<_> = overwritten
            .into_iter()
            .filter(|(key, _)| *key != CHANGE_CAUSE)
            .map(|(key, old)| format!("'{key}' already has a value ({old})"))
            .collect();
        if !conflicts.is_empty() {
            let problem = "--overwrite is false but found the following declared annotation(s)";
            return Err(Failure::new(format!("{problem}: {}", conflicts.join("; "))));
        }
    }
    let mut object = info.object.clone();
    if dry_run == DryRun::Client || invocation.bool("local") || invocation.bool("list") {
        changes.apply(&mut object, Kind::Annotations);
        return Ok(object);
    }
    metadata::record_command(invocation, &mut object);
    changes.apply(&mut object, Kind::Annotations);
    let patch = metadata::patch(invocation, &info.object, &mut object);
    metadata::send(context, invocation, info, &patch, dry_run).await
}

fn parse(texts: &[String]) -> Changes {
    let mut changes = Changes::default();
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) => drop(changes.new.insert(key.to_owned(), value.to_owned())),
            None => changes.removed.push(text.strip_suffix('-').unwrap_or(text).to_owned()),
        }
    }
    changes
}
