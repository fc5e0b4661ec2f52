//! `kubectl config set` and `unset`.

use std::io::Write;

use apimachinery::go;

use super::help_failure;
use crate::command::{Command, Flag};
use crate::kubeconfig::{Files, Property, set_property};
use crate::{Context, Failure, Invocation};

pub(super) static SET: Command = Command {
    name: "set",
    summary: "Set a single field of the kubeconfig",
    description: "Set the field PROPERTY_NAME of the kubeconfig to PROPERTY_VALUE. The name is a path of field names \
        and entry names joined with dots; an entry name in it cannot contain dots. Fields with binary \
        data, such as certificate-authority-data, take base64 unless --set-raw-bytes is given.",
    examples: r#"  # Change the address of the cluster staging
  kubectl config set clusters.staging.server https://10.0.0.6:6443

  # Change the default namespace of the context shop
  kubectl config set contexts.shop.namespace shop

  # Store a private key that is not base64
  kubectl config set users.alice.client-key-data "$(cat alice.key)" --set-raw-bytes"#,
    usage: "kubectl config set PROPERTY_NAME PROPERTY_VALUE [options]",
    flags: &[&[Flag::bool(
        "set-raw-bytes",
        "Store PROPERTY_VALUE in a binary field unchanged, without base64 decoding.",
    )]],
    run: Some(|context, invocation| Box::pin(set(context, invocation))),
    ..Command::EMPTY
};
pub(super) static UNSET: Command = Command {
    name: "unset",
    summary: "Remove a single field of the kubeconfig",
    description: "Remove the field PROPERTY_NAME from the kubeconfig. The name is a path of field names and entry \
        names joined with dots; an entry name in it cannot contain dots.",
    examples: "  # Have no current context
  kubectl config unset current-context

  # Remove the token of the user deployer
  kubectl config unset users.deployer.token",
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
