//! `kubectl set env`.

use std::collections::BTreeMap;
use std::io::Write;

use apimachinery::{Resource, Value, go};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::Target;

use super::change::{self, Change, EditResult};
use crate::changes::{self, DryRun};
use crate::command::{Command, Flag};
use crate::generate::set::env::{self, Changes};
use crate::generate::set::{self, resolve};
use crate::{Context, Failure, Invocation, flags, generate};

static SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");

pub(super) static COMMAND: Command = Command {
    name: "env",
    summary: "Change or list environment variables of containers",
    description: "Set, remove, or list environment variables of the containers in pods and pod templates. NAME=VALUE \
                  sets a variable, NAME- removes it, and - reads NAME=VALUE lines from standard input. Supported \
                  types are pod, replicationcontroller, deployment, daemonset, statefulset, cronjob, and replicaset.",
    examples: "  # Set one variable and remove another
  kubectl set env deployment/web LOG_LEVEL=debug CACHE_DIR-
  
  # List the variables of all deployments, with the values of references
  kubectl set env deployments --all --list --resolve
  
  # Refer to two keys of a secret, as variables that start with DB_
  kubectl set env statefulset/db --from=secret/db --keys=username,password --prefix=DB_
  
  # Change one container only
  kubectl set env deployment/worker -c mailer QUEUE=mail
  
  # Copy variables of the shell
  env | grep ^APP_ | kubectl set env deployment/web -e -",
    usage: "kubectl set env RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Change all objects of the given types in the namespace."),
            Flag::text("containers", "*", "Names of the containers to change, with wildcards.").short('c'),
            Flag::array("env", "Variable to set in the containers, as key=value; '-' reads standard input.").short('e'),
            flags::field_manager("kubectl-set"),
            flags::filename("Files, directories, or URLs that contain the objects to change."),
            Flag::text("from", "", "Config map or secret whose keys become variables, as type/name."),
            Flag::list("keys", "Keys to take from the object of --from, separated by commas."),
            Flag::bool("list", "Print the variables with the changes instead of applying them."),
            Flag::bool("local", "Change the objects in the files without contacting the API server."),
            Flag::bool("overwrite", "Replace variables that already exist; if false, the command fails for them.")
                .default("true"),
            Flag::text("prefix", "", "Text to put before the names of the variables that are set."),
            Flag::bool("resolve", "With --list, print the values of references to config maps, secrets, and fields."),
        ],
    ],
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
                EditResult::IfChangedThenFail("at least one environment variable must be provided")
            } else {
                EditResult::IfChanged
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

/// Prints the variables of the selected containers after the changes.
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
