//! `kubectl create secret docker-registry`.

use crate::command::{Command, Flag};
use crate::commands::create::creation::{self, Creation};
use crate::generate::data::{self, Registry};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "docker-registry",
    summary: "Create a secret with credentials for an image registry",
    description: "Create a secret of type kubernetes.io/dockerconfigjson, with which nodes pull images from a private \
                  registry. Reference it in the imagePullSecrets of a pod or service account. The credentials come \
                  from flags or from a Docker configuration file.",
    examples: r#"  # Store a user name and password
  kubectl create secret docker-registry pull --docker-server=registry.example \
    --docker-username=ci --docker-password="$TOKEN"
  
  # Use the credentials that docker login stored
  kubectl create secret docker-registry pull --from-file="$HOME/.docker/config.json""#,
    usage: "kubectl create secret docker-registry NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::bool("append-hash", "Add a hash of the content to the name of the secret."),
            Flag::text("docker-email", "", "Email address of the registry account."),
            Flag::text("docker-password", "", "Password of the registry account."),
            Flag::text("docker-server", "https://index.docker.io/v1/", "Address of the registry."),
            Flag::text("docker-username", "", "User name of the registry account."),
            flags::field_manager("kubectl-create"),
            Flag::list(
                "from-file",
                "Docker configuration file, as path or key=path; the key must be .dockerconfigjson, the default.",
            ),
        ],
    ],
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
