//! `kubectl create secret docker-registry`.

use crate::command::{Command, Flag};
use crate::commands::create::creation::{self, Creation};
use crate::generate::data::{self, Registry};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "docker-registry",
    summary: "Create a secret for use with a Docker registry",
    description: "Create a new secret for use with Docker registries.
        
        Dockercfg secrets are used to authenticate against Docker registries.
        
        When using the Docker command line to push images, you can authenticate to a given registry by running:
        '$ docker login DOCKER_REGISTRY_SERVER --username=DOCKER_USER --password=DOCKER_PASSWORD --email=DOCKER_EMAIL'.
        
 That produces a ~/.dockercfg file that is used by subsequent 'docker push' and 'docker pull' commands to authenticate to the registry. The email address is optional.

        When creating applications, you may have a Docker registry that requires authentication.  In order for the
        nodes to pull images on your behalf, they must have the credentials.  You can provide this information
        by creating a dockercfg secret and attaching it to your service account.",
    examples: "  # If you do not already have a .dockercfg file, create a dockercfg secret directly
  kubectl create secret docker-registry my-secret --docker-server=DOCKER_REGISTRY_SERVER --docker-username=DOCKER_USER --docker-password=DOCKER_PASSWORD --docker-email=DOCKER_EMAIL
  
  # Create a new secret named my-secret from ~/.docker/config.json
  kubectl create secret docker-registry my-secret --from-file=path/to/.docker/config.json",
    usage: "kubectl create secret docker-registry NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none] [options]",
    flags: &[flags::SAVE_CONFIG, flags::OUTPUT, flags::DRY_RUN, flags::VALIDATE, &[
        Flag::bool("append-hash", "Append a hash of the secret to its name."),
        Flag::text("docker-email", "", "Email for Docker registry"),
        Flag::text("docker-password", "", "Password for Docker registry authentication"),
        Flag::text("docker-server", "https://index.docker.io/v1/", "Server location for Docker registry"),
        Flag::text("docker-username", "", "Username for Docker registry authentication"),
        flags::field_manager("kubectl-create"),
        Flag::list("from-file", "Key files can be specified using their file path, in which case a default name of .dockerconfigjson will be given to them, or optionally with a name and file path, in which case the given name will be used. Specifying a directory will iterate each named file in the directory that is a valid secret key. For this command, the key should always be .dockerconfigjson."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let with_key = |file: String| {
        if file.contains('=') { file } else { format!("{}={file}", data::DOCKER_CONFIG_KEY) }
    };
    let files: Vec<String> = invocation.list("from-file").into_iter().map(with_key).collect();
    let registry = Registry {
        server: invocation.text("docker-server"),
        username: invocation.text("docker-username"),
        password: invocation.text("docker-password"),
        email: invocation.text("docker-email"),
    };
    data::validate_registry(registry, !files.is_empty())?;
    let entries =
        if files.is_empty() { vec![Ok(data::docker_config(registry))] } else { creation::from_files(&files).collect() };
    let kind = "kubernetes.io/dockerconfigjson";
    let object = data::secret(creation.name(), kind, entries, invocation.bool("append-hash"))?;
    creation.create(object, &creation::SECRETS, "failed to create secret ").await
}
