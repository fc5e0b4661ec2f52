//! Differential test: every scheduling decision over random clusters equals that of a reference implementation.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod liveness;
mod random;
mod reference;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use apimachinery::Value;
use proptest::prelude::*;
use scheduler::plugins::default_preemption::Budget;
use scheduler::schedule::{Context, NominatedPods, RandomSource};
use scheduler::{Decision, Node, Pod, Profile, Snapshot, schedule};

use random::TestRng;
use reference::ReferenceCluster;
use reference::matching::{name, priority};

/// Time at which a binding completes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BindTime {
    /// Immediately.
    Now,
    /// After other pods were scheduled.
    Later,
}

/// A cluster as snapshot and as reference model.
struct Both {
    snapshot: Snapshot,
    nominated: NominatedPods,
    cluster: ReferenceCluster,
    profile: Profile,
    budgets: Vec<Value>,
    /// Names of assumed pods whose binding is not confirmed.
    assumed: Vec<String>,
}

impl Both {
    fn new(rng: &mut TestRng) -> Self {
        let (profile, strategy) = random::strategy(rng);
        let mut snapshot = Snapshot::default();
        let mut cluster = ReferenceCluster { strategy, ..ReferenceCluster::default() };
        for namespace in random::namespaces() {
            let labels = scheduler::pod::labels(namespace["metadata"]["labels"].as_object());
            snapshot.set_namespace(name(&namespace), labels);
            cluster.namespaces.insert(name(&namespace).to_owned(), Rc::new(namespace));
        }
        let budgets = random::budgets(rng);
        Self { snapshot, nominated: NominatedPods::default(), cluster, profile, budgets, assumed: Vec::new() }
    }

    fn set_node(&mut self, node: Value) {
        self.snapshot.set_node(&Node::new(&node).unwrap());
        self.cluster.nodes.insert(name(&node).to_owned(), Rc::new(node));
    }

    fn remove_node(&mut self, name: &str) {
        self.snapshot.remove_node(name);
        self.cluster.nodes.remove(name);
    }

    /// Binds a pod; the binding is confirmed now or perhaps later.
    fn bind(&mut self, pod: Rc<Value>, node: &str, when: BindTime) {
        let condensed = Pod::new(&pod).unwrap();
        self.nominated.remove(condensed.id());
        self.cluster.waiting.retain(|(other, _)| name(other) != name(&pod));
        self.snapshot.assume(&condensed, node);
        self.assumed.push(name(&pod).to_owned());
        self.cluster.pods.push((pod, node.to_owned()));
        if when == BindTime::Now {
            self.bound(self.assumed.len() - 1);
        }
    }

    /// Confirms an assumed pod.
    fn bound(&mut self, at: usize) {
        let one = self.assumed.remove(at);
        let (pod, node) = self.cluster.pods.iter().find(|(pod, _)| name(pod) == one).unwrap();
        self.snapshot.set_pod(&Pod { node_name: node.as_str().into(), ..Pod::new(pod).unwrap() });
    }

    /// Fails the binding of an assumed pod.
    fn unbound(&mut self, at: usize) {
        let one = self.assumed.remove(at);
        let at = self.pod_index(&one);
        let (pod, _) = self.cluster.pods.remove(at);
        self.snapshot.remove_assumed_pod(Pod::new(&pod).unwrap().id());
    }

    fn pod_index(&self, pod_name: &str) -> usize {
        self.cluster.pods.iter().position(|(pod, _)| name(pod) == pod_name).unwrap()
    }

    fn remove_pod(&mut self, at: usize) -> (Rc<Value>, String) {
        let removed = self.cluster.pods.remove(at);
        self.snapshot.remove_pod(Pod::new(&removed.0).unwrap().id());
        self.assumed.retain(|one| one != name(&removed.0));
        removed
    }

    /// Schedules a pod, compares the decision with the reference, and executes it.
    fn schedule(&mut self, pod: &Rc<Value>, random_source: RandomSource, when: BindTime) {
        let waits_for = self.cluster.waiting.iter().find(|(other, _)| name(other) == name(pod));
        let waits_for = waits_for.map(|(_, node)| node.clone()).unwrap_or_default();
        let condensed = Pod { nominated_node: waits_for.as_str().into(), ..Pod::new(pod).unwrap() };
        let budgets: Vec<_> = self.budgets.iter().map(Budget::new).collect();
        let context =
            Context { random_source, budgets: &budgets, nominated: Some(&self.nominated), ..Context::default() };
        let decision = schedule(&mut self.snapshot, &condensed, &self.profile, context).decision;
        let among = self.cluster.is_affinity_evaluated(pod);
        let order = self.order(random_source.start);
        let feasible: Vec<_> =
            order.into_iter().filter(|node| self.cluster.verdict(pod, node, among).is_empty()).collect();
        match decision {
            Decision::Bind { node } => {
                let nominated = feasible.iter().find(|node| name(node) == waits_for);
                let expect =
                    nominated.map_or_else(|| self.best(pod, &feasible, random_source.tie), |nominated| name(nominated));
                assert_eq!(node.as_str(), expect, "{pod} of {}", feasible.len());
                self.bind(Rc::clone(pod), &node, when);
            }
            Decision::Failed { message } => panic!("{message}"),
            Decision::CallExtenders(_) => panic!("there are no extenders"),
            Decision::Unschedulable { message, clears_nomination, .. } => {
                let fits = feasible.first().map(|node| name(node));
                assert_eq!(fits, None, "{} does not fit: {message}", name(pod));
                assert!(clears_nomination, "no victim is terminating");
                self.check_message(pod, &message);
                self.check_that_eviction_is_useless(pod);
                self.clear_nomination(pod);
            }
            Decision::Preempt { node, victims, message, .. } => {
                assert!(feasible.is_empty());
                self.check_message(pod, &message);
                let names: Vec<_> = victims.iter().map(|victim| victim.name.to_string()).collect();
                self.preempt(pod, &node, &names, when);
            }
        }
    }

    /// Returns the nodes in the order in which they are tried.
    fn order(&self, start: usize) -> Vec<&Value> {
        let nodes = self.snapshot.nodes();
        let offset = if nodes.is_empty() { 0 } else { start % nodes.len() };
        let turned = nodes[offset..].iter().chain(&nodes[..offset]);
        turned.map(|node| &*self.cluster.nodes[self.snapshot.node_name(*node).as_str()]).collect()
    }

    fn best<'a>(&self, pod: &Value, feasible: &[&'a Value], tie: u64) -> &'a str {
        let totals = self.cluster.totals(pod, feasible);
        let most = totals.iter().max().expect("a node that is bound to is feasible");
        let best: Vec<_> = feasible.iter().zip(&totals).filter(|(_, total)| *total == most).collect();
        name(best[usize::try_from(tie).unwrap() % best.len()].0)
    }

    /// Checks the victims against the reference and evicts them. The pod is then placed or stays nominated.
    fn preempt(&mut self, pod: &Rc<Value>, node: &str, victims: &[String], when: BindTime) {
        self.check_that_nothing_is_cheaper(pod, node, victims);
        let among = self.cluster.is_affinity_evaluated(pod);
        let evicted: Vec<_> = victims.iter().map(|victim| self.remove_pod(self.pod_index(victim))).collect();
        assert!(!evicted.is_empty());
        for (victim, at) in &evicted {
            assert!(priority(victim) < priority(pod), "only pods with lower priority are evicted");
            assert_eq!(at, node);
            self.cluster.pods.push((Rc::clone(victim), at.clone()));
            let reasons = self.cluster.verdict(pod, &self.cluster.nodes[node], among);
            assert!(!reasons.is_empty(), "{} need not go", name(victim));
            self.cluster.pods.pop();
        }
        assert_eq!(self.cluster.verdict(pod, &self.cluster.nodes[node], among), Vec::<String>::new());
        // Nominated pods of lower priority may no longer fit on the same node.
        let outbid = self.cluster.waiting.iter().filter(|(other, at)| at == node && priority(other) < priority(pod));
        for other in outbid.map(|(other, _)| Rc::clone(other)).collect::<Vec<_>>() {
            self.clear_nomination(&other);
        }
        match when {
            BindTime::Now => self.bind(Rc::clone(pod), node, BindTime::Now),
            BindTime::Later => {
                self.clear_nomination(pod);
                let waiting = Pod { nominated_node: node.into(), ..Pod::new(pod).unwrap() };
                self.nominated.set(&Arc::new(waiting), node);
                self.cluster.waiting.push((Rc::clone(pod), node.to_owned()));
            }
        }
    }

    /// Clears the nomination of a pod.
    fn clear_nomination(&mut self, pod: &Value) {
        self.nominated.remove(Pod::new(pod).unwrap().id());
        self.cluster.waiting.retain(|(other, _)| name(other) != name(pod));
    }

    /// Checks that the victims equal those of the reference on this node, and that no other node is cheaper.
    fn check_that_nothing_is_cheaper(&self, pod: &Value, node: &str, victims: &[String]) {
        let nodes = &self.cluster.nodes;
        let (cost, expect) =
            self.cluster.eviction(pod, &nodes[node], &self.budgets).expect("evicting pods of this node helps");
        assert_eq!(victims, expect, "victims on {node}");
        for other in nodes.values() {
            if let Some((other_cost, _)) = self.cluster.eviction(pod, other, &self.budgets) {
                assert!(cost <= other_cost, "{node} costs {cost:?}, {} {other_cost:?}", name(other));
            }
        }
    }

    fn check_message(&self, pod: &Value, message: &str) {
        let nodes = &self.cluster.nodes;
        if nodes.is_empty() {
            assert_eq!(message, "no nodes available to schedule pods");
            return;
        }
        let among = self.cluster.is_affinity_evaluated(pod);
        let mut histogram = BTreeMap::new();
        for reason in nodes.values().flat_map(|node| self.cluster.verdict(pod, node, among)) {
            *histogram.entry(reason).or_insert(0) += 1;
        }
        let mut parts: Vec<_> = histogram.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
        parts.sort();
        let expect = format!("0/{} nodes are available: {}.", nodes.len(), parts.join(", "));
        assert_eq!(message.split(" no new claims").next(), Some(expect.as_str()));
    }

    /// Checks that an unschedulable pod would not fit even if all pods of lower priority were evicted.
    fn check_that_eviction_is_useless(&self, pod: &Value) {
        for node in self.cluster.nodes.values() {
            let eviction = self.cluster.eviction(pod, node, &self.budgets);
            assert_eq!(eviction, None, "{} could evict pods of {}", name(pod), name(node));
        }
    }

    fn check_that_nothing_is_overcommitted(&self) {
        for node in self.cluster.nodes.values() {
            let id = self.snapshot.node(name(node)).unwrap();
            let (requested, free_space) = (&self.snapshot.usage(id).requested, self.snapshot.free_space(id));
            for resource in ["cpu", "memory", "example.com/gpu"] {
                let (taken, has) = (self.cluster.taken(node, resource), ReferenceCluster::has(node, resource));
                assert_eq!(requested.amount(resource), taken, "{resource} of {}", name(node));
                assert!(taken <= has, "{} is over-committed of {resource}", name(node));
            }
            let pods = i64::try_from(self.cluster.on(node).count()).unwrap();
            assert!(pods <= ReferenceCluster::has(node, "pods"), "{} has too many pods", name(node));
            let [cpu, memory] = ["cpu", "memory"].map(|it| ReferenceCluster::has(node, it));
            let taken = ["cpu", "memory"].map(|it| self.cluster.taken(node, it));
            assert_eq!(
                free_space.free,
                [cpu - taken[0], memory - taken[1], ReferenceCluster::has(node, "pods") - pods]
            );
            assert_eq!(free_space.whole, [cpu, memory]);
            let weakest = self.cluster.on(node).map(priority).min().unwrap_or(i64::from(i32::MAX));
            assert_eq!(i64::from(free_space.weakest), weakest);
        }
    }

    /// Applies a random change other than a new pod; returns false if nothing changed.
    fn change(&mut self, rng: &mut TestRng) -> bool {
        let mut one_of = |number: usize| usize::try_from(rng.roll(number as u64)).unwrap();
        match one_of(16) {
            0 if !self.cluster.pods.is_empty() => drop(self.remove_pod(one_of(self.cluster.pods.len()))),
            1 => {
                let node = format!("node{}", one_of(8));
                if !self.cluster.pods.iter().any(|(_, at)| *at == node) {
                    self.set_node(random::node(rng, &node));
                }
            }
            2 if one_of(2) == 0 => self.remove_node(&format!("node{}", one_of(8))),
            3 if !self.assumed.is_empty() => self.bound(one_of(self.assumed.len())),
            4 | 5 if !self.assumed.is_empty() => self.unbound(one_of(self.assumed.len())),
            6 | 7 if !self.cluster.waiting.is_empty() => {
                let pod = Rc::clone(&self.cluster.waiting[one_of(self.cluster.waiting.len())].0);
                self.decide(&pod, rng);
            }
            _ => return false,
        }
        true
    }

    fn decide(&mut self, pod: &Rc<Value>, rng: &mut TestRng) {
        let start = usize::try_from(rng.roll(10)).unwrap();
        let random_source = RandomSource { start, tie: rng.roll(5), preemption_start: start };
        let when = if rng.one_in(2) { BindTime::Now } else { BindTime::Later };
        self.schedule(pod, random_source, when);
    }
}

fn history(seed: u64) {
    let mut rng = TestRng(seed);
    let mut both = Both::new(&mut rng);
    for number in 0..=rng.roll(7) {
        both.set_node(random::node(&mut rng, &format!("node{number}")));
    }
    for step in 0..50 {
        if !both.change(&mut rng) {
            let pod = Rc::new(random::pod(&mut rng, &format!("pod{step}"), step));
            both.decide(&pod, &mut rng);
        }
    }
    both.check_that_nothing_is_overcommitted();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_decision_equals_the_reference(seed: u64) {
        history(seed);
    }

    #[test]
    fn schedulable_pod_is_placed_without_a_timeout(seed: u64) {
        liveness::history(seed);
    }
}
