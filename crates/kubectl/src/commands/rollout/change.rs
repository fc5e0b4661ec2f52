//! `kubectl rollout pause`, `resume` and `restart`: changes of one field of a workload.

use apimachinery::{Value, value};
use client::Patch;

use super::{FILENAME, find, report_nothing_found, require_resource};
use crate::changes::{self, DryRun, Form, Results, inner_message};
use crate::command::Command;
use crate::describe::Clock;
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub(super) static PAUSE: Command = Command {
    name: "pause",
    summary: "Pause the rollout of a Deployment",
    description: "Pause a Deployment: its pods keep running, but changes of its pod template have no effect until \
        \"kubectl rollout resume\". Only Deployments can be paused.",
    examples: "  # Collect several changes of web before they roll out
  kubectl rollout pause deployment/web

  # Pause all Deployments of the shop
  kubectl rollout pause deployment -l part-of=shop",
    usage: "kubectl rollout pause RESOURCE [options]",
    flags: &[flags::OUTPUT, flags::SELECTOR, flags::DIRECTORY, &[FILENAME, flags::field_manager("kubectl-rollout")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Change::Pause))),
    ..Command::EMPTY
};

pub(super) static RESUME: Command = Command {
    name: "resume",
    summary: "Continue the rollout of a paused Deployment",
    description: "Continue a paused Deployment, which rolls out all changes made in the meantime. Only Deployments \
        can be resumed.",
    examples: "  # Roll out the changes made since web was paused
  kubectl rollout resume deployment/web

  # Resume the Deployments of a file
  kubectl rollout resume -f shop.yaml",
    usage: "kubectl rollout resume RESOURCE [options]",
    flags: &[flags::OUTPUT, flags::SELECTOR, flags::DIRECTORY, &[FILENAME, flags::field_manager("kubectl-rollout")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Change::Resume))),
    ..Command::EMPTY
};

pub(super) static RESTART: Command = Command {
    name: "restart",
    summary: "Replace the pods of a workload",
    description: "Start a new rollout of a Deployment, DaemonSet, or StatefulSet with an unchanged configuration. \
        Pods are replaced step by step, according to the workload's update strategy.",
    examples: "  # Replace the pods of web, such as after a change of its ConfigMap
  kubectl rollout restart deployment/web

  # Replace the pods of all StatefulSets in a namespace
  kubectl rollout restart statefulset -n databases

  # Replace the pods of all Deployments of the shop
  kubectl rollout restart deployment -l part-of=shop",
    usage: "kubectl rollout restart RESOURCE [options]",
    flags: &[flags::OUTPUT, flags::SELECTOR, flags::DIRECTORY, &[FILENAME, flags::field_manager("kubectl-rollout")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Change::Restart))),
    ..Command::EMPTY
};

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Pause,
    Resume,
    Restart,
}

async fn run(context: &Context, invocation: &Invocation, change: Change) -> Result<(), Failure> {
    require_resource(invocation)?;
    let mut results = Results::new(context, invocation, DryRun::None, Form::Typed)?;
    let options = changes::write_options(invocation, DryRun::None)?;
    let found = find(context, invocation).await?;
    let mut failures = found.failures;
    if found.infos.is_empty() && failures.is_empty() {
        return report_nothing_found(context);
    }
    let now = Clock::system().rfc3339();
    for info in found.infos {
        let patch = match change.patch(&info, &now) {
            Ok(patch) => patch,
            Err(problem) => {
                let resource = &info.mapping.resource;
                failures.push(Failure::plain(format!("error: {resource} {:?} {problem}", info.name)));
                continue;
            }
        };
        match context.client()?.patch(&info.target(), &Patch::Strategic(patch), &options).await {
            Ok(object) => results.print(&object, change.operation())?,
            Err(error) => failures.push(Failure::new(format!("failed to patch: {}", inner_message(&error.into())))),
        }
    }
    Failure::all(failures)
}

impl Change {
    const fn operation(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Restart => "restarted",
        }
    }

    /// Returns the patch of an object, or why the object cannot be changed.
    fn patch(self, info: &Info, now: &str) -> Result<Value, String> {
        let resource = &info.mapping.resource;
        let kind = match resource.group.as_str() {
            "apps" => resource.kind.as_str(),
            _ => "",
        };
        let paused = info.object.at(&["spec", "paused"]).and_then(Value::as_bool).unwrap_or_default();
        match (self, kind) {
            (Self::Pause, "Deployment") if paused => Err("is already paused".to_owned()),
            (Self::Pause, "Deployment") => Ok(value!({"spec": {"paused": true}})),
            (Self::Pause, _) => Err("pausing is not supported".to_owned()),
            (Self::Resume, "Deployment") if !paused => Err("is not paused".to_owned()),
            (Self::Resume, "Deployment") => Ok(value!({"spec": {"paused": null}})),
            (Self::Resume, _) => Err("resuming is not supported".to_owned()),
            (Self::Restart, "Deployment") if paused => {
                Err("can't restart paused deployment (run rollout resume first)".to_owned())
            }
            (Self::Restart, "Deployment" | "DaemonSet" | "StatefulSet") => {
                let annotations = Value::Object([(RESTARTED_AT, now)].into_iter().collect());
                Ok(value!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
            }
            (Self::Restart, _) => Err("restarting is not supported".to_owned()),
        }
    }
}
