//! `kubectl rollout undo`: restores an earlier revision of a workload.

use std::io::Write;

use apimachinery::meta::Meta;
use apimachinery::{Object, Value, value};
use client::{Patch, WriteOptions};

use super::revisions::{self, History, Revision};
use super::{FILENAME, find, require_resource};
use crate::changes::{DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::describe;
use crate::describe::workloads::is_same_template;
use crate::generate::last_applied::ANNOTATION as LAST_APPLIED;
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "undo",
    summary: "Return to an earlier revision",
    description: "Set the pod template of a Deployment, DaemonSet, or StatefulSet to that of an earlier revision, \
        which starts a new rollout.",
    examples: "  # Return to the revision before the current one
  kubectl rollout undo deployment/web

  # Return to revision 4
  kubectl rollout undo daemonset/log-agent --to-revision=4

  # Show what would change
  kubectl rollout undo deployment/web --dry-run=server",
    usage: "kubectl rollout undo (TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            FILENAME,
            Flag::int("to-revision", "0", "Revision to return to; 0 means the one before the current revision."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// Annotations that belong to the Deployment, not to its revisions.
const DEPLOYMENT_ANNOTATIONS: [&str; 6] = [
    LAST_APPLIED,
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
];
const TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    require_resource(invocation)?;
    let found = find(context, invocation).await?;
    let mut results = Results::new(context, invocation, dry_run, Form::Typed)?;
    let mut failures = found.failures;
    for info in found.infos {
        match undo(context, &info, invocation.int("to-revision"), dry_run).await {
            Ok(result) => results.print(&info.object, &result)?,
            Err(failure) => failures.push(failure),
        }
    }
    Failure::all(failures)
}

/// Restores a revision, and returns the operation for the message.
async fn undo(context: &Context, info: &Info, to: i64, dry_run: DryRun) -> Result<String, Failure> {
    if Meta::of(&info.object).annotation(LAST_APPLIED).is_some() {
        let name = format!("{}/{}", info.mapping.resource.plural, info.name);
        writeln!(
            context.err(),
            "Warning: resource {name} was previously managed with 'kubectl apply'. Rolling back will not update the \
             {LAST_APPLIED} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. \
             Consider using 'kubectl apply' with your previous configuration file instead."
        )?;
    }
    let workload = revisions::workload(info).ok_or_else(|| revisions::unsupported(info, "rollbacker", "rollbacker"))?;
    if to < 0 {
        return Err(not_found(to));
    }
    let history = revisions::read(context, workload, info).await?;
    let revision = choose(&history, to, workload.kind == "Deployment", &info.name)?;
    let is_deployment = workload.kind == "Deployment";
    if dry_run == DryRun::Client {
        let text = describe::template(&history.template(revision)?);
        return Ok(if is_deployment { text } else { format!("will roll back to {text}") });
    }
    if is_deployment && history.object.at(&["spec", "paused"]).and_then(Value::as_bool) == Some(true) {
        return Err(Failure::new(
            "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again",
        ));
    }
    let current = history.object.at(&["spec", "template"]).cloned().unwrap_or_default();
    let template = history.at(revision)?.at(&["spec", "template"]).cloned().unwrap_or_default();
    if is_same_template(&template, &current) {
        return Ok(format!("skipped rollback (current template already matches revision {to})"));
    }
    let patch = match is_deployment {
        true => deployment_patch(&history.object, &revision.source, template),
        false => Patch::Strategic(revision.source.get("data").cloned().unwrap_or_default()),
    };
    let options = WriteOptions { dry_run: dry_run == DryRun::Server, ..WriteOptions::default() };
    let restored = context.client()?.patch(&info.target(), &patch, &options).await;
    restored.map_err(|error| Failure::new(format!("failed restoring revision {to}: {error}")))?;
    Ok("rolled back".to_owned())
}

fn not_found(revision: i64) -> Failure {
    Failure::new(format!("unable to find specified revision {revision} in history"))
}

/// Returns the revision with a number, or the one before the newest.
fn choose<'a>(history: &'a History, to: i64, is_deployment: bool, name: &str) -> Result<&'a Revision, Failure> {
    if to > 0 {
        let mut revisions = history.revisions.iter();
        return revisions.find(|revision| revision.number == to).ok_or_else(|| not_found(to));
    }
    let mut revisions: Vec<&Revision> = history.revisions.iter().collect();
    revisions.sort_by_key(|revision| revision.number);
    match revisions.as_slice() {
        [.., previous, _] => Ok(previous),
        _ if is_deployment => Err(Failure::new(format!("no rollout history found for deployment {name:?}"))),
        _ => Err(Failure::new("no last revision to roll back to")),
    }
}

/// Returns a patch that restores the template and the annotations of a Deployment.
fn deployment_patch(deployment: &Value, set: &Value, mut template: Value) -> Patch {
    let labels = template.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH_LABEL);
    }
    let of = |object: &Value| Meta::of(object).annotations().cloned().unwrap_or_default();
    let is_kept = |key: &str| DEPLOYMENT_ANNOTATIONS.contains(&key);
    let retained = of(deployment).into_iter().filter(|(key, _)| is_kept(key));
    let restored = of(set).into_iter().filter(|(key, _)| !is_kept(key));
    let annotations: Object = retained.chain(restored).collect();
    Patch::Json(value!([
        {"op": "replace", "path": "/spec/template", "value": template},
        {"op": "replace", "path": "/metadata/annotations", "value": annotations},
    ]))
}
