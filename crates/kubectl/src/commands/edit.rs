//! `kubectl edit`: changes objects in an editor.

mod editor;
mod session;
mod text;

use apimachinery::json;

use self::session::{Mode, Session};
use crate::changes::RECORD;
use crate::command::{Command, Flag, Group};
use crate::generate::last_applied;
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "edit",
    group: Group::BasicIntermediate,
    summary: "Edit objects in an editor",
    description: "Open objects of the server in the editor of KUBE_EDITOR or EDITOR (default: vi), and store the \
        changes when it exits. Name a type as TYPE.VERSION.GROUP to edit a specific API version. If the server \
        rejects a change, your text stays in a temporary file.",
    examples: "  # Edit a deployment
  kubectl edit deployment/web

  # Edit a service as JSON in another editor
  KUBE_EDITOR='code --wait' kubectl edit service/db -o json

  # Edit a cron job in a specific API version
  kubectl edit cronjobs.v1.batch/worker

  # Edit the status of a deployment, and print the patch
  kubectl edit deployment/web --subresource=status --output-patch",
    usage: "kubectl edit (RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[
        flags::SAVE_CONFIG,
        RECORD,
        flags::OUTPUT,
        flags::VALIDATE,
        flags::DIRECTORY,
        &[
            flags::field_manager("kubectl-edit"),
            flags::filename("Files, directories, or URLs that identify the objects to edit."),
            Flag::bool("output-patch", "Print the patch that was sent."),
            Flag::text("subresource", "", "Subresource to edit instead of the object itself."),
            Flag::bool("windows-line-endings", "Edit with Windows line endings (CRLF)."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let session = Session::new(context, invocation, Mode::Normal)?;
    let builder = Builder::new(context)
        .types_or_names(true, &invocation.args)
        .latest()
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .subresource(invocation.text("subresource"));
    let infos = builder.infos().await?;
    if infos.is_empty() {
        return Err(Failure::new("edit cancelled, no objects found"));
    }
    session.edit(infos).await
}

/// Edits objects of files before they are created: `kubectl create --edit`.
pub(super) async fn before_create(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let builder = Builder::new(context).namespace(&context.namespace()?).filenames(invocation);
    let Found { infos, mut failures, .. } = builder.found().await?;
    for info in infos {
        let session = Session::new(context, invocation, Mode::BeforeCreate)?;
        if let Err(failure) = session.edit(vec![info]).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

/// Edits the last applied configurations of objects: `kubectl apply edit-last-applied`.
pub(super) async fn last_applied(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let session = Session::new(context, invocation, Mode::LastApplied)?;
    let builder = Builder::new(context)
        .types_or_names(true, &invocation.args)
        .latest()
        .namespace(&context.namespace()?)
        .filenames(invocation);
    let mut annotated = Vec::new();
    for info in builder.infos().await? {
        let Some(text) = last_applied::original(&info.object) else { continue };
        let object = json::parse(text.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
        annotated.push(Info { object, ..info });
    }
    if annotated.is_empty() {
        return Err(Failure::new(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command \
             `kubectl apply set-last-applied --create-annotation`",
        ));
    }
    session.edit(annotated).await
}
