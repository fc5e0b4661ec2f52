//! `kubectl create configmap`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::data;
use crate::generate::sources::Sources;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "configmap",
    aliases: &["cm"],
    summary: "Create a config map from a local file, directory or literal value",
    description: "Create a config map based on a file, directory, or specified literal value.

 A single config map may package one or more key/value pairs.

 When creating a config map based on a file, the key will default to the basename of the file, and the value will default to the file content.  If the basename is an invalid key, you may specify an alternate key.

 When creating a config map based on a directory, each file whose basename is a valid key in the directory will be packaged into the config map.  Any directory entries except regular files are ignored (e.g. subdirectories, symlinks, devices, pipes, etc).",
    examples: "  # Create a new config map named my-config based on folder bar
  kubectl create configmap my-config --from-file=path/to/bar
  
  # Create a new config map named my-config with specified keys instead of file basenames on disk
  kubectl create configmap my-config --from-file=key1=/path/to/bar/file1.txt --from-file=key2=/path/to/bar/file2.txt
  
  # Create a new config map named my-config with key1=config1 and key2=config2
  kubectl create configmap my-config --from-literal=key1=config1 --from-literal=key2=config2
  
  # Create a new config map named my-config with key=value pairs from an env file
  kubectl create configmap my-config --from-env-file=path/to/bar.env",
    usage: "kubectl create configmap NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none] [options]",
    flags: &[flags::SAVE_CONFIG, flags::OUTPUT, flags::DRY_RUN, flags::VALIDATE, &[
        Flag::bool("append-hash", "Append a hash of the configmap to its name."),
        flags::field_manager("kubectl-create"),
        Flag::list("from-env-file", "Specify the path to a file to read lines of key=val pairs to create a configmap."),
        Flag::list("from-file", "Key file can be specified using its file path, in which case file basename will be used as configmap key, or optionally with a key and file path, in which case the given key will be used.  Specifying a directory will iterate each named file in the directory whose basename is a valid configmap key."),
        Flag::array("from-literal", "Specify a key and literal value to insert in configmap (i.e. mykey=somevalue)"),
    ]],
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
