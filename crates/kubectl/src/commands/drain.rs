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

pub static COMMAND: Command = Command {
    name: "drain",
    group: Group::ClusterManagement,
    summary: "Drain node in preparation for maintenance",
    description: "Drain node in preparation for maintenance.

 The given node will be marked unschedulable to prevent new pods from arriving. 'drain' evicts the pods if the API server supports https://kubernetes.io/docs/concepts/workloads/pods/disruptions/ eviction https://kubernetes.io/docs/concepts/workloads/pods/disruptions/ . Otherwise, it will use normal DELETE to delete the pods. The 'drain' evicts or deletes all pods except mirror pods (which cannot be deleted through the API server).  If there are daemon set-managed pods, drain will not proceed without --ignore-daemonsets, and regardless it will not delete any daemon set-managed pods, because those pods would be immediately replaced by the daemon set controller, which ignores unschedulable markings.  If there are any pods that are neither mirror pods nor managed by a replication controller, replica set, daemon set, stateful set, or job, then drain will not delete any pods unless you use --force.  --force will also allow deletion to proceed if the managing resource of one or more pods is missing.

 'drain' waits for graceful termination. You should not operate on the machine until the command completes.

 When you are ready to put the node back into service, use kubectl uncordon, which will make the node schedulable again.

https://kubernetes.io/images/docs/kubectl_drain.svg Workflowhttps://kubernetes.io/images/docs/kubectl_drain.svg",
    examples: "  # Drain node \"foo\", even if there are pods not managed by a replication controller, replica set, job, daemon set, or stateful set on it
  kubectl drain foo --force
  
  # As above, but abort if there are pods not managed by a replication controller, replica set, job, daemon set, or stateful set, and use a grace period of 15 minutes
  kubectl drain foo --grace-period=900",
    usage: "kubectl drain NODE [options]",
    flags: &[flags::SELECTOR, flags::DRY_RUN, flags::CHUNK_SIZE, &[
        Flag::bool("force", "Continue even if there are pods that do not declare a controller."),
        Flag::bool("ignore-daemonsets", "Ignore DaemonSet-managed pods."),
        Flag::bool("delete-emptydir-data", "Continue even if there are pods using emptyDir (local data that will be deleted when the node is drained)."),
        Flag::int("grace-period", "-1", "Period of time in seconds given to each pod to terminate gracefully. If negative, the default value specified in the pod will be used."),
        Flag::duration("timeout", "0s", "The length of time to wait before giving up, zero means infinite"),
        Flag::text("pod-selector", "", "Label selector to filter pods on the node"),
        Flag::bool("disable-eviction", "Force drain to use delete, even if eviction is supported. This will bypass checking PodDisruptionBudgets, use with caution."),
        Flag::int("skip-wait-for-delete-timeout", "0", "If pod DeletionTimestamp older than N seconds, skip waiting for the pod.  Seconds must be greater than 0 to skip."),
    ]],
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
    /// Drains nodes one after the other.
    async fn nodes(&self, nodes: &[Info]) -> Result<(), Failure> {
        let mut failures = Vec::new();
        let mut pending = Vec::new();
        for node in nodes {
            let Some(failed) = self.node(&node.name).await? else {
                cordon::print(self.context, node, &self.dry_run.message("drained"))?;
                continue;
            };
            let name = &node.name;
            let why = failed.joined();
            writeln!(
                self.context.err(),
                "error: unable to drain node {name:?} due to error: {why}, continuing command..."
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
    async fn node(&self, name: &str) -> Result<Option<Failed>, Failure> {
        let decisions = match self.decide(name).await {
            Ok(decisions) => decisions,
            Err(failure) => return Ok(Some(Failed::Unreadable(Box::new(failure)))),
        };
        let errors = filter::errors(&decisions);
        if !errors.is_empty() {
            return Ok(Some(Failed::Several(errors)));
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

    async fn report_pending(&self, node: &str, failed: &Failed) -> Result<(), Failure> {
        let mut err = self.context.err();
        let errors = match self.decide(node).await {
            Err(failure) => vec![inner_message(&failure)],
            Ok(decisions) => {
                let errors = filter::errors(&decisions);
                let pods: Vec<_> = decisions.iter().filter(|decision| decision.delete).collect();
                if !pods.is_empty() {
                    let why = failed.joined();
                    writeln!(err, "There are pending pods in node {node:?} when an error occurred: {why}")?;
                }
                for decision in pods {
                    writeln!(err, "pod/{}", decision.pod.str_at(&["metadata", "name"]).unwrap_or_default())?;
                }
                errors
            }
        };
        if !errors.is_empty() {
            let why = joined(&errors);
            write!(err, "Following errors occurred while getting the list of pods to delete:\n{why}")?;
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
enum Failed {
    /// The pods of the node could not be read.
    Unreadable(Box<Failure>),
    One(String),
    /// A list of failures, which is printed without a prefix.
    Several(Vec<String>),
}

impl Failed {
    /// Returns all messages in one line.
    fn joined(&self) -> String {
        match self {
            Self::Unreadable(failure) => inner_message(failure),
            Self::One(message) => message.clone(),
            Self::Several(messages) => joined(messages),
        }
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Unreadable(failure) => Failure::plain(failure.message.clone()),
            Self::One(message) => Failure::new(message),
            Self::Several(messages) => Failure::plain(messages.join("\n")),
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
