//! `kubectl create secret generic`.

use crate::command::{Command, Flag};
use crate::commands::create::creation::{self, Creation};
use crate::generate::data;
use crate::generate::sources::Sources;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "generic",
    summary: "Create a secret from files or literal values",
    description: "Create a secret from files, directories, env files, or literal values. The key of a file is its name \
                  unless another key is given. A directory adds each regular file whose name is a valid key; other \
                  entries are skipped.",
    examples: r#"  # Set values on the command line
  kubectl create secret generic db --from-literal=username=app --from-literal=password="$PASSWORD"
  
  # Store a file under another key
  kubectl create secret generic deploy-key --from-file=ssh-privatekey=keys/deploy --type=kubernetes.io/ssh-auth
  
  # Add all files of a directory and one literal value
  kubectl create secret generic web --from-file=secrets/web/ --from-literal=stage=test
  
  # Read KEY=VALUE lines
  kubectl create secret generic worker --from-env-file=worker.env"#,
    usage: "kubectl create secret generic NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::bool("append-hash", "Add a hash of the content to the name of the secret."),
            flags::field_manager("kubectl-create"),
            Flag::list("from-env-file", "File with one key=value pair per line."),
            Flag::list(
                "from-file",
                "File or directory to add, as path or key=path; the key of a file defaults to its name.",
            ),
            Flag::array("from-literal", "Key and value to add, as key=value; can be repeated."),
            Flag::text("type", "", "Type of the secret."),
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
    let entries = creation::from_literals(&literals)
        .chain(creation::from_files(&files))
        .chain(creation::from_env_files(&env_files, "secret"));
    let object = data::secret(creation.name(), invocation.text("type"), entries, invocation.bool("append-hash"))?;
    creation.create(object, &creation::SECRETS, "failed to create secret ").await
}
