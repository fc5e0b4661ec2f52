//! `kubectl config view`.

use std::io::Write;

use crate::command::{Command, Flag};
use crate::kubeconfig::Files;
use crate::print::format::PrinterKind;
use crate::print::{Format, Formats, json};
use crate::{Context, Failure, Invocation};

pub(super) static VIEW: Command = Command {
    name: "view",
    summary: "Print the kubeconfig",
    description: "Print the kubeconfig that results from all its files. Credentials and certificate data are \
        replaced by placeholders unless --raw or --flatten is given.",
    examples: r#"  # Print the merged kubeconfig without secrets
  kubectl config view

  # Write a file with what the context staging needs, for use elsewhere
  kubectl config view --context=staging --minify --flatten > staging.conf

  # Print the token of the user deployer
  kubectl config view --raw -o jsonpath='{.users[?(@.name == "deployer")].user.token}'"#,
    usage: "kubectl config view [flags] [options]",
    flags: &[&[
        Flag::bool(
            "allow-missing-template-keys",
            "Treat fields and keys that a Go template or JSONPath expression does not find as empty instead \
                of failing.",
        )
        .default("true"),
        Flag::bool(
            "flatten",
            "Include the contents of certificate and key files, which makes the output independent of other \
                files.",
        ),
        Flag::bool("merge", "Merge all kubeconfig files; false requires --kubeconfig.").default("true"),
        Flag::bool("minify", "Print only the current context with its cluster and user."),
        Flag::text(
            "output",
            "yaml",
            "Print the result in another format. One of: (json, yaml, kyaml, name, go-template, \
                go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).",
        )
        .short('o'),
        Flag::bool("raw", "Print credentials and certificate data without redaction."),
        Flag::bool("show-managed-fields", "Include metadata.managedFields in JSON and YAML output."),
        Flag::text(
            "template",
            "",
            "Go template, or the file that holds it, for -o=go-template and -o=go-template-file; the syntax \
                is described at http://golang.org/pkg/text/template/#pkg-overview.",
        ),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        let message = format!("unexpected arguments: [{}]", invocation.args.join(" "));
        return Err(Failure::usage(&invocation.name(), message));
    }
    let files = Files::of(context);
    let mut format = Format::of(invocation, Formats::Common);
    if !invocation.is_set("output") && !format.template.is_empty() {
        format.output = "go-template";
    }
    let mut printer = format.printer()?;
    if invocation.is_set("merge") && !invocation.bool("merge") && !files.explicit {
        return Err(Failure::new("if merge==false a precise file must be specified"));
    }
    let mut config = files.load()?;
    if invocation.bool("minify") {
        let name = invocation.text("context");
        if !name.is_empty() {
            config.current_context = name.to_owned();
        }
        config.minify()?;
    }
    if invocation.bool("flatten") {
        config.flatten()?;
    } else if !invocation.bool("raw") {
        config.redact();
    }
    match printer.kind() {
        PrinterKind::Json => Ok(context.out().write_all(json::print_ordered(&config.to_value(), &ORDER).as_bytes())?),
        _ => printer.write(&config.to_value(), &mut context.out()),
    }
}

/// The order of fields in JSON, which is that of kubectl's types. No two types contradict each other.
const ORDER: [&str; 41] = [
    "kind",
    "command",
    "args",
    "env",
    "apiVersion",
    "installHint",
    "provideClusterInfo",
    "interactiveMode",
    "preferences",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "colors",
    "name",
    "value",
    "config",
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
    "password",
    "auth-provider",
    "exec",
    "cluster",
    "user",
    "namespace",
];
