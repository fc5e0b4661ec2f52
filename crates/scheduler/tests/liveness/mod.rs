//! Liveness of the scheduler under random changes: once it is idle, no schedulable pod is waiting.
//!
//! Bindings take time and may fail, victims take time to terminate, and the watch may report nominations late.  Each
//! step is compared with the reference.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use apimachinery::{Key, Value, value};
use scheduler::engine::{Kind, Step, Wait};
use scheduler::queue::{Millis, Options};
use scheduler::status::{Nomination, Reason};
use scheduler::{Engine, Pod, Profile};

use crate::random::{self, TestRng};
use crate::reference::ReferenceCluster;
use crate::reference::matching::{is_going, name, priority};

/// Disables retries that happen only because time has passed, except after failures.
const NEVER: Millis = 1 << 50;
const STEPS_MAX: usize = 5_000;

struct Life {
    engine: Engine,
    cluster: ReferenceCluster,
    /// Pods without a node.
    waiting: BTreeMap<String, Rc<Value>>,
    /// Bindings in progress.
    bindings: Vec<Arc<Pod>>,
    rng: TestRng,
    now: Millis,
    /// Log of all changes, for debugging failures.
    log: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let profile = Profile { percentage_of_nodes_to_score: 100, ..Profile::default() };
        let options = Options { unschedulable_max: 2 * NEVER, ..Options::default() };
        let mut life = Self {
            engine: Engine::new(vec![profile], options),
            cluster: ReferenceCluster::default(),
            waiting: BTreeMap::new(),
            bindings: Vec::new(),
            rng: TestRng(seed),
            now: 0,
            log: Vec::new(),
        };
        for namespace in random::namespaces() {
            life.show(Kind::Namespaces, &namespace);
            life.cluster.namespaces.insert(name(&namespace).to_owned(), Rc::new(namespace));
        }
        life
    }

    fn show(&mut self, kind: Kind, object: &Value) {
        self.log.push(format!("{} {object}", kind.resource()));
        self.engine.observe(kind, &Key::of(object), Some(object), self.now).unwrap();
    }

    fn one_of(&mut self, number: usize) -> usize {
        usize::try_from(self.rng.roll(number as u64)).unwrap()
    }

    fn set_node(&mut self, object: Value) {
        self.show(Kind::Nodes, &object);
        self.cluster.nodes.insert(name(&object).to_owned(), Rc::new(object));
    }

    fn remove_node(&mut self, name: &str) {
        self.log.push(format!("node {name} goes"));
        self.cluster.nodes.remove(name);
        self.engine.observe(Kind::Nodes, &Key::cluster(name), None, self.now).unwrap();
    }

    fn add_pod(&mut self, object: Value) {
        self.show(Kind::Pods, &object);
        self.waiting.insert(name(&object).to_owned(), Rc::new(object));
    }

    fn pod_index(&self, pod: &str) -> Option<usize> {
        self.cluster.pods.iter().position(|(other, _)| name(other) == pod)
    }

    /// Deletes a pod, assigned or not.
    fn remove_pod(&mut self, pod: &str) {
        let placed = self.pod_index(pod).map(|at| self.cluster.pods.remove(at).0);
        let removed = placed.or_else(|| self.waiting.remove(pod)).expect("a pod that goes was there");
        self.log.push(format!("pod {pod} goes"));
        self.cluster.waiting.retain(|(other, _)| name(other) != pod);
        self.engine.observe(Kind::Pods, &Key::of(&removed), None, self.now).unwrap();
    }

    /// Runs the scheduler until only a change can give it work.
    fn run_until_stable(&mut self) {
        for _ in 0..STEPS_MAX {
            if let Some(step) = self.engine.step(self.now) {
                self.execute_plan(step);
            } else if !self.bindings.is_empty() {
                self.conclude();
            } else if let Some(going) = self.going().first() {
                self.remove_pod(going);
            } else if let Some(wake) = self.engine.next_wake().filter(|wake| *wake < NEVER) {
                self.now = wake;
            } else {
                return;
            }
        }
        panic!("the scheduler does not come to rest\n{}", self.log.join("\n"));
    }

    /// Returns the names of evicted pods that still exist.
    fn going(&self) -> Vec<String> {
        self.cluster.pods.iter().filter(|(pod, _)| is_going(pod)).map(|(pod, _)| name(pod).to_owned()).collect()
    }

    fn execute_plan(&mut self, step: Step) {
        match step {
            Step::Bind { pod, node, .. } => {
                let object = self.waiting.remove(pod.name.as_str()).unwrap();
                let reasons = self.cluster.reasons(&object, &self.cluster.nodes[node.as_str()]);
                assert!(reasons.is_empty(), "{} goes to {node}: {reasons:?}\n{}", pod.name, self.log.join("\n"));
                self.log.push(format!("{} shall go to {node}", pod.name));
                self.cluster.waiting.retain(|(other, _)| name(other) != pod.name.as_str());
                self.cluster.pods.push((object, node.to_string()));
                self.bindings.push(pod);
                if self.rng.one_in(2) {
                    self.conclude();
                }
            }
            Step::Wait(wait) => self.wait(wait),
            Step::Skip { .. } | Step::CallExtenders { .. } => {
                panic!("no pending pod is terminating, and there are no extenders")
            }
        }
    }

    /// Completes a binding in progress with success or failure; the watch reports it before or after.
    fn conclude(&mut self) {
        let at = self.one_of(self.bindings.len());
        let pod = self.bindings.remove(at);
        let Some(at) = self.pod_index(&pod.name) else {
            // The pod was deleted meanwhile, which released its resources.
            assert!(self.engine.unbound(&pod, "not found".to_owned(), self.now).is_none());
            return;
        };
        if self.rng.one_in(5) {
            let (object, _) = self.cluster.pods.remove(at);
            self.log.push(format!("{} cannot be bound", pod.name));
            self.waiting.insert(pod.name.to_string(), object);
            let next_step = self.engine.unbound(&pod, "refused".to_owned(), self.now);
            assert!(matches!(next_step, Some(Step::Wait(Wait { reason: Reason::SchedulerError, .. }))));
            self.nominate(&pod.name, "");
            return;
        }
        let (object, node) = self.cluster.pods[at].clone();
        let mut bound = (*object).clone();
        bound.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", node.as_str());
        self.cluster.pods[at].0 = Rc::new(bound.clone());
        if self.rng.one_in(2) {
            self.show(Kind::Pods, &bound);
            self.engine.bound(&pod);
        } else {
            self.engine.bound(&pod);
            self.show(Kind::Pods, &bound);
        }
    }

    /// Records a waiting pod and evicts its victims, after comparing them with the reference.
    fn wait(&mut self, wait: Wait) {
        let (pod, preemption) = (wait.pod.name.to_string(), wait.preemption);
        self.log.push(format!("{pod} waits, {:?}: {}, {preemption:?}", wait.nomination, wait.message));
        let object = Rc::clone(&self.waiting[&pod]);
        if let Some(it) = &preemption {
            let victims: Vec<_> = it.victims.iter().map(|victim| victim.name.to_string()).collect();
            let (_, expect) = self.cluster.eviction(&object, &self.cluster.nodes[it.node.as_str()], &[]).unwrap();
            assert_eq!(victims, expect, "{pod} on {}\n{}", it.node, self.log.join("\n"));
            for key in &it.outbid {
                self.nominate(&key.name, "");
            }
        }
        if let Nomination::Set(node) = &wait.nomination {
            self.nominate(&pod, node);
        }
        for victim in preemption.iter().flat_map(|it| &it.victims) {
            let at = self.pod_index(&victim.name).unwrap();
            assert!(
                priority(&self.cluster.pods[at].0) < priority(&object),
                "only pods with lower priority are evicted"
            );
            // A pod that no kubelet has seen is deleted immediately.
            let is_seen = self.cluster.pods[at].0.str_at(&["spec", "nodeName"]).is_some();
            if is_seen && self.rng.one_in(2) {
                self.end(at);
            } else {
                self.remove_pod(&victim.name);
            }
        }
    }

    /// Sets or clears the nomination of a pod. The watch may report it later.
    fn nominate(&mut self, pod: &str, node: &str) {
        self.cluster.waiting.retain(|(other, _)| name(other) != pod);
        let object = self.waiting.get_mut(pod).unwrap();
        if !node.is_empty() {
            self.cluster.waiting.push((Rc::clone(object), node.to_owned()));
        }
        let status = Rc::make_mut(object).get_mut("status").unwrap().as_object_mut().unwrap();
        let was_nominated = status.remove("nominatedNodeName").is_some();
        if !node.is_empty() && self.rng.one_in(2) {
            status.insert("nominatedNodeName", node);
        } else if !was_nominated {
            return;
        }
        let object = Rc::clone(object);
        self.show(Kind::Pods, &object);
    }

    /// Starts the graceful termination of an evicted pod.
    fn end(&mut self, at: usize) {
        let mut object = (*self.cluster.pods[at].0).clone();
        let condition = value!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        object.get_mut("status").unwrap().as_object_mut().unwrap().insert("conditions", condition);
        let meta = object.get_mut("metadata").unwrap().as_object_mut().unwrap();
        meta.insert("deletionTimestamp", "2026-01-02T00:00:00Z");
        self.show(Kind::Pods, &object);
        self.cluster.pods[at].0 = Rc::new(object);
    }

    fn check(&self) {
        let log = || self.log.join("\n");
        let nominated = self.cluster.waiting.first().map(|(pod, node)| (name(pod), node));
        assert_eq!(nominated, None, "room is kept for nothing\n{}", log());
        for pod in self.waiting.values() {
            for node in self.cluster.nodes.values() {
                let reasons = self.cluster.reasons(pod, node);
                assert!(!reasons.is_empty(), "{} waits, and fits {}\n{}", name(pod), name(node), log());
            }
        }
        for node in self.cluster.nodes.values() {
            for resource in ["cpu", "memory", "example.com/gpu"] {
                let (taken, has) = (self.cluster.taken(node, resource), ReferenceCluster::has(node, resource));
                assert!(taken <= has, "{} is over-committed of {resource}\n{}", name(node), log());
            }
        }
    }

    /// Applies a random change from outside the scheduler.
    fn change(&mut self, step: u64) {
        match self.rng.roll(12) {
            0 if !self.cluster.pods.is_empty() => {
                let at = self.one_of(self.cluster.pods.len());
                let pod = name(&self.cluster.pods[at].0).to_owned();
                self.remove_pod(&pod);
            }
            1 | 2 => {
                let node = format!("node{}", self.rng.roll(5));
                // A node with pods is not changed, because they might no longer fit.
                if !self.cluster.pods.iter().any(|(_, at)| *at == node) {
                    let object = random::node(&mut self.rng, &node);
                    self.set_node(object);
                }
            }
            3 if self.rng.one_in(3) => {
                let node = format!("node{}", self.rng.roll(5));
                self.remove_node(&node);
            }
            4 if !self.waiting.is_empty() => {
                let at = self.one_of(self.waiting.len());
                let pod = self.waiting.keys().nth(at).unwrap().clone();
                self.remove_pod(&pod);
            }
            5 if !self.bindings.is_empty() => self.conclude(),
            _ => {
                let mut object = random::pod(&mut self.rng, &format!("pod{step}"), step);
                let spec = object.get_mut("spec").unwrap().as_object_mut().unwrap();
                spec.insert("schedulerName", "default-scheduler");
                self.add_pod(object);
            }
        }
    }
}

pub(crate) fn history(seed: u64) {
    let mut life = Life::new(seed);
    for step in 0..40 {
        life.change(step);
        match life.rng.roll(3) {
            0 => {
                life.run_until_stable();
                life.check();
            }
            // A change happens before the scheduler is idle.
            1 => {
                let next = life.engine.step(life.now);
                next.into_iter().for_each(|step| life.execute_plan(step));
            }
            _ => {}
        }
    }
    life.run_until_stable();
    life.check();
}
