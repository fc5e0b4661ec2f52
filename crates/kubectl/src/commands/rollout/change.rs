//! `kubectl rollout pause`, `resume` and `restart`: changes of one field of a workload.

use apimachinery::{Value, value};
use client::Patch;

use super::{FILENAME, find, report_nothing_found, require_resource};
use crate::changes::{self, DryRun, Form, Results, inner_message};
use crate::command::Command;
use crate::describe::Clock;
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub static PAUSE: Command = Command {
    name: "pause",
    summary: "Mark the provided resource as paused",
    description: "Mark the provided resource as paused.

 Paused resources will not be reconciled by a controller. Use \"kubectl rollout resume\" to resume a paused resource. Currently only deployments support being paused.",
    examples: "  # Mark the nginx deployment as paused
  # Any current state of the deployment will continue its function; new updates
  # to the deployment will not have an effect as long as the deployment is paused
  kubectl rollout pause deployment/nginx",
    usage: "kubectl rollout pause RESOURCE [options]",
    flags: &[flags::OUTPUT, flags::SELECTOR, flags::DIRECTORY, &[FILENAME, flags::field_manager("kubectl-rollout")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Change::Pause))),
    ..Command::EMPTY
};

pub static RESUME: Command = Command {
    name: "resume",
    summary: "Resume a paused resource",
    description: "Resume a paused resource.

 Paused resources will not be reconciled by a controller. By resuming a resource, we allow it to be reconciled again. Currently only deployments support being resumed.",
    examples: "  # Resume an already paused deployment
  kubectl rollout resume deployment/nginx",
    usage: "kubectl rollout resume RESOURCE [options]",
    flags: &[flags::OUTPUT, flags::SELECTOR, flags::DIRECTORY, &[FILENAME, flags::field_manager("kubectl-rollout")]],
    run: Some(|context, invocation| Box::pin(run(context, invocation, Change::Resume))),
    ..Command::EMPTY
};

pub static RESTART: Command = Command {
    name: "restart",
    summary: "Restart a resource",
    description: "Restart a resource.

        Resource rollout will be restarted.",
    examples: "  # Restart all deployments in the test-namespace namespace
  kubectl rollout restart deployment -n test-namespace
  
  # Restart a deployment
  kubectl rollout restart deployment/nginx
  
  # Restart a daemon set
  kubectl rollout restart daemonset/abc
  
  # Restart deployments with the app=nginx label
  kubectl rollout restart deployment --selector=app=nginx",
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
