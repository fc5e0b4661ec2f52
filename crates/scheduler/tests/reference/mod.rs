//! Reference implementation of the scheduling rules over plain API objects: no caches, no counts, no interning.

pub(crate) mod matching;
pub(crate) mod preemption;
pub(crate) mod requests;
pub(crate) mod score;

use std::collections::BTreeMap;
use std::rc::Rc;

use apimachinery::{Value, value};

use matching::{
    is_everything, is_going, label, list, meets, name, namespace, ports, priority, selects, text, tolerates,
};

pub(crate) use score::Strategy;

/// A pod and its assigned or nominated node.
pub(crate) type AssignedPod = (Rc<Value>, String);

/// A cluster as lists of objects.
#[derive(Clone, Default)]
pub(crate) struct ReferenceCluster {
    pub nodes: BTreeMap<String, Rc<Value>>,
    pub pods: Vec<AssignedPod>,
    /// Nominated pods.
    pub waiting: Vec<AssignedPod>,
    pub namespaces: BTreeMap<String, Rc<Value>>,
    pub strategy: Strategy,
}

impl ReferenceCluster {
    pub(crate) fn on<'a>(&'a self, node: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.pods.iter().filter(move |(_, at)| at == name(node)).map(|(pod, _)| &**pod)
    }

    /// Returns the same cluster with other pods.
    pub(crate) fn with_pods(&self, pods: Vec<AssignedPod>) -> ReferenceCluster {
        ReferenceCluster { pods, ..self.clone() }
    }

    /// Returns a node's allocatable of a resource.
    pub(crate) fn has(node: &Value, resource: &str) -> i64 {
        node.at(&["status", "allocatable", resource]).map_or(0, |amount| requests::units(amount, resource))
    }

    /// Returns the sum of requests on a node.
    pub(crate) fn taken(&self, node: &Value, resource: &str) -> i64 {
        self.on(node).map(|other| requests::amount(other, resource)).sum()
    }

    /// Returns why a node is infeasible, first with the pods nominated to it that have at least the same priority, then
    /// without them. Empty if it is feasible both times.
    pub(crate) fn verdict(&self, pod: &Value, node: &Value, among_pods: bool) -> Vec<String> {
        let counts = |(other, at): &&AssignedPod| {
            at == name(node) && priority(other) >= priority(pod) && name(other) != name(pod)
        };
        let waiting: Vec<_> = self.waiting.iter().filter(counts).cloned().collect();
        if !waiting.is_empty() {
            let reasons = self.with_pods([self.pods.clone(), waiting].concat()).reasons_by(pod, node, among_pods);
            if !reasons.is_empty() {
                return reasons;
            }
        }
        self.reasons_by(pod, node, among_pods)
    }

    /// Returns why a node is infeasible without nominated pods; empty if it is feasible.
    pub(crate) fn reasons(&self, pod: &Value, node: &Value) -> Vec<String> {
        self.reasons_by(pod, node, true)
    }

    /// Whether inter-pod affinity is evaluated: the pod has terms, or the anti-affinity of an existing pod matches it.
    /// If not, terms of nominated pods are not evaluated either, as upstream.
    pub(crate) fn is_affinity_evaluated(&self, pod: &Value) -> bool {
        let has = |kind: &str| !required(pod, kind).is_empty();
        let keeps_away = |(other, at): &AssignedPod| {
            let labelled = |term: &Value| self.nodes.get(at).is_some_and(|node| topology(node, term).is_some());
            required(other, "podAntiAffinity").iter().any(|term| labelled(term) && self.is_about(term, other, pod))
        };
        has("podAffinity") || has("podAntiAffinity") || self.pods.iter().any(keeps_away)
    }

    fn reasons_by(&self, pod: &Value, node: &Value, among_pods: bool) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        if is_closed(pod, node) {
            return one("node(s) were unschedulable");
        }
        if is_repelled(pod, node) {
            return one("node(s) had untolerated taint(s)");
        }
        if !is_selected(pod, node) {
            return one("node(s) didn't match Pod's node affinity/selector");
        }
        if self.on(node).any(|other| conflict(other, pod)) {
            return one("node(s) didn't have free ports for the requested pod ports");
        }
        let few = self.insufficient(pod, node);
        if !few.is_empty() {
            return few;
        }
        let among = || if among_pods { self.affinity_reason(pod, node) } else { None };
        self.spread_reason(pod, node).or_else(among).map(one).unwrap_or_default()
    }

    fn insufficient(&self, pod: &Value, node: &Value) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.on(node).count() + 1 > usize::try_from(Self::has(node, "pods")).unwrap() {
            reasons.push("Too many pods".to_owned());
        }
        for resource in ["cpu", "memory", "example.com/gpu"] {
            let requested = requests::amount(pod, resource);
            if requested > 0 && self.taken(node, resource) + requested > Self::has(node, resource) {
                reasons.push(format!("Insufficient {resource}"));
            }
        }
        reasons
    }

    /// Returns pod counts per domain of a spread constraint, over the eligible nodes.
    fn domains(&self, pod: &Value, rule: &Value, all: &[&Value]) -> BTreeMap<&str, i64> {
        let mut counts = BTreeMap::new();
        for node in self.nodes.values() {
            let has_all = all.iter().all(|it| topology(node, it).is_some());
            if has_all && counts_node(pod, rule, node) {
                let here = self.on(node).filter(|other| is_counted(pod, rule, other)).count();
                *counts.entry(topology(node, rule).unwrap()).or_default() += i64::try_from(here).unwrap();
            }
        }
        counts
    }

    fn spread_reason(&self, pod: &Value, node: &Value) -> Option<&'static str> {
        let rules = spread_rules(pod, "DoNotSchedule");
        for rule in &rules {
            let Some(value) = topology(node, rule) else {
                return Some("node(s) didn't match pod topology spread constraints (missing required label)");
            };
            let number = |field: &str, absent| rule.get(field).and_then(Value::as_int).unwrap_or(absent);
            let counts = self.domains(pod, rule, &rules);
            let enough = i64::try_from(counts.len()).unwrap() >= number("minDomains", 1);
            let least = if enough { counts.values().min().copied().unwrap() } else { 0 };
            let after = counts.get(value).copied().unwrap_or(0) + i64::from(is_alike(pod, rule, pod));
            if after - least > number("maxSkew", 1) {
                return Some("node(s) didn't match pod topology spread constraints");
            }
        }
        None
    }

    fn affinity_reason(&self, pod: &Value, node: &Value) -> Option<&'static str> {
        let near = required(pod, "podAffinity");
        let is_company = |other: &Value| near.iter().all(|term| self.is_about(term, pod, other));
        let labelled = near.iter().all(|term| topology(node, term).is_some());
        let company = near.iter().all(|term| self.in_domain(term, node).any(is_company));
        let first = is_company(pod)
            && !self.pods.iter().any(|(other, at)| {
                let counts = |term: &Value| self.nodes.get(at).is_some_and(|there| topology(there, term).is_some());
                is_company(other) && near.iter().any(counts)
            });
        if !labelled || !company && !first {
            return Some("node(s) didn't match pod affinity rules");
        }
        let meets = |term: &Value| self.in_domain(term, node).any(|other| self.is_about(term, pod, other));
        if required(pod, "podAntiAffinity").iter().any(meets) {
            return Some("node(s) didn't match pod anti-affinity rules");
        }
        let keeps_away = |(other, at): &AssignedPod| {
            let near = |term: &Value| self.nodes.get(at).is_some_and(|there| is_together(node, there, term));
            required(other, "podAntiAffinity").iter().any(|term| near(term) && self.is_about(term, other, pod))
        };
        self.pods.iter().any(keeps_away).then_some("node(s) didn't satisfy existing pods anti-affinity rules")
    }

    /// Returns the pods whose node is in the same domain.
    fn in_domain<'a>(&'a self, term: &'a Value, node: &'a Value) -> impl Iterator<Item = &'a Value> {
        let there = move |at: &String| self.nodes.get(at).is_some_and(|there| is_together(node, there, term));
        self.pods.iter().filter(move |(_, at)| there(at)).map(|(pod, _)| &**pod)
    }

    /// Whether a term of `holder` matches another pod; by default only in the namespace of `holder`.
    fn is_about(&self, term: &Value, holder: &Value, other: &Value) -> bool {
        let (named, by_labels) = (list(term, &["namespaces"]), term.get("namespaceSelector"));
        let at_home = named.is_empty() && by_labels.is_none() && namespace(holder) == namespace(other);
        let in_namespace = at_home
            || named.iter().any(|it| it.as_str() == Some(namespace(other)))
            || selects(by_labels, &self.namespaces[namespace(other)]);
        in_namespace && selects(term.get("labelSelector"), other)
    }
}

/// Whether two pods use the same host port.
fn conflict(one: &Value, other: &Value) -> bool {
    let any = "0.0.0.0";
    ports(one).iter().any(|(port, protocol, address)| {
        ports(other).iter().any(|(other_port, by, at)| {
            port == other_port && protocol == by && (address == at || *address == any || *at == any)
        })
    })
}

/// Whether a node is unschedulable for a pod; the pod may tolerate the corresponding taint.
fn is_closed(pod: &Value, node: &Value) -> bool {
    let taint = value!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    node.is_true_at(&["spec", "unschedulable"]) && !tolerates(pod, &taint)
}

fn is_repelled(pod: &Value, node: &Value) -> bool {
    let taints = list(node, &["spec", "taints"]).iter();
    taints.filter(|taint| text(taint, &["effect"]) != "PreferNoSchedule").any(|taint| !tolerates(pod, taint))
}

fn is_selected(pod: &Value, node: &Value) -> bool {
    let selector = pod["spec"]["nodeSelector"].as_object().unwrap();
    let required = pod.at(&["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
    selector.iter().all(|(key, value)| label(node, key) == value.as_str())
        && required.is_none_or(|it| list(it, &["nodeSelectorTerms"]).iter().any(|term| meets(node, term)))
}

/// Returns the required affinity terms of a pod.
fn required<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    list(pod, &["spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"])
}

/// Returns the domain of a node.
fn topology<'a>(node: &'a Value, rule: &Value) -> Option<&'a str> {
    label(node, text(rule, &["topologyKey"]))
}

fn is_together(one: &Value, other: &Value, rule: &Value) -> bool {
    topology(one, rule).is_some_and(|value| topology(other, rule) == Some(value))
}

fn spread_rules<'a>(pod: &'a Value, when: &str) -> Vec<&'a Value> {
    let all = list(pod, &["spec", "topologySpreadConstraints"]).iter();
    all.filter(|rule| text(rule, &["whenUnsatisfiable"]) == when).collect()
}

/// Whether a term of a pod selects another pod by its selector and `matchLabelKeys`.
fn is_alike(pod: &Value, rule: &Value, other: &Value) -> bool {
    let mut own = list(rule, &["matchLabelKeys"]).iter().filter_map(Value::as_str);
    selects(rule.get("labelSelector"), other)
        && own.all(|key| label(pod, key).is_none() || label(pod, key) == label(other, key))
}

/// Whether a constraint of a pod counts another pod. A selector that matches everything counts no pods.
fn is_counted(pod: &Value, rule: &Value, other: &Value) -> bool {
    let mut own = list(rule, &["matchLabelKeys"]).iter().filter_map(Value::as_str);
    let is_narrow = !rule.get("labelSelector").is_none_or(is_everything) || own.any(|key| label(pod, key).is_some());
    namespace(other) == namespace(pod) && !is_going(other) && is_narrow && is_alike(pod, rule, other)
}

/// Whether a node is eligible for a constraint; by default if it matches the pod's node affinity.
fn counts_node(pod: &Value, rule: &Value, node: &Value) -> bool {
    (text(rule, &["nodeAffinityPolicy"]) == "Ignore" || is_selected(pod, node))
        && (text(rule, &["nodeTaintsPolicy"]) != "Honor" || !is_repelled(pod, node))
}
