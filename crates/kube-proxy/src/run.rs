//! The kube-proxy sync loop: watches services, slices and the node, and applies each change in one transaction.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Resource, Value, json, value};
use client::Client;
use client::cache::{self, ChangeQueue, ChangedKeys, Reader, Source};
use controller::kinds;
use diagnostics::chain::NodeStage;
use netlink::Cidr;
use netlink::conntrack;
use netlink::link::Links;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::config::{Config, DetectLocal, Mode, NodePortAddresses};
use crate::dataplane::{self, Engine};
use crate::health::{HealthReport, Ports};
use crate::metrics::{Extent, Metrics};
use crate::service::Node;
use crate::service_state::{Changes, Rules};
use crate::settings::Settings;

/// Maximum pending change notices; beyond that everything is evaluated.
const NOTICES_MAX: usize = 10_000;
/// Interval between retries after the kernel rejected the rules.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum addresses in one log line.
const LOGGED_MAX: usize = 64;
/// Maximum addresses in one trace record: 64 KiB of IPv6 addresses.
const RECORDED_MAX: usize = 1500;
const ZONE: &str = "topology.kubernetes.io/zone";

/// Receives the completed stages, for `knarr trace`. It must not block for long.
pub type StageSink = Arc<dyn Fn(NodeStage) + Send + Sync>;

/// The proxy stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The watch caches stopped.
    #[error("the watches of the proxy stopped")]
    WatchesClosed(#[from] cache::ClosedError),
}

/// A watched resource type.
struct WatchedResource {
    reader: Reader<Value>,
    notices: ChangeQueue,
}

/// Runs the proxy for as long as the future is polled. Updates `well` and `metrics`, and reports to `stages` when the
/// rules of Services were applied.
pub async fn run(
    client: Client,
    config: Config,
    well: Arc<RwLock<HealthReport>>,
    metrics: Arc<Metrics>,
    stages: Option<StageSink>,
) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let mut watch = |resource: &Resource, field_selector: String| {
        let source = Source { field_selector, ..Source::all(client.clone(), resource.clone()) };
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), small);
        let notices = ChangeQueue::new(NOTICES_MAX);
        reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
        watches.spawn(reflector.run().in_current_span());
        WatchedResource { reader, notices }
    };
    let services = watch(&kinds::SERVICES, String::new());
    let slices = watch(&kinds::ENDPOINT_SLICES, String::new());
    let node = watch(&kinds::NODES, format!("metadata.name={}", config.node_name));
    for watched in [&services, &slices, &node] {
        watched.reader.synced().await?;
    }
    let mut proxy = Proxy::new(config, well, metrics, stages);
    // Rules of an earlier run stay until all caches are synced.
    proxy.see_services(&services, ChangedKeys::All);
    proxy.see_slices(&slices, ChangedKeys::All);
    proxy.see_node(&node);
    loop {
        let retry = proxy.sync().await;
        let again = async {
            match retry {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = services.notices.take() => proxy.see_services(&services, changed),
            changed = slices.notices.take() => proxy.see_slices(&slices, changed),
            _ = node.notices.take() => proxy.see_node(&node),
            () = again => {}
        }
        // Changes that arrived together are applied together.
        if let Some(changed) = services.notices.try_take() {
            proxy.see_services(&services, changed);
        }
        if let Some(changed) = slices.notices.try_take() {
            proxy.see_slices(&slices, changed);
        }
    }
}

/// Removes the rules of all modes.
pub fn clean_up() -> Result<(), dataplane::Error> {
    dataplane::clean_up()
}

struct Proxy {
    config: Config,
    rules: Rules,
    engine: Engine,
    settings: Settings,
    /// Whether the kernel's rules equal those last written.
    in_step: bool,
    /// Whether the rules of other modes have been removed.
    alone: bool,
    ports: Ports,
    well: Arc<RwLock<HealthReport>>,
    metrics: Arc<Metrics>,
    stages: Option<StageSink>,
}

impl Proxy {
    fn new(config: Config, well: Arc<RwLock<HealthReport>>, metrics: Arc<Metrics>, stages: Option<StageSink>) -> Self {
        let node = Node { name: config.node_name.clone(), zone: String::new() };
        let rules = Rules::new(node, config.masquerade_all);
        let settings = Settings { mark: 1 << config.masquerade_bit, ..Settings::default() };
        let engine = Engine::new(config.mode);
        let ports = Ports::default();
        Self { config, rules, engine, settings, in_step: false, alone: false, ports, well, metrics, stages }
    }

    fn see_services(&mut self, watched: &WatchedResource, changed: ChangedKeys) {
        self.metrics.services_changed(count(&changed));
        let known = self.rules.known().0;
        each(watched, changed, &known, |key, object| self.rules.set_service(key, object));
    }

    fn see_slices(&mut self, watched: &WatchedResource, changed: ChangedKeys) {
        self.metrics.slices_changed(count(&changed));
        let known = self.rules.known().1;
        each(watched, changed, &known, |key, object| self.rules.set_slice(key, object));
    }

    fn see_node(&mut self, watched: &WatchedResource) {
        let objects = watched.reader.snapshot().objects;
        let object = objects.get(&Key::cluster(self.config.node_name.as_str()));
        let zone = object.and_then(|node| Meta::of(node).label(ZONE)).unwrap_or_default().to_owned();
        self.rules.set_node(Node { name: self.config.node_name.clone(), zone });
        let settings = Settings {
            pods: pods(&self.config, object),
            node_addresses: node_addresses(&self.config, object),
            every_address: self.config.mode == Mode::Iptables && self.config.node_port_addresses.is_empty(),
            localhost: self.config.localhost_node_ports,
            mark: self.settings.mark,
        };
        if settings != self.settings {
            self.settings = settings;
            self.in_step = false;
        }
    }

    /// Applies the rules to the kernel; on failure, returns when to retry.
    async fn sync(&mut self) -> Option<Duration> {
        let start = Instant::now();
        let changes = self.rules.changes();
        if self.in_step && changes.is_empty() {
            return None;
        }
        let done = self.write(&changes).await;
        self.ports.set(self.rules.health()).await;
        self.report_health(done.is_ok());
        match done {
            Ok(extent) => {
                self.metrics.synced(extent, start.elapsed(), self.rules.len());
                if self.config.mode != Mode::Userspace {
                    match extent {
                        Extent::Partial => delete_stale_flows(&changes, &self.settings),
                        // Endpoints may have been deleted while the proxy was not running.
                        Extent::Full => delete_stale_flows(&self.rules.everything(), &self.settings),
                    }
                }
                let cluster_ips = addresses(&changes);
                let services = cluster_ips[..cluster_ips.len().min(LOGGED_MAX)].join(" ");
                tracing::info!(services, took = ?start.elapsed(), "applied the rules of Services");
                if let Some(stages) = &self.stages
                    && !cluster_ips.is_empty()
                {
                    // No API object records when the rules of a Service were applied.
                    stages(NodeStage::ServiceRules { cluster_ips });
                }
                None
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "failed to write the rules; replacing all rules at the next retry"
                );
                self.metrics.failed();
                self.in_step = false;
                Some(RETRY)
            }
        }
    }

    async fn write(&mut self, changes: &Changes) -> Result<Extent, dataplane::Error> {
        if self.in_step {
            match self.engine.change(changes.clone()).await {
                Ok(()) => return Ok(Extent::Partial),
                // Another process changed the rules.
                Err(error) => {
                    tracing::warn!(error = chain(&error), "rules were changed by another process; replacing all rules");
                }
            }
        }
        self.engine.everything(self.settings.clone(), self.rules.everything()).await?;
        self.in_step = true;
        if !std::mem::replace(&mut self.alone, true) {
            let mode = self.config.mode;
            // Runs in the background: the rules are already in place.
            let span = tracing::Span::current();
            tokio::task::spawn_blocking(move || {
                let _entered = span.entered();
                if let Err(error) = dataplane::clean_up_others(mode) {
                    tracing::warn!(error = chain(&error), "failed to remove the rules of other proxy modes");
                }
            });
        }
        Ok(Extent::Full)
    }

    fn report_health(&self, ok: bool) {
        let body = json::to_string(&value!({"nodeEligible": true, "healthy": ok}));
        *self.well.write().unwrap_or_else(PoisonError::into_inner) = HealthReport { ok, body, weight: 0 };
    }
}

/// Returns the changed addresses, up to the limit of a record.
fn addresses(changes: &Changes) -> Vec<String> {
    let addresses: BTreeSet<IpAddr> =
        changes.frontends.keys().map(|frontend| frontend.address).take(RECORDED_MAX).collect();
    addresses.iter().map(ToString::to_string).collect()
}

fn count(changed: &ChangedKeys) -> usize {
    match changed {
        ChangedKeys::Keys(keys) => keys.len(),
        ChangedKeys::All => 1,
    }
}

fn each(watched: &WatchedResource, changed: ChangedKeys, known: &[Key], mut set: impl FnMut(&Key, Option<&Value>)) {
    let objects = watched.reader.snapshot().objects;
    match changed {
        ChangedKeys::Keys(keys) => keys.iter().for_each(|key| set(key, objects.get(key))),
        ChangedKeys::All => {
            known.iter().filter(|key| objects.get(key).is_none()).for_each(|key| set(key, None));
            objects.iter().for_each(|entry| set(&entry.key, Some(&entry.value)));
        }
    }
}

/// Deletes conntrack entries of UDP flows to endpoints that no longer exist, so that the flows are routed again.
pub fn delete_stale_flows(changes: &Changes, settings: &Settings) {
    let moved = changes.moved_datagrams();
    if moved.is_empty() {
        return;
    }
    let deleted = conntrack::delete_flows(netlink::Protocol::Udp, |flow| {
        let (ip, port) = flow.to;
        let own = settings.every_address || settings.node_addresses.contains(&ip);
        let unspecified: IpAddr =
            if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let of_node = || moved.get(&(unspecified, port)).filter(|_| own);
        let places = moved.get(&flow.to).or_else(of_node);
        places.is_some_and(|places| !places.contains(&flow.reply_source))
    });
    if let Err(error) = deleted {
        tracing::warn!(error = chain(&error), "failed to delete stale conntrack entries");
    }
}

/// Returns the pod CIDRs whose traffic is not masqueraded.
fn pods(config: &Config, node: Option<&Value>) -> Vec<Cidr> {
    match config.detect_local {
        DetectLocal::ClusterCidr => config.cluster_cidrs.clone(),
        DetectLocal::NodeCidr => {
            let blocks = node.and_then(|node| node.at(&["spec", "podCIDRs"])).and_then(Value::as_array);
            let texts = blocks.unwrap_or_default().iter().filter_map(Value::as_str);
            texts.filter_map(|text| text.parse().ok()).collect()
        }
    }
}

/// Returns the node addresses that serve NodePorts.
fn node_addresses(config: &Config, node: Option<&Value>) -> Vec<IpAddr> {
    let configured = &config.node_port_addresses;
    let listed = node.and_then(|node| node.at(&["status", "addresses"])).and_then(Value::as_array).unwrap_or_default();
    let internal = listed.iter().filter(|address| address.str_at(&["type"]) == Some("InternalIP"));
    let primary: Vec<IpAddr> = internal.filter_map(|address| address.str_at(&["address"])?.parse().ok()).collect();
    let mut addresses: Vec<IpAddr> = Vec::new();
    if configured.is_empty() || configured.contains(&NodePortAddresses::Primary) {
        addresses.extend(&primary);
    }
    let blocks: Vec<Cidr> = configured
        .iter()
        .filter_map(|one| match one {
            NodePortAddresses::Within(block) => Some(*block),
            NodePortAddresses::Primary => None,
        })
        .collect();
    if !blocks.is_empty() {
        match Links::open().and_then(|mut links| links.addresses()) {
            Ok(own) => {
                let own = own.into_iter().map(|address| address.ip).filter(|ip| may_serve(config, *ip));
                addresses.extend(own.filter(|ip| blocks.iter().any(|block| block.contains(*ip))));
            }
            Err(error) => tracing::warn!(error = chain(&error), "failed to list the addresses of this node"),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Whether an address can serve NodePorts. A loopback address can in userspace mode. In iptables mode it can if it is
/// IPv4 and `localhost_node_ports` is set.
fn may_serve(config: &Config, ip: IpAddr) -> bool {
    let loopback = match config.mode {
        Mode::Nftables => false,
        Mode::Iptables => config.localhost_node_ports && ip.is_ipv4(),
        Mode::Userspace => true,
    };
    !ip.is_loopback() || loopback
}

/// Removes the metadata that the proxy does not need, which is most of an object.
fn small(mut object: Value) -> Value {
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove("managedFields");
        meta.remove("annotations");
    }
    object
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_serves_node_ports_where_the_mode_supports_it() {
        let check = |mode: Mode, localhost_node_ports: bool, expect: [bool; 3]| {
            let config = Config { mode, localhost_node_ports, ..Config::default() };
            let serves = ["127.0.0.1", "::1", "192.0.2.1"].map(|ip| may_serve(&config, ip.parse().unwrap()));
            assert_eq!(serves, expect, "{mode:?} {localhost_node_ports}");
        };
        check(Mode::Nftables, true, [false, false, true]);
        check(Mode::Iptables, true, [true, false, true]);
        check(Mode::Iptables, false, [false, false, true]);
        check(Mode::Userspace, true, [true, true, true]);
    }
}
