//! `kubectl set`: changes specific fields of objects.

mod change;
mod env;
mod image;
mod resources;
mod selector;
mod serviceaccount;
mod subject;

use crate::command::{Command, Group};

pub(super) static COMMAND: Command = Command {
    name: "set",
    group: Group::BasicBeginner,
    summary: "Change specific fields of objects",
    description: "Change one aspect of existing objects, such as the images or environment variables of their \
                  containers.",
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
