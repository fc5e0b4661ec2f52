//! `kubectl run --attach`: waits for the pod, attaches to its container, and returns its exit code.

use std::io::Write;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Value, json};
use bytes::Bytes;
use client::{DeleteOptions, Event, Propagation, Target, TransportError, WatchOptions};
use http::Request;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{PODS, SERVICES};
use crate::changes;
use crate::commands::attach::{self, AttachOptions};
use crate::pods;
use crate::{Context, Failure, Invocation};

/// The time to read the log before attaching.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the pod to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Running and ready, or completed.
    Started,
    Completed,
    Succeeded,
}

/// Attaches to the container of a new pod, and waits for its end if it is not restarted.
pub(super) async fn attach(context: &Context, invocation: &Invocation, pod: &Value) -> Result<(), Failure> {
    let started = wait(context, invocation, pod, Condition::Started).await?;
    if matches!(pods::phase(&started), "Succeeded" | "Failed") {
        print_log(context, &started).await?;
    } else {
        if let Err(failure) = print_early_log(context, &started).await {
            let cause = changes::inner_message(&failure);
            writeln!(context.err(), "warning: couldn't fetch pre-attach logs: {cause}")?;
        }
        if let Err(failure) = connect(context, invocation, &started).await {
            let (name, cause) = (Meta::of(&started).name(), changes::inner_message(&failure));
            writeln!(context.err(), "warning: couldn't attach to pod/{name}, falling back to streaming logs: {cause}")?;
            print_log(context, &started).await?;
        }
    }
    let condition = match invocation.text("restart") {
        _ if invocation.bool("leave-stdin-open") => return Ok(()),
        "Never" => Condition::Completed,
        "OnFailure" => Condition::Succeeded,
        "" if invocation.bool("stdin") => Condition::Succeeded,
        _ => return Ok(()),
    };
    exit_status(&wait(context, invocation, pod, condition).await?)
}

/// Deletes the objects that the command created, without waiting.
pub(super) async fn remove(context: &Context, invocation: &Invocation, objects: &[Value]) -> Result<(), Failure> {
    for object in objects {
        let meta = Meta::of(object);
        let resource = if object.str_at(&["kind"]) == Some("Service") { &SERVICES } else { &PODS };
        let target = Target::named(resource, meta.namespace(), meta.name());
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        match context.client()?.delete(&target, &options).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            Err(_) => {}
            Ok(_) if invocation.bool("quiet") => {}
            Ok(_) => {
                let (kind, name) = (resource.kind.to_lowercase(), meta.name());
                writeln!(context.out(), "{kind} \"{name}\" deleted from {} namespace", meta.namespace())?;
            }
        }
    }
    Ok(())
}

async fn connect(context: &Context, invocation: &Invocation, pod: &Value) -> Result<(), Failure> {
    let options = AttachOptions {
        container: "",
        stdin: invocation.bool("stdin"),
        tty: invocation.bool("tty"),
        quiet: invocation.bool("quiet"),
        detach_keys: invocation.text("detach-keys"),
        command: "kubectl attach",
    };
    attach::attach(context, pod, &options).await
}

/// Watches the pod until the condition holds.
async fn wait(context: &Context, invocation: &Invocation, pod: &Value, condition: Condition) -> Result<Value, Failure> {
    let waiting = watch(context, pod, condition);
    match timeout(invocation.duration("pod-running-timeout"), waiting).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new("timed out waiting for the condition")),
    }
}

async fn watch(context: &Context, pod: &Value, condition: Condition) -> Result<Value, Failure> {
    let meta = Meta::of(pod);
    let client = context.client()?;
    let target = Target::within(&PODS, meta.namespace());
    let mut version = String::new();
    loop {
        if version.is_empty() {
            let now = client.get(&Target::named(&PODS, meta.namespace(), meta.name())).await?;
            if condition.holds(&now) {
                return Ok(now);
            }
            Meta::of(&now).resource_version().clone_into(&mut version);
        }
        let options = WatchOptions {
            field_selector: format!("metadata.name={}", meta.name()),
            resource_version: version.clone(),
            ..WatchOptions::default()
        };
        let mut events = client.watch(&target, &options).await?;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Added(now) | Event::Modified(now)) => {
                    if condition.holds(&now) {
                        return Ok(Value::clone(&now));
                    }
                }
                Ok(Event::Deleted(_)) => {
                    return Err(Failure::plain("Error from server (NotFound): pods \"\" not found"));
                }
                Ok(_) => {}
                // The version is too old: start from the current state.
                Err(_) => break,
            }
        }
        version.clear();
    }
}

impl Condition {
    fn holds(self, pod: &Value) -> bool {
        let phase = pods::phase(pod);
        let completed = matches!(phase, "Succeeded" | "Failed");
        match self {
            Self::Completed => completed,
            Self::Succeeded => phase == "Succeeded",
            Self::Started => completed || (phase == "Running" && is_ready(pod)),
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let ready = |condition: &&Value| condition.str_at(&["type"]) == Some("Ready");
    conditions.iter().find(ready).and_then(|condition| condition.str_at(&["status"])) == Some("True")
}

/// Turns the end of the pod into the result of the command.
fn exit_status(pod: &Value) -> Result<(), Failure> {
    let meta = Meta::of(pod);
    let place = format!("pod {}/{}", meta.namespace(), meta.name());
    match pods::phase(pod) {
        "Succeeded" => Ok(()),
        "Failed" => {
            let statuses = pod.at(&["status", "containerStatuses"]).and_then(Value::as_array).unwrap_or_default();
            let terminated = statuses.first().and_then(|status| status.at(&["state", "terminated"]));
            let code = terminated.and_then(|state| state.get("exitCode")).and_then(Value::as_int).unwrap_or(0);
            let Some(terminated) = terminated.filter(|_| code != 0) else {
                return Err(Failure::new(format!("{place} failed with unknown exit code")));
            };
            let text = |field| terminated.str_at(&[field]).unwrap_or_default();
            let message = format!("{place} terminated ({})\n{}", text("reason"), text("message"));
            Err(Failure::plain(message).with_code(u8::try_from(code).unwrap_or(u8::MAX)))
        }
        phase => Err(Failure::new(format!("{place} left in phase {phase}"))),
    }
}

async fn print_early_log(context: &Context, pod: &Value) -> Result<(), Failure> {
    match timeout(LOG_TIMEOUT, print_log(context, pod)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new("context deadline exceeded")),
    }
}

async fn print_log(context: &Context, pod: &Value) -> Result<(), Failure> {
    let meta = Meta::of(pod);
    let choice = pods::choose_container(pod, "").map_err(Failure::new)?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/log?container={}",
        meta.namespace(),
        meta.name(),
        choice.container.name()
    );
    let request = Request::get(path).body(Bytes::new()).map_err(client::Error::from)?;
    let response = context.client()?.raw(request).await?;
    let success = response.status().is_success();
    let mut body = response.into_body();
    if !success {
        let bytes = body.collect().await.map_err(TransportError::Broken)?.to_bytes();
        let status = json::parse(&bytes).ok().and_then(|value| Status::from_value(&value));
        return Err(
            status.map_or_else(|| Failure::new(String::from_utf8_lossy(&bytes).into_owned()), Failure::from_status)
        );
    }
    let mut out = context.out();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(TransportError::Broken)?.into_data() {
            out.write_all(&data)?;
            out.flush()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn exit_code_of_the_container_is_that_of_the_command() {
        let pod = |phase: &str, code: i64| {
            value!({
                "metadata": {"name": "p", "namespace": "n"},
                "status": {"phase": phase, "containerStatuses": [
                    {"state": {"terminated": {"exitCode": code, "reason": "Error", "message": ""}}}
                ]}
            })
        };
        assert!(exit_status(&pod("Succeeded", 0)).is_ok());
        let failure = exit_status(&pod("Failed", 3)).unwrap_err();
        assert_eq!((failure.code, failure.to_string().as_str()), (3, "pod n/p terminated (Error)"));
        let failure = exit_status(&pod("Failed", 0)).unwrap_err();
        assert_eq!(failure.to_string(), "error: pod n/p failed with unknown exit code");
        assert_eq!(exit_status(&pod("Running", 0)).unwrap_err().to_string(), "error: pod n/p left in phase Running");
    }

    #[test]
    fn pod_is_started_when_it_is_ready_or_completed() {
        let pod = |phase: &str, ready: &str| value!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        for (phase, ready, expect) in [
            ("Pending", "False", false),
            ("Running", "False", false),
            ("Running", "True", true),
            ("Failed", "False", true),
        ] {
            assert_eq!(Condition::Started.holds(&pod(phase, ready)), expect, "{phase} {ready}");
        }
    }
}
