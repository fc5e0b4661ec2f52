//! Flags of upstream's kube-apiserver that have no effect here.
//!
//! They are accepted so that upstream's command lines work, and a warning is logged for each one given.

use clap::{Arg, ArgAction, ArgMatches};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentKind {
    /// `--flag` or `--flag=false`
    Switch,
    /// `--flag value` or `--flag=value`
    Value,
}

use ArgumentKind::{Switch, Value};

/// Flag, its arity, and the reason why it has no effect.
const IGNORED: &[(&str, ArgumentKind, &str)] = &[
    ("aggregator-reject-forwarding-redirect", Switch, "redirects of aggregated servers are never followed"),
    ("allow-metric-labels", Value, "metric labels are bounded already"),
    ("allow-metric-labels-manifest", Value, "metric labels are bounded already"),
    ("contention-profiling", Switch, "there is no Go runtime to profile"),
    ("coordinated-leadership-lease-duration", Value, "coordinated leader election is not implemented"),
    ("coordinated-leadership-renew-deadline", Value, "coordinated leader election is not implemented"),
    ("coordinated-leadership-retry-period", Value, "coordinated leader election is not implemented"),
    ("cors-allowed-origins", Value, "CORS is not supported"),
    ("debug-socket-path", Value, "there is no Go runtime to profile"),
    ("delete-collection-workers", Value, "collections are deleted sequentially"),
    ("disable-http2-serving", Switch, "HTTP/2 is always enabled"),
    ("disabled-metrics", Value, "all metrics are exposed"),
    ("egress-selector-config-file", Value, "the egress selector is not supported"),
    ("emulated-version", Value, "only one version is supported"),
    ("emulation-forward-compatible", Switch, "only one version is supported"),
    ("enable-garbage-collector", Switch, "the garbage collector's finalizers are always respected"),
    ("enable-logs-handler", Switch, "node logs are not served"),
    ("etcd-count-metric-poll-period", Value, "the size of the store is not polled"),
    ("etcd-db-metric-poll-interval", Value, "object counts are not polled"),
    ("etcd-healthcheck-timeout", Value, "the health of the store is known from its watch"),
    ("etcd-readycheck-timeout", Value, "the health of the store is known from its watch"),
    ("etcd-servers-overrides", Value, "all objects are in one store"),
    ("goaway-chance", Value, "connections are not closed to rebalance them"),
    ("http2-max-streams-per-connection", Value, "the limit is 250"),
    ("kubelet-timeout", Value, "requests to kubelets have the same timeout as others"),
    ("kubernetes-service-node-port", Value, "the kubernetes Service has a cluster IP only"),
    ("lease-reuse-duration-seconds", Value, "leases are managed by the store"),
    ("livez-grace-period", Value, "the server is live as soon as it listens"),
    ("log-flush-frequency", Value, "logs are not buffered"),
    ("log-json-info-buffer-size", Value, "logs are not buffered"),
    ("log-json-split-stream", Switch, "logs go to standard error"),
    ("log-text-info-buffer-size", Value, "logs are not buffered"),
    ("log-text-split-stream", Switch, "logs go to standard error"),
    ("logging-format", Value, "logs are in text format"),
    ("max-connection-bytes-per-sec", Value, "connections are not throttled"),
    ("min-compatibility-version", Value, "only one version is supported"),
    ("oidc-signing-algs", Value, "all secure algorithms are accepted"),
    ("peer-advertise-ip", Value, "all servers must serve the same versions"),
    ("peer-advertise-port", Value, "all servers must serve the same versions"),
    ("peer-ca-file", Value, "all servers must serve the same versions"),
    ("permit-address-sharing", Switch, "the port is reusable as soon as the server has stopped"),
    ("permit-port-sharing", Switch, "only one process can listen on a port"),
    ("profiling", Switch, "there is no Go runtime to profile"),
    ("runtime-config-emulation-forward-compatible", Switch, "only one version is supported"),
    ("service-account-lookup", Switch, "tokens always become invalid with their bound object"),
    ("show-hidden-metrics-for-version", Value, "all metrics are exposed"),
    ("shutdown-delay-duration", Value, "the server stops immediately on SIGTERM"),
    ("shutdown-send-retry-after", Switch, "connections are closed immediately"),
    ("shutdown-watch-termination-grace-period", Value, "the server stops immediately on SIGTERM"),
    ("storage-backend", Value, "only the etcd v3 protocol is supported"),
    ("storage-initialization-timeout", Value, "the server waits for its store"),
    ("storage-media-type", Value, "objects are stored as JSON"),
    ("strict-transport-security-directives", Value, "no responses are for browsers"),
    ("tls-curve-preferences", Value, "all secure curves are offered"),
    ("tracing-config-file", Value, "traces are not collected"),
    ("vmodule", Value, "one log level applies to all modules"),
    ("watch-cache", Switch, "the watch cache is always on"),
    ("watch-cache-sizes", Value, "the watch cache is bounded by bytes"),
];

/// Adds the flags as hidden arguments.
pub(super) fn arguments(command: clap::Command) -> clap::Command {
    IGNORED.iter().fold(command, |command, (name, takes, _)| {
        let arg = Arg::new(*name).long(*name).hide(true).action(ArgAction::Append).allow_hyphen_values(true);
        command.arg(match takes {
            Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Value => arg.num_args(1),
        })
    })
}

/// Logs a warning for every flag given that has no effect.
pub(super) fn warn_ignored_flags(matches: &ArgMatches) {
    for (name, _, reason) in IGNORED {
        if matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine) {
            tracing::warn!("--{name} has no effect: {reason}");
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
    fn compare_flags_with_upstream() {
        let text = std::fs::read_to_string(test_requirements::upstream("reference/flags/kube-apiserver.txt")).unwrap();
        let command = command();
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let long = |line: &str| line.split_whitespace().last()?.strip_prefix("--").map(str::to_owned);
        let unknown: Vec<String> = text
            .lines()
            .filter_map(long)
            .filter(|flag| !known.contains(&flag.as_str()) && !["help", "version"].contains(&flag.as_str()))
            .collect();
        assert_eq!(unknown, [""; 0]);
    }
}
