//! `kubectl create secret tls`.

use std::path::Path;

use crate::command::{Command, Flag};
use crate::commands::create::creation::{self, Creation};
use crate::generate::sources::{self, Entry};
use crate::generate::{data, key_pair};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "tls",
    summary: "Create a secret with a TLS certificate and key",
    description: "Create a secret of type kubernetes.io/tls from existing PEM files. The private key must belong to \
                  the certificate.",
    examples: "  # Store the certificate and key of a web server
  kubectl create secret tls web-tls --cert=certs/web.crt --key=certs/web.key
  
  # Print the manifest of the secret without creating it
  kubectl create secret tls web-tls --cert=certs/web.crt --key=certs/web.key --dry-run=client -o yaml",
    usage: "kubectl create secret tls NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::bool("append-hash", "Add a hash of the content to the name of the secret."),
            Flag::text("cert", "", "File with the certificate in PEM format."),
            flags::field_manager("kubectl-create"),
            Flag::text("key", "", "File with the private key of the certificate."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let (certificate, key) = (invocation.text("cert"), invocation.text("key"));
    if certificate.is_empty() || key.is_empty() {
        return Err(Failure::new("key and cert must be specified"));
    }
    let (certificate, key) = (read(certificate)?, read(key)?);
    key_pair::validate(&certificate, &key)?;
    let entries = [("tls.crt", certificate), ("tls.key", key)].map(|(key, data)| Ok(Entry { key: key.into(), data }));
    let object = data::secret(creation.name(), "kubernetes.io/tls", entries, invocation.bool("append-hash"))?;
    creation.create(object, &creation::SECRETS, "failed to create secret ").await
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    let read = sources::read(Path::new(path));
    read.map_err(|error| Failure::new(format!("Cannot read file {path}, {error}")))
}
