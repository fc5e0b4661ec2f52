//! The user's editor.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The variables that name the editor, the first of which takes precedence.
const VARIABLES: [&str; 2] = ["KUBE_EDITOR", "EDITOR"];
const DEFAULT_EDITOR: &str = "vi";
const DEFAULT_SHELL: &str = "/bin/bash";

/// A command that edits the file in its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Editor {
    args: Vec<String>,
    /// The last argument is a line of a shell, to which the file is appended.
    shell: bool,
}

impl Editor {
    /// Returns the editor of the environment.
    pub(super) fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let editor = VARIABLES.iter().find_map(|name| variable(name));
        let shell = variable("SHELL");
        Self::new(editor.as_deref().unwrap_or(DEFAULT_EDITOR), shell.as_deref().unwrap_or(DEFAULT_SHELL))
    }

    /// Parses a command: one with quotes is left to the shell.
    fn new(editor: &str, shell: &str) -> Self {
        if !editor.contains(' ') {
            return Self { args: vec![editor.to_owned()], shell: false };
        }
        if !editor.contains(['"', '\'', '\\']) {
            return Self { args: editor.split(' ').map(str::to_owned).collect(), shell: false };
        }
        Self { args: vec![shell.to_owned(), "-c".to_owned(), editor.to_owned()], shell: true }
    }

    /// Edits a text in a temporary file. Returns the new text and the file, which the caller removes.
    pub(super) fn edit(&self, text: &[u8], extension: &str) -> Result<(Vec<u8>, PathBuf), Failure> {
        let file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(extension).tempfile()?;
        let (mut file, path) = file.keep().map_err(|error| Failure::from(error.error))?;
        file.write_all(text)?;
        drop(file);
        self.launch(&path)?;
        let text = std::fs::read(&path)?;
        Ok((text, path))
    }

    fn launch(&self, path: &Path) -> Result<(), Failure> {
        let args = self.arguments(&path.display().to_string());
        let command = apimachinery::go::quote(&self.args.join(" "));
        match Command::new(&args[0]).args(&args[1..]).status() {
            Ok(status) if status.success() => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Failure::new(format!("unable to launch the editor {command}")))
            }
            _ => Err(Failure::new(format!("there was a problem with the editor {command}"))),
        }
    }

    fn arguments(&self, path: &str) -> Vec<String> {
        let mut args = self.args.clone();
        match args.last_mut() {
            Some(line) if self.shell => *line = format!("{line} {}", apimachinery::go::quote(path)),
            _ => args.push(path.to_owned()),
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editors_with_quotes_are_run_by_the_shell() {
        let check = |editor: &str, expect: &[&str]| {
            assert_eq!(Editor::new(editor, "/bin/sh").arguments("/tmp/a"), expect, "{editor}");
        };
        check("vi", &["vi", "/tmp/a"]);
        check("code -w", &["code", "-w", "/tmp/a"]);
        check("sed -i 's/a/b/'", &["/bin/sh", "-c", "sed -i 's/a/b/' \"/tmp/a\""]);
    }
}
