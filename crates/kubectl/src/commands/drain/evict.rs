//! Evicts or deletes pods, and waits for their removal.

use std::io::Write;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::status::Reason;
use apimachinery::time;
use apimachinery::{Value, value};
use client::{DeleteOptions, Target, WriteOptions};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Drain, DrainError, PODS, filter};
use crate::Failure;
use crate::changes::DryRun;
use crate::describe::Clock;

/// The delay before an eviction is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The interval at which a terminating pod is polled.
const POLL_DELAY: Duration = Duration::from_secs(1);
/// The cause of a rejection because the namespace is deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
const DEADLINE_EXCEEDED: &str = "context deadline exceeded";

/// The next step after a rejected eviction.
enum Next {
    Wait,
    Done,
    Retry,
    Fail(String),
}

impl Drain<'_> {
    /// Evicts pods if the server supports it, or deletes them. Returns the failures.
    pub(super) async fn remove(&self, pods: Vec<Value>) -> Result<Option<DrainError>, Failure> {
        if pods.is_empty() {
            return Ok(None);
        }
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        if !self.disable_eviction {
            let mapping = self.context.mapper().await?.resource("pods").await?;
            if mapping.subresources.iter().any(|subresource| subresource == "eviction") {
                let evictions = pods.into_iter().map(|pod| self.evict(pod, deadline));
                let results: Result<Vec<_>, Failure> = join_all(evictions).await.into_iter().collect();
                let failed: Vec<String> = results?.into_iter().flatten().collect();
                return Ok(if failed.is_empty() { None } else { Some(DrainError::Multiple(failed)) });
            }
        }
        self.delete(pods, deadline).await
    }

    /// Evicts a pod, with retries while its disruption budget does not allow it, and waits until it is deleted.
    async fn evict(&self, mut pod: Value, deadline: Option<Instant>) -> Result<Option<String>, Failure> {
        let (namespace, name) = names(&pod);
        loop {
            let dry_run = if self.dry_run == DryRun::Server { " (server dry run)" } else { "" };
            writeln!(self.context.out(), "evicting pod {}{dry_run}", filter::name(&pod))?;
            self.context.out().flush()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let timeout = self.timeout.unwrap_or_default();
                let timeout = time::Duration::from_nanos(timeout.as_nanos().try_into().unwrap_or(i64::MAX));
                return Ok(Some(format!(
                    "error when evicting pods/{name:?} -n {namespace:?}: global timeout reached: {timeout}"
                )));
            }
            match self.request_eviction(&pod).await? {
                Next::Wait => break,
                Next::Done => return Ok(None),
                Next::Fail(message) => return Ok(Some(message)),
                Next::Retry => sleep(RETRY_DELAY).await,
            }
            // The pod may have been deleted meanwhile.
            let target = Target::named(&PODS, namespace.as_str(), name.as_str());
            if let Ok(fresh) = self.context.client()?.get(&target).await {
                pod = fresh;
            }
        }
        if self.dry_run == DryRun::Server {
            return Ok(None);
        }
        let waited = self.wait(vec![pod], "evicted", "eviction failed", deadline).await?;
        Ok(waited
            .map(|why| format!("error when waiting for pod {name:?} in namespace {namespace:?} to terminate: {why}")))
    }

    async fn request_eviction(&self, pod: &Value) -> Result<Next, Failure> {
        let (namespace, name) = names(pod);
        let mut options = value!({});
        if let (Some(seconds), Some(options)) = (self.grace_seconds, options.as_object_mut()) {
            options.insert("gracePeriodSeconds", seconds);
        }
        if let (DryRun::Server, Some(options)) = (self.dry_run, options.as_object_mut()) {
            options.insert("dryRun", value!(["All"]));
        }
        let eviction = value!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": (name.as_str()), "namespace": (namespace.as_str())},
            "deleteOptions": options,
        });
        let target = Target::named(&PODS, namespace.as_str(), name.as_str()).subresource("eviction");
        let Err(error) = self.context.client()?.create(&target, &eviction, &WriteOptions::default()).await else {
            return Ok(Next::Wait);
        };
        let is = |reason: &Reason| error.status().is_some_and(|status| status.is(reason));
        let details = error.status().and_then(|status| status.details.as_ref());
        let terminating =
            details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING));
        let mut err = self.context.err();
        if is(&Reason::NotFound) {
            Ok(Next::Done)
        } else if is(&Reason::TooManyRequests) {
            writeln!(err, "error when evicting pods/{name:?} -n {namespace:?} (will retry after 5s): {error}")?;
            Ok(Next::Retry)
        } else if is(&Reason::Forbidden) && terminating && Meta::of(pod).is_deleting() {
            Ok(Next::Wait)
        } else if is(&Reason::Forbidden) && terminating {
            writeln!(
                err,
                "error when evicting pod {name:?} from terminating namespace {namespace:?} (will retry after 5s): {error}"
            )?;
            Ok(Next::Retry)
        } else {
            Ok(Next::Fail(format!("error when evicting pods/{name:?} -n {namespace:?}: {error}")))
        }
    }

    async fn delete(&self, pods: Vec<Value>, deadline: Option<Instant>) -> Result<Option<DrainError>, Failure> {
        let options = DeleteOptions {
            grace_seconds: self.grace_seconds,
            dry_run: self.dry_run == DryRun::Server,
            ..DeleteOptions::default()
        };
        for pod in &pods {
            let (namespace, name) = names(pod);
            match self.context.client()?.delete(&Target::named(&PODS, namespace, name), &options).await {
                Err(error) if !error.is_not_found() => return Ok(Some(DrainError::Single(error.to_string()))),
                _ => {}
            }
        }
        Ok(self.wait(pods, "deleted", "deletion failed", deadline).await?.map(DrainError::Single))
    }

    /// Waits until pods are removed, and prints each. Returns the reason if it stops early.
    async fn wait(
        &self,
        mut pods: Vec<Value>,
        done: &str,
        failed: &str,
        deadline: Option<Instant>,
    ) -> Result<Option<String>, Failure> {
        let mut next = Instant::now();
        loop {
            let mut pending = Vec::new();
            for pod in pods {
                let (namespace, name) = names(&pod);
                match self.context.client()?.get(&Target::named(&PODS, namespace, name.as_str())).await {
                    Err(error) if error.is_not_found() => self.print(&name, done)?,
                    Ok(current) if Meta::of(&current).uid() != Meta::of(&pod).uid() => self.print(&name, done)?,
                    Err(error) => {
                        self.print(&name, failed)?;
                        return Ok(Some(error.to_string()));
                    }
                    Ok(current) => {
                        let seconds = self.filter.skip_deleted_seconds;
                        if filter::is_deleted_for_long(&current, seconds, Clock::system().now) {
                            let old = format!("has DeletionTimestamp older than {seconds} seconds, skipping");
                            writeln!(self.context.out(), "pod {name:?} {old}")?;
                        } else {
                            pending.push(pod);
                        }
                    }
                }
            }
            if pending.is_empty() {
                return Ok(None);
            }
            pods = pending;
            next += POLL_DELAY;
            match deadline {
                Some(deadline) if deadline < next => {
                    sleep_until(deadline).await;
                    return Ok(Some(DEADLINE_EXCEEDED.to_owned()));
                }
                _ => sleep_until(next).await,
            }
        }
    }

    fn print(&self, name: &str, message: &str) -> Result<(), Failure> {
        writeln!(self.context.out(), "pod/{name} {}", self.dry_run.message(message))?;
        self.context.out().flush()?;
        Ok(())
    }
}

fn names(pod: &Value) -> (String, String) {
    (Meta::of(pod).namespace().to_owned(), Meta::of(pod).name().to_owned())
}
