//! Every decision over random histories of random clusters is the one that the rules' definitions give.

#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod liveness;
mod reference;

use std::rc::Rc;

use machinery::{Value, value};
use proptest::prelude::*;
use reference::{Strategy, World};
use scheduler::plugins::default_preemption::Budget;
use scheduler::schedule::{Chance, Context};
use scheduler::{Configuration, Decision, Node, Pod, Profile, Snapshot, schedule};

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

fn random_node(dice: &mut Dice, name: &str) -> Node {
    Node::new(&written_node(dice, name)).unwrap()
}

fn written_node(dice: &mut Dice, name: &str) -> Value {
    let cores = dice.pick(&["4", "8"]);
    let mut labels = value!({"kubernetes.io/hostname": name, "disk": (dice.pick(&["ssd", "hdd"])), "cores": cores});
    if !dice.one_in(6) {
        labels.as_object_mut().unwrap().insert("zone", dice.pick(&["a", "b", "c"]));
    }
    let mut taints = Vec::new();
    if dice.one_in(5) {
        let effect = dice.pick(&["NoSchedule", "PreferNoSchedule", "PreferNoSchedule"]);
        taints.push(value!({"key": (dice.pick(&["k1", "k2"])), "effect": effect}));
    }
    let image = value!({"names": (vec![Value::from(dice.pick(&["one:1", "two:1"]))]), "sizeBytes": 500_000_000});
    let (cpu, gpu) = (format!("{}", 2 + dice.roll(5)), format!("{}", dice.roll(3)));
    value!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": (dice.one_in(10))},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "6", "example.com/gpu": gpu},
            "images": [image]
        }
    })
}

fn random_term(dice: &mut Dice) -> Value {
    let mut term = value!({
        "topologyKey": (dice.pick(&["zone", "kubernetes.io/hostname"])),
        "labelSelector": {"matchLabels": {"app": (dice.pick(&["x", "y"]))}}
    });
    match dice.roll(4) {
        0 => drop(term.as_object_mut().unwrap().insert("namespaces", value!(["n1", "n2"]))),
        1 => drop(term.as_object_mut().unwrap().insert("namespaceSelector", value!({}))),
        _ => {}
    }
    term
}

fn random_affinity(dice: &mut Dice) -> Value {
    let mut affinity = Value::object();
    for (field, rarity) in [("podAffinity", 8), ("podAntiAffinity", 5)] {
        let mut rules = Value::object();
        if dice.one_in(rarity) {
            let terms = vec![random_term(dice)];
            rules.as_object_mut().unwrap().insert("requiredDuringSchedulingIgnoredDuringExecution", terms);
        }
        if dice.one_in(4) {
            let weighted =
                value!({"weight": (1 + i64::try_from(dice.roll(9)).unwrap()), "podAffinityTerm": (random_term(dice))});
            let terms = vec![weighted];
            rules.as_object_mut().unwrap().insert("preferredDuringSchedulingIgnoredDuringExecution", terms);
        }
        affinity.as_object_mut().unwrap().insert(field, rules);
    }
    affinity.as_object_mut().unwrap().insert("nodeAffinity", random_node_affinity(dice));
    affinity
}

fn random_node_affinity(dice: &mut Dice) -> Value {
    let term = |dice: &mut Dice| {
        let expression = match dice.roll(5) {
            0 => value!({"key": "zone", "operator": "In", "values": ["a", (dice.pick(&["b", "c"]))]}),
            1 => value!({"key": "zone", "operator": "NotIn", "values": [(dice.pick(&["a", "b", "c"]))]}),
            2 => value!({"key": "zone", "operator": (dice.pick(&["Exists", "DoesNotExist"]))}),
            3 => value!({"key": "cores", "operator": "Gt", "values": [(dice.pick(&["3", "4"]))]}),
            _ => value!({"key": "disk", "operator": "In", "values": [(dice.pick(&["ssd", "hdd"]))]}),
        };
        value!({"matchExpressions": [expression]})
    };
    let mut rules = Value::object();
    let fields = rules.as_object_mut().unwrap();
    if dice.one_in(6) {
        let terms: Vec<_> = (0..=dice.roll(2)).map(|_| term(dice)).collect();
        fields.insert("requiredDuringSchedulingIgnoredDuringExecution", value!({"nodeSelectorTerms": terms}));
    }
    if dice.one_in(3) {
        let weighted = |dice: &mut Dice| value!({"weight": (1 + i64::try_from(dice.roll(20)).unwrap()), "preference": (term(dice))});
        let terms: Vec<_> = (0..=dice.roll(2)).map(|_| weighted(dice)).collect();
        fields.insert("preferredDuringSchedulingIgnoredDuringExecution", terms);
    }
    rules
}

fn random_spread(dice: &mut Dice) -> Value {
    value!({
        "maxSkew": (1 + i64::try_from(dice.roll(2)).unwrap()),
        "minDomains": (1 + i64::try_from(dice.roll(4)).unwrap()),
        "topologyKey": (dice.pick(&["zone", "kubernetes.io/hostname"])),
        "whenUnsatisfiable": (dice.pick(&["DoNotSchedule", "ScheduleAnyway"])),
        "nodeTaintsPolicy": (dice.pick(&["Honor", "Ignore"])),
        "nodeAffinityPolicy": (dice.pick(&["Honor", "Ignore"])),
        "matchLabelKeys": (if dice.one_in(3) { vec![Value::from("version")] } else { Vec::new() }),
        "labelSelector": {"matchLabels": {"app": (dice.pick(&["x", "y"]))}}
    })
}

fn random_requests(dice: &mut Dice) -> Value {
    let mut requests = Value::object();
    for (resource, rarity, amounts) in [
        ("cpu", 4, ["500m", "1", "2"]),
        ("memory", 2, ["256Mi", "1Gi", "3Gi"]),
        ("example.com/gpu", 1, ["0", "0", "1"]),
    ] {
        if rarity == 1 || !dice.one_in(rarity) {
            requests.as_object_mut().unwrap().insert(resource, dice.pick(&amounts));
        }
    }
    requests
}

/// Containers that run before the others, or beside them.
fn random_init_containers(dice: &mut Dice) -> Vec<Value> {
    let one = |dice: &mut Dice, number: u64| {
        let mut container = value!({"name": (format!("i{number}")), "image": "other", "resources": {"requests": (random_requests(dice))}});
        if dice.one_in(2) {
            container.as_object_mut().unwrap().insert("restartPolicy", "Always");
        }
        container
    };
    (0..dice.roll(8).saturating_sub(5)).map(|number| one(dice, number)).collect()
}

/// What a pod asks for beside its containers: as a whole, and for being a pod.
fn add_amounts(dice: &mut Dice, spec: &mut Value) {
    let fields = spec.as_object_mut().unwrap();
    if dice.one_in(6) {
        let mut whole = value!({"cpu": (dice.pick(&["1", "3"]))});
        if dice.one_in(2) {
            whole.as_object_mut().unwrap().insert("memory", dice.pick(&["1Gi", "3Gi"]));
        }
        fields.insert("resources", value!({"requests": whole}));
    }
    if dice.one_in(6) {
        fields.insert("overhead", value!({"cpu": "250m", "memory": "64Mi"}));
    }
}

fn random_pod(dice: &mut Dice, name: &str, started_seconds: u64) -> Value {
    let mut container = value!({"name": "c", "image": (dice.pick(&["one:1", "two:1", "other"]))});
    let requests = random_requests(dice);
    container.as_object_mut().unwrap().insert("resources", value!({"requests": requests}));
    if dice.one_in(6) {
        container.as_object_mut().unwrap().insert("ports", value!([{"hostPort": 80}]));
    }
    let spread: Vec<_> = (0..dice.roll(8).saturating_sub(5)).map(|_| random_spread(dice)).collect();
    let tolerations = if dice.one_in(3) { value!([{"key": "k1", "operator": "Exists"}]) } else { value!([]) };
    let selector = if dice.one_in(5) { value!({"disk": "ssd"}) } else { value!({}) };
    let mut spec = value!({
        "containers": [container], "priority": (i64::try_from(dice.roll(4)).unwrap()),
        "initContainers": (random_init_containers(dice)),
        "affinity": (random_affinity(dice)), "topologySpreadConstraints": spread,
        "tolerations": tolerations, "nodeSelector": selector
    });
    add_amounts(dice, &mut spec);
    let labels = value!({"app": (dice.pick(&["x", "y"])), "version": (dice.pick(&["1", "2"]))});
    let started = format!("2026-01-01T00:{:02}:{:02}Z", started_seconds / 60, started_seconds % 60);
    value!({
        "metadata": {"name": name, "namespace": (dice.pick(&["n1", "n2"])), "labels": labels},
        "spec": spec, "status": {"startTime": started}
    })
}

/// How nodes are ranked by their load, as a configuration and as a definition.
fn random_strategy(dice: &mut Dice) -> (Profile, Strategy) {
    let line = match dice.roll(2) {
        0 => vec![(0, 0), (100, 10)],
        _ => vec![(0, 10), (50, 4), (90, 0)],
    };
    let points: Vec<_> = line.iter().map(|(load, score)| value!({"utilization": (*load), "score": (*score)})).collect();
    let (name, ratio, strategy) = match dice.roll(4) {
        0 => ("MostAllocated", None, Strategy::Most),
        1 => ("RequestedToCapacityRatio", Some(value!({"shape": points})), Strategy::Ratio(line)),
        _ => ("LeastAllocated", None, Strategy::Least),
    };
    let mut scoring =
        value!({"type": name, "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]});
    if let Some(ratio) = ratio {
        scoring.as_object_mut().unwrap().insert("requestedToCapacityRatio", ratio);
    }
    let arguments = value!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": scoring}}]);
    let configuration = value!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100, "profiles": [{"pluginConfig": arguments}]});
    (Configuration::read(&configuration.to_string()).unwrap().profiles.remove(0), strategy)
}

fn random_budgets(dice: &mut Dice) -> Vec<Budget> {
    let one = |dice: &mut Dice, number: u64| {
        let selector = value!({"matchLabels": {"app": (dice.pick(&["x", "y"]))}});
        Budget::new(&value!({
            "metadata": {"namespace": (dice.pick(&["n1", "n2"])), "name": (format!("b{number}"))},
            "spec": {"selector": selector}, "status": {"disruptionsAllowed": (i64::try_from(dice.roll(3)).unwrap())}
        }))
    };
    (0..dice.roll(4)).map(|number| one(dice, number)).collect()
}

/// A cluster in both forms.
struct Both {
    snapshot: Snapshot,
    world: World,
    profile: Profile,
    budgets: Vec<Budget>,
}

impl Both {
    fn set_node(&mut self, node: Node) {
        self.snapshot.set_node(&node);
        self.world.nodes.insert(node.name.to_string(), node);
    }

    fn remove_node(&mut self, name: &str) {
        self.snapshot.remove_node(name);
        self.world.nodes.remove(name);
    }

    fn bind(&mut self, pod: Pod, node: &str) {
        self.snapshot.assume(&pod, node);
        let confirmed = Pod { node_name: node.into(), ..pod };
        self.snapshot.set_pod(&confirmed);
        self.world.pods.push((Pod { node_name: "".into(), ..confirmed }, node.to_owned()));
    }

    fn remove_pod(&mut self, at: usize) -> (Pod, String) {
        let gone = self.world.pods.remove(at);
        self.snapshot.remove_pod(gone.0.id());
        gone
    }

    /// Decides about a pod, checks the decision against the definitions, and carries it out.
    fn schedule(&mut self, pod: Pod, chance: Chance) {
        let context = Context { chance, budgets: &self.budgets, ..Context::default() };
        let decision = schedule(&mut self.snapshot, &pod, &self.profile, context).decision;
        let order: Vec<_> = {
            let nodes = self.snapshot.nodes();
            let begin = if nodes.is_empty() { 0 } else { chance.start % nodes.len() };
            let turned = nodes[begin..].iter().chain(&nodes[..begin]);
            turned.map(|node| &self.world.nodes[self.snapshot.node_name(*node).as_str()]).collect()
        };
        let feasible: Vec<_> = order.iter().copied().filter(|node| self.world.reasons(&pod, node).is_empty()).collect();
        match decision {
            Decision::Bind { node } => {
                let totals = self.world.totals(&pod, &feasible);
                let most = totals.iter().max().expect("a node that is bound to is feasible");
                let best: Vec<_> = feasible.iter().zip(&totals).filter(|(_, total)| *total == most).collect();
                let expect = &best[usize::try_from(chance.tie).unwrap() % best.len()].0.name;
                assert_eq!(node, *expect, "{pod:?} of {totals:?}");
                self.bind(pod, &node);
            }
            Decision::Failed { message } => panic!("{message}"),
            Decision::Ask(_) => panic!("there is nobody to be asked"),
            Decision::Unschedulable { message, .. } => {
                assert!(feasible.is_empty(), "{} fits {}: {message}", pod.name, feasible[0].name);
                self.check_message(&pod, &message);
                self.check_that_eviction_is_useless(&pod);
            }
            Decision::Preempt { node, victims, message, .. } => {
                assert!(feasible.is_empty());
                self.check_message(&pod, &message);
                let names: Vec<_> = victims.iter().map(|victim| victim.name.clone()).collect();
                self.check_that_nothing_is_cheaper(&pod, &node, &names);
                let evicted = self.evict(&names);
                assert!(!evicted.is_empty());
                for (victim, at) in &evicted {
                    assert!(victim.priority < pod.priority, "only the less important are evicted");
                    assert_eq!(*at, node);
                    let node = &self.world.nodes[at];
                    self.world.pods.push((victim.clone(), at.clone()));
                    assert!(!self.world.reasons(&pod, node).is_empty(), "{} need not go", victim.name);
                    self.world.pods.pop();
                }
                assert_eq!(self.world.reasons(&pod, &self.world.nodes[node.as_str()]), Vec::<String>::new());
                self.bind(pod, &node);
            }
        }
    }

    /// What is evicted is what the definitions say of this node, and on no other it would cost less.
    fn check_that_nothing_is_cheaper(&self, pod: &Pod, node: &str, victims: &[machinery::Str]) {
        let nodes = &self.world.nodes;
        let (cost, expect) = self.world.eviction(pod, &nodes[node], &self.budgets).expect("it helps");
        let victims: Vec<_> = victims.iter().map(ToString::to_string).collect();
        assert_eq!(victims, expect, "victims on {node}");
        for other in nodes.values() {
            if let Some((other_cost, _)) = self.world.eviction(pod, other, &self.budgets) {
                assert!(cost <= other_cost, "{node} costs {cost:?}, {} {other_cost:?}", other.name);
            }
        }
    }

    fn evict(&mut self, names: &[machinery::Str]) -> Vec<(Pod, String)> {
        let place = |this: &Self, name| this.world.pods.iter().position(|(pod, _)| pod.name == name).unwrap();
        names.iter().map(|name| self.remove_pod(place(self, name))).collect()
    }

    fn check_message(&self, pod: &Pod, message: &str) {
        let nodes = &self.world.nodes;
        if nodes.is_empty() {
            assert_eq!(message, "no nodes available to schedule pods");
            return;
        }
        let mut histogram = std::collections::BTreeMap::new();
        for reason in nodes.values().flat_map(|node| self.world.reasons(pod, node)) {
            *histogram.entry(reason).or_insert(0) += 1;
        }
        let mut parts: Vec<_> = histogram.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
        parts.sort();
        let expect = format!("0/{} nodes are available: {}.", nodes.len(), parts.join(", "));
        assert_eq!(message.split(" no new claims").next(), Some(expect.as_str()));
    }

    /// A pod that waits would fit nowhere even if all went that are less important. Pods that need company are left out:
    /// evicting could take it away, or make them the first.
    fn check_that_eviction_is_useless(&self, pod: &Pod) {
        if pod.shape.terms.iter().any(|term| term.kind == scheduler::pod::TermKind::Affinity) {
            return;
        }
        for node in self.world.nodes.values() {
            let stays = |(other, at): &&(Pod, String)| *at != node.name.as_str() || other.priority >= pod.priority;
            let pods = self.world.pods.iter().filter(stays).cloned().collect();
            let without = World { pods, ..self.world.without_pods() };
            assert!(!without.reasons(pod, node).is_empty(), "{} could evict pods of {}", pod.name, node.name);
        }
    }

    fn check_that_nothing_is_overcommitted(&self) {
        for node in self.world.nodes.values() {
            let cpu: i64 = self.world.on(&node.name).map(|pod| pod.shape.requests.cpu_milli).sum();
            let id = self.snapshot.node(&node.name).unwrap();
            assert_eq!(self.snapshot.usage(id).requested.cpu_milli, cpu);
            let allocatable = self.snapshot.offer(id).allocatable.cpu_milli;
            assert!(cpu <= allocatable, "{} is over-committed", node.name);
            let room = self.snapshot.room(id);
            assert_eq!((room.free[0], room.whole[0]), (allocatable - cpu, allocatable));
            let weakest = self.world.on(&node.name).map(|pod| pod.priority).min().unwrap_or(i32::MAX);
            assert_eq!(room.weakest, weakest);
        }
    }
}

fn history(seed: u64) {
    let mut dice = Dice(seed);
    let (profile, strategy) = random_strategy(&mut dice);
    let world = World { strategy, ..World::default() };
    let mut both = Both { snapshot: Snapshot::default(), world, profile, budgets: random_budgets(&mut dice) };
    for number in 0..=dice.roll(7) {
        both.set_node(random_node(&mut dice, &format!("node{number}")));
    }
    for step in 0..40 {
        match dice.roll(12) {
            0 if !both.world.pods.is_empty() => {
                let at = usize::try_from(dice.roll(both.world.pods.len() as u64)).unwrap();
                both.remove_pod(at);
            }
            1 => {
                let name = format!("node{}", dice.roll(8));
                if !both.world.pods.iter().any(|(_, at)| *at == name) {
                    both.set_node(random_node(&mut dice, &name));
                }
            }
            2 if dice.one_in(2) => both.remove_node(&format!("node{}", dice.roll(8))),
            _ => {
                let written = random_pod(&mut dice, &format!("pod{step}"), step);
                let pod = Pod::new(&written).unwrap();
                Rc::make_mut(&mut both.world.written).insert(pod.name.to_string(), written);
                let start = usize::try_from(dice.roll(10)).unwrap();
                let chance = Chance { start, tie: dice.roll(5), preemption_start: start };
                both.schedule(pod, chance);
            }
        }
    }
    both.check_that_nothing_is_overcommitted();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_decision_is_the_one_that_the_definitions_give(seed: u64) {
        history(seed);
    }

    #[test]
    fn a_pod_that_fits_is_placed_without_waiting_for_time_to_pass(seed: u64) {
        liveness::history(seed);
    }
}

#[test]
fn pods_that_waited_in_vain_before_are_placed() {
    liveness::history(16_649_701_822_304_576_708);
}
