//! Back-off for failed DaemonSet pods: the delay before replacement doubles for each failure on a node.
//!
//! The times of replacements are passed from plan to plan in [`controller::Plan::remember`].

use std::collections::BTreeMap;

use apimachinery::time::{Duration, Time};
use apimachinery::{Value, value};

const FIRST: Duration = Duration::from_seconds(1);
const MAX: Duration = Duration::from_seconds(15 * 60);
/// Duration without failures after which the back-off of a node is reset.
const RESET_AFTER: Duration = Duration::from_seconds(2 * 15 * 60);

/// The replacements of failed pods of one template, by node.
#[derive(Debug)]
pub(super) struct Backoffs<'a> {
    template: &'a str,
    nodes: BTreeMap<String, BackoffEntry>,
}

#[derive(Debug)]
struct BackoffEntry {
    times: u32,
    last: Time,
}

impl<'a> Backoffs<'a> {
    /// Restores the back-offs of a template. Back-offs of another template are dropped, so that a corrected template is
    /// tried immediately.
    pub(super) fn recall(memory: Option<&Value>, template: &'a str, now: Time) -> Self {
        let same = memory.filter(|memory| memory.str_at(&["template"]) == Some(template));
        let nodes = same.and_then(|memory| memory.get("nodes")?.as_object());
        let nodes = nodes.into_iter().flat_map(apimachinery::Object::iter);
        let nodes = nodes.filter_map(|(node, replaced)| {
            let times = u32::try_from(replaced.get("times")?.as_int()?).ok()?;
            let last = Time::parse_micro(replaced.str_at(&["last"])?).ok()?;
            (last.plus(RESET_AFTER) >= now).then(|| (node.to_string(), BackoffEntry { times, last }))
        });
        Self { template, nodes: nodes.collect() }
    }

    /// Returns the time until which failed pods of the node are kept; `None` if they may be replaced now.
    pub(super) fn until(&self, node: &str, now: Time) -> Option<Time> {
        let replaced = self.nodes.get(node)?;
        let doubled = replaced.times.saturating_sub(1).min(16);
        let wait = FIRST.nanos().saturating_mul(1 << doubled).min(MAX.nanos());
        Some(replaced.last.plus(Duration::from_nanos(wait))).filter(|until| *until > now)
    }

    /// Records that a failed pod of the node is replaced now.
    pub(super) fn replace(&mut self, node: &str, now: Time) {
        let replaced = self.nodes.entry(node.to_owned()).or_insert(BackoffEntry { times: 0, last: now });
        *replaced = BackoffEntry { times: replaced.times.saturating_add(1), last: now };
    }

    /// Returns the memory for the next plan; `None` if no back-off is active.
    pub(super) fn remember(&self) -> Option<Value> {
        if self.nodes.is_empty() {
            return None;
        }
        let mut nodes = Value::object();
        if let Some(object) = nodes.as_object_mut() {
            for (node, BackoffEntry { times, last }) in &self.nodes {
                object
                    .insert(node.as_str(), value!({"times": (i64::from(*times)), "last": (last.micro().to_string())}));
            }
        }
        Some(value!({"template": (self.template), "nodes": nodes}))
    }
}
