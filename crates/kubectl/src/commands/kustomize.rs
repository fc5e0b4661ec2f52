//! `kubectl kustomize`: builds a kustomization.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use apimachinery::Value;

use crate::command::{Command, Flag, Group};
use crate::kustomize::{self, Restriction};
use crate::{Context, Failure, Invocation};

pub(super) static COMMAND: Command = Command {
    name: "kustomize",
    group: Group::Advanced,
    summary: "Print the objects of a kustomization",
    description: "Build the objects that the kustomization.yaml file in a local directory describes, and print them \
        as YAML. Without DIR, the current directory is built. Remote sources, plugins, and Helm charts are not \
        supported.",
    examples: "  # Build the current directory
  kubectl kustomize

  # Build an overlay into a file
  kubectl kustomize overlays/staging -o staging.yaml

  # Allow files outside the directory
  kubectl kustomize web --load-restrictor=LoadRestrictionsNone",
    usage: "kubectl kustomize DIR [flags] [options]",
    flags: &[&[
        Flag::bool(
            "as-current-user",
            "Run functions as the user and group of the caller (no effect: functions are not supported).",
        ),
        Flag::bool("enable-alpha-plugins", "Run plugins (no effect: kustomizations with plugins are rejected)."),
        Flag::bool("enable-helm", "Render Helm charts (no effect: kustomizations with charts are rejected)."),
        Flag::array("env", "Environment variables of functions (no effect: functions are not supported).").short('e'),
        Flag::text("helm-command", "helm", "Path of the Helm executable (no effect: Helm is not supported)."),
        Flag::list(
            "helm-api-versions",
            "API versions that charts see as Capabilities.APIVersions (no effect: Helm is not supported).",
        ),
        Flag::bool("helm-debug", "Print debug output of Helm (no effect: Helm is not supported)."),
        Flag::text(
            "helm-kube-version",
            "",
            "Kubernetes version that charts see as Capabilities.KubeVersion (no effect: Helm is not \
                supported).",
        ),
        Flag::text(
            "load-restrictor",
            "LoadRestrictionsRootOnly",
            "LoadRestrictionsRootOnly limits files to the directory of their kustomization; \
                LoadRestrictionsNone does not.",
        ),
        Flag::array("mount", "Storage to mount into functions (no effect: functions are not supported)."),
        Flag::bool(
            "network",
            "Give network access to functions that ask for it (no effect: functions are not supported).",
        ),
        Flag::text("network-name", "bridge", "Docker network of functions (no effect: functions are not supported)."),
        Flag::text("output", "", "File to write to, or an existing directory for one file per object.").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const NAMESPACE: &[&str] = &["metadata", "namespace"];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let directory = match invocation.args.as_slice() {
        [] => ".",
        [directory] => directory,
        _ => return Err(Failure::new("specify one path to kustomization.yaml")),
    };
    let restriction = match invocation.text("load-restrictor") {
        "LoadRestrictionsRootOnly" => Restriction::RootOnly,
        "LoadRestrictionsNone" => Restriction::None,
        other => {
            return Err(Failure::new(format!(
                "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
            )));
        }
    };
    let yaml = kustomize::build_yaml(directory, restriction)?;
    let output = invocation.text("output");
    if output.is_empty() {
        context.out().write_all(yaml.as_bytes())?;
        return Ok(());
    }
    if !Path::new(output).is_dir() {
        return std::fs::write(output, yaml)
            .map_err(|error| Failure::new(format!("open {output}: {}", crate::failure::go_io_error(&error))));
    }
    write_files(Path::new(output), &yaml)
}

/// Writes each object to a separate file, named after its kind and name, and after its namespace if there are several.
fn write_files(directory: &Path, yaml: &str) -> Result<(), Failure> {
    let objects: Vec<Value> = apimachinery::yaml::documents(yaml).filter_map(Result::ok).collect();
    let namespaces: BTreeSet<&str> = objects.iter().filter_map(|object| object.str_at(NAMESPACE)).collect();
    for object in &objects {
        let text = |path: &[&str]| object.str_at(path).unwrap_or_default().to_owned();
        let version = text(&["apiVersion"]).to_lowercase().replace('/', "_");
        let namespace = if namespaces.len() > 1 { text(NAMESPACE) } else { String::new() };
        let parts = [namespace, version, text(&["kind"]), text(&["metadata", "name"])];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let file = directory.join(parts.join("_").to_lowercase() + ".yaml");
        std::fs::write(&file, apimachinery::yaml::to_string(object))?;
    }
    Ok(())
}
