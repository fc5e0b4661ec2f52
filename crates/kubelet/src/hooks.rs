//! Container lifecycle hooks: postStart and preStop handlers.

use std::time::{Duration, Instant};

use apimachinery::Value;
use tonic::Status;

use crate::http_client;
use crate::pod::Container;
use crate::runtime::Runtime;

/// Minimum grace period of a container after its preStop handler.
const AFTER_HOOK_SECONDS: i64 = 2;

/// The outcome of stopping a container.
pub(crate) struct StopResult {
    /// Error message of the preStop handler, if it failed.
    pub hook_failure: Option<String>,
    pub stopped: Result<(), Status>,
}

/// Runs the preStop handler of a container, if there is one and time for it, and stops the container within the
/// remaining grace period.
pub(crate) async fn end_container(
    runtime: &Runtime,
    hook: Option<(&Value, Container<'_>)>,
    id: &str,
    pod_ip: &str,
    grace_seconds: i64,
) -> StopResult {
    let started = Instant::now();
    let (mut left, mut hook_failure) = (grace_seconds, None);
    if let Some((hook, container)) = hook.filter(|_| grace_seconds > 0) {
        let time = Duration::from_secs(grace_seconds.unsigned_abs());
        let outcome = tokio::time::timeout(time, run(runtime, hook, container, id, pod_ip, time)).await;
        hook_failure = outcome.ok().and_then(Result::err);
        let spent = i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX);
        left = (grace_seconds - spent).max(AFTER_HOOK_SECONDS);
    }
    StopResult { hook_failure, stopped: runtime.stop_container(id, left).await }
}

/// Runs a handler until it completes or times out. The error is an event message.
pub(crate) async fn run(
    runtime: &Runtime,
    handler: &Value,
    container: Container<'_>,
    id: &str,
    pod_ip: &str,
    timeout: Duration,
) -> Result<(), String> {
    if let Some(exec) = handler.get("exec") {
        let args = exec["command"].as_array().unwrap_or_default();
        let command: Vec<String> = args.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
        let command_line = command.join(" ");
        return match runtime.exec(id, command, timeout).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => Err(format!(
                "Exec lifecycle hook ([{command_line}]) for Container \"{}\" failed - error: command '{command_line}' exited with {code}: {}",
                container.name(),
                String::from_utf8_lossy(&output)
            )),
            Err(status) => Err(status.message().to_owned()),
        };
    }
    if let Some(action) = handler.get("httpGet") {
        let get = http_client::Get::read(action, container, pod_ip, "kube-lifecycle/1.36")
            .map_err(|error| error.to_string())?;
        return match http_client::get(&get, timeout).await {
            Ok((status, _)) if status.as_u16() < 400 => Ok(()),
            Ok((status, body)) => {
                Err(format!("HTTP lifecycle hook failed with statuscode {}: {body}", status.as_u16()))
            }
            Err(error) => Err(error.to_string()),
        };
    }
    if let Some(sleep) = handler.get("sleep") {
        let seconds = sleep["seconds"].as_int().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds).min(timeout)).await;
        return Ok(());
    }
    if let Some(action) = handler.get("tcpSocket") {
        let host = action.str_at(&["host"]).filter(|host| !host.is_empty()).unwrap_or(pod_ip);
        let port = http_client::port(&action["port"], container).ok_or("the port is unknown")?;
        return http_client::connect(host, port, timeout).await.map_err(|error| error.to_string());
    }
    Ok(())
}
