//! The flags of the controller manager: upstream's, all of them; those that mean nothing here are accepted and named once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args};
use controllers::table::{ROWS, Row};
use driver::election::Settings;
use machinery::Key;

use crate::component::{self, duration};
use crate::health;

/// What the manager can be told.
#[derive(Args, Debug, Clone)]
pub struct Flags {
    /// How to reach the API server and who to be.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// As whom to ask whose token somebody shows on the secure port, if not as itself.
    #[arg(long)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// As whom to ask whether they may.
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Address of the API server, in place of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
    /// Which controllers run: `*` for those that run by default, `name` for one, `-name` for all but one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Whether each controller acts as a service account of its own.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub use_service_account_credentials: bool,
    /// Requests a second.
    #[arg(long, default_value_t = 20.0)]
    pub kube_api_qps: f32,
    /// Requests at once before the rate counts.
    #[arg(long, default_value_t = 30)]
    pub kube_api_burst: u32,
    /// Whether only one of several managers acts.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// How long others wait before they take over from a leader that is silent.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Between attempts.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// The kind of the lock; there is only one.
    #[arg(long, default_value = "leases")]
    pub leader_elect_resource_lock: String,
    /// The name of the lock.
    #[arg(long, default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,
    /// The namespace of the lock.
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Address to serve health and metrics on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve health and metrics on; 0 for none.
    #[arg(long, default_value_t = 10257)]
    pub secure_port: u16,
    /// Certificate shown to those who ask; one is made if there is none.
    #[arg(long)]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Paths that anyone may ask for.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,
    /// Authority that is published to pods.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Key that signs service account tokens.
    #[arg(long)]
    pub service_account_private_key_file: Option<PathBuf>,
    /// For how long a token in a secret may be unused before it is refused, and then once more before it goes.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// Ranges of pod addresses.
    #[arg(long, value_delimiter = ',')]
    pub cluster_cidr: Vec<String>,
    /// Whether nodes are given ranges of pod addresses.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub allocate_node_cidrs: bool,
    /// Size of a node's range, as the length of its prefix.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size: u8,
    /// The same for IPv4.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size_ipv4: u8,
    /// The same for IPv6.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size_ipv6: u8,
    /// Ranges of service addresses.
    #[arg(long, value_delimiter = ',')]
    pub service_cluster_ip_range: Vec<String>,
    /// What services of type LoadBalancer are given: `nodes` for the nodes' addresses, or a pool such as
    /// 192.0.2.10-192.0.2.20,2001:db8::/120; nothing if not given, for then a cloud's own controller gives it.
    #[arg(long)]
    pub load_balancer_addresses: Option<String>,
    /// Ports of the nodes that no service gets which is given the nodes' addresses: shells, the store, the API server, the kubelet.
    #[arg(long, value_delimiter = ',', default_value = "22,2379,2380,6443,10250")]
    pub load_balancer_reserved_ports: Vec<u16>,
    /// Authority that signs requests for certificates.
    #[arg(long)]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// Authority that signs what clients show to the API server, in place of the common one.
    #[arg(long)]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// Authority that signs what kubelets show to the API server, in place of the common one.
    #[arg(long)]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// Authority that signs what kubelets show to those who ask them, in place of the common one.
    #[arg(long)]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Authority that signs what is for the oldest signer, in place of the common one.
    #[arg(long)]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// For how long certificates are signed at most.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// How long a node may be silent before it counts as unhealthy.
    #[arg(long, default_value = "50s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// The same for a node that has just started.
    #[arg(long, default_value = "1m0s", value_parser = duration)]
    pub node_startup_grace_period: Duration,
    /// How often nodes are looked at.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub node_monitor_period: Duration,
    /// Nodes a second that may be emptied in a zone that is healthy.
    #[arg(long, default_value_t = 0.1)]
    pub node_eviction_rate: f32,
    /// The same in a zone that is not.
    #[arg(long, default_value_t = 0.01)]
    pub secondary_node_eviction_rate: f32,
    /// The share of nodes that must be unhealthy for a zone to be so.
    #[arg(long, default_value_t = 0.55)]
    pub unhealthy_zone_threshold: f32,
    /// Zones of up to so many nodes are left alone when they are unhealthy.
    #[arg(long, default_value_t = 50)]
    pub large_cluster_size_threshold: u32,
    /// How many pods that ended are kept.
    #[arg(long, default_value_t = 12500, allow_hyphen_values = true)]
    pub terminated_pod_gc_threshold: i64,
    /// How often autoscalers look.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// For how long autoscalers remember larger sizes.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// What difference autoscalers do not care about.
    #[arg(long, default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// For how long after their start the load of pods may mislead.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// For how long after their start pods may still become ready for the first time.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Endpoints in one slice.
    #[arg(long, default_value_t = 100)]
    pub max_endpoints_per_slice: u32,
    /// How much is logged: 0 to 10.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    pub verbosity: u8,
}

/// Flags that take a value and change nothing here.
const WITHOUT_MEANING: &[&str] = &[
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "attach-detach-reconcile-sync-period",
    "authentication-token-webhook-cache-ttl",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "cidr-allocator-type",
    "client-ca-file",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "controller-shutdown-timeout",
    "controller-start-interval",
    "disabled-metrics",
    "emulated-version",
    "endpoint-updates-batch-period",
    "endpointslice-updates-batch-period",
    "external-cloud-volume-plugin",
    "feature-gates",
    "flex-volume-plugin-dir",
    "http2-max-streams-per-connection",
    "kube-api-content-type",
    "leader-migration-config",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "logging-format",
    "min-compatibility-version",
    "min-resync-period",
    "mirroring-endpointslice-updates-batch-period",
    "mirroring-max-endpoints-per-subset",
    "namespace-sync-period",
    "pv-recycler-increment-timeout-nfs",
    "pv-recycler-minimum-timeout-hostpath",
    "pv-recycler-minimum-timeout-nfs",
    "pv-recycler-pod-template-filepath-hostpath",
    "pv-recycler-pod-template-filepath-nfs",
    "pv-recycler-timeout-increment-hostpath",
    "pvclaimbinder-sync-period",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "resource-quota-sync-period",
    "route-reconciliation-period",
    "show-hidden-metrics-for-version",
    "tls-cipher-suites",
    "tls-curve-preferences",
    "tls-min-version",
    "tls-sni-cert-key",
    "vmodule",
];

/// Flags that are on or off and change nothing here.
const SWITCHES_WITHOUT_MEANING: &[&str] = &[
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "configure-cloud-routes",
    "contention-profiling",
    "disable-attach-detach-reconcile-sync",
    "disable-force-detach-on-timeout",
    "disable-http2-serving",
    "enable-dynamic-provisioning",
    "enable-garbage-collector",
    "enable-hostpath-provisioner",
    "enable-leader-migration",
    "log-json-split-stream",
    "log-text-split-stream",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
];

/// Flags of upstream's controllers that say how many keys are looked at at once.
const WORKERS: &[&str] = &[
    "concurrent-cron-job-syncs",
    "concurrent-daemonset-syncs",
    "concurrent-deployment-syncs",
    "concurrent-device-taint-eviction-syncs",
    "concurrent-endpoint-syncs",
    "concurrent-ephemeralvolume-syncs",
    "concurrent-gc-syncs",
    "concurrent-horizontal-pod-autoscaler-syncs",
    "concurrent-job-syncs",
    "concurrent-namespace-syncs",
    "concurrent-rc-syncs",
    "concurrent-replicaset-syncs",
    "concurrent-resource-quota-syncs",
    "concurrent-resourceclaim-syncs",
    "concurrent-service-endpoint-syncs",
    "concurrent-service-syncs",
    "concurrent-serviceaccount-token-syncs",
    "concurrent-statefulset-syncs",
    "concurrent-ttl-after-finished-syncs",
    "concurrent-validating-admission-policy-status-syncs",
    "mirroring-concurrent-service-endpoint-syncs",
];

/// Adds the flags that are accepted for upstream's sake, and those that only count workers.
pub fn without_meaning(mut command: clap::Command) -> clap::Command {
    for name in WORKERS {
        let workers = Arg::new(*name).long(*name).value_parser(clap::value_parser!(u32).range(1..));
        command = command.arg(workers.help("How many objects are looked at at once"));
    }
    for name in WITHOUT_MEANING {
        let ignored = Arg::new(*name).long(*name).action(ArgAction::Append).allow_hyphen_values(true);
        command = command.arg(ignored.hide(true));
    }
    for name in SWITCHES_WITHOUT_MEANING {
        let ignored = Arg::new(*name).long(*name).num_args(0..=1).require_equals(true).default_missing_value("true");
        command = command.arg(ignored.hide(true));
    }
    command
}

/// Says once which of the given flags change nothing.
pub fn say_without_meaning(matches: &ArgMatches) {
    let given = |name: &&&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let used: Vec<&str> = WITHOUT_MEANING.iter().chain(SWITCHES_WITHOUT_MEANING).filter(given).copied().collect();
    let unused: Vec<&str> = WORKERS
        .iter()
        .filter(given)
        .filter(|name| ROWS.iter().all(|row| row.workers_flag != **name))
        .copied()
        .collect();
    if !used.is_empty() || !unused.is_empty() {
        let flags = [used, unused].concat();
        tracing::warn!(?flags, "these flags are accepted and change nothing");
    }
}

/// How many keys a controller looks at at once.
pub fn workers(matches: &ArgMatches, row: &Row) -> usize {
    let given = WORKERS.contains(&row.workers_flag).then(|| matches.get_one::<u32>(row.workers_flag)).flatten();
    given.map_or(row.workers, |workers| usize::try_from(*workers).unwrap_or(row.workers))
}

impl Flags {
    /// How the leader is found.
    pub fn election(&self) -> Result<Settings> {
        ensure!(self.leader_elect_resource_lock == "leases", "--leader-elect-resource-lock: there is only \"leases\"");
        let (lease, renew, retry) =
            (self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period);
        if lease <= renew || renew <= retry.mul_f64(1.2) || retry.is_zero() {
            bail!(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that longer than \
                 1.2 times --leader-elect-retry-period"
            );
        }
        let lock = Key::new(self.leader_elect_resource_namespace.as_str(), self.leader_elect_resource_name.as_str());
        let settings = Settings::new(lock, component::identity());
        Ok(Settings { lease_duration: lease, renew_deadline: renew, retry_period: retry, ..settings })
    }

    /// How health is told.
    pub fn health(&self) -> health::Options {
        health::Options {
            name: "kube-controller-manager",
            certificate: self.tls_cert_file.clone(),
            key: self.tls_private_key_file.clone(),
            open: self.authorization_always_allow_paths.clone(),
            authentication: self.authentication_kubeconfig.clone(),
            authorization: self.authorization_kubeconfig.clone(),
        }
    }

    /// What is logged.
    pub const fn level(&self) -> tracing::Level {
        component::level(self.verbosity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<(Flags, ArgMatches), clap::Error> {
        let command = without_meaning(Flags::augment_args(clap::Command::new("kcm")));
        let matches = command.try_get_matches_from([&["kcm"], args].concat())?;
        Ok((<Flags as clap::FromArgMatches>::from_arg_matches(&matches)?, matches))
    }

    #[test]
    fn flags_of_kubeadm_are_understood() {
        let (flags, matches) = parse(&[
            "--allocate-node-cidrs=true",
            "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--bind-address=127.0.0.1",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-cidr=10.244.0.0/16",
            "--controllers=*,bootstrapsigner,-tokencleaner",
            "--kubeconfig",
            "/etc/kubernetes/controller-manager.conf",
            "--leader-elect=true",
            "--use-service-account-credentials",
            "--concurrent-deployment-syncs=50",
            "--terminated-pod-gc-threshold=-1",
            "--profiling=false",
            "-v=4",
        ])
        .unwrap();
        assert!(flags.use_service_account_credentials && flags.leader_elect && flags.allocate_node_cidrs);
        assert_eq!(flags.controllers, ["*", "bootstrapsigner", "-tokencleaner"]);
        assert_eq!(flags.terminated_pod_gc_threshold, -1);
        let row = ROWS.iter().find(|row| row.name == "deployment-controller").unwrap();
        assert_eq!(workers(&matches, row), 50);
        assert_eq!(flags.leader_elect_lease_duration, Duration::from_secs(15));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(parse(&["--leader-elect-lease-duration=-1s"]).is_err());
        assert!(parse(&["--concurrent-job-syncs=0"]).is_err());
        assert!(parse(&["--no-such-flag=1"]).is_err());
        let (flags, _) = parse(&["--leader-elect-lease-duration=5s"]).unwrap();
        assert!(flags.election().is_err(), "shorter than the renewal");
    }

    #[test]
    fn every_flag_of_upstream_is_accepted() {
        let shared = std::env::var("KNARR_SHARED")
            .map_or_else(|_| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
        let Ok(text) = std::fs::read_to_string(shared.join("reference/flags/kube-controller-manager.txt")) else {
            eprintln!("skipped: there is no list of upstream's flags beside this checkout");
            return;
        };
        let command = without_meaning(Flags::augment_args(clap::Command::new("kcm").version("0")));
        let command = {
            let mut command = command;
            command.build();
            command
        };
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let missing: Vec<&str> = text
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--"))
            .map(|word| word.trim_end_matches(','))
            .filter(|flag| !known.contains(flag))
            .collect();
        assert_eq!(missing, [""; 0]);
    }
}
