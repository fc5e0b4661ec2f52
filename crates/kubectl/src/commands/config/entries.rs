//! `kubectl config set-cluster`, `set-context`, `use-context` and `rename-context`.

use std::io::Write;

use apimachinery::go;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::help_failure;
use crate::command::{Command, Flag};
use crate::failure::go_io_error;
use crate::kubeconfig::{Entry, Files, absolute_path};
use crate::{Context, Failure, Invocation};

pub(super) static RENAME_CONTEXT: Command = Command {
    name: "rename-context",
    summary: "Rename a context of the kubeconfig",
    description: "Give a context of the kubeconfig another name. If it is the current context, it remains current \
        under the new name.",
    examples: "  # Call the context admin@10.0.0.5 staging from now on
  kubectl config rename-context admin@10.0.0.5 staging

  # Rename a context in a certain file
  kubectl config rename-context kubernetes-admin prod --kubeconfig=prod.conf",
    usage: "kubectl config rename-context CONTEXT_NAME NEW_NAME [options]",
    run: Some(|context, invocation| Box::pin(rename_context(context, invocation))),
    ..Command::EMPTY
};
pub(super) static SET_CLUSTER: Command = Command {
    name: "set-cluster",
    summary: "Add or change a cluster of the kubeconfig",
    description: "Add a cluster to the kubeconfig, or change the given fields of an existing one. Other fields keep \
        their values.",
    examples: "  # Add a cluster with a copy of its CA certificate
  kubectl config set-cluster staging --server=https://10.0.0.5:6443 --certificate-authority=ca.crt --embed-certs

  # Reach the cluster through a proxy
  kubectl config set-cluster staging --proxy-url=http://proxy.example.com:3128

  # Verify the certificate for another name than that of the server
  kubectl config set-cluster staging --tls-server-name=api.staging.example.com

  # Do not verify the certificate of a test cluster
  kubectl config set-cluster scratch --insecure-skip-tls-verify=true",
    usage: "kubectl config set-cluster NAME [--server=server] [--certificate-authority=path/to/certificate/authority] [--insecure-skip-tls-verify=true] [--tls-server-name=example.com] [options]",
    flags: &[&[
        Flag::text("certificate-authority", "", "File with the CA certificates of the cluster."),
        Flag::bool("embed-certs", "Copy the contents of the CA file into the kubeconfig."),
        Flag::bool("insecure-skip-tls-verify", "Do not verify the certificate of the cluster's server."),
        Flag::text("proxy-url", "", "Proxy for all requests to the cluster."),
        Flag::text("server", "", "URL of the cluster's API server."),
        Flag::text("tls-server-name", "", "Name that the server's certificate must be valid for."),
    ]],
    run: Some(|context, invocation| Box::pin(set_cluster(context, invocation))),
    ..Command::EMPTY
};
pub(super) static SET_CONTEXT: Command = Command {
    name: "set-context",
    summary: "Add or change a context of the kubeconfig",
    description: "Add a context to the kubeconfig, or change the given fields of an existing one. A context combines \
        a cluster, a user, and a default namespace.",
    examples: "  # Define a context for the shop team
  kubectl config set-context shop --cluster=staging --user=alice --namespace=shop

  # Change the default namespace of the current context
  kubectl config set-context --current --namespace=billing",
    usage: "kubectl config set-context [NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace] [options]",
    flags: &[&[
        Flag::text("cluster", "", "Cluster entry of the context."),
        Flag::bool("current", "Change the current context instead of a named one."),
        Flag::text("namespace", "", "Default namespace of the context.").short('n'),
        Flag::text("user", "", "User entry of the context."),
    ]],
    run: Some(|context, invocation| Box::pin(set_context(context, invocation))),
    ..Command::EMPTY
};
pub(super) static USE_CONTEXT: Command = Command {
    name: "use-context",
    aliases: &["use"],
    summary: "Choose the current context",
    description: "Make a context of the kubeconfig the current one, which commands without --context use.",
    examples: "  # Work with the context staging from now on
  kubectl config use-context staging

  # The same, with the alias
  kubectl config use staging",
    usage: "kubectl config use-context CONTEXT_NAME [options]",
    run: Some(|context, invocation| Box::pin(use_context(context, invocation))),
    ..Command::EMPTY
};

async fn use_context(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [name] = invocation.args.as_slice() else { return Err(unexpected(context, invocation)) };
    let files = Files::of(context);
    let old = files.load()?;
    if name.is_empty() {
        return Err(Failure::new("empty context names are not allowed"));
    }
    if !old.contexts.contains_key(name) {
        return Err(Failure::new(format!("no context exists with the name: {}", go::quote(name))));
    }
    let mut new = old.clone();
    new.current_context.clone_from(name);
    files.save(&old, &new, true)?;
    Ok(writeln!(context.out(), "Switched to context {}.", go::quote(name))?)
}

async fn rename_context(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [from, to] = invocation.args.as_slice() else { return Err(unexpected(context, invocation)) };
    if to.is_empty() {
        return Err(Failure::new("You must specify a new non-empty context name"));
    }
    let files = Files::of(context);
    let old = files.load()?;
    let (display, file) = (go::quote(from), files.default_file().display());
    let mut new = old.clone();
    let Some(entry) = new.contexts.remove(from) else {
        return Err(Failure::new(format!("cannot rename the context {display}, it's not in {file}")));
    };
    let renamed = go::quote(to);
    if old.contexts.contains_key(to) {
        let problem = format!("cannot rename the context {display}, the context {renamed} already exists in {file}");
        return Err(Failure::new(problem));
    }
    new.contexts.insert(to.clone(), entry);
    if new.current_context == *from {
        new.current_context.clone_from(to);
    }
    files.save(&old, &new, true)?;
    Ok(writeln!(context.out(), "Context {display} renamed to {renamed}.")?)
}

async fn set_context(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let name = match invocation.args.as_slice() {
        [] => "",
        [name] => name.as_str(),
        _ => return Err(unexpected(context, invocation)),
    };
    let current = invocation.bool("current");
    if name.is_empty() && !current {
        return Err(Failure::new("you must specify a non-empty context name or --current"));
    }
    if !name.is_empty() && current {
        return Err(Failure::new("you cannot specify both a context name and --current"));
    }
    let files = Files::of(context);
    let old = files.load()?;
    if current && old.current_context.is_empty() {
        return Err(Failure::new("no current context is set"));
    }
    let name = if current { old.current_context.as_str() } else { name };
    let mut new = old.clone();
    let entry = new.contexts.entry(name.to_owned()).or_default();
    for key in ["cluster", "user", "namespace"] {
        if invocation.is_set(key) {
            entry.set(key, invocation.text(key));
        }
    }
    files.save(&old, &new, true)?;
    let done = if old.contexts.contains_key(name) { "modified" } else { "created" };
    Ok(writeln!(context.out(), "Context {} {done}.", go::quote(name))?)
}

async fn set_cluster(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [name] = invocation.args.as_slice() else { return Err(unexpected(context, invocation)) };
    if name.is_empty() {
        return Err(Failure::new("you must specify a non-empty cluster name"));
    }
    let authority = invocation.text("certificate-authority");
    if invocation.bool("insecure-skip-tls-verify") && !authority.is_empty() {
        let problem = "you cannot specify a certificate authority and insecure mode at the same time";
        return Err(Failure::new(problem));
    }
    if invocation.bool("embed-certs") {
        if authority.is_empty() {
            return Err(Failure::new("you must specify a --certificate-authority to embed"));
        }
        check_file("certificate-authority", authority)?;
    }
    let files = Files::of(context);
    let old = files.load()?;
    let mut new = old.clone();
    change_cluster(new.clusters.entry(name.clone()).or_default(), invocation)?;
    files.save(&old, &new, true)?;
    Ok(writeln!(context.out(), "Cluster {} set.", go::quote(name))?)
}

fn change_cluster(cluster: &mut Entry, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.is_set("server") {
        cluster.set("server", invocation.text("server"));
        // The TLS server name belongs to the previous server.
        cluster.set("tls-server-name", "");
    }
    if invocation.is_set("tls-server-name") {
        cluster.set("tls-server-name", invocation.text("tls-server-name"));
    }
    if invocation.is_set("insecure-skip-tls-verify") {
        let insecure = invocation.bool("insecure-skip-tls-verify");
        cluster.set("insecure-skip-tls-verify", insecure);
        if insecure {
            cluster.set("certificate-authority", "");
            cluster.set("certificate-authority-data", "");
        }
    }
    if invocation.is_set("certificate-authority") {
        set_file(cluster, invocation, "certificate-authority")?;
        cluster.set("insecure-skip-tls-verify", false);
    }
    if invocation.is_set("proxy-url") {
        cluster.set("proxy-url", invocation.text("proxy-url"));
    }
    Ok(())
}

/// Sets the path of a certificate or key; with `--embed-certs`, its content.
pub(super) fn set_file(entry: &mut Entry, invocation: &Invocation, key: &str) -> Result<(), Failure> {
    let (path, data) = (invocation.text(key), format!("{key}-data"));
    if invocation.bool("embed-certs") {
        let content = std::fs::read(path)?;
        entry.set(key, "");
        entry.set(&data, STANDARD.encode(content));
    } else {
        entry.set(key, absolute_path(path));
        entry.set(&data, "");
    }
    Ok(())
}

/// Fails if a file cannot be embedded.
pub(super) fn check_file(key: &str, path: &str) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = go_io_error(&error);
            Err(Failure::new(format!("could not stat {key} file {path}: stat {path}: {error}")))
        }
    }
}

fn unexpected(context: &Context, invocation: &Invocation) -> Failure {
    help_failure(context, invocation, format!("Unexpected args: [{}]", invocation.args.join(" ")))
}
