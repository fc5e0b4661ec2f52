//! `kubectl completion`: scripts with which a shell completes command lines by `kubectl __complete`.

use std::io::Write;

use crate::command::{Command, Group};
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "completion",
    group: Group::Settings,
    summary: "Print a completion script for a shell",
    description: "Print a script that lets bash, zsh, or fish complete kubectl command lines. Load it in the current \
        shell, or install it where the shell looks for completions.",
    examples: "  # Complete in the current bash, which needs the package bash-completion
  source <(kubectl completion bash)

  # Complete in every bash
  kubectl completion bash > ~/.local/share/bash-completion/completions/kubectl

  # Complete in the current zsh
  source <(kubectl completion zsh)

  # Complete in every fish
  kubectl completion fish > ~/.config/fish/completions/kubectl.fish",
    usage: "kubectl completion SHELL [options]",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The shells with a script.
pub const SHELLS: [&str; 3] = [SCRIPTS[0].0, SCRIPTS[1].0, SCRIPTS[2].0];

// DEVIATION: the scripts are shorter than kubectl's; both work with `__complete` of either kubectl.
const SCRIPTS: [(&str, &str); 3] = [
    ("bash", include_str!("completion/kubectl.bash")),
    ("zsh", include_str!("completion/kubectl.zsh")),
    ("fish", include_str!("completion/kubectl.fish")),
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let usage = |message: String| Failure::usage(&invocation.name(), message);
    let shell = match invocation.args.as_slice() {
        [] => return Err(usage("Shell not specified.".to_owned())),
        [shell] => shell.as_str(),
        _ => return Err(usage("Too many arguments. Expected only the shell type.".to_owned())),
    };
    // DEVIATION: there is no completion for PowerShell.
    match script(shell, "kubectl") {
        Some(script) => Ok(context.out().write_all(script.as_bytes())?),
        None => Err(usage(format!("Unsupported shell type {shell:?}."))),
    }
}

/// Returns the script with which a shell completes a program by its command `__complete`.
pub fn script(shell: &str, program: &str) -> Option<String> {
    let (_, script) = SCRIPTS.iter().find(|(name, _)| *name == shell)?;
    Some(script.replace("kubectl", program))
}
