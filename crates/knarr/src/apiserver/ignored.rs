//! Flags of upstream's kube-apiserver that have no effect here. They are accepted so that upstream's command lines
//! work, and a warning is logged for each one given.

use clap::{Arg, ArgAction, ArgMatches};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// `--flag` or `--flag=false`
    Switch,
    /// `--flag value` or `--flag=value`
    Value,
}

use Takes::{Switch, Value};

/// Flag, its arity, and the reason why it has no effect.
const IGNORED: &[(&str, Takes, &str)] = &[
    ("aggregator-reject-forwarding-redirect", Switch, "redirects of aggregated servers are never followed"),
    ("allow-metric-labels", Value, "labels are bounded already"),
    ("allow-metric-labels-manifest", Value, "labels are bounded already"),
    ("contention-profiling", Switch, "there is no Go runtime to profile"),
    ("coordinated-leadership-lease-duration", Value, "coordinated leader election is not there"),
    ("coordinated-leadership-renew-deadline", Value, "coordinated leader election is not there"),
    ("coordinated-leadership-retry-period", Value, "coordinated leader election is not there"),
    ("cors-allowed-origins", Value, "no answer allows other origins"),
    ("debug-socket-path", Value, "there is no Go runtime to profile"),
    ("delete-collection-workers", Value, "collections are deleted one object after the other"),
    ("disable-http2-serving", Switch, "HTTP/2 is always offered"),
    ("disabled-metrics", Value, "all metrics are shown"),
    ("egress-selector-config-file", Value, "other servers are reached directly"),
    ("emulated-version", Value, "only one version is emulated"),
    ("emulation-forward-compatible", Switch, "only one version is emulated"),
    ("enable-garbage-collector", Switch, "finalizers of the garbage collector always count"),
    ("enable-logs-handler", Switch, "logs of the machine are not served"),
    ("etcd-count-metric-poll-period", Value, "objects are counted as they come and go"),
    ("etcd-db-metric-poll-interval", Value, "nothing is polled"),
    ("etcd-healthcheck-timeout", Value, "the watch of the store says how it is"),
    ("etcd-readycheck-timeout", Value, "the watch of the store says how it is"),
    ("etcd-servers-overrides", Value, "all objects are in one store"),
    ("goaway-chance", Value, "connections are not moved between servers"),
    ("http2-max-streams-per-connection", Value, "the limit is 250"),
    ("kubelet-timeout", Value, "a request to a kubelet may take as long as any other"),
    ("kubernetes-service-node-port", Value, "the service of the API server has a cluster address only"),
    ("lease-reuse-duration-seconds", Value, "leases are the store's own"),
    ("livez-grace-period", Value, "the server lives as soon as it listens"),
    ("log-flush-frequency", Value, "logs are not held back"),
    ("log-json-info-buffer-size", Value, "logs are not held back"),
    ("log-json-split-stream", Switch, "logs go to standard error"),
    ("log-text-info-buffer-size", Value, "logs are not held back"),
    ("log-text-split-stream", Switch, "logs go to standard error"),
    ("logging-format", Value, "logs are text"),
    ("max-connection-bytes-per-sec", Value, "connections are not throttled"),
    ("min-compatibility-version", Value, "only one version is emulated"),
    ("oidc-signing-algs", Value, "all sound algorithms count"),
    ("peer-advertise-ip", Value, "servers serve the same versions"),
    ("peer-advertise-port", Value, "servers serve the same versions"),
    ("peer-ca-file", Value, "servers serve the same versions"),
    ("permit-address-sharing", Switch, "the port is free as soon as the server has stopped"),
    ("permit-port-sharing", Switch, "one process listens on a port"),
    ("profiling", Switch, "there is no Go runtime to profile"),
    ("runtime-config-emulation-forward-compatible", Switch, "only one version is emulated"),
    ("service-account-lookup", Switch, "tokens always end with what they are bound to"),
    ("show-hidden-metrics-for-version", Value, "all metrics are shown"),
    ("shutdown-delay-duration", Value, "the server stops when it is told to"),
    ("shutdown-send-retry-after", Switch, "connections are closed at once"),
    ("shutdown-watch-termination-grace-period", Value, "the server stops when it is told to"),
    ("storage-backend", Value, "the store speaks etcd's protocol, version 3"),
    ("storage-initialization-timeout", Value, "the server waits for its store"),
    ("storage-media-type", Value, "objects are stored as JSON"),
    ("strict-transport-security-directives", Value, "no answer is meant for browsers"),
    ("tls-curve-preferences", Value, "all sound curves are offered"),
    ("tracing-config-file", Value, "traces are not collected"),
    ("vmodule", Value, "one level counts for all modules"),
    ("watch-cache", Switch, "the watch cache is always on"),
    ("watch-cache-sizes", Value, "the watch cache is bounded by bytes"),
];

/// Adds the flags as hidden arguments.
pub fn arguments(command: clap::Command) -> clap::Command {
    IGNORED.iter().fold(command, |command, (name, takes, _)| {
        let arg = Arg::new(*name).long(*name).hide(true).action(ArgAction::Append).allow_hyphen_values(true);
        command.arg(match takes {
            Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Value => arg.num_args(1),
        })
    })
}

/// Logs a warning for every flag given that has no effect.
pub fn say(matches: &ArgMatches) {
    for (name, _, why) in IGNORED {
        if matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine) {
            tracing::warn!("--{name} has no meaning here: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> clap::Command {
        super::super::arguments(clap::Command::new("kube-apiserver"))
    }

    #[test]
    fn ignored_flags_are_sorted_and_accepted() {
        assert!(IGNORED.is_sorted_by(|a, b| a.0 < b.0));
        let given =
            ["kube-apiserver", "--profiling=false", "--watch-cache", "--vmodule", "a=1", "--logging-format=text"];
        let matches = command().try_get_matches_from(given).unwrap();
        assert_eq!(matches.get_one::<String>("profiling").map(String::as_str), Some("false"));
    }

    #[test]
    fn unknown_flag_error_suggests_the_nearest_flag() {
        let error = command().try_get_matches_from(["kube-apiserver", "--secure-prot=1"]).unwrap_err();
        assert!(error.to_string().contains("--secure-port"), "{error}");
    }

    #[test]
    fn every_flag_of_upstream_is_known() {
        let shared = std::env::var("KNARR_SHARED")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
        let file = std::path::Path::new(&shared).join("reference/flags/kube-apiserver.txt");
        let Ok(text) = std::fs::read_to_string(&file) else {
            println!("skipped: {} is not there", file.display());
            return;
        };
        let command = command();
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let long = |line: &str| line.split_whitespace().last()?.strip_prefix("--").map(str::to_owned);
        let unknown: Vec<String> = text
            .lines()
            .filter_map(long)
            .filter(|flag| !known.contains(&flag.as_str()) && !["help", "version"].contains(&flag.as_str()))
            .collect();
        let missing: Vec<&str> = unknown.iter().map(String::as_str).filter(|flag| !MISSING.contains(flag)).collect();
        assert_eq!(missing, [""; 0]);
    }

    /// Flags that would be unsafe to accept without implementing them.
    const MISSING: &[&str] = &[
        "admission-control",
        "default-not-ready-toleration-seconds",
        "default-unreachable-toleration-seconds",
        "kubelet-timeout",
        "service-account-signing-endpoint",
    ];
}
