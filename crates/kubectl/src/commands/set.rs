//! `kubectl set`: changes specific fields of objects.

mod change;
mod env;
mod image;
mod resources;
mod selector;
mod serviceaccount;
mod subject;

use crate::command::{Command, Group};

pub static COMMAND: Command = Command {
    name: "set",
    group: Group::BasicBeginner,
    summary: "Set specific features on objects",
    description: "Configure application resources.

 These commands help you make changes to existing application resources.",
    usage: "kubectl set SUBCOMMAND [options]",
    commands: &[
        &env::COMMAND,
        &image::COMMAND,
        &resources::COMMAND,
        &selector::COMMAND,
        &serviceaccount::COMMAND,
        &subject::COMMAND,
    ],

    ..Command::EMPTY
};
