//! `kubectl rollout status`: waits for the end of a rollout.

use std::io::Write;
use std::time::Duration;

use apimachinery::Value;
use apimachinery::meta::Meta;
use client::{Event, ListOptions, WatchOptions};
use tokio::time::{Instant, timeout_at};

use super::{FILENAME, find, report_nothing_found, require_resource};
use crate::command::{Command, Flag};
use crate::describe::read::Read;
use crate::resources::Info;
use crate::stream::terminal;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "status",
    summary: "Wait for a rollout and show its progress",
    description: "Show the progress of the latest rollout until it is complete. A rollout that starts meanwhile is \
        followed too, unless --revision is given, which makes the command fail as soon as another revision \
        runs.",
    examples: "  # Wait for the rollout of web
  kubectl rollout status deployment/web

  # Wait for five minutes at most
  kubectl rollout status deployment/web --timeout=5m

  # Print the current state only
  kubectl rollout status statefulset/db --watch=false",
    usage: "kubectl rollout status (TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            FILENAME,
            Flag::bool("watch", "Follow the rollout until it is complete.").default("true").short('w'),
            Flag::int("revision", "0", "Revision that must be the one rolled out; 0 means the latest."),
            Flag::duration(
                "timeout",
                "0s",
                "Time to wait, with a unit such as 1s, 2m, or 3h; zero means without limit.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
/// A time without end, for a watch without timeout.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    require_resource(invocation)?;
    let revision = invocation.int("revision");
    if revision < 0 {
        return Err(Failure::new(format!("revision must be a positive integer: {revision}")));
    }
    let found = find(context, invocation).await?;
    if found.infos.is_empty() && found.failures.is_empty() {
        return report_nothing_found(context);
    }
    let mut failures = found.failures;
    for info in found.infos {
        if let Err(failure) = terminal::interruptible(follow(context, invocation, &info, revision)).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

/// Prints the status of an object until its rollout is done.
async fn follow(context: &Context, invocation: &Invocation, info: &Info, revision: i64) -> Result<(), Failure> {
    let resource = &info.mapping.resource;
    let status = viewer(&resource.group, &resource.kind).ok_or_else(|| {
        Failure::new(format!(
            "no status viewer has been implemented for {}",
            kind_name(&resource.kind, &resource.group)
        ))
    })?;
    let end = Instant::now()
        + match invocation.duration("timeout") {
            Duration::ZERO => FOREVER,
            timeout => timeout,
        };
    let show = |object: &Value| -> Result<bool, Failure> {
        let (text, done) = status(object, revision).map_err(Failure::new)?;
        write!(context.out(), "{text}")?;
        context.out().flush()?;
        Ok(done || !invocation.bool("watch"))
    };
    let client = context.client()?;
    let field_selector = format!("metadata.name={}", info.name);
    loop {
        let options = ListOptions { field_selector: field_selector.clone(), ..ListOptions::default() };
        let list = client.list(&info.collection(), &options).await?;
        for object in &list.items {
            if show(object)? {
                return Ok(());
            }
        }
        let options = WatchOptions {
            field_selector: field_selector.clone(),
            resource_version: list.resource_version,
            ..WatchOptions::default()
        };
        let mut watch = client.watch(&info.collection(), &options).await?;
        loop {
            let event = timeout_at(end, watch.next()).await;
            let Ok(event) = event else {
                return Err(Failure::new("timed out waiting for the condition"));
            };
            match event {
                Some(Ok(Event::Added(object) | Event::Modified(object))) => {
                    if show(&object)? {
                        return Ok(());
                    }
                }
                Some(Ok(Event::Deleted(_))) => return Err(Failure::new("object has been deleted")),
                Some(Ok(_)) => {}
                // The server ended the watch, or its version is too old: start again.
                Some(Err(_)) | None => break,
            }
        }
    }
}

/// Returns a kind as Go prints it: `Deployment.apps`.
pub(super) fn kind_name(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// A function that returns the status of a rollout, and whether it is done.
type Viewer = fn(&Value, i64) -> Result<(String, bool), String>;

fn viewer(group: &str, kind: &str) -> Option<Viewer> {
    match (group, kind) {
        ("apps", "Deployment") => Some(deployment),
        ("apps", "DaemonSet") => Some(daemon_set),
        ("apps", "StatefulSet") => Some(stateful_set),
        _ => None,
    }
}

fn deployment(object: &Value, revision: i64) -> Result<(String, bool), String> {
    let (meta, status) = (Meta::of(object), object.sub("status"));
    let name = meta.name();
    if revision > 0 {
        let running = meta.annotation(REVISION_ANNOTATION).unwrap_or("0");
        let running: i64 = running.parse().map_err(|_| {
            let problem = format!("strconv.ParseInt: parsing {running:?}: invalid syntax");
            format!("cannot get the revision of deployment {name:?}: {problem}")
        })?;
        if revision != running {
            return Err(format!("desired revision ({revision}) is different from the running revision ({running})"));
        }
    }
    if meta.generation() > status.int("observedGeneration") {
        return Ok(("Waiting for deployment spec update to be observed...\n".to_owned(), false));
    }
    let progressing = status.list("conditions").iter().find(|condition| condition.text("type") == "Progressing");
    if progressing.is_some_and(|condition| condition.text("reason") == "ProgressDeadlineExceeded") {
        return Err(format!("deployment {name:?} exceeded its progress deadline"));
    }
    let [updated, replicas, available] =
        ["updatedReplicas", "replicas", "availableReplicas"].map(|field| status.int(field));
    let desired = object.int("spec.replicas");
    let waiting = if updated < desired {
        format!("{updated} out of {desired} new replicas have been updated")
    } else if replicas > updated {
        format!("{} old replicas are pending termination", replicas - updated)
    } else if available < updated {
        format!("{available} of {updated} updated replicas are available")
    } else {
        return Ok((format!("deployment {name:?} successfully rolled out\n"), true));
    };
    Ok((format!("Waiting for deployment {name:?} rollout to finish: {waiting}...\n"), false))
}

const ROLLING_ONLY: &str = "rollout status is only available for RollingUpdate strategy type";

fn daemon_set(object: &Value, _: i64) -> Result<(String, bool), String> {
    let status = object.sub("status");
    let name = Meta::of(object).name();
    if object.text("spec.updateStrategy.type") != "RollingUpdate" {
        return Err(ROLLING_ONLY.to_owned());
    }
    if Meta::of(object).generation() > status.int("observedGeneration") {
        return Ok(("Waiting for daemon set spec update to be observed...\n".to_owned(), false));
    }
    let [updated, desired, available] =
        ["updatedNumberScheduled", "desiredNumberScheduled", "numberAvailable"].map(|field| status.int(field));
    let waiting = if updated < desired {
        format!("{updated} out of {desired} new pods have been updated")
    } else if available < desired {
        format!("{available} of {desired} updated pods are available")
    } else {
        return Ok((format!("daemon set {name:?} successfully rolled out\n"), true));
    };
    Ok((format!("Waiting for daemon set {name:?} rollout to finish: {waiting}...\n"), false))
}

fn stateful_set(object: &Value, _: i64) -> Result<(String, bool), String> {
    let (spec, status) = (object.sub("spec"), object.sub("status"));
    if spec.text("updateStrategy.type") != "RollingUpdate" {
        return Err(ROLLING_ONLY.to_owned());
    }
    let observed = status.int("observedGeneration");
    if observed == 0 || Meta::of(object).generation() > observed {
        return Ok(("Waiting for statefulset spec update to be observed...\n".to_owned(), false));
    }
    let replicas = spec.int("replicas");
    let [ready, updated, current] =
        ["readyReplicas", "updatedReplicas", "currentReplicas"].map(|field| status.int(field));
    if ready < replicas {
        return Ok((format!("Waiting for {} pods to be ready...\n", replicas - ready), false));
    }
    let rolling = spec.sub("updateStrategy.rollingUpdate");
    if !rolling.is_null() {
        let desired = replicas - rolling.int("partition");
        if rolling.has("partition") && updated < desired {
            let waiting = format!("{updated} out of {desired} new pods have been updated");
            return Ok((format!("Waiting for partitioned roll out to finish: {waiting}...\n"), false));
        }
        return Ok((format!("partitioned roll out complete: {updated} new pods have been updated...\n"), true));
    }
    let [update_revision, revision] = ["updateRevision", "currentRevision"].map(|field| status.text(field));
    if update_revision != revision {
        let waiting = format!("{updated} pods at revision {update_revision}");
        return Ok((format!("waiting for statefulset rolling update to complete {waiting}...\n"), false));
    }
    Ok((format!("statefulset rolling update complete {current} pods at revision {revision}...\n"), true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn deployment_is_done_when_all_replicas_are_updated_and_available() {
        let object = |observed: i64, updated: i64, total: i64, available: i64| {
            value!({
                "metadata": {"name": "web", "generation": 2, "annotations": {"deployment.kubernetes.io/revision": "3"}},
                "spec": {"replicas": 3},
                "status": {
                    "observedGeneration": observed, "updatedReplicas": updated, "replicas": total,
                    "availableReplicas": available,
                },
            })
        };
        let check = |object: Value, text: &str, done: bool| {
            assert_eq!(deployment(&object, 0), Ok((format!("{text}\n"), done)));
        };
        check(object(1, 3, 3, 3), "Waiting for deployment spec update to be observed...", false);
        let waiting = "Waiting for deployment \"web\" rollout to finish: ";
        check(object(2, 1, 3, 3), &format!("{waiting}1 out of 3 new replicas have been updated..."), false);
        check(object(2, 3, 4, 3), &format!("{waiting}1 old replicas are pending termination..."), false);
        check(object(2, 3, 3, 2), &format!("{waiting}2 of 3 updated replicas are available..."), false);
        check(object(2, 3, 3, 3), "deployment \"web\" successfully rolled out", true);
        let other = "desired revision (2) is different from the running revision (3)";
        assert_eq!(deployment(&object(2, 3, 3, 3), 2), Err(other.to_owned()));
    }
}
