//! The flags of kube-controller-manager. All of upstream's are accepted; a warning names those without effect.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use apimachinery::Key;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args};
use component_base::election::Settings;
use controllers::registry::{ROWS, Row};

use crate::component::{self, duration};
use crate::health;

/// Run the controllers alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
pub(super) struct Flags {
    /// Path to the kubeconfig file with credentials for the API server.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig file for TokenReviews of requests to the secure port [default: --kubeconfig].
    #[arg(long)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig file for SubjectAccessReviews of requests to the secure port [default: --kubeconfig].
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
    /// Controllers to run: `*` for all that are on by default, `name` enables one, `-name` disables one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Use a separate service account for each controller.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub use_service_account_credentials: bool,
    /// Maximum number of requests per second to the API server.
    #[arg(long, default_value_t = 20.0)]
    pub kube_api_qps: f32,
    /// Number of requests above the rate that may be sent in a burst.
    #[arg(long, default_value_t = 30)]
    pub kube_api_burst: u32,
    /// Use leader election, so that only one of several replicas is active.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Duration that other replicas wait before they take over the lease of a leader that does not renew it.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// Duration after which a leader that cannot renew its lease stops leading.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire or renew the lease.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Resource type of the lock; only leases is supported.
    #[arg(long, default_value = "leases")]
    pub leader_elect_resource_lock: String,
    /// Name of the lock object.
    #[arg(long, default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,
    /// Namespace of the lock object.
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// IP address on which to serve health and metrics.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port on which to serve health and metrics over HTTPS; 0 disables it.
    #[arg(long, default_value_t = 10257)]
    pub secure_port: u16,
    /// File containing the serving certificate; a self-signed one is generated if not given.
    #[arg(long)]
    pub tls_cert_file: Option<PathBuf>,
    /// File containing the private key matching --tls-cert-file.
    #[arg(long)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Paths that are served without authentication and authorization.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,
    /// CA bundle published to pods in kube-root-ca.crt.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// File with the private key that signs service account tokens.
    #[arg(long)]
    pub service_account_private_key_file: Option<PathBuf>,
    /// Period of disuse after which a token Secret is invalidated, and after which an invalidated one is deleted.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// CIDRs for pods in the cluster; needs --allocate-node-cidrs.
    #[arg(long, value_delimiter = ',')]
    pub cluster_cidr: Vec<String>,
    /// Allocate pod CIDRs and assign them to nodes.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub allocate_node_cidrs: bool,
    /// Mask size of a node's pod CIDR.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size: u8,
    /// Mask size of a node's IPv4 pod CIDR.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size_ipv4: u8,
    /// Mask size of a node's IPv6 pod CIDR.
    #[arg(long, default_value_t = 0)]
    pub node_cidr_mask_size_ipv6: u8,
    /// CIDRs of Service cluster IPs; node CIDRs do not overlap them.
    #[arg(long, value_delimiter = ',')]
    pub service_cluster_ip_range: Vec<String>,
    /// Addresses of Services of type LoadBalancer: `nodes` for the nodes' addresses, or a pool such as
    /// 192.0.2.10-192.0.2.20,2001:db8::/120; if not given, addresses are left to a cloud controller manager.
    #[arg(long)]
    pub load_balancer_addresses: Option<String>,
    /// Node ports that are never given to LoadBalancer Services that use the nodes' addresses.
    #[arg(long, value_delimiter = ',', default_value = "22,2379,2380,6443,10250")]
    pub load_balancer_reserved_ports: Vec<u16>,
    /// CA certificate file that signs CertificateSigningRequests.
    #[arg(long)]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Private key file matching --cluster-signing-cert-file.
    #[arg(long)]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// CA certificate file of the signer kubernetes.io/kube-apiserver-client.
    #[arg(long)]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Private key file of the signer kubernetes.io/kube-apiserver-client.
    #[arg(long)]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA certificate file of the signer kubernetes.io/kube-apiserver-client-kubelet.
    #[arg(long)]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Private key file of the signer kubernetes.io/kube-apiserver-client-kubelet.
    #[arg(long)]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA certificate file of the signer kubernetes.io/kubelet-serving.
    #[arg(long)]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Private key file of the signer kubernetes.io/kubelet-serving.
    #[arg(long)]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA certificate file of the signer kubernetes.io/legacy-unknown.
    #[arg(long)]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Private key file of the signer kubernetes.io/legacy-unknown.
    #[arg(long)]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// Maximum lifetime of signed certificates.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// Duration that a running node may be unresponsive before it is marked unhealthy.
    #[arg(long, default_value = "50s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// Duration that a starting node may be unresponsive before it is marked unhealthy.
    #[arg(long, default_value = "1m0s", value_parser = duration)]
    pub node_startup_grace_period: Duration,
    /// Interval at which node status is checked.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub node_monitor_period: Duration,
    /// Nodes per second whose pods are evicted in a healthy zone.
    #[arg(long, default_value_t = 0.1)]
    pub node_eviction_rate: f32,
    /// Nodes per second whose pods are evicted in an unhealthy zone.
    #[arg(long, default_value_t = 0.01)]
    pub secondary_node_eviction_rate: f32,
    /// Fraction of nodes that must be not ready for a zone to be unhealthy.
    #[arg(long, default_value_t = 0.55)]
    pub unhealthy_zone_threshold: f32,
    /// Zones of at most this many nodes get no evictions while they are unhealthy.
    #[arg(long, default_value_t = 50)]
    pub large_cluster_size_threshold: u32,
    /// Number of terminated pods that may exist before the garbage collector deletes some; 0 or less disables it.
    #[arg(long, default_value_t = 12500, allow_hyphen_values = true)]
    pub terminated_pod_gc_threshold: i64,
    /// Interval at which horizontal pod autoscalers are reconciled.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Period for which the autoscaler does not scale below its highest recommendation.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Minimum change of the desired-to-actual metrics ratio for the autoscaler to scale.
    #[arg(long, default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// Period after pod start during which CPU samples may be skipped.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Period after pod start during which readiness changes count as initial readiness.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Maximum number of endpoints in an EndpointSlice.
    #[arg(long, default_value_t = 100)]
    pub max_endpoints_per_slice: u32,
    /// Log verbosity: 0 to 10.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    pub verbosity: u8,
}

/// Flags with a value that have no effect.
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

/// Boolean flags that have no effect.
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

/// Upstream's flags for the number of workers of a controller.
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

/// Adds the flags without effect and the worker flags.
pub(super) fn without_meaning(mut command: clap::Command) -> clap::Command {
    for name in WORKERS {
        let workers = Arg::new(*name).long(*name).value_parser(clap::value_parser!(u32).range(1..));
        command = command.arg(workers.help("Number of objects that are synced concurrently"));
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

/// Logs one warning that lists the given flags without effect.
pub(super) fn warn_ignored_flags(matches: &ArgMatches) {
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
        tracing::warn!(?flags, "these flags have no effect");
    }
}

/// Returns the number of workers of a controller.
pub(super) fn workers(matches: &ArgMatches, row: &Row) -> usize {
    let given = WORKERS.contains(&row.workers_flag).then(|| matches.get_one::<u32>(row.workers_flag)).flatten();
    given.map_or(row.workers, |workers| usize::try_from(*workers).unwrap_or(row.workers))
}

impl Flags {
    /// Returns the leader election settings. Fails on durations that upstream rejects.
    pub(super) fn election(&self) -> Result<Settings> {
        ensure!(
            self.leader_elect_resource_lock == "leases",
            "--leader-elect-resource-lock: only \"leases\" is supported"
        );
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

    pub(super) fn health(&self) -> health::Options {
        health::Options {
            name: "kube-controller-manager",
            certificate: self.tls_cert_file.clone(),
            key: self.tls_private_key_file.clone(),
            open: self.authorization_always_allow_paths.clone(),
            authentication: self.authentication_kubeconfig.clone(),
            authorization: self.authorization_kubeconfig.clone(),
        }
    }

    pub(super) const fn level(&self) -> tracing::Level {
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
    fn kubeadm_flags_are_accepted() {
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
    fn invalid_flags_are_rejected() {
        assert!(parse(&["--leader-elect-lease-duration=-1s"]).is_err());
        assert!(parse(&["--concurrent-job-syncs=0"]).is_err());
        assert!(parse(&["--no-such-flag=1"]).is_err());
        let (flags, _) = parse(&["--leader-elect-lease-duration=5s"]).unwrap();
        assert!(flags.election().is_err(), "shorter than the renewal");
    }

    #[test]
    fn compare_flags_with_upstream() {
        let list = test_requirements::upstream("reference/flags/kube-controller-manager.txt");
        let text = std::fs::read_to_string(list).unwrap();
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
