//! Diagnosis of an unschedulable pod, with upstream's messages (`0/3 nodes are available: …`).

use std::collections::BTreeMap;
use std::fmt;

use crate::framework::Rejection;
use crate::snapshot::NodeId;

/// Rejected nodes and their reasons.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    nodes: usize,
    /// PreFilter reason that rejects all nodes.
    before: Option<String>,
    /// Evaluated nodes, and whether preemption could make each feasible.
    rejected: Vec<(NodeId, bool)>,
    /// Number of nodes per reason.
    reasons: BTreeMap<String, usize>,
    plugins: Vec<&'static str>,
    /// Reason for nodes that were excluded by PreFilter results.
    absent: Option<String>,
    after: Vec<String>,
}

/// Formats the reasons as in upstream's messages.
pub fn histogram(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<_> = reasons.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
    parts.sort_unstable();
    let space = if parts.is_empty() { "" } else { " " };
    let end = if parts.is_empty() { "" } else { "." };
    format!("0/{nodes} nodes are available:{space}{}{end}", parts.join(", "))
}

impl Diagnosis {
    /// Creates an empty diagnosis of a cluster with this number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            before: None,
            rejected: Vec::new(),
            reasons: BTreeMap::new(),
            plugins: Vec::new(),
            absent: None,
            after: vec!["no new claims to deallocate".to_owned()],
        }
    }

    /// Records that PreFilter of a plugin rejects all nodes. Preemption is not tried then, and the message has
    /// upstream's form for that. The PostFilter of DynamicResources runs first and finds nothing to deallocate.
    pub fn reject_all(&mut self, plugin: &'static str, reason: String) {
        self.blame(plugin);
        self.before = Some(reason);
        if plugin == "DynamicResources" {
            let reasons = BTreeMap::from([("Preemption is not helpful for scheduling".to_owned(), self.nodes)]);
            self.add_after(&format!("preemption: {}", histogram(self.nodes, &reasons)));
        } else {
            self.after = vec!["not found".to_owned()];
        }
    }

    /// Records the PostFilter message of a plugin. The plugin then also counts as rejecting, so that its events wake
    /// the pod.
    pub fn gives_up(&mut self, plugin: &'static str, message: &str) {
        self.blame(plugin);
        message.clone_into(&mut self.after[0]);
    }

    /// Records that PreFilter of these plugins restricted the candidate nodes.
    pub fn restrict(&mut self, plugins: &[&'static str]) {
        for plugin in plugins {
            self.blame(plugin);
        }
        self.absent = Some(format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" ")));
    }

    pub fn reject(&mut self, node: NodeId, rejection: Rejection) {
        self.rejected.push((node, rejection.resolvable));
    }

    /// Adds reasons for a number of rejected nodes.
    pub fn explain(&mut self, plugin: &'static str, reasons: Vec<String>, nodes: usize) {
        self.blame(plugin);
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += nodes;
        }
    }

    /// Adds the message of a preemption attempt.
    pub fn add_after(&mut self, message: &str) {
        self.after.push(message.to_owned());
    }

    /// Returns the number of nodes evaluated and rejected.
    pub const fn nodes_seen(&self) -> usize {
        self.rejected.len()
    }

    /// Returns the number of nodes in the cluster.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the rejected nodes, and whether preemption could make each feasible.
    pub fn rejected(&self) -> &[(NodeId, bool)] {
        &self.rejected
    }

    /// Returns the rejecting plugins, sorted.
    pub fn plugins(&self) -> Vec<&'static str> {
        let mut plugins = self.plugins.clone();
        plugins.sort_unstable();
        plugins
    }

    fn blame(&mut self, plugin: &'static str) {
        if !self.plugins.contains(&plugin) {
            self.plugins.push(plugin);
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = &self.before {
            write!(out, "0/{} nodes are available: {before}.", self.nodes)?;
        } else {
            let mut reasons = self.reasons.clone();
            let unseen = self.nodes - self.rejected.len();
            if let Some(absent) = self.absent.as_ref().filter(|_| unseen > 0) {
                *reasons.entry(absent.clone()).or_default() += unseen;
            }
            out.write_str(&histogram(self.nodes, &reasons))?;
        }
        // A successful preemption adds no message; then the earlier PostFilter messages are omitted, too.
        if self.after.len() > 1 || self.before.is_some() {
            write!(out, " {}", self.after.join(", "))?;
        }
        Ok(())
    }
}
