//! `kubectl apply edit-last-applied`: edits the configuration of the last apply.

use crate::changes;
use crate::command::{Command, Flag};
use crate::commands::edit;
use crate::flags;

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
    run: Some(|context, invocation| Box::pin(edit::last_applied(context, invocation))),
    ..Command::EMPTY
};
