//! A scheduler that is told of random changes: once it has nothing to do, nobody waits who could be placed.

use std::collections::BTreeMap;
use std::rc::Rc;

use machinery::{Key, Value};
use scheduler::engine::{Kind, Step};
use scheduler::queue::{Millis, Options};
use scheduler::{Engine, Node, Pod, Profile};

use crate::reference::World;
use crate::{Dice, random_pod, written_node};

/// No decision is made for the only reason that time has passed, but after failures.
const NEVER: Millis = 1 << 50;
const STEPS_MAX: usize = 5_000;

struct Life {
    engine: Engine,
    world: World,
    /// Pods without a node.
    waiting: BTreeMap<String, Pod>,
    now: Millis,
    /// What happened, for whoever looks into a failure.
    story: Vec<String>,
}

impl Life {
    fn show(&mut self, kind: Kind, object: &Value) {
        self.story.push(format!("{} {object}", kind.name()));
        self.engine.observe(kind, &Key::of(object), Some(object), self.now).unwrap();
    }

    fn set_node(&mut self, object: &Value) {
        self.show(Kind::Nodes, object);
        let node = Node::new(object).unwrap();
        self.world.nodes.insert(node.name.to_string(), node);
    }

    fn remove_node(&mut self, name: &str) {
        self.story.push(format!("node {name} goes"));
        self.world.nodes.remove(name);
        self.engine.observe(Kind::Nodes, &Key::cluster(name), None, self.now).unwrap();
    }

    fn add_pod(&mut self, object: Value) {
        self.show(Kind::Pods, &object);
        let pod = Pod::new(&object).unwrap();
        Rc::make_mut(&mut self.world.written).insert(pod.name.to_string(), object);
        self.waiting.insert(pod.name.to_string(), pod);
    }

    fn remove_pod(&mut self, name: &str) -> Pod {
        let at = self.world.pods.iter().position(|(pod, _)| pod.name == name).unwrap();
        let (pod, _) = self.world.pods.remove(at);
        self.story.push(format!("pod {name} goes"));
        let key = Key::new(pod.class.namespace.clone(), pod.name.clone());
        self.engine.observe(Kind::Pods, &key, None, self.now).unwrap();
        pod
    }

    /// Lets the scheduler decide until nothing but a change can give it something to do.
    fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            match self.engine.step(self.now) {
                Some(step) => self.carry_out(step),
                None => match self.engine.next_wake().filter(|wake| *wake < NEVER) {
                    Some(wake) => self.now = wake,
                    None => return,
                },
            }
        }
        panic!("the scheduler does not come to rest");
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Bind { pod, node, .. } => {
                let reasons = self.world.reasons(&pod, &self.world.nodes[node.as_str()]);
                assert!(reasons.is_empty(), "{} goes to {node}: {reasons:?}", pod.name);
                self.story.push(format!("{} is bound to {node}", pod.name));
                self.engine.bound(&pod);
                self.waiting.remove(pod.name.as_str()).unwrap();
                let mut object = self.world.written[pod.name.as_str()].clone();
                object.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", node.as_str());
                self.show(Kind::Pods, &object);
                self.world.pods.push(((*pod).clone(), node.to_string()));
            }
            Step::Wait(wait) => {
                self.story.push(format!("{} waits, {:?}: {}", wait.pod.name, wait.nomination, wait.message));
                for victim in wait.preemption.into_iter().flat_map(|it| it.victims) {
                    let gone = self.remove_pod(&victim.name);
                    assert!(gone.priority < wait.pod.priority, "only the less important are evicted");
                }
            }
            Step::Skip { .. } | Step::Ask { .. } => panic!("no pod is going, and there is nobody to be asked"),
        }
    }

    fn check(&self) {
        for pod in self.waiting.values() {
            for node in self.world.nodes.values() {
                let reasons = self.world.reasons(pod, node);
                assert!(!reasons.is_empty(), "{} waits, and fits {}\n{}", pod.name, node.name, self.story.join("\n"));
            }
        }
        for node in self.world.nodes.values() {
            let cpu: i64 = self.world.on(&node.name).map(|pod| pod.shape.requests.cpu_milli).sum();
            assert!(cpu <= node.allocatable.cpu_milli, "{} is over-committed", node.name);
        }
    }
}

pub fn history(seed: u64) {
    let mut dice = Dice(seed);
    let profile = Profile { percentage_of_nodes_to_score: 100, ..Profile::default() };
    let options = Options { unschedulable_max: 2 * NEVER, ..Options::default() };
    let engine = Engine::new(vec![profile], options);
    let mut life = Life { engine, world: World::default(), waiting: BTreeMap::new(), now: 0, story: Vec::new() };
    for step in 0..40 {
        match dice.roll(8) {
            0 if !life.world.pods.is_empty() => {
                let at = usize::try_from(dice.roll(life.world.pods.len() as u64)).unwrap();
                let name = life.world.pods[at].0.name.to_string();
                life.remove_pod(&name);
            }
            1 | 2 => {
                let name = format!("node{}", dice.roll(5));
                // What would no longer fit is left alone.
                if !life.world.pods.iter().any(|(_, at)| *at == name) {
                    life.set_node(&written_node(&mut dice, &name));
                }
            }
            3 if dice.one_in(3) => life.remove_node(&format!("node{}", dice.roll(5))),
            _ => {
                let mut object = random_pod(&mut dice, &format!("pod{step}"), step);
                let name = object.get_mut("spec").unwrap().as_object_mut().unwrap();
                name.insert("schedulerName", "default-scheduler");
                life.add_pod(object);
            }
        }
        if dice.one_in(2) {
            life.settle();
            life.check();
        }
    }
    life.settle();
    life.check();
}
