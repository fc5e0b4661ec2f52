//! `kubectl create secret generic`.

use crate::command::{Command, Flag};
use crate::commands::create::creation::{self, Creation};
use crate::generate::data;
use crate::generate::sources::Sources;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "generic",
    summary: "Create a secret from a local file, directory, or literal value",
    description: "Create a secret based on a file, directory, or specified literal value.

 A single secret may package one or more key/value pairs.

 When creating a secret based on a file, the key will default to the basename of the file, and the value will default to the file content. If the basename is an invalid key or you wish to chose your own, you may specify an alternate key.

 When creating a secret based on a directory, each file whose basename is a valid key in the directory will be packaged into the secret. Any directory entries except regular files are ignored (e.g. subdirectories, symlinks, devices, pipes, etc).",
    examples: "  # Create a new secret named my-secret with keys for each file in folder bar
  kubectl create secret generic my-secret --from-file=path/to/bar
  
  # Create a new secret named my-secret with specified keys instead of names on disk
  kubectl create secret generic my-secret --from-file=ssh-privatekey=path/to/id_rsa --from-file=ssh-publickey=path/to/id_rsa.pub
  
  # Create a new secret named my-secret with key1=supersecret and key2=topsecret
  kubectl create secret generic my-secret --from-literal=key1=supersecret --from-literal=key2=topsecret
  
  # Create a new secret named my-secret using a combination of a file and a literal
  kubectl create secret generic my-secret --from-file=ssh-privatekey=path/to/id_rsa --from-literal=passphrase=topsecret
  
  # Create a new secret named my-secret from env files
  kubectl create secret generic my-secret --from-env-file=path/to/foo.env --from-env-file=path/to/bar.env",
    usage: "kubectl create secret generic NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none] [options]",
    flags: &[flags::SAVE_CONFIG, flags::OUTPUT, flags::DRY_RUN, flags::VALIDATE, &[
        Flag::bool("append-hash", "Append a hash of the secret to its name."),
        flags::field_manager("kubectl-create"),
        Flag::list("from-env-file", "Specify the path to a file to read lines of key=val pairs to create a secret."),
        Flag::list("from-file", "Key files can be specified using their file path, in which case a default name will be given to them, or optionally with a name and file path, in which case the given name will be used.  Specifying a directory will iterate each named file in the directory that is a valid secret key."),
        Flag::array("from-literal", "Specify a key and literal value to insert in secret (i.e. mykey=somevalue)"),
        Flag::text("type", "", "The type of secret to create"),
    ]],
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
