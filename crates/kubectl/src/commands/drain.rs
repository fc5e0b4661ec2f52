//! `kubectl drain`: empties a node for maintenance.

mod evict;
mod filter;

use std::io::Write;
use std::time::Duration;

use apimachinery::labels::Selector;
use apimachinery::{Resource, Value};
use client::{ListOptions, Target};

use super::cordon::{self, Cordon};
use crate::changes::{DryRun, inner_message};
use crate::command::{Command, Flag, Group};
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};
use filter::{Decision, Options};

pub(super) static COMMAND: Command = Command {
    name: "drain",
    group: Group::ClusterManagement,
    summary: "Empty a node for maintenance",
    description: "Cordon a node and evict its pods, then wait until they are gone. Mirror pods and pods of \
        DaemonSets stay; the latter require --ignore-daemonsets. Pods without a controller and pods with \
        emptyDir volumes prevent the drain unless --force or --delete-emptydir-data is given. Use \
        \"kubectl uncordon\" to return the node to service.",
    examples: "  # Empty worker-1, which runs pods of DaemonSets
  kubectl drain worker-1 --ignore-daemonsets

  # Remove pods without a controller and local data too
  kubectl drain worker-1 --ignore-daemonsets --force --delete-emptydir-data

  # Give each pod ten minutes to stop, and give up after an hour
  kubectl drain worker-1 --ignore-daemonsets --grace-period=600 --timeout=1h

  # Empty all nodes of a rack
  kubectl drain -l rack=r7 --ignore-daemonsets",
    usage: "kubectl drain NODE [options]",
    flags: &[
        flags::SELECTOR,
        flags::DRY_RUN,
        flags::CHUNK_SIZE,
        &[
            Flag::bool("force", "Remove pods that have no controller too."),
            Flag::bool("ignore-daemonsets", "Proceed although pods of DaemonSets stay on the node."),
            Flag::bool("delete-emptydir-data", "Remove pods with emptyDir volumes too, whose data is lost."),
            Flag::int(
                "grace-period",
                "-1",
                "Seconds that each pod has to stop; a negative number means the pod's own setting.",
            ),
            Flag::duration("timeout", "0s", "Time limit of the drain; zero means none."),
            Flag::text("pod-selector", "", "Remove only the pods that this label selector matches."),
            Flag::bool("disable-eviction", "Delete pods instead of evicting them, which ignores PodDisruptionBudgets."),
            Flag::int(
                "skip-wait-for-delete-timeout",
                "0",
                "Do not wait for pods that were deleted more than this number of seconds ago; 0 waits for all.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
static DAEMON_SETS: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");

/// The options of a drain.
struct Drain<'a> {
    context: &'a Context,
    dry_run: DryRun,
    filter: Options,
    pod_selector: String,
    chunk_size: u32,
    disable_eviction: bool,
    grace_seconds: Option<u32>,
    /// `None` to wait forever.
    timeout: Option<Duration>,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = cordon::check(context, invocation)?;
    let selector = Selector::parse(invocation.text("pod-selector"))
        .map_err(|_| Failure::new("--pod-selector=<pod_selector> must be a valid label selector"))?;
    let drain = Drain {
        context,
        dry_run,
        filter: Options {
            force: invocation.bool("force"),
            ignore_daemon_sets: invocation.bool("ignore-daemonsets"),
            delete_empty_dir_data: invocation.bool("delete-emptydir-data"),
            skip_deleted_seconds: invocation.int("skip-wait-for-delete-timeout"),
        },
        pod_selector: selector.to_string(),
        chunk_size: invocation.int("chunk-size").try_into().unwrap_or(0),
        disable_eviction: invocation.bool("disable-eviction"),
        grace_seconds: invocation.int("grace-period").try_into().ok(),
        timeout: Some(invocation.duration("timeout")).filter(|timeout| !timeout.is_zero()),
    };
    let nodes = cordon::nodes(context, invocation, invocation.int("chunk-size")).await?;
    cordon::set(context, &nodes, Cordon::Cordoned, dry_run).await?;
    drain.nodes(&nodes).await
}

impl Drain<'_> {
    /// Drains nodes sequentially.
    async fn nodes(&self, nodes: &[Info]) -> Result<(), Failure> {
        let mut failures = Vec::new();
        let mut pending = Vec::new();
        for node in nodes {
            let Some(failed) = self.node(&node.name).await? else {
                cordon::print(self.context, node, &self.dry_run.message("drained"))?;
                continue;
            };
            let name = &node.name;
            let reasons = failed.joined();
            writeln!(
                self.context.err(),
                "error: unable to drain node {name:?} due to error: {reasons}, continuing command..."
            )?;
            pending.push(name);
            failures.push(failed);
        }
        if !pending.is_empty() {
            writeln!(self.context.err(), "There are pending nodes to be drained:")?;
            for name in pending {
                writeln!(self.context.err(), " {name}")?;
            }
        }
        let several = failures.iter().map(|failed| Failure::plain(failed.joined())).collect();
        match failures.as_slice() {
            [one] => Err(one.failure()),
            _ => Failure::all(several),
        }
    }

    /// Evicts or deletes the pods of a node. Returns the failures.
    async fn node(&self, name: &str) -> Result<Option<DrainError>, Failure> {
        let decisions = match self.decide(name).await {
            Ok(decisions) => decisions,
            Err(failure) => return Ok(Some(DrainError::Unreadable(Box::new(failure)))),
        };
        let errors = filter::errors(&decisions);
        if !errors.is_empty() {
            return Ok(Some(DrainError::Multiple(errors)));
        }
        let warnings = filter::warnings(&decisions);
        if !warnings.is_empty() {
            self.context.warn(&warnings);
        }
        let pods: Vec<Value> = decisions.into_iter().filter(|decision| decision.delete).map(|it| it.pod).collect();
        if self.dry_run == DryRun::Client {
            for pod in &pods {
                writeln!(self.context.out(), "evicting pod {} (dry run)", filter::name(pod))?;
            }
            return Ok(None);
        }
        let failed = self.remove(pods).await?;
        if let Some(failed) = &failed {
            self.report_pending(name, failed).await?;
        }
        Ok(failed)
    }

    async fn report_pending(&self, node: &str, failed: &DrainError) -> Result<(), Failure> {
        let mut err = self.context.err();
        let errors = match self.decide(node).await {
            Err(failure) => vec![inner_message(&failure)],
            Ok(decisions) => {
                let errors = filter::errors(&decisions);
                let pods: Vec<_> = decisions.iter().filter(|decision| decision.delete).collect();
                if !pods.is_empty() {
                    let reasons = failed.joined();
                    writeln!(err, "There are pending pods in node {node:?} when an error occurred: {reasons}")?;
                }
                for decision in pods {
                    writeln!(err, "pod/{}", decision.pod.str_at(&["metadata", "name"]).unwrap_or_default())?;
                }
                errors
            }
        };
        if !errors.is_empty() {
            let reasons = joined(&errors);
            write!(err, "Following errors occurred while getting the list of pods to delete:\n{reasons}")?;
        }
        Ok(())
    }

    /// Reads the pods of a node and returns the decision about each.
    async fn decide(&self, node: &str) -> Result<Vec<Decision>, Failure> {
        let options = ListOptions {
            label_selector: self.pod_selector.clone(),
            field_selector: format!("spec.nodeName={node}"),
            limit: self.chunk_size,
            ..ListOptions::default()
        };
        let client = self.context.client()?;
        let pods = client.list_all(&Target::all(&PODS), &options).await?.items;
        let now = crate::describe::Clock::system().now;
        let mut decisions = Vec::with_capacity(pods.len());
        for pod in pods {
            let owner = match filter::daemon_set(&pod) {
                Some((namespace, name)) => {
                    let set = client.get(&Target::named(&DAEMON_SETS, namespace, name)).await;
                    set.err()
                        .map(|error| filter::Missing { not_found: error.is_not_found(), message: error.to_string() })
                }
                None => None,
            };
            decisions.push(filter::decide(pod, owner, self.filter, now));
        }
        Ok(decisions)
    }
}

/// The reason that a node could not be drained.
enum DrainError {
    /// The pods of the node could not be read.
    Unreadable(Box<Failure>),
    Single(String),
    /// A list of failures, which is printed without a prefix.
    Multiple(Vec<String>),
}

impl DrainError {
    /// Returns all messages in one line.
    fn joined(&self) -> String {
        match self {
            Self::Unreadable(failure) => inner_message(failure),
            Self::Single(message) => message.clone(),
            Self::Multiple(messages) => joined(messages),
        }
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Unreadable(failure) => Failure::plain(failure.message.clone()),
            Self::Single(message) => Failure::new(message),
            Self::Multiple(messages) => Failure::plain(messages.join("\n")),
        }
    }
}

/// Joins messages as Go prints several errors: `[a, b]`.
fn joined(messages: &[String]) -> String {
    match messages {
        [one] => one.clone(),
        _ => format!("[{}]", messages.join(", ")),
    }
}
