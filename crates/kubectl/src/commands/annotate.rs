//! `kubectl annotate`: changes the annotations of objects.

use apimachinery::Value;

use super::metadata::{self, Arguments, Changes, Kind};
use crate::changes::{DryRun, RECORD};
use crate::command::{Command, Flag, Group};
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "annotate",
    group: Group::Settings,
    summary: "Update the annotations on a resource",
    description: r#"Update the annotations on one or more resources.

 All Kubernetes objects support the ability to store additional data with the object as annotations. Annotations are key/value pairs that can be larger than labels and include arbitrary string values such as structured JSON. Tools and system extensions may use annotations to store their own data.

 Attempting to set an annotation that already exists will fail unless --overwrite is set. If --resource-version is specified and does not match the current resource version on the server the command will fail.

Use "kubectl api-resources" for a complete list of supported resources."#,
    examples: r#"  # Update pod 'foo' with the annotation 'description' and the value 'my frontend'
  # If the same annotation is set multiple times, only the last value will be applied
  kubectl annotate pods foo description='my frontend'

  # Update a pod identified by type and name in "pod.json"
  kubectl annotate -f pod.json description='my frontend'

  # Update pod 'foo' with the annotation 'description' and the value 'my frontend running nginx', overwriting any existing value
  kubectl annotate --overwrite pods foo description='my frontend running nginx'

  # Update all pods in the namespace
  kubectl annotate pods --all description='my frontend running nginx'

  # Update pod 'foo' only if the resource is unchanged from version 1
  kubectl annotate pods foo description='my frontend running nginx' --resource-version=1

  # Update pod 'foo' by removing an annotation named 'description' if it exists
  # Does not require the --overwrite flag
  kubectl annotate pods foo description-"#,
    usage: "kubectl annotate [--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::FIELD_SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Select all resources, in the namespace of the specified resource types."),
            Flag::bool("all-namespaces", "If true, check the specified action in all namespaces.").short('A'),
            flags::field_manager("kubectl-annotate"),
            flags::filename("Filename, directory, or URL to files identifying the resource to update the annotation"),
            Flag::bool("list", "If true, display the annotations for a given resource."),
            Flag::bool("local", "If true, annotation will NOT contact api-server but run locally."),
            Flag::bool(
                "overwrite",
                "If true, allow annotations to be overwritten, otherwise reject annotation updates that overwrite existing annotations.",
            ),
            Flag::text(
                "resource-version",
                "",
                "If non-empty, the annotation update will only succeed if this is the current resource-version for the object. Only valid when specifying a single resource.",
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
        let shown: Vec<_> = overwritten
            .into_iter()
            .filter(|(key, _)| *key != CHANGE_CAUSE)
            .map(|(key, old)| format!("'{key}' already has a value ({old})"))
            .collect();
        if !shown.is_empty() {
            let problem = "--overwrite is false but found the following declared annotation(s)";
            return Err(Failure::new(format!("{problem}: {}", shown.join("; "))));
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
