//! Extenders: programs beside the scheduler that are asked about nodes, over HTTP by the shell.
//!
//! A decision that needs their word ends with a question; it is made again from the beginning with the answers, so that
//! it depends on nothing but the cluster, the pod and what they said.

use std::collections::BTreeMap;
use std::time::Duration;

use machinery::{At, Errors, Str};

use crate::framework::{Event, Plugin};
use crate::plugins::default_preemption::Victim;
use crate::pod::Pod;

/// Scores of extenders are up to ten, those of plug-ins up to a hundred.
pub const SCALE: i64 = 10;

/// How one extender is reached, and what it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// Where it is.
    pub url_prefix: Str,
    /// What is appended to ask which nodes will do; empty for not at all. The same holds for the others.
    pub filter_verb: Str,
    /// How good nodes are.
    pub prioritize_verb: Str,
    /// Who should be evicted.
    pub preempt_verb: Str,
    /// To have it bind pods.
    pub bind_verb: Str,
    /// What its scores count.
    pub weight: i64,
    /// Whether the connection is secret and sure.
    pub https: bool,
    /// How.
    pub tls: TlsConfig,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether it knows nodes itself, so that their names are enough.
    pub knows_nodes: bool,
    /// The resources that it sees to; it is asked about pods that want one of them. Every pod if there are none.
    pub managed: Vec<Str>,
    /// Those of them that the scheduler does not count.
    pub uncounted: Vec<Str>,
    /// Whether pods are placed without it if it does not answer.
    pub ignorable: bool,
}

/// How a connection to an extender is made secret and sure; data is in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Take any server for the right one.
    pub insecure: bool,
    /// The name that the server's certificate must have.
    pub server_name: Str,
    /// File and data of the certificate to show.
    pub cert: [Str; 2],
    /// File and data of its key.
    pub key: [Str; 2],
    /// File and data of who vouches for the server.
    pub ca: [Str; 2],
}

/// What extenders are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Which of these nodes will do, and how good they are.
    Nodes(Vec<Str>),
    /// Whether these pods should be evicted.
    Victims(Vec<Eviction>),
}

/// What evicting would take on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The node.
    pub node: Str,
    /// Who would go, the most important first.
    pub victims: Vec<Victim>,
    /// How many of them a budget protects.
    pub violations: usize,
}

/// What extenders said about one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The nodes that will do, once they were asked.
    pub passed: Option<Vec<Str>>,
    /// Why others will not, and whether they could if other pods went.
    pub failed: BTreeMap<Str, (String, bool)>,
    /// What counts for nodes.
    pub scores: BTreeMap<Str, i64>,
    /// Who should be evicted, once they were asked.
    pub evictions: Option<Vec<Eviction>>,
    /// Why there is no answer.
    pub error: Option<String>,
}

/// Wakes pods that extenders rejected: nobody knows what may change their mind.
pub struct AnyChange;

impl Extender {
    /// The name by which a rejection is remembered.
    pub const NAME: &'static str = "Extender";

    /// Whether it is asked about a pod.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let wants = |name: &Str| pod.shape.requests.amount(name) > 0;
        self.managed.is_empty() || self.managed.iter().any(wants)
    }

    /// Whether it has anything to say about which node a pod gets.
    pub fn judges_nodes(&self) -> bool {
        !self.filter_verb.is_empty() || !self.prioritize_verb.is_empty()
    }
}

/// Reads `extenders` of a configuration.
pub fn read(list: &At<'_>, findings: &mut Errors) -> Vec<Extender> {
    let extenders: Vec<_> = list.items().map(|item| one(&item, findings)).collect();
    let binding = extenders.iter().filter(|it| !it.bind_verb.is_empty()).count();
    if binding > 1 {
        findings.push(machinery::field::Error::invalid(
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
        let why = "must have a positive weight applied to it";
        findings.push(machinery::field::Error::invalid(weight.path(), weight.int(), why));
    }
    let timeout = at.get("httpTimeout");
    let span = super::config::duration(timeout.str());
    if span.is_none() && !timeout.is_empty() {
        findings.push(timeout.invalid("must be a duration"));
    }
    let (mut managed, mut uncounted) = (Vec::new(), Vec::new());
    for item in at.get("managedResources").items() {
        let name = item.get("name");
        findings.extend(machinery::names::qualified_name(name.str()).into_iter().map(|why| name.invalid(why)));
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
