//! The scheduling queue: active pods, pods in back-off, and unschedulable pods that wait for an event.
//!
//! ```text
//!  add ─> gated ─gates removed─┐             ┌── changed while in flight ──┐
//!   └────────────────────────> active ─pop─> in flight ─failed─> unschedulable ─event a plugin needs──> back-off
//!                                ^                └─done─> removed                                         │
//!                                └──────────────────────── time, or the queue is empty ────────────────────┘
//! ```
//!
//! An event wakes a rejected pod only if a plugin that rejected the pod reports that the event may help, or if the
//! event frees the pod's nominated node. Events during a scheduling cycle are kept until the cycle ends, so that none
//! is missed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apimachinery::{Key, Str};

use crate::devices::Devices;
use crate::framework::Event;
use crate::plugins::priority_sort::{Turn, turn};
use crate::pod::{Pod, PodId};
use crate::profile::Profile;
use crate::schedule::NominatedPods;

/// Milliseconds since an arbitrary fixed time.
pub type Millis = u64;

/// Maximum events kept for scheduling cycles in flight. A cycle whose events were dropped is assumed to have missed a
/// relevant one.
const EVENTS_MAX: usize = 10_000;

/// Back-off durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Back-off after the first failure; doubles with each further one.
    pub backoff_initial: Millis,
    pub backoff_max: Millis,
    /// An unschedulable pod is retried after this time even without an event.
    pub unschedulable_max: Millis,
}

/// The queue of all pods without a node.
pub struct Queue {
    profiles: Arc<Vec<Profile>>,
    options: Options,
    entries: BTreeMap<PodId, Entry>,
    active: BTreeSet<(Turn, PodId)>,
    backoff: BTreeSet<(Millis, Turn, PodId)>,
    unschedulable: BTreeSet<(Millis, PodId)>,
    /// Events since the oldest cycle in flight started; `events_start` is the index of the first. Beyond [`EVENTS_MAX`]
    /// the oldest are dropped.
    events: VecDeque<Event>,
    events_start: u64,
    /// For each cycle in flight: the index of its first event.
    in_flight: BTreeSet<(u64, PodId)>,
    nominated: NominatedPods,
    /// Pods whose nomination ended and whose reserved resources were not yet announced as free.
    gave_up: Vec<Arc<Pod>>,
    sequence: u64,
}

/// Number of pods per part of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    /// Pods that wait for an event.
    pub unschedulable: usize,
    pub gated: usize,
    /// Pods in a scheduling cycle.
    pub in_flight: usize,
}

struct Entry {
    pod: Arc<Pod>,
    queue_state: QueueState,
    /// Order among pods of equal priority: when the pod was queued last.
    sequence: u64,
    failures: u32,
    backoff_until: Millis,
    /// Whether the watch has reported a nomination of the pod.
    nomination_is_known: bool,
    /// Indexes of the rejecting plugins in the profile; empty after an error.
    plugins: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Active,
    Backoff,
    Unschedulable { since: Millis },
    Gated,
    InFlight { events_from: u64, changed: bool },
}

impl Default for Options {
    fn default() -> Self {
        Self { backoff_initial: 1_000, backoff_max: 10_000, unschedulable_max: 5 * 60 * 1_000 }
    }
}

impl Queue {
    pub fn new(profiles: Arc<Vec<Profile>>, options: Options) -> Self {
        Self {
            profiles,
            options,
            entries: BTreeMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            events: VecDeque::new(),
            events_start: 0,
            in_flight: BTreeSet::new(),
            nominated: NominatedPods::default(),
            gave_up: Vec::new(),
            sequence: 0,
        }
    }

    /// Adds or updates a pod without a node.
    pub fn set(&mut self, pod: &Arc<Pod>, devices: &Devices, now: Millis) {
        let id = pod.id();
        if self.entries.get(&id).is_some_and(|entry| entry.pod.uid != pod.uid) {
            self.remove(id);
        }
        let pod = &self.take_nomination(pod);
        let gated = self.gate(pod, devices).is_some();
        let Some(entry) = self.entries.get(&id) else {
            self.add(pod);
            if !gated {
                self.wake(id, now);
            }
            return;
        };
        let differs = affects_scheduling(&entry.pod, pod);
        match entry.queue_state {
            QueueState::InFlight { events_from, changed } => {
                let entry = self.entries.get_mut(&id).expect("looked up before");
                entry.pod = pod.clone();
                entry.queue_state = QueueState::InFlight { events_from, changed: changed || differs };
            }
            queue_state => {
                self.leave(id);
                self.entries.get_mut(&id).expect("looked up before").pod = pod.clone();
                match queue_state {
                    _ if gated => self.enter(id, QueueState::Gated),
                    QueueState::Gated => self.wake(id, now),
                    QueueState::Unschedulable { .. } if differs => self.wake(id, now),
                    other => self.enter(id, other),
                }
            }
        }
    }

    fn add(&mut self, pod: &Arc<Pod>) {
        let entry = Entry {
            pod: pod.clone(),
            queue_state: QueueState::Gated,
            sequence: self.next_sequence(),
            failures: 0,
            backoff_until: 0,
            nomination_is_known: !pod.nominated_node.is_empty(),
            plugins: Vec::new(),
        };
        self.entries.insert(pod.id(), entry);
    }

    /// Applies the nomination reported by the watch. A nomination by this scheduler stays until the watch has reported
    /// it and then reports another one or none.
    fn take_nomination(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let id = pod.id();
        let entry = self.entries.get_mut(&id);
        let known = entry.as_ref().is_some_and(|entry| entry.nomination_is_known);
        if let Some(entry) = entry {
            entry.nomination_is_known = !pod.nominated_node.is_empty();
        }
        if !pod.nominated_node.is_empty() {
            self.end_nomination(id, Some(&pod.nominated_node));
            self.nominated.set(pod, &pod.nominated_node);
            return pod.clone();
        }
        let Some(node) = self.nominated.node_of(id).filter(|_| !known).cloned() else {
            self.end_nomination(id, None);
            return pod.clone();
        };
        let pod = Arc::new(Pod { nominated_node: node.clone(), ..(**pod).clone() });
        self.nominated.set(&pod, &node);
        pod
    }

    /// Removes a pod that was deleted or got a node otherwise.
    pub fn remove(&mut self, id: PodId) {
        self.end_nomination(id, None);
        if self.entries.contains_key(&id) {
            self.leave(id);
            self.entries.remove(&id);
            self.trim_events();
        }
    }

    /// Starts the scheduling cycle of the next pod; it ends with [`Queue::remove`] or [`Queue::failed`]. If no pod is
    /// active, returns a pod in back-off that was rejected by plugins (not one that failed with an error).
    pub fn pop(&mut self, now: Millis) -> Option<Arc<Pod>> {
        self.flush(now);
        let cautious = |(_, _, id): &&(Millis, Turn, PodId)| !self.entries[id].plugins.is_empty();
        let first = self.active.first().map(|(_, id)| *id);
        let id = first.or_else(|| self.backoff.iter().find(cautious).map(|(_, _, id)| *id))?;
        self.leave(id);
        let events_from = self.events_start + self.events.len() as u64;
        self.enter(id, QueueState::InFlight { events_from, changed: false });
        let entry = self.entries.get_mut(&id).expect("a queued pod has an entry");
        entry.plugins.clear();
        Some(entry.pod.clone())
    }

    /// Ends a scheduling cycle without a node. `plugins` rejected the pod; empty after an error.
    pub fn failed(&mut self, id: PodId, plugins: &[&'static str], now: Millis) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let QueueState::InFlight { events_from, changed } = entry.queue_state else { return };
        entry.sequence = sequence;
        entry.failures = entry.failures.saturating_add(1);
        let doublings = entry.failures.saturating_sub(1).min(31);
        let wait = self.options.backoff_initial.saturating_mul(1 << doublings).min(self.options.backoff_max);
        entry.backoff_until = now.saturating_add(wait);
        let pod = entry.pod.clone();
        let plugins = places(&self.profiles, &pod, plugins);
        let seen = events_from.checked_sub(self.events_start).map(|seen| usize::try_from(seen).unwrap_or(usize::MAX));
        self.leave(id);
        let woken =
            seen.is_none_or(|seen| self.events.iter().skip(seen).any(|event| self.wakes(&pod, &plugins, event)));
        let failed_by_error = plugins.is_empty();
        self.entries.get_mut(&id).expect("looked up before").plugins = plugins;
        if changed || failed_by_error || woken {
            self.wake(id, now);
        } else {
            self.enter(id, QueueState::Unschedulable { since: now });
        }
        self.trim_events();
    }

    /// Nominates the pod to a node after a preemption; `None` clears the nomination.
    pub fn nominate(&mut self, id: PodId, node: Option<&str>) {
        self.end_nomination(id, node);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let pod = Pod { nominated_node: node.unwrap_or_default().into(), ..(*entry.pod).clone() };
        entry.pod = Arc::new(pod);
        if let Some(node) = node {
            entry.nomination_is_known = false;
            self.nominated.set(&entry.pod, node);
        }
    }

    /// Ends the nomination of a pod that was placed on the node: the pod now uses the resources itself.
    pub fn placed(&mut self, id: PodId, node: &str) {
        self.end_nomination(id, Some(node));
        self.nominate(id, None);
    }

    /// Wakes pods that were excluded by an ended nomination, as if the nominated pod had been deleted. Nominations
    /// never exclude pods of higher priority.
    pub fn wake_excluded_pods(&mut self, now: Millis) {
        for pod in std::mem::take(&mut self.gave_up) {
            let was_excluded = |other: &Pod| other.id() != pod.id() && other.priority <= pod.priority;
            self.notice_to(was_excluded, &Event::PodRemoved(Arc::clone(&pod)), now);
        }
    }

    fn end_nomination(&mut self, id: PodId, next: Option<&str>) {
        if self.nominated.node_of(id).is_some_and(|node| Some(node.as_str()) != next) {
            self.gave_up.extend(self.entries.get(&id).map(|entry| Arc::clone(&entry.pod)));
        }
        self.nominated.remove(id);
    }

    /// Moves an unschedulable pod to the active queue or back-off.
    pub fn retry(&mut self, id: PodId, now: Millis) {
        if matches!(self.entries.get(&id), Some(Entry { queue_state: QueueState::Unschedulable { .. }, .. })) {
            self.leave(id);
            self.wake(id, now);
        }
    }

    /// Wakes the pods that the event may help.
    pub fn notice(&mut self, event: &Event, now: Millis) {
        self.notice_to(|_| true, event, now);
    }

    fn notice_to(&mut self, concerned: impl Fn(&Pod) -> bool, event: &Event, now: Millis) {
        let waiting: Vec<_> = self.unschedulable.iter().map(|(_, id)| *id).collect();
        for id in waiting {
            let entry = &self.entries[&id];
            if concerned(&entry.pod) && self.wakes(&entry.pod, &entry.plugins, event) {
                self.leave(id);
                self.wake(id, now);
            }
        }
        if !self.in_flight.is_empty() {
            self.events.push_back(event.clone());
            if self.events.len() > EVENTS_MAX {
                self.events.pop_front();
                self.events_start += 1;
            }
        }
    }

    /// Ungates pods that waited for this ResourceClaim.
    pub fn reconsider(&mut self, claim: &Key, devices: &Devices, now: Millis) {
        let waits = |entry: &&Entry| entry.queue_state == QueueState::Gated && entry.pod.uses_device_claim(claim);
        let waiting: Vec<_> = self.entries.values().filter(waits).map(|entry| Arc::clone(&entry.pod)).collect();
        for pod in waiting.into_iter().filter(|pod| self.gate(pod, devices).is_none()).collect::<Vec<_>>() {
            self.leave(pod.id());
            self.wake(pod.id(), now);
        }
    }

    /// Returns the time of the next [`Queue::pop`] if no event happens before.
    pub fn next_wake(&self) -> Option<Millis> {
        let backoff = self.backoff.first().map(|(until, ..)| *until);
        let stuck = self.unschedulable.first().map(|(since, _)| since.saturating_add(self.options.unschedulable_max));
        backoff.into_iter().chain(stuck).min()
    }

    /// Returns the plugin that gates the pod, and the reason.
    pub fn gate(&self, pod: &Pod, devices: &Devices) -> Option<(&'static str, String)> {
        let plugins = self.profile(&pod.scheduler_name)?.plugins.iter().filter(|enabled| enabled.gates);
        plugins.map(|enabled| &enabled.plugin).find_map(|plugin| Some((plugin.name(), plugin.gate(pod, devices)?)))
    }

    pub fn profile(&self, scheduler_name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.scheduler_name == scheduler_name)
    }

    pub const fn nominated(&self) -> &NominatedPods {
        &self.nominated
    }

    pub fn nominated_node(&self, id: PodId) -> Option<&Str> {
        self.nominated.node_of(id)
    }

    /// Whether the pod is queued or in flight.
    pub fn contains(&self, id: PodId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Returns all pods that are queued or in flight.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.entries.values().map(|entry| &entry.pod)
    }

    pub fn lengths(&self) -> Lengths {
        let (active, backoff) = (self.active.len(), self.backoff.len());
        let (unschedulable, in_flight) = (self.unschedulable.len(), self.in_flight.len());
        let gated = self.entries.len() - active - backoff - unschedulable - in_flight;
        Lengths { active, backoff, unschedulable, gated, in_flight }
    }

    /// Moves pods whose back-off or maximum unschedulable time is over.
    fn flush(&mut self, now: Millis) {
        while let Some(&(_, _, id)) = self.backoff.first().filter(|(until, ..)| *until <= now) {
            self.leave(id);
            self.enter(id, QueueState::Active);
        }
        let max = self.options.unschedulable_max;
        while let Some(&(_, id)) = self.unschedulable.first().filter(|(since, _)| since.saturating_add(max) <= now) {
            self.leave(id);
            self.wake(id, now);
        }
    }

    fn wakes(&self, pod: &Pod, plugins: &[usize], event: &Event) -> bool {
        let Some(profile) = self.profile(&pod.scheduler_name) else { return false };
        frees_nominated_node(pod, event) || plugins.iter().any(|at| profile.plugins[*at].plugin.wakes(pod, event))
    }

    /// Moves a pod that is in no part of the queue to back-off or, if its back-off is over, to the active queue.
    fn wake(&mut self, id: PodId, now: Millis) {
        let entry = &self.entries[&id];
        let queue_state = if entry.backoff_until > now { QueueState::Backoff } else { QueueState::Active };
        self.enter(id, queue_state);
    }

    fn enter(&mut self, id: PodId, queue_state: QueueState) {
        let entry = self.entries.get_mut(&id).expect("a pod that moves has an entry");
        entry.queue_state = queue_state;
        let turn = turn(entry.pod.priority, entry.sequence);
        match queue_state {
            QueueState::Active => drop(self.active.insert((turn, id))),
            QueueState::Backoff => drop(self.backoff.insert((entry.backoff_until, turn, id))),
            QueueState::Unschedulable { since } => drop(self.unschedulable.insert((since, id))),
            QueueState::InFlight { events_from, .. } => drop(self.in_flight.insert((events_from, id))),
            QueueState::Gated => {}
        }
    }

    fn leave(&mut self, id: PodId) {
        let entry = &self.entries[&id];
        let turn = turn(entry.pod.priority, entry.sequence);
        match entry.queue_state {
            QueueState::Active => drop(self.active.remove(&(turn, id))),
            QueueState::Backoff => drop(self.backoff.remove(&(entry.backoff_until, turn, id))),
            QueueState::Unschedulable { since } => drop(self.unschedulable.remove(&(since, id))),
            QueueState::InFlight { events_from, .. } => drop(self.in_flight.remove(&(events_from, id))),
            QueueState::Gated => {}
        }
    }

    /// Drops the events that no cycle in flight can have missed.
    fn trim_events(&mut self) {
        let end = self.events_start + self.events.len() as u64;
        let keep_from = self.in_flight.first().map_or(end, |(from, _)| *from).max(self.events_start);
        let expired_count = usize::try_from(keep_from - self.events_start).unwrap_or(usize::MAX);
        self.events.drain(..expired_count.min(self.events.len()));
        self.events_start = keep_from;
    }

    const fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

/// Whether a pod left the nominated node of the given pod, or the node was deleted. The pod is then retried, so that no
/// resources stay reserved for nothing.
fn frees_nominated_node(pod: &Pod, event: &Event) -> bool {
    let node = match event {
        Event::PodRemoved(removed) => &removed.node_name,
        Event::NodeRemoved(removed) => &removed.name,
        _ => return false,
    };
    !node.is_empty() && *node == pod.nominated_node
}

/// Returns the indexes of plugins in the profile of a pod.
fn places(profiles: &[Profile], pod: &Pod, names: &[&'static str]) -> Vec<usize> {
    let profile = profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name);
    let plugins = profile.map_or(&[][..], |profile| &profile.plugins);
    (0..).zip(plugins).filter(|(_, enabled)| names.contains(&enabled.plugin.name())).map(|(at, _)| at).collect()
}

/// Whether a pod changed in fields that scheduling depends on.
fn affects_scheduling(old: &Pod, new: &Pod) -> bool {
    old.class != new.class
        || old.shape != new.shape
        || old.tolerations != new.tolerations
        || old.node_selector != new.node_selector
        || old.node_affinity != new.node_affinity
        || old.spread != new.spread
        || old.gates != new.gates
        || old.device_claims != new.device_claims
}

#[cfg(test)]
mod tests;
