//! `kubectl config`: shows and changes kubeconfig files.

mod credentials;
mod delete;
mod entries;
mod get;
mod properties;
mod view;

use std::io::Write;

use crate::command::Command;
use crate::{Context, Failure, Invocation, commands, help};

pub static COMMAND: Command = Command {
    name: "config",
    summary: "Modify kubeconfig files",
    description: r#"Modify kubeconfig files using subcommands like "kubectl config set current-context my-context".

 The loading order follows these rules:

  1.  If the --kubeconfig flag is set, then only that file is loaded. The flag may only be set once and no merging takes place.
  2.  If $KUBECONFIG environment variable is set, then it is used as a list of paths (normal path delimiting rules for your system). These paths are merged. When a value is modified, it is modified in the file that defines the stanza. When a value is created, it is created in the first file that exists. If no files in the chain exist, then it creates the last file in the list.
  3.  Otherwise, ${HOME}/.kube/config is used and no merging takes place."#,
    usage: "kubectl config SUBCOMMAND [options]",
    commands: &[
        &get::CURRENT_CONTEXT,
        &delete::DELETE_CLUSTER,
        &delete::DELETE_CONTEXT,
        &delete::DELETE_USER,
        &get::GET_CLUSTERS,
        &get::GET_CONTEXTS,
        &get::GET_USERS,
        &entries::RENAME_CONTEXT,
        &properties::SET,
        &entries::SET_CLUSTER,
        &entries::SET_CONTEXT,
        &credentials::SET_CREDENTIALS,
        &properties::UNSET,
        &entries::USE_CONTEXT,
        &view::VIEW,
    ],
    ..Command::EMPTY
};

/// Prints the help, and returns a failure.
fn help_failure(context: &Context, invocation: &Invocation, message: String) -> Failure {
    match print_help(context, invocation) {
        Ok(()) => Failure::new(message),
        Err(failure) => failure,
    }
}

fn print_help(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let text = help::help(&commands::path(&invocation.path), &[]);
    context.out().write_all(text.as_bytes())?;
    Ok(())
}
