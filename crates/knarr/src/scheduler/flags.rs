//! The flags of kube-scheduler. All of upstream's are accepted; a warning names those without effect.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::scheduler::config::{Configuration, LeaderElection};
use anyhow::{Context, Result, ensure};
use apimachinery::Key;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args};
use component_base::election::Settings;

use crate::component::{self, duration};
use crate::health;

/// Run the scheduler alone, with upstream's flags.
#[derive(Args, Debug, Clone)]
pub(super) struct Flags {
    /// Path to a KubeSchedulerConfiguration; it overrides the flags for its fields, except those for leader election.
    #[arg(long)]
    pub config: Option<PathBuf>,
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
    /// Maximum number of requests per second to the API server.
    #[arg(long, default_value_t = 50.0)]
    pub kube_api_qps: f32,
    /// Number of requests above the rate that may be sent in a burst.
    #[arg(long, default_value_t = 100)]
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
    #[arg(long, default_value = "kube-scheduler")]
    pub leader_elect_resource_name: String,
    /// Namespace of the lock object.
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Maximum time that a pod stays unschedulable before it is retried without a relevant event.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// IP address on which to serve health and metrics.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port on which to serve health and metrics over HTTPS; 0 disables it.
    #[arg(long, default_value_t = 10259)]
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
    /// Log verbosity: 0 to 10.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    pub verbosity: u8,
}

/// Flags with a value that have no effect.
const WITHOUT_MEANING: &[&str] = &[
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "authentication-token-webhook-cache-ttl",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "client-ca-file",
    "disabled-metrics",
    "emulated-version",
    "feature-gates",
    "http2-max-streams-per-connection",
    "kube-api-content-type",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "logging-format",
    "min-compatibility-version",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "show-hidden-metrics-for-version",
    "tls-cipher-suites",
    "tls-curve-preferences",
    "tls-min-version",
    "tls-sni-cert-key",
    "vmodule",
    "write-config-to",
];

/// Boolean flags that have no effect.
const SWITCHES_WITHOUT_MEANING: &[&str] = &[
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "contention-profiling",
    "disable-http2-serving",
    "log-json-split-stream",
    "log-text-split-stream",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
];

/// Adds the flags without effect as hidden arguments.
pub(super) fn without_meaning(mut command: clap::Command) -> clap::Command {
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
    let flags: Vec<&str> = WITHOUT_MEANING.iter().chain(SWITCHES_WITHOUT_MEANING).filter(given).copied().collect();
    if !flags.is_empty() {
        tracing::warn!(?flags, "these flags have no effect");
    }
}

impl Flags {
    /// Returns the configuration of the file, or of the flags if no file is given. Leader election flags override the
    /// file.
    pub(super) fn configuration(&self, matches: &ArgMatches) -> Result<Configuration> {
        ensure!(
            self.leader_elect_resource_lock == "leases",
            "--leader-elect-resource-lock: only \"leases\" is supported"
        );
        let mut made = match &self.config {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("failed to read --config {}", file.display()))?;
                Configuration::read(&text).with_context(|| format!("invalid --config {}", file.display()))?
            }
            None => self.alone(),
        };
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let election = &mut made.election;
        if given("leader_elect") {
            election.enabled = self.leader_elect;
        }
        if given("leader_elect_lease_duration") {
            election.lease_duration = self.leader_elect_lease_duration;
        }
        if given("leader_elect_renew_deadline") {
            election.renew_deadline = self.leader_elect_renew_deadline;
        }
        if given("leader_elect_retry_period") {
            election.retry_period = self.leader_elect_retry_period;
        }
        if given("leader_elect_resource_name") {
            election.name.clone_from(&self.leader_elect_resource_name);
        }
        if given("leader_elect_resource_namespace") {
            election.namespace.clone_from(&self.leader_elect_resource_namespace);
        }
        let (lease, renew, retry) = (election.lease_duration, election.renew_deadline, election.retry_period);
        ensure!(
            !election.enabled || lease > renew && renew > retry.mul_f64(1.2) && !retry.is_zero(),
            "the lease duration must be longer than the renew deadline, and that longer than 1.2 times the retry period"
        );
        let wait = self.pod_max_in_unschedulable_pods_duration.as_millis();
        made.queue.unschedulable_max = wait.try_into().unwrap_or(u64::MAX);
        Ok(made)
    }

    /// Returns the configuration without a file.
    fn alone(&self) -> Configuration {
        let mut made = Configuration::default();
        made.client.kubeconfig = self.kubeconfig.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        made.client.qps = f64::from(self.kube_api_qps);
        made.client.burst = self.kube_api_burst;
        made
    }

    pub(super) fn health(&self) -> health::Options {
        health::Options {
            name: "kube-scheduler",
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

pub(super) fn election(election: &LeaderElection) -> Settings {
    let lease = Key::new(election.namespace.as_str(), election.name.as_str());
    Settings {
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        ..Settings::new(lease, component::identity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<(Flags, ArgMatches), clap::Error> {
        let command = without_meaning(Flags::augment_args(clap::Command::new("ks")));
        let matches = command.try_get_matches_from([&["ks"], args].concat())?;
        Ok((<Flags as clap::FromArgMatches>::from_arg_matches(&matches)?, matches))
    }

    #[test]
    fn kubeadm_flags_are_accepted() {
        let (flags, matches) = parse(&[
            "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--bind-address=127.0.0.1",
            "--kubeconfig=/etc/kubernetes/scheduler.conf",
            "--leader-elect=true",
            "--leader-elect-retry-period=3s",
            "--kube-api-qps=7",
            "-v=4",
        ])
        .unwrap();
        let made = flags.configuration(&matches).unwrap();
        assert_eq!(made.client.kubeconfig, "/etc/kubernetes/scheduler.conf");
        assert_eq!((made.client.qps, made.client.burst), (7.0, 100));
        assert_eq!(made.election.retry_period, Duration::from_secs(3));
    }

    #[test]
    fn config_file_overrides_flags_except_leader_election() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                    clientConnection: {kubeconfig: /k, qps: 5}\nleaderElection: {leaderElect: true}\n";
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().display().to_string();
        let (flags, matches) =
            parse(&["--config", &path, "--kube-api-qps=9", "--kubeconfig=/other", "--leader-elect=false"]).unwrap();
        let made = flags.configuration(&matches).unwrap();
        assert_eq!((made.client.kubeconfig.as_str(), made.client.qps), ("/k", 5.0));
        assert!(!made.election.enabled);
    }

    #[test]
    fn compare_flags_with_upstream() {
        let text = std::fs::read_to_string(test_requirements::upstream("reference/flags/kube-scheduler.txt")).unwrap();
        let command = without_meaning(Flags::augment_args(clap::Command::new("ks")));
        let known: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        for line in text.lines().filter_map(|line| line.split("--").nth(1)) {
            let name = line.trim();
            assert!(known.contains(&name) || matches!(name, "help" | "version"), "--{name}");
        }
    }
}
