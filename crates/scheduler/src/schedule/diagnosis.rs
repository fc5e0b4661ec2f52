//! Why no node takes a pod, in the words that people and tools know.

use std::collections::BTreeMap;
use std::fmt;

use crate::framework::Rejection;
use crate::snapshot::NodeId;

/// What was found out about nodes that cannot take a pod.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    nodes: usize,
    /// Why no node was looked at, if none was.
    before: Option<String>,
    /// The nodes that were looked at, and whether each could do if other pods went.
    rejected: Vec<(NodeId, bool)>,
    /// Nodes per reason.
    reasons: BTreeMap<String, usize>,
    plugins: Vec<&'static str>,
    /// What plug-ins that do not look at all nodes said, and of how many they were silent.
    absent: Option<String>,
    after: Vec<String>,
}

/// The same histogram that a message shows.
pub fn histogram(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<_> = reasons.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
    parts.sort_unstable();
    let space = if parts.is_empty() { "" } else { " " };
    let end = if parts.is_empty() { "" } else { "." };
    format!("0/{nodes} nodes are available:{space}{}{end}", parts.join(", "))
}

impl Diagnosis {
    /// Nothing is known yet about so many nodes.
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

    /// A plug-in knows before it looks at any node that none will do. Nobody is asked then whether making room would
    /// help, and upstream's message says so in this way; those about devices are asked first, and find out that it
    /// would not.
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

    /// What a plug-in said about what the pod can do without; it wants to know of changes, too.
    pub fn gives_up(&mut self, plugin: &'static str, words: &str) {
        self.blame(plugin);
        words.clone_into(&mut self.after[0]);
    }

    /// Plug-ins know before they look at any node that only some come into question.
    pub fn restrict(&mut self, plugins: &[&'static str]) {
        for plugin in plugins {
            self.blame(plugin);
        }
        self.absent = Some(format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" ")));
    }

    /// A node cannot take the pod.
    pub fn reject(&mut self, node: NodeId, rejection: Rejection) {
        self.rejected.push((node, rejection.resolvable));
    }

    /// So many nodes cannot take the pod for these reasons.
    pub fn explain(&mut self, plugin: &'static str, reasons: Vec<String>, nodes: usize) {
        self.blame(plugin);
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += nodes;
        }
    }

    /// What an attempt to make room said.
    pub fn add_after(&mut self, message: &str) {
        self.after.push(message.to_owned());
    }

    /// How many nodes were looked at and cannot take the pod.
    pub const fn nodes_seen(&self) -> usize {
        self.rejected.len()
    }

    /// How many nodes there are.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// The nodes that were looked at, and whether each could do if other pods went.
    pub fn rejected(&self) -> &[(NodeId, bool)] {
        &self.rejected
    }

    /// The plug-ins that rejected anything, sorted.
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
        // An attempt that succeeds says nothing, and then neither do those before it.
        if self.after.len() > 1 || self.before.is_some() {
            write!(out, " {}", self.after.join(", "))?;
        }
        Ok(())
    }
}
