//! `kubectl set selector`.

use apimachinery::Value;

use super::change::{Change, Edited};
use crate::changes::RECORD;
use crate::command::{Command, Flag};
use crate::generate::{labels, set};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "selector",
    summary: "Set the selector on a resource",
    description: "Set the selector on a resource. Note that the new selector will overwrite the old selector if the resource had one prior to the invocation of 'set selector'.

 A selector must begin with a letter or number, and may contain letters, numbers, hyphens, dots, and underscores, up to 63 characters. If --resource-version is specified, then updates will use this resource version, otherwise the existing resource-version will be used. Note: currently selectors can only be set on Service objects.",
    examples: r#"  # Set the labels and selector before creating a deployment/service pair
  kubectl create service clusterip my-svc --clusterip="None" -o yaml --dry-run=client | kubectl set selector --local -f - 'environment=qa' -o yaml | kubectl create -f -
  kubectl create deployment my-dep --image=nginx -o yaml --dry-run=client | kubectl label --local -f - environment=qa -o yaml | kubectl create -f -"#,
    usage: "kubectl set selector (-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version] [options]",
    flags: &[RECORD, flags::OUTPUT, flags::DRY_RUN, &[
        Flag::bool("all", "Select all resources in the namespace of the specified resource types"),
        flags::field_manager("kubectl-set"),
        flags::filename("identifying the resource."),
        Flag::bool("local", "If true, annotation will NOT contact api-server but run locally."),
        Flag::bool("recursive", "Process the directory used in -f, --filename recursively. Useful when you want to manage related manifests organized within the same directory.").default("true").short('R'),
        Flag::text("resource-version", "", "If non-empty, the selectors update will only succeed if this is the current resource-version for the object. Only valid when specifying a single resource."),
    ]],
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
            Ok(Edited::Yes)
        };
        let patched = change.apply(info, edit, "").await;
        change.keep(patched);
    }
    change.done()
}
