//! `kubectl completion`: scripts that let a shell complete command lines with `kubectl __complete`.

use std::io::Write;

use crate::command::{Command, Group};
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "completion",
    group: Group::Settings,
    summary: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    description: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell). The shell code must be evaluated to provide interactive completion of kubectl commands.  This can be done by sourcing it from the .bash_profile.

 Detailed instructions on how to do this are available here:

        for macOS:
        https://kubernetes.io/docs/tasks/tools/install-kubectl-macos/#enable-shell-autocompletion
        
        for linux:
        https://kubernetes.io/docs/tasks/tools/install-kubectl-linux/#enable-shell-autocompletion
        
        for windows:
        https://kubernetes.io/docs/tasks/tools/install-kubectl-windows/#enable-shell-autocompletion
        
 Note for zsh users: [1] zsh completions are only supported in versions of zsh >= 5.2.",
    examples: r#"  # Installing bash completion on macOS using homebrew
  ## If running Bash 3.2 included with macOS
  brew install bash-completion
  ## or, if running Bash 4.1+
  brew install bash-completion@2
  ## If kubectl is installed via homebrew, this should start working immediately
  ## If you've installed via other means, you may need add the completion to your completion directory
  kubectl completion bash > $(brew --prefix)/etc/bash_completion.d/kubectl

  
  # Installing bash completion on Linux
  ## If bash-completion is not installed on Linux, install the 'bash-completion' package
  ## via your distribution's package manager.
  ## Load the kubectl completion code for bash into the current shell
  source <(kubectl completion bash)
  ## Write bash completion code to a file and source it from .bash_profile
  kubectl completion bash > ~/.kube/completion.bash.inc
  printf "
  # kubectl shell completion
  source '$HOME/.kube/completion.bash.inc'
  " >> $HOME/.bash_profile
  source $HOME/.bash_profile

  # Load the kubectl completion code for zsh[1] into the current shell
  source <(kubectl completion zsh)
  # Set the kubectl completion code for zsh[1] to autoload on startup
  kubectl completion zsh > "${fpath[1]}/_kubectl"

  
  # Load the kubectl completion code for fish[2] into the current shell
  kubectl completion fish | source
  # To load completions for each session, execute once:
  kubectl completion fish > ~/.config/fish/completions/kubectl.fish

  # Load the kubectl completion code for powershell into the current shell
  kubectl completion powershell | Out-String | Invoke-Expression
  # Set kubectl completion code for powershell to run on startup
  ## Save completion code to a script and execute in the profile
  kubectl completion powershell > "$HOME\.kube\completion.ps1"
  Add-Content $PROFILE ". '$HOME\.kube\completion.ps1'"
  ## Execute completion code in the profile
  Add-Content $PROFILE "if (Get-Command kubectl -ErrorAction SilentlyContinue) {
  kubectl completion powershell | Out-String | Invoke-Expression
  }"
  ## Add completion code directly to the $PROFILE script
  kubectl completion powershell >> $PROFILE"#,
    usage: "kubectl completion SHELL [options]",
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

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
    match SCRIPTS.iter().find(|(name, _)| *name == shell) {
        Some((_, script)) => Ok(context.out().write_all(script.as_bytes())?),
        None => Err(usage(format!("Unsupported shell type {shell:?}."))),
    }
}
