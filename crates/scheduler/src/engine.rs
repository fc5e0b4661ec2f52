//! The scheduler as a state machine: watched objects go in, scheduling steps to execute come out.
//!
//! ```text
//!  observe ──> snapshot, queue ──step──> Bind ────executed────> bound ──> confirmed by the watch
//!                   ^                      └────failed────────> unbound: forgotten, retried
//!                   └────────────step──> Wait, perhaps with pods to evict
//! ```
//!
//! Assumed pods do not expire by time. An assumption ends when the watch reports that the pod is bound or deleted, or
//! when the bind request fails. The caller that executes steps must report the result of each `Bind`.

mod observe;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use apimachinery::{Key, Str};

pub use observe::{Kind, ObserveError};

use crate::devices;
use crate::extender::{Extender, ExtenderRequest, ExtenderResults};
use crate::framework::{Event, Release};
use crate::node::Node;
use crate::plugins::default_preemption::{Budget, Victim};
use crate::plugins::{dynamic_resources, volume_binding};
use crate::pod::{Pod, PodId};
use crate::profile::Profile;
use crate::queue::{Lengths, Millis, Options, Queue};
use crate::schedule::{Context, Decision, Outcome, RandomSource, schedule};
use crate::selectors::Selectors;
use crate::snapshot::Snapshot;
use crate::status::{Nomination, Reason};
use crate::storage::Plan;

/// Message for a pod whose scheduling cycle panicked.
const BROKEN: &str = "the scheduling cycle panicked";

/// Scheduler state: the cluster snapshot, the scheduling queue and the assumed pods.
pub struct Engine {
    profiles: Arc<Vec<Profile>>,
    snapshot: Snapshot,
    queue: Queue,
    nodes: BTreeMap<Str, Arc<Node>>,
    budgets: Vec<Budget>,
    extenders: Arc<Vec<Extender>>,
    selectors: Selectors,
    /// Pods with a chosen node whose binding the watch has not reported yet.
    assumed: BTreeMap<PodId, AssumedPod>,
    random_source: RandomSource,
}

/// A side effect that the caller must execute.
#[derive(Clone, Debug)]
pub enum Step {
    /// Bind the pod to the node and report the result with [`Engine::bound`] or [`Engine::unbound`].
    Bind {
        pod: Arc<Pod>,
        node: Str,
        /// Writes to PersistentVolumeClaims needed before binding.
        volumes: Plan,
        /// Writes to ResourceClaims needed before binding.
        devices: devices::Plan,
    },
    /// Call the extenders for the pod and continue with [`Engine::resume`].
    CallExtenders {
        pod: Arc<Pod>,
        question: ExtenderRequest,
        /// Results of earlier extender calls, to be extended.
        responses: ExtenderResults,
    },
    /// Report that a pod is unschedulable.
    Wait(Wait),
    /// Report that a pod is skipped because it is being deleted.
    Skip {
        /// The terminating pod.
        pod: Arc<Pod>,
    },
}

/// An unschedulable pod, or one whose scheduling failed.
#[derive(Clone, Debug)]
pub struct Wait {
    pub pod: Arc<Pod>,
    /// Distinguishes unschedulable pods from failures.
    pub reason: Reason,
    pub message: String,
    /// Change of the pod's `nominatedNodeName`.
    pub nomination: Nomination,
    /// Pods to evict for it.
    pub preemption: Option<Preemption>,
    /// A claim to deallocate or delete.
    pub release: Option<Release>,
}

/// Preemption of pods on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    pub node: Str,
    pub victims: Vec<Victim>,
    /// Pods of lower priority whose nomination to this node is cleared.
    pub outbid: Vec<Key>,
}

struct AssumedPod {
    uid: Str,
    volumes: Plan,
    /// Whether the bind request succeeded.
    bound: bool,
}

impl Wait {
    /// Creates the report of a failure.
    fn failed(pod: Arc<Pod>, message: String) -> Self {
        let (reason, nomination) = (Reason::SchedulerError, Nomination::Set(Str::default()));
        Self { pod, reason, message, nomination, preemption: None, release: None }
    }
}

impl Engine {
    pub fn new(profiles: Vec<Profile>, options: Options) -> Self {
        let profiles = Arc::new(profiles);
        Self {
            queue: Queue::new(Arc::clone(&profiles), options),
            profiles,
            snapshot: Snapshot::default(),
            nodes: BTreeMap::new(),
            budgets: Vec::new(),
            extenders: Arc::default(),
            selectors: Selectors::default(),
            assumed: BTreeMap::new(),
            random_source: RandomSource::default(),
        }
    }

    /// Adds extenders.
    pub fn with_extenders(self, extenders: Arc<Vec<Extender>>) -> Self {
        Self { extenders, ..self }
    }

    /// Runs one scheduling cycle; `None` if no pod is ready before [`Engine::next_wake`].
    pub fn step(&mut self, now: Millis) -> Option<Step> {
        let pod = self.queue.pop(now)?;
        if pod.class.terminating {
            self.queue.remove(pod.id());
            self.queue.wake_excluded_pods(now);
            return Some(Step::Skip { pod });
        }
        let pod = self.with_default_selector(pod);
        self.decide(pod, ExtenderResults::default(), now)
    }

    /// Continues the scheduling cycle of a pod with the results of its extenders.
    pub fn resume(&mut self, pod: Arc<Pod>, responses: ExtenderResults, now: Millis) -> Option<Step> {
        self.decide(pod, responses, now)
    }

    fn decide(&mut self, pod: Arc<Pod>, responses: ExtenderResults, now: Millis) -> Option<Step> {
        let profiles = Arc::clone(&self.profiles);
        let profile = profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name)?;
        let context = Context {
            nominated: Some(self.queue.nominated()),
            budgets: &self.budgets,
            extenders: &self.extenders,
            responses: Some(&responses),
            random_source: self.random_source,
        };
        // A pod whose scheduling panics must not block the others.
        let decided = catch_unwind(AssertUnwindSafe(|| schedule(&mut self.snapshot, &pod, profile, context)));
        let outcome = decided.unwrap_or_else(|_| {
            let decision = Decision::Failed { message: BROKEN.to_owned() };
            Outcome { decision, next_start: context.random_source.start }
        });
        if let Decision::CallExtenders(question) = outcome.decision {
            return Some(Step::CallExtenders { pod, question, responses });
        }
        self.random_source.start = outcome.next_start;
        self.random_source.tie = self.random_source.tie.wrapping_add(1);
        self.random_source.preemption_start = self.random_source.preemption_start.wrapping_add(1);
        let step = match outcome.decision {
            Decision::Bind { node } => self.assume(pod, node),
            Decision::Preempt { node, victims, message, plugins, release } => {
                let outbid = self.outbid(&pod, &node);
                self.queue.nominate(pod.id(), Some(&node));
                self.queue.failed(pod.id(), &plugins, now);
                let nomination = Nomination::Set(node.clone());
                let preemption = Some(Preemption { node, victims, outbid });
                Step::Wait(Wait { pod, reason: Reason::Unschedulable, message, nomination, preemption, release })
            }
            Decision::Unschedulable { message, plugins, clears_nomination, release } => {
                let mut nomination = Nomination::Keep;
                if clears_nomination {
                    self.queue.nominate(pod.id(), None);
                    nomination = Nomination::Set(Str::default());
                }
                self.queue.failed(pod.id(), &plugins, now);
                let reason = Reason::Unschedulable;
                Step::Wait(Wait { pod, reason, message, nomination, preemption: None, release })
            }
            Decision::CallExtenders(_) => unreachable!("extenders were called before"),
            Decision::Failed { message } => {
                self.queue.nominate(pod.id(), None);
                self.queue.failed(pod.id(), &[], now);
                Step::Wait(Wait::failed(pod, message))
            }
        };
        self.queue.wake_excluded_pods(now);
        Some(step)
    }

    /// Reports a successful binding; the pod stays assumed. The writes to its ResourceClaims must have been observed
    /// before this call.
    pub fn bound(&mut self, pod: &Pod) {
        self.snapshot.devices.drop_assumed(&pod.uid);
        if let Some(assumed) = self.assumed.get_mut(&pod.id()).filter(|assumed| assumed.uid == pod.uid) {
            assumed.bound = true;
            self.queue.remove(pod.id());
        }
    }

    /// Reports a failed binding: the pod's resources are released and the pod is retried. Returns the failure to
    /// report. The writes to its ResourceClaims must have been observed before this call.
    pub fn unbound(&mut self, pod: &Arc<Pod>, message: String, now: Millis) -> Option<Step> {
        let id = pod.id();
        self.snapshot.devices.drop_assumed(&pod.uid);
        self.assumed.get(&id).filter(|assumed| assumed.uid == pod.uid && !assumed.bound)?;
        self.end_assumption(id);
        self.snapshot.remove_assumed_pod(id);
        self.queue.failed(id, &[], now);
        self.queue.notice(&Event::PodRemoved(Arc::clone(pod)), now);
        if !pod.device_claims.is_empty() || !pod.extended.is_empty() {
            self.queue.notice(&Event::DevicesChanged, now);
        }
        Some(Step::Wait(Wait::failed(Arc::clone(pod), message)))
    }

    /// Reports a failed preemption: the pod is retried.
    pub fn not_preempted(&mut self, pod: &Pod, now: Millis) {
        self.queue.retry(pod.id(), now);
    }

    /// Returns the time of the next [`Engine::step`] if nothing is observed before.
    pub fn next_wake(&self) -> Option<Millis> {
        self.queue.next_wake()
    }

    /// Returns the number of pods in each part of the queue.
    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn assume(&mut self, pod: Arc<Pod>, node: Str) -> Step {
        let volumes = self.snapshot.node(&node).map(|id| volume_binding::plan(&self.snapshot, &pod, id));
        let volumes = volumes.unwrap_or_default();
        let devices = self.snapshot.node(&node).map(|id| dynamic_resources::plan(&self.snapshot, &pod, id));
        let devices = devices.unwrap_or_default();
        self.snapshot.storage.assume(&volumes, &node);
        self.snapshot.devices.assume(&devices, &pod.uid);
        self.snapshot.assume(&pod, &node);
        self.queue.placed(pod.id(), &node);
        let assumed = AssumedPod { uid: pod.uid.clone(), volumes: volumes.clone(), bound: false };
        self.assumed.insert(pod.id(), assumed);
        Step::Bind { pod, node, volumes, devices }
    }

    /// Clears the nominations of pods with lower priority to this node, because they may no longer fit. Returns their
    /// keys.
    fn outbid(&mut self, pod: &Pod, node: &str) -> Vec<Key> {
        let waiting = self.queue.nominated().on(node).iter();
        let less: Vec<_> = waiting.filter(|other| other.priority < pod.priority).cloned().collect();
        let clear = |other: Arc<Pod>| {
            self.queue.nominate(other.id(), None);
            Key::new(other.class.namespace.clone(), other.name.clone())
        };
        less.into_iter().map(clear).collect()
    }

    fn with_default_selector(&self, pod: Arc<Pod>) -> Arc<Pod> {
        if !pod.spread.is_empty() {
            return pod;
        }
        match self.selectors.of(&pod) {
            Some(selector) => Arc::new(Pod { default_selector: Some(selector), ..(*pod).clone() }),
            None => pod,
        }
    }
}

#[cfg(test)]
mod tests;
