//! The scheduler as a state machine: objects that the watches show go in, steps to be carried out come out.
//!
//! ```text
//!  observe ──> snapshot, queue ──step──> Bind ───carried out──> bound ──> confirmed by the watch
//!                   ^                      └────failed────────> unbound: forgotten, tried again
//!                   └────────────step──> Wait, perhaps with pods to evict
//! ```
//!
//! An assumption does not expire by time: it ends when the watch shows the pod with a node, or gone, or when the
//! request to bind it fails. Whoever carries steps out must say for each `Bind` how it went.

mod observe;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use machinery::{Key, Str};

pub use observe::{Kind, ObserveError};

use crate::devices;
use crate::extender::{Answers, Extender, Question};
use crate::framework::{Event, Release};
use crate::node::Node;
use crate::plugins::default_preemption::{Budget, Victim};
use crate::plugins::{dynamic_resources, volume_binding};
use crate::pod::{Pod, PodId};
use crate::profile::Profile;
use crate::queue::{Lengths, Millis, Options, Queue};
use crate::schedule::{Chance, Context, Decision, Outcome, schedule};
use crate::selectors::Selectors;
use crate::snapshot::Snapshot;
use crate::status::{Nomination, Reason};
use crate::storage::Plan;

/// What is said of a pod about which a decision came to an end by a mistake in this program.
const BROKEN: &str = "the decision broke off";

/// Everything the scheduler knows, and whose turn it is.
pub struct Engine {
    profiles: Arc<Vec<Profile>>,
    snapshot: Snapshot,
    queue: Queue,
    nodes: BTreeMap<Str, Arc<Node>>,
    /// Sorted by namespace and name.
    budgets: Vec<Budget>,
    extenders: Arc<Vec<Extender>>,
    selectors: Selectors,
    /// Pods whose node was chosen and that the watch does not show there yet.
    assumed: BTreeMap<PodId, Assumed>,
    chance: Chance,
}

/// Something to be done.
#[derive(Clone, Debug)]
pub enum Step {
    /// Give a pod its node, and say how it went.
    Bind {
        /// The pod.
        pod: Arc<Pod>,
        /// The node's name.
        node: Str,
        /// What must be done for its claims first.
        volumes: Plan,
        /// What must be done for its claims of devices first.
        devices: devices::Plan,
    },
    /// Ask extenders about a pod before anything else happens, and go on with [`Engine::answered`].
    Ask {
        /// The pod.
        pod: Arc<Pod>,
        /// What to ask.
        question: Question,
        /// What they said already, to be added to.
        answers: Answers,
    },
    /// Tell why a pod waits.
    Wait(Wait),
    /// Tell that a pod that is going gets no node.
    Skip {
        /// The pod.
        pod: Arc<Pod>,
    },
}

/// A pod waits.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Whether that is a decision or a failure.
    pub reason: Reason,
    /// Why.
    pub message: String,
    /// What becomes of the node that it waits for.
    pub nomination: Nomination,
    /// Who must go to make room for it.
    pub preemption: Option<Preemption>,
    /// What it gives back.
    pub release: Option<Release>,
}

/// Room that is made for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The node.
    pub node: Str,
    /// Who goes.
    pub victims: Vec<Victim>,
    /// Less important pods that waited for the same node and need not any longer.
    pub outbid: Vec<Key>,
}

struct Assumed {
    uid: Str,
    volumes: Plan,
    /// Whether the request to bind it succeeded.
    bound: bool,
}

impl Wait {
    /// Something failed.
    fn failed(pod: Arc<Pod>, message: String) -> Self {
        let (reason, nomination) = (Reason::SchedulerError, Nomination::Set(Str::default()));
        Self { pod, reason, message, nomination, preemption: None, release: None }
    }
}

impl Engine {
    /// Knows nothing yet.
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
            chance: Chance::default(),
        }
    }

    /// The same, with programs that have a say.
    pub fn with_extenders(self, extenders: Arc<Vec<Extender>>) -> Self {
        Self { extenders, ..self }
    }

    /// Decides about the pod whose turn it is; `None` if it is nobody's before [`Engine::next_wake`].
    pub fn step(&mut self, now: Millis) -> Option<Step> {
        let pod = self.queue.pop(now)?;
        if pod.class.terminating {
            self.queue.remove(pod.id());
            self.queue.tell_who_gave_up(now);
            return Some(Step::Skip { pod });
        }
        let pod = self.with_default_selector(pod);
        self.decide(pod, Answers::default(), now)
    }

    /// Decides about the pod that extenders were asked about.
    pub fn answered(&mut self, pod: Arc<Pod>, answers: Answers, now: Millis) -> Option<Step> {
        self.decide(pod, answers, now)
    }

    fn decide(&mut self, pod: Arc<Pod>, answers: Answers, now: Millis) -> Option<Step> {
        let profiles = Arc::clone(&self.profiles);
        let profile = profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name)?;
        let context = Context {
            nominated: Some(self.queue.nominated()),
            budgets: &self.budgets,
            extenders: &self.extenders,
            answers: Some(&answers),
            chance: self.chance,
        };
        // A pod that brings a mistake to light must not hold up the others.
        let decided = catch_unwind(AssertUnwindSafe(|| schedule(&mut self.snapshot, &pod, profile, context)));
        let outcome = decided.unwrap_or_else(|_| {
            let decision = Decision::Failed { message: BROKEN.to_owned() };
            Outcome { decision, next_start: context.chance.start }
        });
        if let Decision::Ask(question) = outcome.decision {
            return Some(Step::Ask { pod, question, answers });
        }
        self.chance.start = outcome.next_start;
        self.chance.tie = self.chance.tie.wrapping_add(1);
        self.chance.preemption_start = self.chance.preemption_start.wrapping_add(1);
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
            Decision::Ask(_) => unreachable!("questions were asked before"),
            Decision::Failed { message } => {
                self.queue.nominate(pod.id(), None);
                self.queue.failed(pod.id(), &[], now);
                Step::Wait(Wait::failed(pod, message))
            }
        };
        self.queue.tell_who_gave_up(now);
        Some(step)
    }

    /// A pod was bound: it stays where it was assumed to be. What was written of its claims of devices was observed
    /// before.
    pub fn bound(&mut self, pod: &Pod) {
        self.snapshot.devices.settle(&pod.uid);
        if let Some(assumed) = self.assumed.get_mut(&pod.id()).filter(|assumed| assumed.uid == pod.uid) {
            assumed.bound = true;
            self.queue.remove(pod.id());
        }
    }

    /// A pod could not be bound: its room is free again, and it is tried again. Gives what is to be told of it. What
    /// was written of its claims of devices was observed before.
    pub fn unbound(&mut self, pod: &Arc<Pod>, message: String, now: Millis) -> Option<Step> {
        let id = pod.id();
        self.snapshot.devices.settle(&pod.uid);
        self.assumed.get(&id).filter(|assumed| assumed.uid == pod.uid && !assumed.bound)?;
        self.end_assumption(id);
        self.snapshot.forget(id);
        self.queue.failed(id, &[], now);
        self.queue.notice(&Event::PodRemoved(Arc::clone(pod)), now);
        if !pod.device_claims.is_empty() || !pod.extended.is_empty() {
            self.queue.notice(&Event::DevicesChanged, now);
        }
        Some(Step::Wait(Wait::failed(Arc::clone(pod), message)))
    }

    /// Pods could not be evicted for this one: it looks again.
    pub fn not_preempted(&mut self, pod: &Pod, now: Millis) {
        self.queue.retry(pod.id(), now);
    }

    /// When to ask for a step again if none is left and nothing happens.
    pub fn next_wake(&self) -> Option<Millis> {
        self.queue.next_wake()
    }

    /// How many pods wait where.
    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    /// The cluster as it is seen.
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
        let assumed = Assumed { uid: pod.uid.clone(), volumes: volumes.clone(), bound: false };
        self.assumed.insert(pod.id(), assumed);
        Step::Bind { pod, node, volumes, devices }
    }

    /// Takes their nomination from less important pods that wait for the same node: they may not fit any longer.
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
