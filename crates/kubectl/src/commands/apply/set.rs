//! `kubectl apply set-last-applied`: sets the last-applied annotation to the contents of files.

use client::{Patch, WriteOptions};

use super::describe;
use crate::changes::{DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::generate::last_applied;
use crate::resources::Builder;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "set-last-applied",
    summary: "Set the last applied configuration from a file",
    description: "Store the contents of files as the last applied configuration of the objects on the server. Only \
        the annotation changes, not the rest of the object.",
    examples: "  # Record a manifest as applied
  kubectl apply set-last-applied -f web.yaml

  # Record it for an object that was never applied
  kubectl apply set-last-applied -f db.yaml --create-annotation

  # Show the result without storing it
  kubectl apply set-last-applied -f web.yaml --dry-run=client -o yaml",
    usage: "kubectl apply set-last-applied -f FILENAME [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        &[
            Flag::bool("create-annotation", "Add the annotation to objects that lack it, instead of failing."),
            flags::filename("Files, directories, or URLs with the configuration to record."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let mut results = Results::new(context, invocation, dry_run, Form::Untyped)?;
    let client = context.client()?;
    let infos = Builder::new(context).namespace(&context.namespace()?).filenames(invocation).infos().await?;
    let mut changed = Vec::new();
    for mut info in infos {
        let text = last_applied::encode(&info.object);
        if let Err(failure) = info.fetch(&client, "").await {
            if failure.is_not_found() {
                return Err(failure);
            }
            let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", describe(&info));
            return Err(failure.when(&verb, &info.source));
        }
        let original = last_applied::original(&info.object);
        if original.is_none() && !invocation.bool("create-annotation") {
            return Err(Failure::new(format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command with --create-annotation",
                info.name
            )));
        }
        if original.is_some_and(|original| original.trim_end() == text.trim_end()) {
            results.write(&format!("set-last-applied {}: no changes required.\n", info.name))?;
        } else {
            changed.push((info, text));
        }
    }
    let options = WriteOptions { dry_run: dry_run == DryRun::Server, ..WriteOptions::default() };
    for (info, text) in changed {
        let object = match dry_run {
            DryRun::Client => info.object,
            DryRun::None | DryRun::Server => {
                client.patch(&info.target(), &Patch::Merge(last_applied::patch(text)), &options).await?
            }
        };
        results.print(&object, "configured")?;
    }
    Ok(())
}
