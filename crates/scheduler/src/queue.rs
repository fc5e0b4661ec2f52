//! Pods that wait for a decision: whose turn it is, who backs off, and who waits for something to change.
//!
//! ```text
//!  add ──> gated ──gates gone──┐             ┌── changed while in flight ──┐
//!   └────────────────────────> active ─pop─> in flight ─failed─> unschedulable ─event a plug-in named─> back-off
//!                                ^                └─done─> gone                                            │
//!                                └──────────────────────── time, or nothing else to do ────────────────────┘
//! ```
//!
//! A pod that was rejected wakes only for a change that one of the plug-ins that rejected it asks for. Changes that
//! happen while a decision is under way are kept until it is over, so that none is missed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use machinery::{Key, Str};

use crate::devices::Devices;
use crate::framework::Event;
use crate::plugins::priority_sort::{Turn, turn};
use crate::pod::{Pod, PodId};
use crate::profile::Profile;
use crate::schedule::Nominated;

/// Milliseconds since any moment that stays the same.
pub type Millis = u64;

/// Changes that are kept for decisions under way. A decision that lasts longer counts as having missed one that helps.
const EVENTS_MAX: usize = 10_000;

/// How long pods wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// After the first failure; twice as long after each further one.
    pub backoff_initial: Millis,
    /// At most.
    pub backoff_max: Millis,
    /// After this long without a change that helps, a pod is tried again all the same.
    pub unschedulable_max: Millis,
}

/// All pods that have no node yet.
pub struct Queue {
    profiles: Arc<Vec<Profile>>,
    options: Options,
    entries: BTreeMap<PodId, Entry>,
    active: BTreeSet<(Turn, PodId)>,
    backoff: BTreeSet<(Millis, Turn, PodId)>,
    unschedulable: BTreeSet<(Millis, PodId)>,
    /// Changes since the oldest decision under way began, the first of them numbered `events_begin`; the oldest are
    /// dropped beyond [`EVENTS_MAX`].
    events: VecDeque<Event>,
    events_begin: u64,
    /// Where in the changes each decision under way began.
    in_flight: BTreeSet<(u64, PodId)>,
    nominated: Nominated,
    /// Pods that no longer wait for the node that room was kept on, which nobody was told of yet.
    gave_up: Vec<Arc<Pod>>,
    sequence: u64,
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Their turn will come.
    pub active: usize,
    /// They wait for time to pass.
    pub backoff: usize,
    /// They wait for something to change.
    pub unschedulable: usize,
    /// They wait for their gates to go.
    pub gated: usize,
    /// A decision about them is under way.
    pub in_flight: usize,
}

struct Entry {
    pod: Arc<Pod>,
    place: Place,
    /// The order among pods of equal priority: when it began to wait, at first or again.
    sequence: u64,
    failures: u32,
    backoff_until: Millis,
    /// Whether the API server has told of a node that the pod waits for.
    nomination_is_known: bool,
    /// Who rejected it, by their places in the profile; nobody after an error.
    plugins: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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
    /// Without pods.
    pub fn new(profiles: Arc<Vec<Profile>>, options: Options) -> Self {
        Self {
            profiles,
            options,
            entries: BTreeMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            events: VecDeque::new(),
            events_begin: 0,
            in_flight: BTreeSet::new(),
            nominated: Nominated::default(),
            gave_up: Vec::new(),
            sequence: 0,
        }
    }

    /// Adds a pod that has no node, or takes over its new state.
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
        let differs = concerns_placement(&entry.pod, pod);
        match entry.place {
            Place::InFlight { events_from, changed } => {
                let entry = self.entries.get_mut(&id).expect("looked up before");
                entry.pod = pod.clone();
                entry.place = Place::InFlight { events_from, changed: changed || differs };
            }
            place => {
                self.leave(id);
                self.entries.get_mut(&id).expect("looked up before").pod = pod.clone();
                match place {
                    _ if gated => self.enter(id, Place::Gated),
                    Place::Gated => self.wake(id, now),
                    Place::Unschedulable { .. } if differs => self.wake(id, now),
                    other => self.enter(id, other),
                }
            }
        }
    }

    fn add(&mut self, pod: &Arc<Pod>) {
        let entry = Entry {
            pod: pod.clone(),
            place: Place::Gated,
            sequence: self.next_sequence(),
            failures: 0,
            backoff_until: 0,
            nomination_is_known: !pod.nominated_node.is_empty(),
            plugins: Vec::new(),
        };
        self.entries.insert(pod.id(), entry);
    }

    /// Takes over which node the pod waits for. What was decided here holds until the API server has told of it and
    /// tells otherwise.
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

    /// A pod is gone, or has a node by other means.
    pub fn remove(&mut self, id: PodId) {
        self.end_nomination(id, None);
        if self.entries.contains_key(&id) {
            self.leave(id);
            self.entries.remove(&id);
            self.trim_events();
        }
    }

    /// The pod whose turn it is; a decision about it is under way until [`Queue::remove`] or [`Queue::failed`]. When no
    /// pod is active, one that backs off only out of caution need not wait.
    pub fn pop(&mut self, now: Millis) -> Option<Arc<Pod>> {
        self.flush(now);
        let cautious = |(_, _, id): &&(Millis, Turn, PodId)| !self.entries[id].plugins.is_empty();
        let first = self.active.first().map(|(_, id)| *id);
        let id = first.or_else(|| self.backoff.iter().find(cautious).map(|(_, _, id)| *id))?;
        self.leave(id);
        let events_from = self.events_begin + self.events.len() as u64;
        self.enter(id, Place::InFlight { events_from, changed: false });
        let entry = self.entries.get_mut(&id).expect("a queued pod has an entry");
        entry.plugins.clear();
        Some(entry.pod.clone())
    }

    /// The decision was that the pod waits, because these plug-ins reject it; nobody does if it was an error.
    pub fn failed(&mut self, id: PodId, plugins: &[&'static str], now: Millis) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Place::InFlight { events_from, changed } = entry.place else { return };
        entry.sequence = sequence;
        entry.failures = entry.failures.saturating_add(1);
        let doublings = entry.failures.saturating_sub(1).min(31);
        let wait = self.options.backoff_initial.saturating_mul(1 << doublings).min(self.options.backoff_max);
        entry.backoff_until = now.saturating_add(wait);
        let pod = entry.pod.clone();
        let plugins = places(&self.profiles, &pod, plugins);
        let seen = events_from.checked_sub(self.events_begin).map(|seen| usize::try_from(seen).unwrap_or(usize::MAX));
        self.leave(id);
        let woken =
            seen.is_none_or(|seen| self.events.iter().skip(seen).any(|event| self.wakes(&pod, &plugins, event)));
        let failed_by_error = plugins.is_empty();
        self.entries.get_mut(&id).expect("looked up before").plugins = plugins;
        if changed || failed_by_error || woken {
            self.wake(id, now);
        } else {
            self.enter(id, Place::Unschedulable { since: now });
        }
        self.trim_events();
    }

    /// The pod will get this node once others have gone; none takes it back.
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

    /// The pod has got this node: its room is taken by itself from here on, not kept for it.
    pub fn placed(&mut self, id: PodId, node: &str) {
        self.end_nomination(id, Some(node));
        self.nominate(id, None);
    }

    /// Wakes whoever was kept out by room that is no longer kept, as if the pod that it was kept for had been there and gone. It was
    /// never kept from anybody more important.
    pub fn tell_who_gave_up(&mut self, now: Millis) {
        for pod in std::mem::take(&mut self.gave_up) {
            let was_kept_out = |other: &Pod| other.id() != pod.id() && other.priority <= pod.priority;
            self.notice_to(was_kept_out, &Event::PodRemoved(Arc::clone(&pod)), now);
        }
    }

    fn end_nomination(&mut self, id: PodId, next: Option<&str>) {
        if self.nominated.node_of(id).is_some_and(|node| Some(node.as_str()) != next) {
            self.gave_up.extend(self.entries.get(&id).map(|entry| Arc::clone(&entry.pod)));
        }
        self.nominated.remove(id);
    }

    /// A pod that waits for something to change need not wait any longer.
    pub fn retry(&mut self, id: PodId, now: Millis) {
        if matches!(self.entries.get(&id), Some(Entry { place: Place::Unschedulable { .. }, .. })) {
            self.leave(id);
            self.wake(id, now);
        }
    }

    /// Something changed: wakes the pods that it may help.
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
                self.events_begin += 1;
            }
        }
    }

    /// A claim of devices came or changed: lets those wait for their turn that waited for it.
    pub fn reconsider(&mut self, claim: &Key, devices: &Devices, now: Millis) {
        let waits = |entry: &&Entry| entry.place == Place::Gated && entry.pod.uses_device_claim(claim);
        let waiting: Vec<_> = self.entries.values().filter(waits).map(|entry| Arc::clone(&entry.pod)).collect();
        for pod in waiting.into_iter().filter(|pod| self.gate(pod, devices).is_none()).collect::<Vec<_>>() {
            self.leave(pod.id());
            self.wake(pod.id(), now);
        }
    }

    /// When [`Queue::pop`] should be asked again, if it gives nothing and nothing else happens.
    pub fn next_wake(&self) -> Option<Millis> {
        let backoff = self.backoff.first().map(|(until, ..)| *until);
        let stuck = self.unschedulable.first().map(|(since, _)| since.saturating_add(self.options.unschedulable_max));
        backoff.into_iter().chain(stuck).min()
    }

    /// Why a pod does not even wait for its turn.
    pub fn gate(&self, pod: &Pod, devices: &Devices) -> Option<(&'static str, String)> {
        let plugins = self.profile(&pod.scheduler_name)?.plugins.iter().filter(|enabled| enabled.gates);
        plugins.map(|enabled| &enabled.plugin).find_map(|plugin| Some((plugin.name(), plugin.gate(pod, devices)?)))
    }

    /// The profile of a name.
    pub fn profile(&self, scheduler_name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.scheduler_name == scheduler_name)
    }

    /// Pods that wait for room that they have made.
    pub const fn nominated(&self) -> &Nominated {
        &self.nominated
    }

    /// The node that a pod waits for.
    pub fn nominated_node(&self, id: PodId) -> Option<&Str> {
        self.nominated.node_of(id)
    }

    /// Whether a pod waits here or a decision about it is under way.
    pub fn contains(&self, id: PodId) -> bool {
        self.entries.contains_key(&id)
    }

    /// All pods that wait here or about which a decision is under way.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.entries.values().map(|entry| &entry.pod)
    }

    /// How many pods are where.
    pub fn lengths(&self) -> Lengths {
        let (active, backoff) = (self.active.len(), self.backoff.len());
        let (unschedulable, in_flight) = (self.unschedulable.len(), self.in_flight.len());
        let gated = self.entries.len() - active - backoff - unschedulable - in_flight;
        Lengths { active, backoff, unschedulable, gated, in_flight }
    }

    /// Lets those go on whose time has come.
    fn flush(&mut self, now: Millis) {
        while let Some(&(_, _, id)) = self.backoff.first().filter(|(until, ..)| *until <= now) {
            self.leave(id);
            self.enter(id, Place::Active);
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

    /// Puts a pod that is nowhere where its turn comes, at once or after its back-off.
    fn wake(&mut self, id: PodId, now: Millis) {
        let entry = &self.entries[&id];
        let place = if entry.backoff_until > now { Place::Backoff } else { Place::Active };
        self.enter(id, place);
    }

    fn enter(&mut self, id: PodId, place: Place) {
        let entry = self.entries.get_mut(&id).expect("a pod that moves has an entry");
        entry.place = place;
        let turn = turn(entry.pod.priority, entry.sequence);
        match place {
            Place::Active => drop(self.active.insert((turn, id))),
            Place::Backoff => drop(self.backoff.insert((entry.backoff_until, turn, id))),
            Place::Unschedulable { since } => drop(self.unschedulable.insert((since, id))),
            Place::InFlight { events_from, .. } => drop(self.in_flight.insert((events_from, id))),
            Place::Gated => {}
        }
    }

    fn leave(&mut self, id: PodId) {
        let entry = &self.entries[&id];
        let turn = turn(entry.pod.priority, entry.sequence);
        match entry.place {
            Place::Active => drop(self.active.remove(&(turn, id))),
            Place::Backoff => drop(self.backoff.remove(&(entry.backoff_until, turn, id))),
            Place::Unschedulable { since } => drop(self.unschedulable.remove(&(since, id))),
            Place::InFlight { events_from, .. } => drop(self.in_flight.remove(&(events_from, id))),
            Place::Gated => {}
        }
    }

    /// Drops the changes that no decision under way can have missed.
    fn trim_events(&mut self) {
        let end = self.events_begin + self.events.len() as u64;
        let keep_from = self.in_flight.first().map_or(end, |(from, _)| *from).max(self.events_begin);
        let gone = usize::try_from(keep_from - self.events_begin).unwrap_or(usize::MAX);
        self.events.drain(..gone.min(self.events.len()));
        self.events_begin = keep_from;
    }

    const fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

/// Whether somebody left the node that a pod keeps room on, or the node went: it looks again then, lest the room be kept
/// for nothing.
fn frees_nominated_node(pod: &Pod, event: &Event) -> bool {
    let node = match event {
        Event::PodRemoved(gone) => &gone.node_name,
        Event::NodeRemoved(gone) => &gone.name,
        _ => return false,
    };
    !node.is_empty() && *node == pod.nominated_node
}

/// The places of plug-ins in the profile of a pod.
fn places(profiles: &[Profile], pod: &Pod, names: &[&'static str]) -> Vec<usize> {
    let profile = profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name);
    let plugins = profile.map_or(&[][..], |profile| &profile.plugins);
    (0..).zip(plugins).filter(|(_, enabled)| names.contains(&enabled.plugin.name())).map(|(at, _)| at).collect()
}

/// Whether a pod changed in a way that placing it depends on.
fn concerns_placement(old: &Pod, new: &Pod) -> bool {
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
