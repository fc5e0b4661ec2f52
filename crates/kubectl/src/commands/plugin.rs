//! `kubectl plugin`: the plugins on `PATH`.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::command::{Command, Flag};
use crate::{Context, Failure, Invocation, commands, plugins};

pub(super) static COMMAND: Command = Command {
    name: "plugin",
    summary: "Work with plugins",
    description: "Work with plugins: programs on your PATH whose names start with \"kubectl-\" and that add commands \
        to kubectl. Krew (https://krew.sigs.k8s.io) finds and installs plugins.",
    examples: "  # Show the plugins with their paths
  kubectl plugin list

  # Run the program kubectl-hello as a command
  kubectl hello",
    usage: "kubectl plugin [flags] [options]",
    commands: &[&LIST],
    ..Command::EMPTY
};

static LIST: Command = Command {
    name: "list",
    summary: "List the plugins on your PATH",
    description: "List the files on your PATH whose names start with \"kubectl-\". Files that cannot be \
        run, or that another command or plugin hides, are listed with a warning.",
    examples: "  # Show the plugins with their paths
  kubectl plugin list

  # Show the file names only
  kubectl plugin list --name-only",
    usage: "kubectl plugin list [flags] [options]",
    flags: &[&[Flag::bool("name-only", "Print file names without directories.")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    for directory in plugins::directories() {
        if let Err(error) = std::fs::read_dir(&directory) {
            let (directory, error) = (directory.display(), crate::failure::go_io_error(&error));
            writeln!(
                context.err(),
                "Unable to read directory \"{directory}\" from your PATH: open {directory}: {error}. Skipping..."
            )?;
        }
    }
    let files = plugins::files();
    let mut problems: Vec<String> = Vec::new();
    let mut warnings = 0;
    if files.is_empty() {
        problems.push("error: unable to find any kubectl plugins in your PATH".to_owned());
    } else {
        writeln!(context.out(), "The following compatible plugins are available:\n")?;
    }
    for (at, file) in files.iter().enumerate() {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if invocation.bool("name-only") {
            writeln!(context.out(), "{name}")?;
        } else {
            writeln!(context.out(), "{}", file.display())?;
        }
        for warning in verify(file, &name, &files[..at]) {
            writeln!(context.err(), "  - {warning}")?;
            warnings += 1;
        }
    }
    match warnings {
        0 => {}
        1 => problems.push("error: one plugin warning was found".to_owned()),
        count => problems.push(format!("error: {count} plugin warnings were found")),
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(problems.join("\n"))) }
}

fn verify(file: &Path, name: &str, before: &[PathBuf]) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = file.display();
    if !plugins::is_executable(file) {
        warnings.push(format!("warning: {path} identified as a kubectl plugin, but it is not executable"));
    }
    if let Some(first) = before.iter().find(|other| other.file_name() == file.file_name()) {
        let first = first.display();
        warnings.push(format!("warning: {path} is overshadowed by a similarly named plugin: {first}"));
    }
    let words: Vec<&str> = name.split('-').collect();
    let path = commands::path(&words);
    if path.len() > 1 {
        let names: Vec<&str> = path.iter().map(|command| command.name).collect();
        warnings.push(format!("warning: {name} overwrites existing command: {:?}", names.join(" ")));
    }
    warnings
}
