//! `kubectl apply view-last-applied`: shows the configuration of the last apply.

use std::io::Write;

use apimachinery::{json, yaml};

use crate::command::{Command, Flag};
use crate::generate::last_applied;
use crate::resources::Builder;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "view-last-applied",
    summary: "Show the last applied configuration of objects",
    description: "Print the configuration that the last kubectl apply stored in the annotation of each object.",
    examples: "  # Show the last applied configuration of a deployment
  kubectl apply view-last-applied deployment/web

  # Show it as JSON for the objects in a file
  kubectl apply view-last-applied -f db.yaml -o json

  # Show it for all services with a label
  kubectl apply view-last-applied services -l tier=backend",
    usage: "kubectl apply view-last-applied (TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME) [options]",
    flags: &[
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Select all objects of the given types in the namespace."),
            flags::filename("Files, directories, or URLs that identify the objects to show."),
            Flag::text("output", "yaml", "Output format: yaml or json.").short('o'),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let namespace = context.namespace()?;
    let infos = Builder::new(context)
        .namespace(&namespace)
        .filenames(invocation)
        // As in kubectl, a type without names selects all objects if the namespace is given.
        .types_or_names(namespace.explicit, &invocation.args)
        .selector(invocation.text("selector"))
        .select_all(invocation.bool("all"))
        .latest()
        .infos()
        .await?;
    let mut texts = Vec::new();
    for info in &infos {
        let Some(text) = last_applied::original(&info.object) else {
            if info.source.is_empty() {
                continue;
            }
            return Err(Failure::new(format!(
                "error when no last-applied-configuration annotation found on resource: {}\n {:?}: <nil>",
                info.name, info.source
            )));
        };
        texts.push(text);
    }
    for text in texts {
        let value = json::parse(text.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
        let rendered = match invocation.text("output") {
            "json" => json::to_string_pretty(&value).replace("    ", "  ") + "\n",
            "yaml" => yaml::to_string(&value),
            other => {
                return Err(Failure::usage(
                    &invocation.name(),
                    format_args!("Unexpected -o output mode: {other}, the flag 'output' must be one of yaml|json"),
                ));
            }
        };
        context.out().write_all(rendered.as_bytes())?;
    }
    Ok(())
}
