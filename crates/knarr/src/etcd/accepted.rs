//! etcd's flags without effect here: tuning flags are accepted, unsupported ones are warned about or rejected.

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, parser::ValueSource};

/// Reaction to a flag whose value differs from the actual behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagHandling {
    /// Accepted silently: the flag tunes something that does not exist here.
    Ignored,
    /// Accepted with a warning: the flag has no effect, which does no harm.
    Warned(&'static str),
    /// Rejected: ignoring the flag would be less safe than, or different from, the request.
    Rejected(&'static str),
}

use FlagHandling::{Ignored, Rejected, Warned};

/// Flag name, form, values that request the actual behaviour, and the reaction to other values.
type Flag = (&'static str, Form, &'static [&'static str], FlagHandling);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Value,
    Switch,
}

use Form::{Switch, Value};

const LOG_IN_DATA_DIR: &str = "the write-ahead log is in --data-dir";
const NO_LIST: &str = "clients are verified by their CA only";
const NO_DISCOVERY: &str = "name the members with --initial-cluster";
const TO_STDERR: &str = "logs go to standard error";
const RESTORE: &str = "restore a snapshot with `knarr store snapshot restore` instead";
const NO_TRACES: &str = "traces are not sent";

const FLAGS: &[Flag] = &[
    ("wal-dir", Value, &[""], Warned(LOG_IN_DATA_DIR)),
    ("snapshot-count", Value, &[], Ignored),
    ("snapshot-catchup-entries", Value, &[], Ignored),
    ("experimental-snapshot-catchup-entries", Value, &[], Ignored),
    ("max-snapshots", Value, &[], Ignored),
    ("max-wals", Value, &[], Ignored),
    ("memory-mlock", Switch, &["false"], Warned("memory is not locked")),
    ("experimental-memory-mlock", Switch, &["false"], Warned("memory is not locked")),
    ("backend-bbolt-freelist-type", Value, &[], Ignored),
    ("experimental-backend-bbolt-freelist-type", Value, &[], Ignored),
    ("backend-batch-interval", Value, &[], Ignored),
    ("backend-batch-limit", Value, &[], Ignored),
    ("max-concurrent-streams", Value, &[], Ignored),
    ("grpc-keepalive-min-time", Value, &[], Ignored),
    ("grpc-keepalive-interval", Value, &[], Ignored),
    ("grpc-keepalive-timeout", Value, &[], Ignored),
    ("socket-reuse-port", Switch, &["false"], Warned("only one process can listen on a port")),
    ("socket-reuse-address", Switch, &["false"], Ignored),
    ("initial-election-tick-advance", Switch, &[], Ignored),
    ("enable-v2", Switch, &["false"], Warned("the v2 API is not implemented")),
    ("v2-deprecation", Value, &[], Ignored),
    ("enable-grpc-gateway", Switch, &["false"], Warned("only gRPC is served")),
    ("pre-vote", Switch, &["true"], Warned("it is always on")),
    ("max-learners", Value, &["1"], Rejected("only one learner can be added at a time")),
    ("experimental-max-learners", Value, &["1"], Rejected("only one learner can be added at a time")),
    ("discovery", Value, &[""], Rejected(NO_DISCOVERY)),
    ("discovery-endpoints", Value, &[""], Rejected(NO_DISCOVERY)),
    ("discovery-token", Value, &[""], Rejected(NO_DISCOVERY)),
    ("discovery-srv", Value, &[""], Rejected(NO_DISCOVERY)),
    ("discovery-srv-name", Value, &[""], Ignored),
    ("discovery-fallback", Value, &[], Ignored),
    ("discovery-proxy", Value, &[""], Rejected(NO_DISCOVERY)),
    ("proxy", Value, &["off"], Rejected("the proxy mode is not implemented")),
    ("proxy-failure-wait", Value, &[], Ignored),
    ("proxy-refresh-interval", Value, &[], Ignored),
    ("proxy-dial-timeout", Value, &[], Ignored),
    ("proxy-write-timeout", Value, &[], Ignored),
    ("proxy-read-timeout", Value, &[], Ignored),
    ("force-new-cluster", Switch, &["false"], Rejected(RESTORE)),
    ("unsafe-no-fsync", Switch, &["false"], Warned("every write is synced")),
    ("client-cert-file", Value, &[""], Warned("this server opens no client connections")),
    ("client-key-file", Value, &[""], Warned("this server opens no client connections")),
    ("peer-client-cert-file", Value, &[""], Rejected("--peer-cert-file is used as client certificate")),
    ("peer-client-key-file", Value, &[""], Rejected("--peer-cert-file is used as client certificate")),
    ("client-crl-file", Value, &[""], Rejected(NO_LIST)),
    ("peer-crl-file", Value, &[""], Rejected(NO_LIST)),
    ("client-cert-allowed-hostname", Value, &[""], Rejected(NO_LIST)),
    ("peer-cert-allowed-cn", Value, &[""], Rejected(NO_LIST)),
    ("peer-cert-allowed-hostname", Value, &[""], Rejected(NO_LIST)),
    ("peer-skip-client-san-verification", Switch, &[], Ignored),
    ("experimental-peer-skip-client-san-verification", Switch, &[], Ignored),
    ("host-whitelist", Value, &["", "*"], Rejected("all host names are accepted")),
    ("cors", Value, &["", "*"], Warned("CORS is not supported")),
    ("cipher-suites", Value, &[""], Warned("all secure suites of TLS 1.2 and 1.3 are offered")),
    ("enable-pprof", Switch, &["false"], Warned("there is no Go runtime to profile")),
    ("metrics", Value, &[], Ignored),
    ("logger", Value, &["zap"], Ignored),
    ("log-format", Value, &[], Ignored),
    ("log-outputs", Value, &["default", "stderr"], Warned(TO_STDERR)),
    ("enable-log-rotation", Switch, &["false"], Warned(TO_STDERR)),
    ("log-rotation-config-json", Value, &[], Ignored),
    ("warning-apply-duration", Value, &[], Ignored),
    ("experimental-warning-apply-duration", Value, &[], Ignored),
    ("warning-unary-request-duration", Value, &[], Ignored),
    ("experimental-warning-unary-request-duration", Value, &[], Ignored),
    ("initial-corrupt-check", Switch, &[], Ignored),
    ("experimental-initial-corrupt-check", Switch, &[], Ignored),
    ("corrupt-check-time", Value, &[], Ignored),
    ("experimental-corrupt-check-time", Value, &[], Ignored),
    ("compact-hash-check-time", Value, &[], Ignored),
    ("experimental-compact-hash-check-time", Value, &[], Ignored),
    ("experimental-compact-hash-check-enabled", Switch, &[], Ignored),
    ("compaction-batch-limit", Value, &[], Ignored),
    ("experimental-compaction-batch-limit", Value, &[], Ignored),
    ("compaction-sleep-interval", Value, &[], Ignored),
    ("experimental-compaction-sleep-interval", Value, &[], Ignored),
    ("bootstrap-defrag-threshold-megabytes", Value, &[], Ignored),
    ("experimental-bootstrap-defrag-threshold-megabytes", Value, &[], Ignored),
    ("downgrade-check-time", Value, &[], Ignored),
    ("experimental-downgrade-check-time", Value, &[], Ignored),
    ("experimental-txn-mode-write-with-shared-buffer", Switch, &[], Ignored),
    ("experimental-stop-grpc-service-on-defrag", Switch, &[], Ignored),
    ("experimental-enable-lease-checkpoint", Switch, &[], Ignored),
    ("experimental-enable-lease-checkpoint-persist", Switch, &[], Ignored),
    ("experimental-wait-cluster-ready-timeout", Value, &[], Ignored),
    ("feature-gates", Value, &[], Ignored),
    ("enable-distributed-tracing", Switch, &["false"], Warned(NO_TRACES)),
    ("experimental-enable-distributed-tracing", Switch, &["false"], Warned(NO_TRACES)),
    ("distributed-tracing-address", Value, &[], Ignored),
    ("experimental-distributed-tracing-address", Value, &[], Ignored),
    ("distributed-tracing-service-name", Value, &[], Ignored),
    ("experimental-distributed-tracing-service-name", Value, &[], Ignored),
    ("distributed-tracing-instance-id", Value, &[], Ignored),
    ("experimental-distributed-tracing-instance-id", Value, &[], Ignored),
    ("distributed-tracing-sampling-rate", Value, &[], Ignored),
    ("experimental-distributed-tracing-sampling-rate", Value, &[], Ignored),
];

/// Returns the flags as hidden arguments.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    FLAGS.iter().map(|(name, form, ..)| {
        let flag = Arg::new(*name).long(*name).hide(true).action(ArgAction::Set);
        match form {
            Value => flag,
            Switch => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
        }
    })
}

/// Returns warnings about the given flags. Fails on a rejected flag.
pub(super) fn check_flags(matches: &ArgMatches) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for (name, _, idle, handling) in FLAGS {
        if matches.value_source(name) != Some(ValueSource::CommandLine) {
            continue;
        }
        let value = matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
        if idle.contains(&value) {
            continue;
        }
        match handling {
            Ignored => {}
            Warned(reason) => warnings.push(format!("--{name} has no effect: {reason}")),
            Rejected(reason) => bail!("--{name}={value} is not supported: {reason}"),
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag_message(flag: &str) -> String {
        let command = clap::Command::new("etcd").args(arguments());
        let matches = match command.try_get_matches_from(["etcd", flag]) {
            Ok(matches) => matches,
            Err(error) => return error.to_string(),
        };
        match check_flags(&matches) {
            Ok(warnings) => warnings.join("; "),
            Err(error) => format!("refused: {error}"),
        }
    }

    #[test]
    fn flags_are_accepted_warned_about_or_rejected() {
        let check = |flag: &str, expect: &str| assert_eq!(flag_message(flag), expect, "{flag}");
        check("--initial-corrupt-check", "");
        check("--initial-corrupt-check=true", "");
        check("--compaction-batch-limit=1000", "");
        check("--snapshot-count=10000", "");
        check("--proxy-read-timeout=0", "");
        check("--experimental-initial-corrupt-check=true", "");
        check("--feature-gates=InitialCorruptCheck=true", "");
        check("--unsafe-no-fsync=false", "");
        check("--unsafe-no-fsync", "--unsafe-no-fsync has no effect: every write is synced");
        check("--pre-vote=true", "");
        check("--pre-vote=false", "--pre-vote has no effect: it is always on");
        check("--max-learners=1", "");
        check(
            "--max-learners=3",
            "refused: --max-learners=3 is not supported: only one learner can be added at a time",
        );
        check("--force-new-cluster=false", "");
        check("--force-new-cluster", &format!("refused: --force-new-cluster=true is not supported: {RESTORE}"));
        check("--peer-cert-allowed-cn=", "");
        check("--peer-cert-allowed-cn=m", &format!("refused: --peer-cert-allowed-cn=m is not supported: {NO_LIST}"));
        check("--client-crl-file=/x", &format!("refused: --client-crl-file=/x is not supported: {NO_LIST}"));
        check("--logger=zap", "");
        check("--log-outputs=/var/log/etcd", "--log-outputs has no effect: logs go to standard error");
        assert!(flag_message("--no-such-flag").contains("unexpected argument"));
    }

    #[test]
    fn flags_are_unique() {
        let mut names: Vec<_> = FLAGS.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
