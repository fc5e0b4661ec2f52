//! `kubectl apply edit-last-applied`: edits the configuration of the last apply.

use std::io::Write;
use std::process::Command as Process;

use client::{Patch, WriteOptions};
use apimachinery::{Value, json, yaml};

use super::set::annotation_patch;
use crate::apply::three_way;
use crate::changes;
use crate::changes::{DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "edit-last-applied",
    summary: "Edit latest last-applied-configuration annotations of a resource/object",
    description: "Edit the latest last-applied-configuration annotations of resources from the default editor.\n\n The edit-last-applied command allows you to directly edit any API resource you can retrieve via the command-line tools. It will open the editor defined by your KUBE_EDITOR, or EDITOR environment variables, or fall back to 'vi' for Linux or 'notepad' for Windows. You can edit multiple objects, although changes are applied one at a time. The command accepts file names as well as command-line arguments, although the files you point to must be previously saved versions of resources.\n\n The default format is YAML. To edit in JSON, specify \"-o json\".\n\n The flag --windows-line-endings can be used to force Windows line endings, otherwise the default for your operating system will be used.\n\n In the event an error occurs while updating, a temporary file will be created on disk that contains your unapplied changes. The most common error when updating a resource is another editor changing the resource on the server. When this occurs, you will have to apply your changes to the newer version of the resource, or update your temporary saved copy to include the latest resource version.",
    examples: "  # Edit the last-applied-configuration annotations by type/name in YAML\n  kubectl apply edit-last-applied deployment/nginx\n  \n  # Edit the last-applied-configuration annotations by file in JSON\n  kubectl apply edit-last-applied -f deploy.yaml -o json",
    usage: "kubectl apply edit-last-applied (RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[
        flags::OUTPUT,
        flags::VALIDATE,
        flags::DIRECTORY,
        changes::RECORD,
        &[
            flags::filename("Filename, directory, or URL to files to use to edit the resource"),
            flags::field_manager(super::CLIENT_SIDE),
            Flag::bool("windows-line-endings", "Defaults to the line ending native to your platform."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const HEADER: &str = "# Please edit the 'last-applied-configuration' annotations below.
# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.
#
";

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let infos = Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .types_or_names(true, &invocation.args)
        .latest()
        .infos()
        .await?;
    let parse = |info: Info| Some((json::parse(three_way::original(&info.object)?.as_bytes()).ok()?, info));
    let edited: Vec<(Value, Info)> = infos.into_iter().filter_map(parse).collect();
    if edited.is_empty() {
        return Err(Failure::new(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command `kubectl apply set-last-applied --create-annotation`",
        ));
    }
    for (configuration, info) in edited {
        edit(context, invocation, &configuration, &info).await?;
    }
    Ok(())
}

// DEVIATION: a configuration that is not valid after editing is not opened again; its file is kept.
async fn edit(context: &Context, invocation: &Invocation, before: &Value, info: &Info) -> Result<(), Failure> {
    let as_json = invocation.text("output") == "json";
    let shown = if as_json { json::to_string_pretty(before) + "\n" } else { yaml::to_string(before) };
    let suffix = if as_json { ".json" } else { ".yaml" };
    let mut file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(suffix).tempfile()?;
    file.write_all(format!("{HEADER}{shown}").as_bytes())?;
    file.flush()?;
    let path = file.path().to_owned();
    open_editor(&path)?;
    let text = std::fs::read_to_string(&path)?;
    let content: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    if content.trim().is_empty() {
        super::say(context, "Edit cancelled, saved file was empty.\n");
        return Ok(());
    }
    let keep = |problem: String, file: tempfile::NamedTempFile| {
        let kept = file.keep().map_or_else(|error| error.to_string(), |(_, path)| path.display().to_string());
        Failure::new(format!("{problem}\nA copy of your changes has been stored to \"{kept}\""))
    };
    let after = match yaml::parse(&content) {
        Ok(after) => after,
        Err(error) => return Err(keep(crate::failure::chain(&error), file)),
    };
    if after == *before {
        super::say(context, "Edit cancelled, no changes made.\n");
        return Ok(());
    }
    let patch = annotation_patch(three_way::encode(&after));
    let options =
        WriteOptions { field_manager: invocation.text("field-manager").to_owned(), ..WriteOptions::default() };
    let object = match context.client()?.patch(&info.target(), &Patch::Merge(patch), &options).await {
        Ok(object) => object,
        Err(error) => return Err(keep(Failure::from(error).to_string(), file)),
    };
    let message = format!("{} edited\n", info.display());
    match invocation.text("output") {
        "" | "json" => context.out().write_all(message.as_bytes())?,
        _ => Results::new(context, invocation, DryRun::None, Form::Untyped)?.print(&object, "edited")?,
    }
    Ok(())
}

fn open_editor(path: &std::path::Path) -> Result<(), Failure> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let editor = variable("KUBE_EDITOR").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let status = Process::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status()?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("there was a problem with the editor {editor:?}")))
}
