//! `kubectl apply edit-last-applied`: edits the configuration of the last apply.

use crate::changes;
use crate::command::{Command, Flag};
use crate::commands::edit;
use crate::flags;

pub(super) static COMMAND: Command = Command {
    name: "edit-last-applied",
    summary: "Edit the last applied configuration in an editor",
    description: "Open the last applied configuration of objects in the editor of KUBE_EDITOR or EDITOR (default: \
        vi), and store the result in their annotation. The rest of each object stays unchanged.",
    examples: "  # Edit the last applied configuration of a deployment
  kubectl apply edit-last-applied deployment/web

  # Edit as JSON that of the objects in a file
  kubectl apply edit-last-applied -f db.yaml -o json",
    usage: "kubectl apply edit-last-applied (RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[
        flags::OUTPUT,
        flags::VALIDATE,
        flags::DIRECTORY,
        changes::RECORD,
        &[
            flags::filename("Files, directories, or URLs that identify the objects to edit."),
            flags::field_manager(super::CLIENT_SIDE),
            Flag::bool("windows-line-endings", "Edit with Windows line endings (CRLF)."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(edit::last_applied(context, invocation))),
    ..Command::EMPTY
};
