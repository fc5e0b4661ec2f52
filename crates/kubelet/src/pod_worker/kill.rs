//! Termination of one container: preStop hook, signal, and kill after the grace period.

use std::sync::Arc;

use component_base::clock;
use controller::EventType;
use tracing::Instrument;

use super::{TaskResult, Worker};
use crate::hooks;
use crate::pod::Pod;

/// The parameters of a container's termination.
#[derive(Clone, Copy)]
pub(super) struct Manner<'a> {
    pub grace_seconds: i64,
    /// Message of the event.
    pub message: &'a str,
    /// Whether the preStop hook runs first.
    pub hook: bool,
}

impl Worker {
    /// Starts the termination of a container; again if its grace period became shorter.
    pub(super) fn kill(&mut self, id: &str, name: &str, manner: Manner<'_>) {
        let Manner { grace_seconds, message, hook } = manner;
        let over = clock::now().plus(apimachinery::time::Duration::from_seconds(grace_seconds));
        let again = self.local.killing.insert(id.to_owned(), over).is_some();
        let (context, pod) = (Arc::clone(&self.context), Arc::clone(&self.pod));
        if let Some(container) = Pod(&pod).container(name).filter(|_| !again) {
            context.event_sink(Pod(&pod)).container(container, EventType::Normal, "Killing", message);
        }
        let pod_ip = self.runtime.sandbox().and_then(|sandbox| sandbox.ips.first().cloned());
        let pod_ip = pod_ip.or_else(|| context.facts.host_ips.first().cloned()).unwrap_or_default();
        let (id, name) = (id.to_owned(), name.to_owned());
        let task = async move {
            let container = Pod(&pod).container(&name).filter(|_| hook && !again);
            let hook = container.and_then(|container| {
                let handler = container.spec["lifecycle"].get("preStop").filter(|hook| !hook.is_null())?;
                Some((handler, container))
            });
            let result = hooks::end_container(&context.runtime, hook, &id, &pod_ip, grace_seconds).await;
            if let (Some(cause), Some((_, container))) = (result.hook_failure, hook) {
                let message = format!("PreStopHook failed: {cause}");
                context.event_sink(Pod(&pod)).container(container, EventType::Warning, "FailedPreStopHook", &message);
            }
            if let Err(status) = result.stopped {
                tracing::warn!(id, status = status.message(), "failed to stop a container");
            }
            TaskResult::Killed(id)
        };
        self.tasks.spawn(task.in_current_span());
    }
}
