//! Scheduler extenders: external HTTP services that filter and score nodes and choose victims.
//!
//! A scheduling cycle that needs extenders ends with a request, which the caller sends. The cycle is then repeated with
//! their results, so that a decision depends only on the cluster, the pod and the results.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::{At, Errors, Str};

use crate::framework::{Event, Plugin};
use crate::plugins::default_preemption::Victim;
use crate::pod::Pod;

/// Factor from extender scores (0 to 10) to plugin scores (0 to 100).
pub const SCALE: i64 = 10;

/// Configuration of one extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    pub url_prefix: Str,
    /// URL suffix of the filter call; empty if the extender does not support it. The same holds for the other verbs.
    pub filter_verb: Str,
    pub prioritize_verb: Str,
    pub preempt_verb: Str,
    pub bind_verb: Str,
    /// Multiplier of the extender's scores.
    pub weight: i64,
    pub https: bool,
    pub tls: TlsConfig,
    /// Timeout of a call.
    pub timeout: Duration,
    /// `nodeCacheCapable`: only node names are sent, because the extender caches nodes.
    pub knows_nodes: bool,
    /// Managed resources: only pods that request one of them are sent. Empty for all pods.
    pub managed: Vec<Str>,
    /// Managed resources with `ignoredByScheduler`.
    pub uncounted: Vec<Str>,
    /// Whether scheduling continues without the extender if a call fails.
    pub ignorable: bool,
}

/// TLS configuration of an extender; data is base64-encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Skips the verification of the server certificate.
    pub insecure: bool,
    /// Expected name in the server certificate.
    pub server_name: Str,
    /// File and data of the client certificate.
    pub cert: [Str; 2],
    /// File and data of the client key.
    pub key: [Str; 2],
    /// File and data of the CA bundle.
    pub ca: [Str; 2],
}

/// A request to extenders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtenderRequest {
    /// Filter and score these nodes.
    Nodes(Vec<Str>),
    /// Review these preemption candidates.
    Victims(Vec<Eviction>),
}

/// A preemption candidate: a node and its victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub node: Str,
    /// Highest priority first.
    pub victims: Vec<Victim>,
    /// Number of victims whose eviction violates a PodDisruptionBudget.
    pub violations: usize,
}

/// Results of the extenders for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderResults {
    /// Nodes that passed; `None` before the filter call.
    pub passed: Option<Vec<Str>>,
    /// Rejected nodes with the reason and whether preemption could help.
    pub failed: BTreeMap<Str, (String, bool)>,
    /// Scores to add, by node.
    pub scores: BTreeMap<Str, i64>,
    /// Accepted preemption candidates; `None` before the preempt call.
    pub evictions: Option<Vec<Eviction>>,
    /// Error of a call that is not ignorable.
    pub error: Option<String>,
}

/// Plugin that requeues pods rejected by extenders on every event, because the cause of a rejection is unknown.
pub struct AnyChange;

impl Extender {
    /// Plugin name recorded for a rejection.
    pub const NAME: &'static str = "Extender";

    /// Whether the extender is called for the pod.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let wants = |name: &Str| pod.shape.requests.amount(name) > 0;
        self.managed.is_empty() || self.managed.iter().any(wants)
    }

    /// Whether the extender filters or scores nodes.
    pub fn filters_nodes(&self) -> bool {
        !self.filter_verb.is_empty() || !self.prioritize_verb.is_empty()
    }
}

/// Decodes and validates `extenders` of a configuration.
pub fn read(list: &At<'_>, findings: &mut Errors) -> Vec<Extender> {
    let extenders: Vec<_> = list.items().map(|item| one(&item, findings)).collect();
    let binding = extenders.iter().filter(|it| !it.bind_verb.is_empty()).count();
    if binding > 1 {
        findings.push(apimachinery::field::Error::invalid(
            list.path(),
            format!("found {binding} extenders implementing bind"),
            "only one extender can implement bind",
        ));
    }
    extenders
}

fn one(at: &At<'_>, findings: &mut Errors) -> Extender {
    let text = |field: &str| Str::from(at.get(field).str());
    let weight = at.get("weight");
    if !at.get("prioritizeVerb").is_empty() && weight.int() <= 0 {
        let detail = "must have a positive weight applied to it";
        findings.push(apimachinery::field::Error::invalid(weight.path(), weight.int(), detail));
    }
    let timeout = at.get("httpTimeout");
    let span = super::config::duration(timeout.str());
    if span.is_none() && !timeout.is_empty() {
        findings.push(timeout.invalid("must be a duration"));
    }
    let (mut managed, mut uncounted) = (Vec::new(), Vec::new());
    for item in at.get("managedResources").items() {
        let name = item.get("name");
        findings.extend(apimachinery::names::qualified_name(name.str()).into_iter().map(|detail| name.invalid(detail)));
        if managed.contains(&Str::from(name.str())) {
            findings.push(name.invalid("duplicate extender managed resource name"));
        }
        managed.push(Str::from(name.str()));
        if item.get("ignoredByScheduler").bool() {
            uncounted.push(Str::from(name.str()));
        }
    }
    let tls = at.get("tlsConfig");
    let pair = |file: &str, data: &str| [tls.get(file).str().into(), tls.get(data).str().into()];
    Extender {
        url_prefix: text("urlPrefix"),
        filter_verb: text("filterVerb"),
        prioritize_verb: text("prioritizeVerb"),
        preempt_verb: text("preemptVerb"),
        bind_verb: text("bindVerb"),
        weight: weight.int(),
        https: at.get("enableHTTPS").bool(),
        tls: TlsConfig {
            insecure: tls.get("insecure").bool(),
            server_name: tls.get("serverName").str().into(),
            cert: pair("certFile", "certData"),
            key: pair("keyFile", "keyData"),
            ca: pair("caFile", "caData"),
        },
        // Upstream's default.
        timeout: span.filter(|span| !span.is_zero()).unwrap_or(Duration::from_secs(30)),
        knows_nodes: at.get("nodeCacheCapable").bool(),
        managed,
        uncounted,
        ignorable: at.get("ignorable").bool(),
    }
}

impl Plugin for AnyChange {
    fn name(&self) -> &'static str {
        Extender::NAME
    }

    fn wakes(&self, _pod: &Pod, _event: &Event) -> bool {
        true
    }
}
