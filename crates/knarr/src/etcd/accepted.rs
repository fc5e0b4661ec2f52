//! etcd's flags without effect here: tuning flags are accepted, unsupported ones are warned about or rejected.

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, parser::ValueSource};

/// Reaction to a flag whose value differs from the actual behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagHandling {
    /// Accepted silently: the flag tunes something that does not exist here.
    Taken,
    /// Accepted with a warning: the flag has no effect, which does no harm.
    Warned(&'static str),
    /// Rejected: ignoring the flag would be less safe than, or different from, the request.
    Refused(&'static str),
}

use FlagHandling::{Refused, Taken, Warned};

/// Flag name, form, values that request the actual behaviour, and the reaction to other values.
type Flag = (&'static str, Form, &'static [&'static str], FlagHandling);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Value,
    Switch,
}

use Form::{Switch, Value};

const NO_FILE_BEHIND: &str = "the write-ahead log is in --data-dir";
const NO_LIST: &str = "clients are verified by their CA only";
const NO_DISCOVERY: &str = "name the members with --initial-cluster";
const TO_STDERR: &str = "logs go to standard error";
const RESTORE: &str = "restore a snapshot with `knarr store snapshot restore` instead";
const NO_TRACES: &str = "traces are not sent";

const FLAGS: &[Flag] = &[
    ("wal-dir", Value, &[""], Warned(NO_FILE_BEHIND)),
    ("snapshot-count", Value, &[], Taken),
    ("snapshot-catchup-entries", Value, &[], Taken),
    ("experimental-snapshot-catchup-entries", Value, &[], Taken),
    ("max-snapshots", Value, &[], Taken),
    ("max-wals", Value, &[], Taken),
    ("memory-mlock", Switch, &["false"], Warned("memory is not locked")),
    ("experimental-memory-mlock", Switch, &["false"], Warned("memory is not locked")),
    ("backend-bbolt-freelist-type", Value, &[], Taken),
    ("experimental-backend-bbolt-freelist-type", Value, &[], Taken),
    ("backend-batch-interval", Value, &[], Taken),
    ("backend-batch-limit", Value, &[], Taken),
    ("max-concurrent-streams", Value, &[], Taken),
    ("grpc-keepalive-min-time", Value, &[], Taken),
    ("grpc-keepalive-interval", Value, &[], Taken),
    ("grpc-keepalive-timeout", Value, &[], Taken),
    ("socket-reuse-port", Switch, &["false"], Warned("only one process can listen on a port")),
    ("socket-reuse-address", Switch, &["false"], Taken),
    ("initial-election-tick-advance", Switch, &[], Taken),
    ("enable-v2", Switch, &["false"], Warned("the v2 API is not implemented")),
    ("v2-deprecation", Value, &[], Taken),
    ("enable-grpc-gateway", Switch, &["false"], Warned("only gRPC is served")),
    ("pre-vote", Switch, &["true"], Warned("it is always on")),
    ("max-learners", Value, &["1"], Refused("only one learner can be added at a time")),
    ("experimental-max-learners", Value, &["1"], Refused("only one learner can be added at a time")),
    ("discovery", Value, &[""], Refused(NO_DISCOVERY)),
    ("discovery-endpoints", Value, &[""], Refused(NO_DISCOVERY)),
    ("discovery-token", Value, &[""], Refused(NO_DISCOVERY)),
    ("discovery-srv", Value, &[""], Refused(NO_DISCOVERY)),
    ("discovery-srv-name", Value, &[""], Taken),
    ("discovery-fallback", Value, &[], Taken),
    ("discovery-proxy", Value, &[""], Refused(NO_DISCOVERY)),
    ("proxy", Value, &["off"], Refused("the proxy mode is not implemented")),
    ("proxy-failure-wait", Value, &[], Taken),
    ("proxy-refresh-interval", Value, &[], Taken),
    ("proxy-dial-timeout", Value, &[], Taken),
    ("proxy-write-timeout", Value, &[], Taken),
    ("proxy-read-timeout", Value, &[], Taken),
    ("force-new-cluster", Switch, &["false"], Refused(RESTORE)),
    ("unsafe-no-fsync", Switch, &["false"], Warned("every write is synced")),
    ("client-cert-file", Value, &[""], Warned("this server opens no client connections")),
    ("client-key-file", Value, &[""], Warned("this server opens no client connections")),
    ("peer-client-cert-file", Value, &[""], Refused("--peer-cert-file is used as client certificate")),
    ("peer-client-key-file", Value, &[""], Refused("--peer-cert-file is used as client certificate")),
    ("client-crl-file", Value, &[""], Refused(NO_LIST)),
    ("peer-crl-file", Value, &[""], Refused(NO_LIST)),
    ("client-cert-allowed-hostname", Value, &[""], Refused(NO_LIST)),
    ("peer-cert-allowed-cn", Value, &[""], Refused(NO_LIST)),
    ("peer-cert-allowed-hostname", Value, &[""], Refused(NO_LIST)),
    ("peer-skip-client-san-verification", Switch, &[], Taken),
    ("experimental-peer-skip-client-san-verification", Switch, &[], Taken),
    ("host-whitelist", Value, &["", "*"], Refused("all host names are accepted")),
    ("cors", Value, &["", "*"], Warned("CORS is not supported")),
    ("cipher-suites", Value, &[""], Warned("all secure suites of TLS 1.2 and 1.3 are offered")),
    ("enable-pprof", Switch, &["false"], Warned("there is no Go runtime to profile")),
    ("metrics", Value, &[], Taken),
    ("logger", Value, &["zap"], Taken),
    ("log-format", Value, &[], Taken),
    ("log-outputs", Value, &["default", "stderr"], Warned(TO_STDERR)),
    ("enable-log-rotation", Switch, &["false"], Warned(TO_STDERR)),
    ("log-rotation-config-json", Value, &[], Taken),
    ("warning-apply-duration", Value, &[], Taken),
    ("experimental-warning-apply-duration", Value, &[], Taken),
    ("warning-unary-request-duration", Value, &[], Taken),
    ("experimental-warning-unary-request-duration", Value, &[], Taken),
    ("initial-corrupt-check", Switch, &[], Taken),
    ("experimental-initial-corrupt-check", Switch, &[], Taken),
    ("corrupt-check-time", Value, &[], Taken),
    ("experimental-corrupt-check-time", Value, &[], Taken),
    ("compact-hash-check-time", Value, &[], Taken),
    ("experimental-compact-hash-check-time", Value, &[], Taken),
    ("experimental-compact-hash-check-enabled", Switch, &[], Taken),
    ("compaction-batch-limit", Value, &[], Taken),
    ("experimental-compaction-batch-limit", Value, &[], Taken),
    ("compaction-sleep-interval", Value, &[], Taken),
    ("experimental-compaction-sleep-interval", Value, &[], Taken),
    ("bootstrap-defrag-threshold-megabytes", Value, &[], Taken),
    ("experimental-bootstrap-defrag-threshold-megabytes", Value, &[], Taken),
    ("downgrade-check-time", Value, &[], Taken),
    ("experimental-downgrade-check-time", Value, &[], Taken),
    ("experimental-txn-mode-write-with-shared-buffer", Switch, &[], Taken),
    ("experimental-stop-grpc-service-on-defrag", Switch, &[], Taken),
    ("experimental-enable-lease-checkpoint", Switch, &[], Taken),
    ("experimental-enable-lease-checkpoint-persist", Switch, &[], Taken),
    ("experimental-wait-cluster-ready-timeout", Value, &[], Taken),
    ("feature-gates", Value, &[], Taken),
    ("enable-distributed-tracing", Switch, &["false"], Warned(NO_TRACES)),
    ("experimental-enable-distributed-tracing", Switch, &["false"], Warned(NO_TRACES)),
    ("distributed-tracing-address", Value, &[], Taken),
    ("experimental-distributed-tracing-address", Value, &[], Taken),
    ("distributed-tracing-service-name", Value, &[], Taken),
    ("experimental-distributed-tracing-service-name", Value, &[], Taken),
    ("distributed-tracing-instance-id", Value, &[], Taken),
    ("experimental-distributed-tracing-instance-id", Value, &[], Taken),
    ("distributed-tracing-sampling-rate", Value, &[], Taken),
    ("experimental-distributed-tracing-sampling-rate", Value, &[], Taken),
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
            Taken => {}
            Warned(reason) => warnings.push(format!("--{name} has no effect: {reason}")),
            Refused(reason) => bail!("--{name}={value} is not supported: {reason}"),
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
