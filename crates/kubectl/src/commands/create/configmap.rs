//! `kubectl create configmap`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::data;
use crate::generate::sources::Sources;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "configmap",
    aliases: &["cm"],
    summary: "Create a config map from files or literal values",
    description: "Create a config map from files, directories, env files, or literal values. The key of a file is its \
                  name unless another key is given. A directory adds each regular file whose name is a valid key; \
                  other entries are skipped.",
    examples: "  # Add all files of a directory
  kubectl create configmap web --from-file=config/web/
  
  # Store a file under another key
  kubectl create configmap web --from-file=server.conf=config/production.conf
  
  # Set values on the command line
  kubectl create cm worker --from-literal=queue=mail --from-literal=threads=4
  
  # Read KEY=VALUE lines, and name the config map after its content
  kubectl create cm worker --from-env-file=worker.env --append-hash",
    usage: "kubectl create configmap NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::bool("append-hash", "Add a hash of the content to the name of the config map."),
            flags::field_manager("kubectl-create"),
            Flag::list("from-env-file", "File with one key=value pair per line."),
            Flag::list(
                "from-file",
                "File or directory to add, as path or key=path; the key of a file defaults to its name.",
            ),
            Flag::array("from-literal", "Key and value to add, as key=value; can be repeated."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let (literals, files) = (invocation.list("from-literal"), invocation.list("from-file"));
    let env_files = invocation.list("from-env-file");
    Sources { literals: &literals, files: &files, env_files: &env_files }.validate()?;
    let entries = creation::from_files(&files)
        .chain(creation::from_literals(&literals))
        .chain(creation::from_env_files(&env_files, "config"));
    let object = data::config_map(creation.name(), entries, invocation.bool("append-hash"))?;
    creation.create(object, &creation::CONFIG_MAPS, "failed to create configmap: ").await
}
