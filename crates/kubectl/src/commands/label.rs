//! `kubectl label`: changes the labels of objects.

use std::io::Write;

use apimachinery::{Value, go, names};

use super::metadata::{self, Arguments, Changes, Effect, Kind};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag, Group};
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "label",
    group: Group::Settings,
    summary: "Add, change, or remove labels",
    description: "Set labels with KEY=VALUE, and remove them with KEY-. Keys and values have at most 63 letters, \
        digits, hyphens, dots, and underscores, and start with a letter or digit; a key can have a DNS prefix, as in \
        example.com/tier. A label that has another value already is changed only with --overwrite.",
    examples: "  # Add two labels to a deployment
  kubectl label deployment web tier=front track=stable

  # Change one label and remove another
  kubectl label deployment web --overwrite track=canary tier-

  # Label all persistent volume claims in a namespace
  kubectl label pvc --all backup=daily -n data

  # Label an object only if nobody changed it
  kubectl label node worker-2 disk=ssd --resource-version=4711

  # Print the labels of a node
  kubectl label node worker-2 --list",
    usage: "kubectl label [--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
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
            flags::field_manager("kubectl-label"),
            flags::filename("Files, directories, or URLs that identify the objects to change."),
            Flag::bool("list", "Print the labels of the objects."),
            Flag::bool("local", "Change the contents of the files and print them, without contacting the server."),
            Flag::bool("overwrite", "Replace labels that have another value already, instead of failing."),
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
