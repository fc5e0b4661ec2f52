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

pub static COMMAND: Command = Command {
    name: "edit",
    group: Group::BasicIntermediate,
    summary: "Edit a resource on the server",
    description: r#"Edit a resource from the default editor.

 The edit command allows you to directly edit any API resource you can retrieve via the command-line tools. It will open the editor defined by your KUBE_EDITOR, or EDITOR environment variables, or fall back to 'vi' for Linux or 'notepad' for Windows. When attempting to open the editor, it will first attempt to use the shell that has been defined in the 'SHELL' environment variable. If this is not defined, the default shell will be used, which is '/bin/bash' for Linux or 'cmd' for Windows.

 You can edit multiple objects, although changes are applied one at a time. The command accepts file names as well as command-line arguments, although the files you point to must be previously saved versions of resources.

 Editing is done with the API version used to fetch the resource. To edit using a specific API version, fully-qualify the resource, version, and group.

 The default format is YAML. To edit in JSON, specify "-o json".

 The flag --windows-line-endings can be used to force Windows line endings, otherwise the default for your operating system will be used.

 In the event an error occurs while updating, a temporary file will be created on disk that contains your unapplied changes. The most common error when updating a resource is another editor changing the resource on the server. When this occurs, you will have to apply your changes to the newer version of the resource, or update your temporary saved copy to include the latest resource version."#,
    examples: r#"  # Edit the service named 'registry'
  kubectl edit svc/registry
  
  # Use an alternative editor
  KUBE_EDITOR="nano" kubectl edit svc/registry
  
  # Edit the job 'myjob' in JSON using the v1 API format
  kubectl edit job.v1.batch/myjob -o json
  
  # Edit the deployment 'mydeployment' in YAML and save the modified config in its annotation
  kubectl edit deployment/mydeployment -o yaml --save-config
  
  # Edit the 'status' subresource for the 'mydeployment' deployment
  kubectl edit deployment mydeployment --subresource='status'"#,
    usage: "kubectl edit (RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[
        flags::SAVE_CONFIG,
        RECORD,
        flags::OUTPUT,
        flags::VALIDATE,
        flags::DIRECTORY,
        &[
            flags::field_manager("kubectl-edit"),
            flags::filename("Filename, directory, or URL to files to use to edit the resource"),
            Flag::bool("output-patch", "Output the patch if the resource is edited."),
            Flag::text(
                "subresource",
                "",
                "If specified, edit will operate on the subresource of the requested object.",
            ),
            Flag::bool("windows-line-endings", "Defaults to the line ending native to your platform."),
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
pub async fn before_create(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
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
pub async fn last_applied(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let session = Session::new(context, invocation, Mode::LastApplied)?;
    let builder = Builder::new(context)
        .types_or_names(true, &invocation.args)
        .latest()
        .namespace(&context.namespace()?)
        .filenames(invocation);
    let mut annotated = Vec::new();
    for info in builder.infos().await? {
        let Some(text) = info.object.str_at(&["metadata", "annotations", last_applied::ANNOTATION]) else { continue };
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
