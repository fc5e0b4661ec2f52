//! `kubectl kustomize`: builds a kustomization.

use std::io::Write;
use std::path::Path;

use crate::command::{Command, Flag, Group};
use crate::kustomize::{self, Restriction};
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "kustomize",
    group: Group::Advanced,
    summary: "Build a kustomization target from a directory or URL",
    description: "Build a set of KRM resources using a 'kustomization.yaml' file. The DIR argument must be a path to a directory containing 'kustomization.yaml', or a git repository URL with a path suffix specifying same with respect to the repository root. If DIR is omitted, '.' is assumed.",
    examples: "  # Build the current working directory\n  kubectl kustomize\n  \n  # Build some shared configuration directory\n  kubectl kustomize /home/config/production\n  \n  # Build from github\n  kubectl kustomize https://github.com/kubernetes-sigs/kustomize.git/examples/helloWorld?ref=v1.0.6",
    usage: "kubectl kustomize DIR [flags] [options]",
    flags: &[&[
        Flag::bool(
            "as-current-user",
            "use the uid and gid of the command executor to run the function in the container",
        ),
        Flag::bool("enable-alpha-plugins", "enable kustomize plugins"),
        Flag::bool("enable-helm", "Enable use of the Helm chart inflator generator."),
        Flag::array("env", "a list of environment variables to be used by functions").short('e'),
        Flag::text("helm-command", "helm", "helm command (path to executable)"),
        Flag::list("helm-api-versions", "Kubernetes api versions used by Helm for Capabilities.APIVersions"),
        Flag::bool("helm-debug", "Enable debug output from the Helm chart inflator generator."),
        Flag::text("helm-kube-version", "", "Kubernetes version used by Helm for Capabilities.KubeVersion"),
        Flag::text(
            "load-restrictor",
            "LoadRestrictionsRootOnly",
            "if set to 'LoadRestrictionsNone', local kustomizations may load files from outside their root. This does, however, break the relocatability of the kustomization.",
        ),
        Flag::array("mount", "a list of storage options read from the filesystem"),
        Flag::bool("network", "enable network access for functions that declare it"),
        Flag::text("network-name", "bridge", "the docker network to run the container in"),
        Flag::text("output", "", "If specified, write output to this path.").short('o'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

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
    for flag in ["enable-helm", "enable-alpha-plugins"] {
        if invocation.bool(flag) {
            return Err(Failure::new(format!("--{flag} is not supported: build the kustomization with kustomize")));
        }
    }
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

/// Writes each object to a file of its own, named after its kind and name.
fn write_files(directory: &Path, yaml: &str) -> Result<(), Failure> {
    for object in apimachinery::yaml::documents(yaml).filter_map(Result::ok) {
        let text = |path: &[&str]| object.str_at(path).unwrap_or_default().to_owned();
        let version = text(&["apiVersion"]).to_lowercase().replace('/', "_");
        let parts = [text(&["metadata", "namespace"]), version, text(&["kind"]), text(&["metadata", "name"])];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let file = directory.join(parts.join("_").to_lowercase() + ".yaml");
        std::fs::write(&file, apimachinery::yaml::to_string(&object))?;
    }
    Ok(())
}
