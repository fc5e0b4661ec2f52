//! `kubectl kuberc`: shows and changes the user's preferences.

mod set;
mod view;

use std::path::Path;

use apimachinery::{Object, Value, yaml};

use crate::command::Command;
use crate::failure::{chain, go_io_error};
use crate::kuberc::{Location, locate};
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "kuberc",
    summary: "Show and edit user preferences",
    description: "Show and edit the kuberc file with your preferences: defaults of flags, aliases of commands, and \
        the credential plugins that may run.",
    examples: "  # Print the preferences
  kubectl kuberc view

  # Let 'kubectl get' print wide tables
  kubectl kuberc set --section defaults --command get --option output=wide

  # Make 'kubectl getn' list nodes
  kubectl kuberc set --section aliases --name getn --command get --prependarg nodes",
    usage: "kubectl kuberc SUBCOMMAND [options]",
    commands: &[&set::SET, &view::VIEW],
    ..Command::EMPTY
};

const API_VERSION: &str = "kubectl.config.k8s.io/v1beta1";

/// Returns the preference file of the command line and environment.
fn location(invocation: &Invocation) -> Result<Location, Failure> {
    locate(invocation.text("kuberc"))?
        .ok_or_else(|| Failure::new("KUBERC is disabled via KUBERC=off environment variable"))
}

/// Returns an empty preference.
fn empty() -> Object {
    let mut object = Object::new();
    object.insert("apiVersion", API_VERSION);
    object.insert("kind", "Preference");
    object.insert("defaults", Value::Null);
    object.insert("aliases", Value::Null);
    object
}

/// Reads a preference; `None` if the file does not exist. Fields that a preference does not have are dropped.
fn read(file: &Path) -> Result<Option<Object>, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let (file, error) = (file.display(), go_io_error(&error));
            return Err(Failure::new(format!("error reading kuberc file: open {file}: {error}")));
        }
    };
    let invalid = |problem: String| Failure::new(format!("error parsing kuberc file: {problem}"));
    let value = yaml::documents(&text).next().transpose().map_err(|error| invalid(chain(&error)))?;
    let mut preference = empty();
    match value.unwrap_or_default() {
        Value::Null => {}
        Value::Object(object) => {
            for field in FIELDS {
                if let Some(value) = object.get(field) {
                    preference.insert(field, value.clone());
                }
            }
        }
        other => return Err(invalid(format!("the preference is a {} instead of a mapping", other.kind()))),
    }
    for field in ["defaults", "aliases", "credentialPluginAllowlist"] {
        if let Some(other) = preference.get(field).filter(|list| !matches!(list, Value::Null | Value::Array(_))) {
            return Err(invalid(format!("{field} is a {} instead of a list", other.kind())));
        }
    }
    Ok(Some(preference))
}

const FIELDS: [&str; 6] =
    ["apiVersion", "kind", "defaults", "aliases", "credentialPluginPolicy", "credentialPluginAllowlist"];

fn save(context: &Context, preference: Object, file: &Path) -> Result<(), Failure> {
    use std::io::Write;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(|error| {
        let (directory, error) = (directory.display(), go_io_error(&error));
        Failure::new(format!("failed to create directory {directory}: mkdir {directory}: {error}"))
    })?;
    std::fs::write(file, yaml::to_string(&Value::Object(preference))).map_err(|error| {
        let (file, error) = (file.display(), go_io_error(&error));
        Failure::new(format!("failed to write kuberc file: open {file}: {error}"))
    })?;
    writeln!(context.out(), "Updated {}", file.display())?;
    Ok(())
}
