//! `kubectl auth reconcile`.

mod rules;

use std::io::Write;

use apimachinery::{Object, Resource, Value, value};
use client::{DeleteOptions, Target, WriteOptions};

use crate::changes::{DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

use rules::{show_rule, show_subject, uncovered};

pub(super) static COMMAND: Command = Command {
    name: "reconcile",
    summary: "Bring RBAC roles and bindings in line with files",
    description: "Create or update roles, cluster roles, and their bindings so that they grant at least what the \
        files define. Missing namespaces are created. Permissions and subjects that are not in the files stay unless \
        a --remove-extra flag is set. Prefer this command to apply for RBAC, because it compares the meaning of \
        rules.",
    examples: "  # Reconcile the roles and bindings in a file
  kubectl auth reconcile -f web-rbac.yaml

  # Show what would change for all files below a directory
  kubectl auth reconcile -R -f rbac/ --dry-run=client

  # Also revoke everything that the file does not grant
  kubectl auth reconcile -f web-rbac.yaml --remove-extra-permissions --remove-extra-subjects",
    usage: "kubectl auth reconcile -f FILENAME [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::DIRECTORY,
        &[
            flags::filename("Files, directories, or URLs with the RBAC objects to reconcile."),
            Flag::bool("remove-extra-permissions", "Remove permissions of roles that the files do not contain."),
            Flag::bool("remove-extra-subjects", "Remove subjects of bindings that the files do not contain."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
const GROUP: &str = "rbac.authorization.k8s.io";
/// The annotation with which an object opts out.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Maximum number of attempts if other clients change the object at the same time.
const ATTEMPTS: usize = 3;

/// The operation that makes the object on the server equal to that in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Operation {
    #[default]
    None,
    Create,
    Update,
    Recreate,
}

/// The comparison of an object with its file.
#[derive(Clone, Debug, Default)]
struct Outcome {
    object: Value,
    operation: Operation,
    /// The object opted out.
    protected: bool,
    /// Printed form of the rules or subjects that the object lacks.
    missing: Vec<String>,
    /// Printed form of the rules or subjects that the object has in addition.
    extra: Vec<String>,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if invocation.list("filename").is_empty() && invocation.text("kustomize").is_empty() {
        return Err(Failure::new("must specify one of -f and -k"));
    }
    if !invocation.args.is_empty() {
        return Err(Failure::new("no arguments are allowed"));
    }
    let dry_run = DryRun::of(context, invocation)?;
    if dry_run == DryRun::Server {
        return Err(Failure::new("--dry-run=server for command reconcile is not supported yet"));
    }
    let mut results = Results::new(context, invocation, dry_run, Form::Typed)?;
    let builder = Builder::new(context).local(true).namespace(&context.namespace()?).filenames(invocation);
    let found = builder.found().await?;
    let mut failures = found.failures;
    for info in &found.infos {
        let Some(plural) = plural(info)? else { continue };
        match reconcile(context, invocation, info, plural, dry_run).await {
            Ok(outcome) => {
                results.print(&outcome.object, "reconciled")?;
                report(context, invocation, &outcome, plural)?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    Failure::all(failures)
}

/// Returns the plural of a kind that can be reconciled; others are skipped.
fn plural(info: &Info) -> Result<Option<&'static str>, Failure> {
    let resource = &info.mapping.resource;
    let plural = match resource.kind.as_str() {
        _ if resource.group != GROUP => None,
        "Role" => Some("roles"),
        "ClusterRole" => Some("clusterroles"),
        "RoleBinding" => Some("rolebindings"),
        "ClusterRoleBinding" => Some("clusterrolebindings"),
        _ => None,
    };
    if plural.is_some() && resource.version != "v1" {
        let (version, kind) = (&resource.version, &resource.kind);
        return Err(Failure::new(format!("only {GROUP}/v1 is supported: not *{version}.{kind}")));
    }
    Ok(plural)
}

async fn reconcile(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    plural: &'static str,
    dry_run: DryRun,
) -> Result<Outcome, Failure> {
    let kind = info.mapping.resource.kind.as_str();
    let is_cluster = kind.starts_with("Cluster");
    let namespace = match is_cluster {
        true => String::new(),
        false if info.namespace.is_empty() => context.namespace()?.name,
        false => info.namespace.clone(),
    };
    let mut resource = Resource::cluster(GROUP, "v1", plural, "");
    resource.kind = kind.into();
    if !is_cluster {
        resource.scope = apimachinery::meta::Scope::Namespaced;
    }
    let mut expected = info.object.clone();
    if !is_cluster && let Some(metadata) = expected.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace", namespace.as_str());
    }
    let client = context.client()?;
    let target = Target::named(&resource, namespace.as_str(), info.name.as_str());
    let within = Target::within(&resource, namespace.as_str());
    for _ in 0..=ATTEMPTS {
        let mut outcome = match client.get(&target).await {
            Ok(existing) => compare(&existing, &expected, plural, invocation),
            Err(error) if error.is_not_found() => created(&expected, plural),
            Err(error) => return Err(error.into()),
        };
        if outcome.protected || dry_run != DryRun::None {
            return Ok(outcome);
        }
        let options = WriteOptions::default();
        let written = match outcome.operation {
            Operation::None => return Ok(outcome),
            Operation::Update => client.update(&target, &outcome.object, &options).await,
            Operation::Create | Operation::Recreate => {
                if outcome.operation == Operation::Recreate
                    && let Err(error) = client.delete(&target, &DeleteOptions::default()).await
                    && !error.is_not_found()
                {
                    return Err(error.into());
                }
                if !is_cluster {
                    ensure_namespace(context, &namespace).await?;
                }
                client.create(&within, &outcome.object, &options).await
            }
        };
        match written {
            Ok(object) => {
                outcome.object = object;
                return Ok(outcome);
            }
            Err(error) if error.is_not_found() || error.is_conflict() || error.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new("exceeded maximum attempts"))
}

async fn ensure_namespace(context: &Context, name: &str) -> Result<(), Failure> {
    let client = context.client()?;
    if client.get(&Target::named(&NAMESPACES, "", name)).await.is_ok() {
        return Ok(());
    }
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match client.create(&Target::all(&NAMESPACES), &namespace, &WriteOptions::default()).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() || error.is_forbidden() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).unwrap_or_default()
}

fn is_binding(plural: &str) -> bool {
    plural.ends_with("bindings")
}

fn created(expected: &Value, plural: &str) -> Outcome {
    let missing = match is_binding(plural) {
        true => list(expected, "subjects").iter().map(show_subject).collect(),
        false => list(expected, "rules").iter().map(show_rule).collect(),
    };
    Outcome { object: expected.clone(), operation: Operation::Create, missing, ..Outcome::default() }
}

fn compare(existing: &Value, expected: &Value, plural: &str, invocation: &Invocation) -> Outcome {
    let protected = existing.str_at(&["metadata", "annotations", AUTO_UPDATE]) == Some("false");
    if is_binding(plural) && existing.get("roleRef") != expected.get("roleRef") {
        let operation = Operation::Recreate;
        return Outcome { object: expected.clone(), operation, protected, ..Outcome::default() };
    }
    let mut object = existing.clone();
    let mut changed = merge_metadata(&mut object, expected);
    let (key, removes, lacks, has) = if is_binding(plural) {
        let (ours, theirs) = (list(expected, "subjects"), list(existing, "subjects"));
        let only = |a: &[Value], b: &[Value]| a.iter().filter(|item| !b.contains(item)).cloned().collect::<Vec<_>>();
        ("subjects", invocation.bool("remove-extra-subjects"), only(ours, theirs), only(theirs, ours))
    } else {
        let (ours, theirs) = (list(expected, "rules"), list(existing, "rules"));
        let aggregated = expected.get("aggregationRule").is_some() && existing.get("aggregationRule").is_some();
        let extra = if aggregated { Vec::new() } else { uncovered(ours, theirs) };
        ("rules", invocation.bool("remove-extra-permissions"), uncovered(theirs, ours), extra)
    };
    if let Some(fields) = object.as_object_mut() {
        if !removes && !lacks.is_empty() {
            let all: Vec<Value> = list(existing, key).iter().chain(&lacks).cloned().collect();
            fields.insert(key, all);
            changed = true;
        } else if removes && (!lacks.is_empty() || !has.is_empty()) {
            fields.insert(key, list(expected, key).to_vec());
            changed = true;
        }
        changed |= merge_aggregation(fields, expected, removes);
    }
    let show = if is_binding(plural) { show_subject } else { show_rule };
    Outcome {
        object,
        operation: if changed { Operation::Update } else { Operation::None },
        protected,
        missing: lacks.iter().map(show).collect(),
        extra: has.iter().map(show).collect(),
    }
}

/// Adds labels and annotations of the file that the object lacks; returns whether there are any.
fn merge_metadata(object: &mut Value, expected: &Value) -> bool {
    let mut changed = false;
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    for key in ["annotations", "labels"] {
        let Some(desired) = expected.at(&["metadata", key]).and_then(Value::as_object) else { continue };
        let Some(map) = metadata.get_or_insert_with(key, Value::object).as_object_mut() else { continue };
        for (name, value) in desired.iter() {
            if !map.contains_key(name) {
                map.insert(name, value.clone());
                changed = true;
            }
        }
    }
    changed
}

fn merge_aggregation(fields: &mut Object, expected: &Value, removes: bool) -> bool {
    let selectors = |rule: Option<&Value>| -> Vec<Value> {
        rule.map(|rule| list(rule, "clusterRoleSelectors").to_vec()).unwrap_or_default()
    };
    let (desired, have) = (expected.get("aggregationRule"), fields.get("aggregationRule"));
    let (ours, mut theirs) = (selectors(desired), selectors(have));
    let lacks: Vec<Value> = ours.iter().filter(|selector| !theirs.contains(selector)).cloned().collect();
    let has_extra = theirs.iter().any(|selector| !ours.contains(selector));
    match desired {
        None => fields.remove("aggregationRule").is_some(),
        Some(_) if !removes && !lacks.is_empty() => {
            theirs.extend(lacks);
            fields.insert("aggregationRule", value!({"clusterRoleSelectors": (theirs)}));
            true
        }
        Some(desired) if removes && (!lacks.is_empty() || has_extra) => {
            fields.insert("aggregationRule", desired.clone());
            true
        }
        Some(_) => false,
    }
}

/// Prints the required operation and the differences to standard error.
fn report(context: &Context, invocation: &Invocation, outcome: &Outcome, plural: &str) -> Result<(), Failure> {
    let required = match outcome.operation {
        Operation::None => return Ok(()),
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Recreate => "recreate",
    };
    let caveat = match outcome.protected {
        true => format!(", but object opted out ({AUTO_UPDATE}: false)"),
        false => String::new(),
    };
    let mut text = format!("\treconciliation required {required}{caveat}\n");
    let (what, flag) = match is_binding(plural) {
        true => ("subjects", "remove-extra-subjects"),
        false => ("rules", "remove-extra-permissions"),
    };
    if !outcome.missing.is_empty() {
        text.push_str(&format!("\tmissing {what} added:\n"));
        text.extend(outcome.missing.iter().map(|line| format!("\t\t{line}\n")));
    }
    if invocation.bool(flag) && !outcome.extra.is_empty() {
        text.push_str(&format!("\textra {what} removed:\n"));
        text.extend(outcome.extra.iter().map(|line| format!("\t\t{line}\n")));
    }
    Ok(context.err().write_all(text.as_bytes())?)
}
