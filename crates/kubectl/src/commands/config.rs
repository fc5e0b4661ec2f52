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

pub(super) static COMMAND: Command = Command {
    name: "config",
    summary: "Show and edit kubeconfig files",
    description: "Show and edit kubeconfig files, which hold clusters, users, and contexts.\n\n\
        With --kubeconfig, only that file is used. Otherwise, the files listed in the environment variable \
        KUBECONFIG are merged: an entry is changed in the file that defines it, and a new entry goes into \
        the first existing file, or else into the last file listed. If neither is given, the file is \
        ${HOME}/.kube/config.",
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
    context.out().write_all(help::for_terminal(&text).as_bytes())?;
    Ok(())
}
