//! `knarr kube-proxy`: Services on this node, with upstream's flags.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use kube_proxy::config::{Config, Mode};
use kube_proxy::health::HealthReport;
use kube_proxy::metrics::Metrics;
use kube_proxy::run::StageSink;
use tracing::Instrument;

use crate::component::{self, ApiEndpoint, InProcessServer};
use crate::trace_file::TraceFile;

/// Supported flags with a value, and their help.
const VALUES: &[(&str, &str)] = &[
    ("kubeconfig", "Path to a kubeconfig file [default: the in-cluster configuration]"),
    ("master", "Address of the API server; overrides the one in the kubeconfig"),
    ("config", "File with a KubeProxyConfiguration; all other flags except --hostname-override are ignored"),
    ("proxy-mode", "Proxy mode: nftables, iptables or userspace"),
    ("cluster-cidr", "CIDRs of pods in the cluster"),
    ("hostname-override", "Name of the node"),
    ("nodeport-addresses", "Node addresses that accept NodePort traffic: CIDRs, or `primary`"),
    ("healthz-bind-address", "Address on which to serve health checks; port 0 disables them"),
    ("metrics-bind-address", "Address on which to serve metrics; port 0 disables them"),
    ("iptables-masquerade-bit", "Bit of the packet mark that requests masquerading"),
    ("detect-local-mode", "Mode for detecting traffic of local pods"),
    ("oom-score-adj", "The oom_score_adj of this process, from -1000 to 1000 [default: -999]"),
];

/// Supported boolean flags, and their help.
const SWITCHES: &[(&str, &str)] = &[
    ("cleanup", "Remove all rules and exit"),
    ("init-only", "Exit immediately: no separate privileged initialization is needed"),
    ("iptables-localhost-nodeports", "In iptables mode, accept NodePort traffic on loopback addresses [default: true]"),
    ("masquerade-all", "Masquerade all traffic to cluster IPs"),
];

/// Upstream's flags with a value that are accepted without effect.
const WITHOUT_MEANING: &[&str] = &[
    "bind-address",
    "boot-id-file",
    "config-sync-period",
    "conntrack-max-per-core",
    "conntrack-min",
    "conntrack-tcp-timeout-close-wait",
    "conntrack-tcp-timeout-established",
    "conntrack-udp-timeout",
    "conntrack-udp-timeout-stream",
    "feature-gates",
    "iptables-min-sync-period",
    "iptables-sync-period",
    "ipvs-exclude-cidrs",
    "ipvs-min-sync-period",
    "ipvs-scheduler",
    "ipvs-sync-period",
    "ipvs-tcp-timeout",
    "ipvs-tcpfin-timeout",
    "ipvs-udp-timeout",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "logging-format",
    "machine-id-file",
    "pod-bridge-interface",
    "pod-interface-name-prefix",
    "show-hidden-metrics-for-version",
    "v",
    "vmodule",
    "write-config-to",
];

/// Upstream's boolean flags that are accepted without effect.
const SWITCHES_WITHOUT_MEANING: &[&str] = &[
    "bind-address-hard-fail",
    "conntrack-tcp-be-liberal",
    "ipvs-strict-arp",
    "log-json-split-stream",
    "log-text-split-stream",
    "profiling",
];

pub(crate) fn arguments(mut command: Command) -> Command {
    for (name, help) in VALUES {
        command = command.arg(Arg::new(*name).long(*name).help(*help).allow_negative_numbers(true));
    }
    for (name, help) in SWITCHES {
        command = command.arg(switch(name).help(*help));
    }
    for name in WITHOUT_MEANING {
        let ignored = Arg::new(*name).long(*name).action(ArgAction::Append).allow_hyphen_values(true).hide(true);
        command = command.arg(if *name == "v" { ignored.short('v') } else { ignored });
    }
    SWITCHES_WITHOUT_MEANING.iter().fold(command, |command, name| command.arg(switch(name).hide(true)))
}

/// Runs until SIGTERM or SIGINT. The rules stay in place.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    crate::log::to_stderr(tracing::Level::INFO);
    component::run_stateless("kube-proxy", start(matches, None, None))
}

/// Runs in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(
    matches: &ArgMatches,
    in_process: Option<&InProcessServer>,
    trace: Option<Arc<TraceFile>>,
) -> Result<()> {
    if is_on(matches, "cleanup") {
        return kube_proxy::run::clean_up().context("failed to remove the rules");
    }
    if is_on(matches, "init-only") {
        return Ok(());
    }
    let given = |name: &&&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let flags: Vec<&str> = WITHOUT_MEANING.iter().chain(SWITCHES_WITHOUT_MEANING).filter(given).copied().collect();
    if !flags.is_empty() {
        tracing::warn!(?flags, "these flags have no effect");
    }
    let config = config(matches)?;
    for warning in &config.unheeded {
        tracing::warn!("--config: {warning}");
    }
    crate::oom::set_score(config.oom_score_adj);
    if config.mode == Mode::Iptables {
        kube_proxy::iptables::check().context("failed to set up iptables mode")?;
    }
    let kubeconfig = text(matches, "kubeconfig").map(str::to_owned).or_else(|| config.kubeconfig.clone());
    let reach = ApiEndpoint::new(kubeconfig.as_deref().map(Path::new), text(matches, "master"), in_process)?;
    let settings = client::Settings { user_agent: "kube-proxy".to_owned(), ..client::Settings::default() };
    let client = reach.client(settings)?;
    let stages = trace.map(|trace| -> StageSink { Arc::new(move |stage| trace.record(stage)) });
    let well = Arc::new(RwLock::new(HealthReport::default()));
    if let Some(address) = config.healthz {
        let listener =
            tokio::net::TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
        tokio::spawn(kube_proxy::health::serve(listener, Arc::clone(&well)).in_current_span());
    }
    let metrics = Arc::new(Metrics::new(config.mode));
    if let Some(address) = config.metrics {
        let listener =
            tokio::net::TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
        tokio::spawn(kube_proxy::health::serve_metrics(listener, Arc::clone(&metrics)).in_current_span());
    }
    tokio::select! {
        result = kube_proxy::run::run(client, config, well, metrics, stages) => Ok(result?),
        signal = crate::etcd::signal() => signal,
    }
}

fn config(matches: &ArgMatches) -> Result<Config> {
    let mut config = match text(matches, "config") {
        Some(file) => {
            let file = PathBuf::from(file);
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("--config: failed to read {}", file.display()))?;
            let object =
                apimachinery::yaml::parse(&text).with_context(|| format!("invalid --config {}", file.display()))?;
            Config::read(&object).with_context(|| format!("invalid --config {}", file.display()))?
        }
        None => from_flags(matches)?,
    };
    if let Some(name) = text(matches, "hostname-override") {
        config.node_name = name.to_owned();
    }
    if config.node_name.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("failed to find the node's name")?;
        config.node_name = name.trim().to_lowercase();
    }
    Ok(config)
}

fn from_flags(matches: &ArgMatches) -> Result<Config> {
    let mut config = Config::default();
    let given = |name| text(matches, name).unwrap_or_default();
    config.set_mode(given("proxy-mode"), "--proxy-mode")?;
    config.set_cluster_cidrs(given("cluster-cidr"), "--cluster-cidr")?;
    config.set_detect_local(given("detect-local-mode"), "--detect-local-mode")?;
    if let Some(score) = text(matches, "oom-score-adj") {
        let parsed = score.parse().with_context(|| format!("--oom-score-adj: {score:?} is not a number"))?;
        config.set_oom_score_adj(parsed, "--oom-score-adj")?;
    }
    let addresses: Vec<&str> = given("nodeport-addresses").split(',').filter(|text| !text.is_empty()).collect();
    config.set_node_port_addresses(&addresses, "--nodeport-addresses")?;
    if let Some(bind) = text(matches, "healthz-bind-address") {
        config.set_healthz(bind, "--healthz-bind-address")?;
    }
    if let Some(bind) = text(matches, "metrics-bind-address") {
        config.set_metrics(bind, "--metrics-bind-address")?;
    }
    if let Some(bit) = text(matches, "iptables-masquerade-bit") {
        let bit = bit.parse().with_context(|| format!("invalid --iptables-masquerade-bit {bit}"))?;
        config.set_masquerade_bit(bit, "--iptables-masquerade-bit")?;
    }
    config.masquerade_all = is_on(matches, "masquerade-all");
    config.localhost_node_ports = text(matches, "iptables-localhost-nodeports") != Some("false");
    Ok(config)
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).num_args(0..=1).require_equals(true).default_missing_value("true")
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn is_on(matches: &ArgMatches, name: &str) -> bool {
    text(matches, name) == Some("true")
}
