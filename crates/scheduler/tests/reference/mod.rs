//! The rules from their definitions: no caches, no counts, no numbers for names.

pub mod preemption;
pub mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use machinery::Value;
use machinery::labels::{Operator, Selector};
use scheduler::pod::{Class, Effect, Policy, Spread, Taint, Term, TermKind, WhenUnsatisfiable};
use scheduler::{Node, Pod};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A cluster as lists.
#[derive(Default)]
pub struct World {
    pub nodes: BTreeMap<String, Node>,
    pub pods: Vec<(Pod, String)>,
    /// The pods as they were written, by name.
    pub written: Rc<BTreeMap<String, Value>>,
    /// How nodes are ranked by their load.
    pub strategy: Strategy,
}

/// How nodes are ranked by their load.
#[derive(Clone, Debug, Default)]
pub enum Strategy {
    #[default]
    Least,
    Most,
    /// Points of a line: load in hundredths, and score up to ten.
    Ratio(Vec<(i64, i64)>),
}

impl World {
    pub fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |(_, at)| at == node).map(|(pod, _)| pod)
    }

    /// Pods whose node is in the same domain.
    fn in_domain<'a>(&'a self, key: &'a str, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
        let value = node.label(key);
        let there = move |at: &String| self.nodes.get(at).is_some_and(|n| value.is_some() && n.label(key) == value);
        self.pods.iter().filter(move |(_, at)| there(at)).map(|(pod, _)| pod)
    }

    /// The reasons why a node cannot take a pod; none if it can.
    pub fn reasons(&self, pod: &Pod, node: &Node) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        if node.unschedulable {
            return one("node(s) were unschedulable");
        }
        if self.is_repelled(pod, node) {
            return one("node(s) had untolerated taint(s)");
        }
        if !self.is_selected(pod, node) {
            return one("node(s) didn't match Pod's node affinity/selector");
        }
        let held = || self.on(&node.name).flat_map(|other| &other.shape.ports);
        if pod.shape.ports.iter().any(|port| held().any(|other| other.conflicts(port))) {
            return one("node(s) didn't have free ports for the requested pod ports");
        }
        let few = self.insufficient(pod, node);
        if !few.is_empty() {
            return few;
        }
        self.spread_reason(pod, node).or_else(|| self.affinity_reason(pod, node)).map(one).unwrap_or_default()
    }

    fn insufficient(&self, pod: &Pod, node: &Node) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.on(&node.name).count() + 1 > usize::try_from(node.pods_max).unwrap() {
            reasons.push("Too many pods".to_owned());
        }
        for name in ["cpu", "memory", "example.com/gpu"] {
            let (wanted, taken) = (self.wanted(pod, name), self.taken(node, name));
            if wanted > 0 && taken + wanted > node.allocatable.amount(name) {
                reasons.push(format!("Insufficient {name}"));
            }
        }
        reasons
    }

    fn wanted(&self, pod: &Pod, name: &str) -> i64 {
        requests::amount(&self.written[pod.name.as_str()], name)
    }

    fn taken(&self, node: &Node, name: &str) -> i64 {
        self.on(&node.name).map(|other| self.wanted(other, name)).sum()
    }

    fn counted(pod: &Pod, spread: &Spread, other: &Pod) -> bool {
        other.class.namespace == pod.class.namespace
            && !other.class.terminating
            && !spread.selector.is_everything()
            && selects(&spread.selector, &other.class)
    }

    fn counts_node(&self, pod: &Pod, spread: &Spread, node: &Node) -> bool {
        (spread.node_affinity == Policy::Ignore || self.is_selected(pod, node))
            && (spread.node_taints == Policy::Ignore || !self.is_repelled(pod, node))
    }

    fn is_repelled(&self, pod: &Pod, node: &Node) -> bool {
        node.taints.iter().any(|taint| taint.effect != Effect::PreferNoSchedule && !self.tolerates(pod, taint))
    }

    /// Whether one of the tolerations speaks of the taint's effect or of all, and of its key, as all here do.
    fn tolerates(&self, pod: &Pod, taint: &Taint) -> bool {
        let effect = match taint.effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        };
        let tolerations = self.written[pod.name.as_str()]["spec"]["tolerations"].as_array().unwrap();
        tolerations.iter().any(|toleration| {
            assert_eq!(toleration.str_at(&["operator"]), Some("Exists"), "the only one that is rolled");
            let about = toleration.str_at(&["effect"]).unwrap_or_default();
            toleration.str_at(&["key"]) == Some(taint.key.as_str()) && (about.is_empty() || about == effect)
        })
    }

    fn is_selected(&self, pod: &Pod, node: &Node) -> bool {
        let spec = &self.written[pod.name.as_str()]["spec"];
        let wanted = spec["nodeSelector"].as_object().unwrap();
        let required = spec.at(&["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
        let terms = required.map(|it| it["nodeSelectorTerms"].as_array().unwrap());
        wanted.iter().all(|(key, value)| node.label(key) == value.as_str())
            && terms.is_none_or(|terms| terms.iter().any(|term| meets(node, term)))
    }

    /// The sum of the weights of preferences that a node meets.
    fn preferred(&self, pod: &Pod, node: &Node) -> i64 {
        let path = ["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
        let list = self.written[pod.name.as_str()].at(&path).and_then(Value::as_array).unwrap_or_default();
        let met = list.iter().filter(|it| meets(node, &it["preference"]));
        met.map(|it| it["weight"].as_int().unwrap()).sum()
    }

    fn disliked(&self, pod: &Pod, node: &Node) -> i64 {
        let soft = node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
        i64::try_from(soft.filter(|taint| !self.tolerates(pod, taint)).count()).unwrap()
    }

    /// Pods per value of the rule's label, over the nodes that count.
    fn domains(&self, pod: &Pod, spread: &Spread, all: &[&Spread]) -> BTreeMap<&str, i64> {
        let mut counts = BTreeMap::new();
        for node in self.nodes.values() {
            let has_all = all.iter().all(|it| node.label(&it.topology_key).is_some());
            if has_all && self.counts_node(pod, spread, node) {
                let here = self.on(&node.name).filter(|other| Self::counted(pod, spread, other)).count();
                *counts.entry(node.label(&spread.topology_key).unwrap()).or_default() += i64::try_from(here).unwrap();
            }
        }
        counts
    }

    fn spread_reason(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let rules: Vec<_> = pod.spread.iter().filter(|it| it.when == WhenUnsatisfiable::DoNotSchedule).collect();
        for rule in &rules {
            let Some(value) = node.label(&rule.topology_key) else {
                return Some("node(s) didn't match pod topology spread constraints (missing required label)");
            };
            let counts = self.domains(pod, rule, &rules);
            let enough = counts.len() >= usize::try_from(rule.min_domains).unwrap();
            let least = if enough { counts.values().min().copied().unwrap() } else { 0 };
            let after = counts.get(value).copied().unwrap_or(0) + i64::from(selects(&rule.selector, &pod.class));
            if after - least > i64::from(rule.max_skew) {
                return Some("node(s) didn't match pod topology spread constraints");
            }
        }
        None
    }

    fn affinity_reason(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let of = |kind: TermKind| pod.shape.terms.iter().filter(move |term| term.kind == kind);
        let meets_all = |class: &Class| of(TermKind::Affinity).all(|term| about(term, class));
        let labelled = of(TermKind::Affinity).all(|term| node.label(&term.topology_key).is_some());
        let company = of(TermKind::Affinity)
            .all(|term| self.in_domain(&term.topology_key, node).any(|other| meets_all(&other.class)));
        let first = meets_all(&pod.class)
            && !self.pods.iter().any(|(other, at)| {
                let labelled = |term: &Term| self.nodes.get(at).is_some_and(|n| n.label(&term.topology_key).is_some());
                meets_all(&other.class) && of(TermKind::Affinity).any(|term| labelled(term))
            });
        if !labelled || !company && !first {
            return Some("node(s) didn't match pod affinity rules");
        }
        let meets = |term: &Term| self.in_domain(&term.topology_key, node).any(|other| about(term, &other.class));
        if of(TermKind::AntiAffinity).any(|term| meets(term)) {
            return Some("node(s) didn't match pod anti-affinity rules");
        }
        let keeps_away = |term: &Term, at: &str| {
            let value = node.label(&term.topology_key);
            let there = self.nodes.get(at).and_then(|n| n.label(&term.topology_key));
            term.kind == TermKind::AntiAffinity && about(term, &pod.class) && value.is_some() && value == there
        };
        let kept = |(other, at): &(Pod, String)| other.shape.terms.iter().any(|term| keeps_away(term, at));
        self.pods.iter().any(kept).then_some("node(s) didn't satisfy existing pods anti-affinity rules")
    }

    /// The sum of all weighted scores of each of these nodes.
    pub fn totals(&self, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| {
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
        };
        add(3, reversed(nodes.iter().map(|node| self.disliked(pod, node)).collect()));
        add(2, scaled(nodes.iter().map(|node| self.preferred(pod, node)).collect()));
        add(1, nodes.iter().map(|node| self.loaded(pod, node)).collect());
        add(1, nodes.iter().map(|node| self.balanced(pod, node)).collect());
        add(1, nodes.iter().map(|node| self.images(pod, node)).collect());
        add(2, self.spread_scores(pod, nodes));
        add(2, self.affinity_scores(pod, nodes));
        totals
    }

    fn loaded(&self, pod: &Pod, node: &Node) -> i64 {
        let scores = [("cpu", 0), ("memory", 1)].map(|(name, at)| {
            let taken: i64 = self.on(&node.name).map(|other| other.shape.non_zero[at]).sum::<i64>() + pod.scored[at];
            let has = node.allocatable.amount(name);
            match &self.strategy {
                Strategy::Least => {
                    if taken > has {
                        0
                    } else {
                        (has - taken) * 100 / has
                    }
                }
                Strategy::Most => taken.min(has) * 100 / has,
                Strategy::Ratio(line) => on_line(line, if taken > has { 100 } else { taken * 100 / has }),
            }
        });
        match self.strategy {
            Strategy::Least | Strategy::Most => scores.iter().sum::<i64>() / 2,
            // What scores nothing does not count.
            Strategy::Ratio(_) => {
                let counted: Vec<_> = scores.into_iter().filter(|score| *score > 0).collect();
                if counted.is_empty() {
                    return 0;
                }
                (counted.iter().sum::<i64>() as f64 / counted.len() as f64).round() as i64
            }
        }
    }

    fn balanced(&self, pod: &Pod, node: &Node) -> i64 {
        let wanted = |name: &str| self.wanted(pod, name);
        if wanted("cpu") == 0 && wanted("memory") == 0 {
            return 0;
        }
        let evenness = |with: bool| {
            let [cpu, memory] = ["cpu", "memory"].map(|name| {
                let taken = self.taken(node, name);
                let all = if with { taken + wanted(name) } else { taken };
                (all as f64 / node.allocatable.amount(name) as f64).min(1.0)
            });
            ((1.0 - ((cpu - memory) / 2.0).abs()) * 100.0) as i64
        };
        50 + (50 + evenness(true) - evenness(false)) / 2
    }

    fn images(&self, pod: &Pod, node: &Node) -> i64 {
        let (mib, number) = (1024 * 1024, i64::try_from(pod.images.len()).unwrap());
        let size = |node: &Node, image: &str| node.images.iter().find(|(name, _)| name == image).map(|(_, size)| *size);
        let scaled = |image: &str| {
            let spread = self.nodes.values().filter(|other| size(other, image).is_some()).count();
            let share = spread as f64 / self.nodes.len() as f64;
            size(node, image).map_or(0, |size| (size as f64 * share) as i64)
        };
        let sum: i64 = pod.images.iter().map(|image| scaled(image)).sum();
        100 * (sum.clamp(23 * mib, 1000 * mib * number) - 23 * mib) / (1000 * mib * number - 23 * mib)
    }

    fn spread_scores(&self, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
        let rules: Vec<_> = pod.spread.iter().filter(|it| it.when == WhenUnsatisfiable::ScheduleAnyway).collect();
        if rules.is_empty() {
            return vec![0; nodes.len()];
        }
        let ranked = |node: &Node| rules.iter().all(|rule| node.label(&rule.topology_key).is_some());
        let raw = |node: &Node| -> f64 {
            let of_rule = |rule: &&Spread| {
                let key = rule.topology_key.as_str();
                let candidates = nodes.iter().filter(|node| ranked(node));
                let (size, count) = if key == HOSTNAME {
                    let here = self.on(&node.name).filter(|other| Self::counted(pod, rule, other)).count();
                    (candidates.count(), i64::try_from(here).unwrap())
                } else {
                    let values: BTreeSet<_> = candidates.map(|node| node.label(key)).collect();
                    let count = self.domains(pod, rule, &rules).get(node.label(key).unwrap()).copied();
                    (values.len(), count.unwrap_or(0))
                };
                count as f64 * (size as f64 + 2.0).ln() + f64::from(rule.max_skew - 1)
            };
            rules.iter().map(of_rule).sum()
        };
        let raw: Vec<_> = nodes.iter().map(|node| ranked(node).then(|| raw(node).round() as i64)).collect();
        let most = raw.iter().flatten().max().copied().unwrap_or(0);
        let least = raw.iter().flatten().min().copied().unwrap_or(0);
        let scaled = |score: i64| if most == 0 { 100 } else { 100 * (most + least - score) / most };
        raw.into_iter().map(|score| score.map_or(0, scaled)).collect()
    }

    fn affinity_scores(&self, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
        let raw = |node: &&Node| -> i64 {
            let mut sum = 0;
            for (other, at) in &self.pods {
                let Some(there) = self.nodes.get(at) else { continue };
                let same = |term: &Term| {
                    let value = node.label(&term.topology_key);
                    value.is_some() && value == there.label(&term.topology_key)
                };
                for term in pod.shape.terms.iter().filter(|term| same(term) && about(term, &other.class)) {
                    sum += if let TermKind::Preferred(weight) = term.kind { i64::from(weight) } else { 0 };
                }
                for term in other.shape.terms.iter().filter(|term| same(term) && about(term, &pod.class)) {
                    sum += match term.kind {
                        TermKind::Preferred(weight) => i64::from(weight),
                        TermKind::Affinity => 1,
                        TermKind::AntiAffinity => 0,
                    };
                }
            }
            sum
        };
        let raw: Vec<_> = nodes.iter().map(raw).collect();
        let (most, least) = (raw.iter().max().unwrap(), raw.iter().min().unwrap());
        let share = |score: &i64| (score - least) as f64 / (most - least) as f64;
        raw.iter().map(|score| if most == least { 0 } else { (100.0 * share(score)) as i64 }).collect()
    }
}

/// Whether a rule is about pods of a class, in a world whose namespaces have no labels.
fn about(term: &Term, class: &Class) -> bool {
    (term.namespaces.contains(&class.namespace) || term.namespace_selector.is_everything())
        && selects(&term.selector, class)
}

/// Whether every requirement holds; all that are rolled name one value of one label.
fn selects(selector: &Selector, class: &Class) -> bool {
    let Some(requirements) = selector.requirements() else { return false };
    requirements.iter().all(|requirement| {
        assert!(matches!(requirement.operator(), Operator::In | Operator::Equals), "the only ones that are rolled");
        let own = class.labels.iter().find(|(key, _)| key == requirement.key());
        own.is_some_and(|(_, value)| requirement.values().iter().any(|one| one == value))
    })
}

/// Whether a node meets all expressions of a term.
fn meets(node: &Node, term: &Value) -> bool {
    term["matchExpressions"].as_array().unwrap().iter().all(|expression| {
        let have = node.label(expression.str_at(&["key"]).unwrap());
        let values: Vec<_> =
            expression["values"].as_array().unwrap_or_default().iter().map(|it| it.as_str().unwrap()).collect();
        match expression.str_at(&["operator"]).unwrap() {
            "In" => have.is_some_and(|have| values.contains(&have)),
            "NotIn" => !have.is_some_and(|have| values.contains(&have)),
            "Exists" => have.is_some(),
            "DoesNotExist" => have.is_none(),
            "Gt" => have.is_some_and(|have| have.parse::<i64>().unwrap() > values[0].parse().unwrap()),
            other => panic!("{other} is not rolled"),
        }
    })
}

/// The score at a load, on a line through points; scores of up to ten become ones of up to a hundred.
fn on_line(line: &[(i64, i64)], load: i64) -> i64 {
    for (at, (end, score)) in line.iter().enumerate() {
        if load <= *end {
            let Some((begin, before)) = at.checked_sub(1).map(|at| line[at]) else { return score * 10 };
            return before * 10 + (score * 10 - before * 10) * (load - begin) / (end - begin);
        }
    }
    line.last().unwrap().1 * 10
}

fn scaled(scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    scores.into_iter().map(|score| if most == 0 { 0 } else { 100 * score / most }).collect()
}

fn reversed(scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    scores.into_iter().map(|score| if most == 0 { 100 } else { 100 - 100 * score / most }).collect()
}
