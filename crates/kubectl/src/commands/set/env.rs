//! `kubectl set env`.

use std::collections::BTreeMap;
use std::io::Write;

use apimachinery::{Resource, Value, go};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::Target;

use super::change::{self, Change, Edited};
use crate::changes::{self, DryRun};
use crate::command::{Command, Flag};
use crate::generate::set::env::{self, Changes};
use crate::generate::set::{self, resolve};
use crate::{Context, Failure, Invocation, flags, generate};

static SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");

pub static COMMAND: Command = Command {
    name: "env",
    summary: "Update environment variables on a pod template",
    description: r#"Update environment variables on a pod template.

 List environment variable definitions in one or more pods, pod templates. Add, update, or remove container environment variable definitions in one or more pod templates (within replication controllers or deployment configurations). View or modify the environment variable definitions on all containers in the specified pods or pod templates, or just those that match a wildcard.

 If "--env -" is passed, environment variables can be read from STDIN using the standard env syntax.

 Possible resources include (case insensitive):

        pod (po), replicationcontroller (rc), deployment (deploy), daemonset (ds), statefulset (sts), cronjob (cj), replicaset (rs)"#,
    examples: r#"  # Update deployment 'registry' with a new environment variable
  kubectl set env deployment/registry STORAGE_DIR=/local
  
  # List the environment variables defined on a deployments 'sample-build'
  kubectl set env deployment/sample-build --list
  
  # List the environment variables defined on all pods
  kubectl set env pods --all --list
  
  # Output modified deployment in YAML, and does not alter the object on the server
  kubectl set env deployment/sample-build STORAGE_DIR=/data -o yaml
  
  # Update all containers in all replication controllers in the project to have ENV=prod
  kubectl set env rc --all ENV=prod
  
  # Import environment from a secret
  kubectl set env --from=secret/mysecret deployment/myapp
  
  # Import environment from a config map with a prefix
  kubectl set env --from=configmap/myconfigmap --prefix=MYSQL_ deployment/myapp
  
  # Import specific keys from a config map
  kubectl set env --keys=my-example-key --from=configmap/myconfigmap deployment/myapp
  
  # Remove the environment variable ENV from container 'c1' in all deployment configs
  kubectl set env deployments --all --containers="c1" ENV-
  
  # Remove the environment variable ENV from a deployment definition on disk and
  # update the deployment config on the server
  kubectl set env -f deploy.json ENV-
  
  # Set some of the local shell environment into a deployment config on the server
  env | grep RAILS_ | kubectl set env -e - deployment/registry"#,
    usage: "kubectl set env RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N [options]",
    flags: &[flags::OUTPUT, flags::DRY_RUN, flags::SELECTOR, flags::DIRECTORY, &[
        Flag::bool("all", "If true, select all resources in the namespace of the specified resource types"),
        Flag::text("containers", "*", "The names of containers in the selected pod templates to change - may use wildcards").short('c'),
        Flag::array("env", "Specify a key-value pair for an environment variable to set into each container.").short('e'),
        flags::field_manager("kubectl-set"),
        flags::filename("Filename, directory, or URL to files the resource to update the env"),
        Flag::text("from", "", "The name of a resource from which to inject environment variables"),
        Flag::list("keys", "Comma-separated list of keys to import from specified resource"),
        Flag::bool("list", "If true, display the environment and any changes in the standard format. this flag will removed when we have kubectl view env."),
        Flag::bool("local", "If true, set env will NOT contact api-server but run locally."),
        Flag::bool("overwrite", "If true, allow environment to be overwritten, otherwise reject updates that overwrite existing environment.").default("true"),
        Flag::text("prefix", "", "Prefix to append to variable names"),
        Flag::bool("resolve", "If true, show secret or configmap references when listing variables"),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.bool("all") && !invocation.text("selector").is_empty() {
        return Err(Failure::new("cannot set --all and --selector at the same time"));
    }
    let (resources, variables) = env::split(&invocation.args)?;
    let mut change = Change::new(context, invocation)?;
    validate(invocation, &resources, change.dry_run)?;
    let mut given = invocation.list("env");
    given.extend(variables.iter().cloned());
    let is_stdin = |text: &String| text == "-";
    if given.iter().any(is_stdin) && invocation.list("filename").iter().any(is_stdin) {
        return Err(Failure::new("standard input cannot be used for multiple arguments"));
    }
    let stdin = || {
        let bytes = context.read_stdin().map_err(|failure| generate::Error::Invalid(failure.message))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut changes = env::parse(&given, stdin)?;
    if !invocation.text("from").is_empty() {
        let (mut imported, warnings) = import(&change, invocation).await?;
        warnings.iter().for_each(|warning| context.warn(warning));
        changes.set.append(&mut imported);
    }
    env::add_prefix(&mut changes.set, invocation.text("prefix"));
    let mut infos = change.infos(&resources).await?;
    if invocation.bool("list") {
        for info in &mut infos {
            // A failure is printed beside the list.
            drop(list(context, invocation, &mut info.object, &changes).await);
        }
        return Ok(());
    }
    let empty = changes.set.is_empty() && variables.is_empty();
    for info in infos {
        let (kind, name) = (info.mapping.resource.kind.to_string(), info.name.clone());
        let edit = |object: &mut Value| {
            if update(object, &changes, invocation)? == 0 {
                let selector = go::quote(invocation.text("containers"));
                context.warn(&format!("{kind}/{name} does not have any containers matching {selector}"));
            }
            Ok(if empty {
                Edited::Nothing("at least one environment variable must be provided")
            } else {
                Edited::Maybe
            })
        };
        let patched = change.apply(info, edit, "failed to patch env update to pod template: ").await;
        change.keep(patched);
    }
    change.done()
}

fn validate(invocation: &Invocation, resources: &[String], dry_run: DryRun) -> Result<(), Failure> {
    let problem = if invocation.bool("local") && dry_run == DryRun::Server {
        change::LOCAL_SERVER
    } else if invocation.list("filename").is_empty() && resources.is_empty() {
        "one or more resources must be specified as <resource> <name> or <resource>/<name>"
    } else if invocation.bool("list") && !invocation.text("output").is_empty() {
        "--list and --output may not be specified together"
    } else if !invocation.list("keys").is_empty() && invocation.text("from").is_empty() {
        "when specifying --keys, a configmap or secret must be provided with --from"
    } else {
        return Ok(());
    };
    Err(Failure::new(problem))
}

/// Returns variables that refer to the keys of `--from`, and warnings.
async fn import(change: &Change<'_>, invocation: &Invocation) -> Result<(Vec<Value>, Vec<String>), Failure> {
    let (mut variables, mut warnings) = (Vec::new(), Vec::new());
    for info in change.infos(&[invocation.text("from").to_owned()]).await? {
        let (mut more, mut notes) = env::from_object(&info.object, &invocation.list("keys"))?;
        variables.append(&mut more);
        warnings.append(&mut notes);
    }
    Ok((variables, warnings))
}

/// Changes the selected containers and returns their number.
fn update(object: &mut Value, changes: &Changes, invocation: &Invocation) -> Result<usize, generate::Error> {
    let mut containers = set::containers_mut(set::pod_spec_mut(object)?, invocation.text("containers"));
    for container in &mut containers {
        if !invocation.bool("overwrite") {
            env::validate_no_overwrite(container, changes)?;
        }
        env::update(container, changes);
    }
    Ok(containers.len())
}

/// Prints the variables of the selected containers as they are after the changes.
async fn list(
    context: &Context,
    invocation: &Invocation,
    object: &mut Value,
    changes: &Changes,
) -> Result<(), Failure> {
    update(object, changes, invocation)?;
    let whole = object.clone();
    let text = |path: &[&str]| whole.str_at(path).unwrap_or_default();
    let containers = set::containers_mut(set::pod_spec_mut(object)?, invocation.text("containers"));
    if containers.is_empty() {
        let selector = go::quote(invocation.text("containers"));
        let (kind, name) = (text(&["kind"]), text(&["metadata", "name"]));
        context.warn(&format!("{kind}/{name} does not have any containers matching {selector}"));
    }
    for container in containers {
        let (kind, name) = (text(&["kind"]), text(&["metadata", "name"]));
        let own = container.str_at(&["name"]).unwrap_or_default();
        writeln!(context.out(), "# {kind} {name}, container {own}")?;
        let mut faults: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for variable in container.get("env").and_then(Value::as_array).unwrap_or_default() {
            let name = variable.str_at(&["name"]).unwrap_or_default();
            let Some(source) = variable.get("valueFrom") else {
                writeln!(context.out(), "{name}={}", variable.str_at(&["value"]).unwrap_or_default())?;
                continue;
            };
            if invocation.bool("resolve") {
                match resolve_value(context, &whole, container, source).await {
                    Ok(value) => {
                        writeln!(context.out(), "{name}={value}")?;
                        continue;
                    }
                    Err(failure) => {
                        faults.entry(changes::inner_message(&failure)).or_default().push(name.to_owned());
                    }
                }
            }
            writeln!(context.out(), "# {name} from {}", env::reference_text(source))?;
        }
        let mut lines: Vec<String> = Vec::new();
        for (fault, mut names) in faults {
            names.sort();
            lines.push(format!("error retrieving reference for {}: {fault}", names.join(", ")));
        }
        lines.sort();
        for line in lines {
            writeln!(context.err(), "{line}")?;
        }
    }
    Ok(())
}

/// Returns the value of a reference.
async fn resolve_value(
    context: &Context,
    object: &Value,
    container: &Value,
    source: &Value,
) -> Result<String, Failure> {
    for (field, resource, what) in
        [("secretKeyRef", &SECRETS, "secret"), ("configMapKeyRef", &CONFIG_MAPS, "config map")]
    {
        let Some(reference) = source.get(field) else { continue };
        let text = |key| reference.str_at(&[key]).unwrap_or_default();
        let namespace = context.namespace()?.name;
        let target = Target::named(resource, namespace.as_str(), text("name"));
        let found = context.client()?.get(&target).await?;
        let Some(value) = found.str_at(&["data", text("key")]) else {
            return Err(Failure::new(format!("key {} not found in {what} {}", text("key"), text("name"))));
        };
        if what == "config map" {
            return Ok(value.to_owned());
        }
        let bytes = STANDARD.decode(value).unwrap_or_default();
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    if let Some(path) = source.str_at(&["fieldRef", "fieldPath"]) {
        return Ok(resolve::field(object, path)?);
    }
    if let Some(reference) = source.get("resourceFieldRef") {
        return Ok(resolve::resource(container, reference)?);
    }
    Err(Failure::new("invalid valueFrom"))
}
