//! `kubectl set selector`.

use apimachinery::Value;

use super::change::{Change, EditResult};
use crate::changes::RECORD;
use crate::command::{Command, Flag};
use crate::generate::{labels, set};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "selector",
    summary: "Replace the selector of a service",
    description: "Replace the selector of services; objects of other types have no selector that can be changed. A \
                  value has at most 63 letters, digits, hyphens, dots, and underscores, and starts with a letter or \
                  digit. With --resource-version, the change fails if the object has another version.",
    examples: "  # Direct a service to the pods of another release
  kubectl set selector service web app=web,release=green
  
  # Change the service only if it still has a certain version
  kubectl set selector service web app=web,release=green --resource-version=41720
  
  # Set the selector of a new service before it is created
  kubectl create service clusterip db --tcp=5432 --dry-run=client -o yaml |
    kubectl set selector --local -f - role=primary -o yaml |
    kubectl create -f -",
    usage: "kubectl set selector (-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        &[
            Flag::bool("all", "Change all objects of the given types in the namespace."),
            flags::field_manager("kubectl-set"),
            flags::filename("Files, directories, or URLs that contain the objects to change."),
            Flag::bool("local", "Change the objects in the files without contacting the API server."),
            Flag::bool("recursive", "Read the directories of --filename with all directories below them.")
                .default("true")
                .short('R'),
            Flag::text(
                "resource-version",
                "",
                "Version that the object must have for the change to succeed; only valid with a single object.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut change = Change::new(context, invocation)?;
    let Some((selector, resources)) = invocation.args.split_last() else {
        return Err(Failure::new("one selector is required"));
    };
    let selector = labels::selector(selector)?;
    let version = invocation.text("resource-version");
    for mut info in change.infos(resources).await? {
        if !version.is_empty() {
            // A version that is absent before the change is part of the patch.
            if let Some(metadata) = info.object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
        }
        let edit = |object: &mut Value| {
            if !version.is_empty()
                && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.insert("resourceVersion", version);
            }
            set::selector(object, &selector)?;
            Ok(EditResult::Always)
        };
        let patched = change.apply(info, edit, "").await;
        change.keep(patched);
    }
    change.done()
}
