//! `kubectl config set` and `unset`.

use std::io::Write;

use apimachinery::go;

use super::help_failure;
use crate::command::{Command, Flag};
use crate::kubeconfig::{Files, Property, set_property};
use crate::{Context, Failure, Invocation};

pub static SET: Command = Command {
    name: "set",
    summary: "Set an individual value in a kubeconfig file",
    description: "Set an individual value in a kubeconfig file.

 PROPERTY_NAME is a dot delimited name where each token represents either an attribute name or a map key.  Map keys may not contain dots.

 PROPERTY_VALUE is the new value you want to set. Binary fields such as 'certificate-authority-data' expect a base64 encoded string unless the --set-raw-bytes flag is used.

 Specifying an attribute name that already exists will merge new fields on top of existing values.",
    examples: r#"  # Set the server field on the my-cluster cluster to https://1.2.3.4
  kubectl config set clusters.my-cluster.server https://1.2.3.4

  # Set the certificate-authority-data field on the my-cluster cluster
  kubectl config set clusters.my-cluster.certificate-authority-data $(echo "cert_data_here" | base64 -i -)

  # Set the cluster field in the my-context context to my-cluster
  kubectl config set contexts.my-context.cluster my-cluster

  # Set the client-key-data field in the cluster-admin user using --set-raw-bytes option
  kubectl config set users.cluster-admin.client-key-data cert_data_here --set-raw-bytes=true"#,
    usage: "kubectl config set PROPERTY_NAME PROPERTY_VALUE [options]",
    flags: &[&[
    Flag::bool("set-raw-bytes", "When writing a []byte PROPERTY_VALUE, write the given string directly without base64 decoding."),
]],
    run: Some(|context, invocation| Box::pin(set(context, invocation))),
    ..Command::EMPTY
};
pub static UNSET: Command = Command {
    name: "unset",
    summary: "Unset an individual value in a kubeconfig file",
    description: "Unset an individual value in a kubeconfig file.

 PROPERTY_NAME is a dot delimited name where each token represents either an attribute name or a map key.  Map keys may not contain dots.",
    examples: "  # Unset the current-context
  kubectl config unset current-context

  # Unset namespace in foo context
  kubectl config unset contexts.foo.namespace",
    usage: "kubectl config unset PROPERTY_NAME [options]",
    run: Some(|context, invocation| Box::pin(unset(context, invocation))),
    ..Command::EMPTY
};

async fn set(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [path, value] = invocation.args.as_slice() else { return Err(unexpected(context, invocation)) };
    if value.is_empty() {
        return Err(Failure::new("you cannot use set to unset a property"));
    }
    let value = if invocation.bool("set-raw-bytes") { Property::SetRaw(value) } else { Property::Set(value) };
    change(context, path, value)?;
    Ok(writeln!(context.out(), "Property {} set.", go::quote(path))?)
}

async fn unset(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [path] = invocation.args.as_slice() else { return Err(unexpected(context, invocation)) };
    change(context, path, Property::Unset)?;
    Ok(writeln!(context.out(), "Property {} unset.", go::quote(path))?)
}

fn unexpected(context: &Context, invocation: &Invocation) -> Failure {
    help_failure(context, invocation, format!("Unexpected args: [{}]", invocation.args.join(" ")))
}

fn change(context: &Context, path: &str, value: Property<'_>) -> Result<(), Failure> {
    if path.is_empty() {
        return Err(Failure::new("you must specify a property"));
    }
    let files = Files::of(context);
    let old = files.load()?;
    let mut new = old.clone();
    set_property(&mut new, path, value)?;
    files.save(&old, &new, false)
}
