//! Checks of a running cluster.

use super::{CheckResult, Cluster, Row};

/// Certificates are renewed with a third of their year left: a certificate with less than this was not renewed.
const DAYS_MIN: u64 = 30;
/// Slower reads indicate an overloaded host or a slow disk.
const READ_SLOW_MICROS: u64 = 100_000;

pub(super) fn evaluate(cluster: &Cluster) -> Vec<Row> {
    let rows = [api(cluster), store(cluster), nodes(cluster), dns(cluster), certificates(cluster), backup(cluster)];
    rows.into_iter()
        .chain(cluster.manifests.iter().map(|(directory, problems)| manifests(directory, *problems)))
        .collect()
}

fn api(cluster: &Cluster) -> Row {
    let looks_at = "/readyz of the API server";
    match &cluster.failed_checks {
        Ok(failed) if failed.is_empty() => {
            Row::new("API server", looks_at, format!("ready, process ID {}", cluster.process))
        }
        Ok(failed) => Row::new("API server", looks_at, format!("not ready: {}", failed.join(", ")))
            .but(CheckResult::Fail, "see knarr.log in the data directory for the details of these checks"),
        Err(error) => Row::new("API server", looks_at, format!("does not respond: {error}")).but(
            CheckResult::Fail,
            "see knarr.log in the data directory; `knarr down` and `knarr up` restart it, pods keep running",
        ),
    }
}

fn store(cluster: &Cluster) -> Row {
    let looks_at = "a linearizable read";
    match &cluster.store {
        Ok(micros) if *micros < READ_SLOW_MICROS => Row::new("store", looks_at, millis(*micros)),
        Ok(micros) => Row::new("store", looks_at, millis(*micros))
            .but(CheckResult::Warn, "the host is busy or its disk is slow: see the row `sync speed`"),
        Err(error) => Row::new("store", looks_at, error.as_str())
            .but(CheckResult::Fail, "a store without a quorum or disk space does not respond: see knarr.log"),
    }
}

fn nodes(cluster: &Cluster) -> Row {
    let looks_at = "node condition Ready";
    let ready = cluster.nodes.iter().filter(|(_, ready)| *ready).count();
    let found = format!("{ready} of {} ready", cluster.nodes.len());
    let ill: Vec<&str> = cluster.nodes.iter().filter(|(_, ready)| !ready).map(|(name, _)| name.as_str()).collect();
    let row = Row::new("nodes", looks_at, found);
    if ill.is_empty() {
        return row;
    }
    let advice = format!("`kubectl describe node {}` shows the reason", ill.join(" "));
    // A cluster with at least one ready node can still run pods.
    row.but(if ready == 0 { CheckResult::Fail } else { CheckResult::Warn }, advice)
}

fn dns(cluster: &Cluster) -> Row {
    let looks_at = "kubernetes.default.svc.cluster.local";
    match &cluster.dns {
        None => Row::new("DNS", looks_at, "not checked: the cluster has no DNS server here"),
        Some(Ok(address)) => Row::new("DNS", looks_at, address.as_str()),
        Some(Err(error)) => Row::new("DNS", looks_at, error.as_str())
            .but(CheckResult::Fail, "pods cannot resolve service names: see knarr.log for errors of the DNS server"),
    }
}

fn certificates(cluster: &Cluster) -> Row {
    let looks_at = "certificate expiry";
    let Some((name, days)) = cluster.certificates.iter().min_by_key(|(_, days)| days) else {
        return Row::new("certificates", looks_at, "none");
    };
    let row = Row::new("certificates", looks_at, format!("the first to expire is {name}, in {days} days"));
    match days {
        0 => row.but(CheckResult::Fail, "it has expired: `knarr certs rotate` renews it"),
        1..DAYS_MIN => row.but(CheckResult::Warn, "it should have been renewed by now: `knarr certs rotate` renews it"),
        _ => row,
    }
}

/// Missing backups are not reported as a problem, because the cluster may be a test. Late scheduled backups are.
fn backup(cluster: &Cluster) -> Row {
    let looks_at = "last backup that was verified";
    let Some(backup) = &cluster.backup else {
        return Row::new("backup", looks_at, "none; `knarr backup` makes one, --backup-every makes them regularly");
    };
    let hours = backup.age_seconds / 3600;
    let age = if hours < 48 { format!("{hours} h") } else { format!("{} days", hours / 24) };
    let row = Row::new("backup", looks_at, format!("{}, {age} ago", backup.file));
    // The next one is made an interval after the last.
    if backup.every_seconds.is_some_and(|every| backup.age_seconds > every.saturating_mul(2)) {
        return row.but(CheckResult::Warn, "scheduled backups fail or are late: see \"backup\" in knarr.log");
    }
    row
}

/// A directory that was never used has no row.
fn manifests(directory: &str, problems: u64) -> Row {
    let row = Row::new("manifests", directory, format!("{problems} problems"));
    if problems == 0 { row } else { row.but(CheckResult::Warn, "`knarr status` shows files, lines and reasons") }
}

fn millis(micros: u64) -> String {
    format!("responds in {}.{:01} ms", micros / 1000, micros % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::super::LastBackup;
    use super::*;

    #[test]
    fn manifests_that_are_not_applied_are_a_warning() {
        let verdicts = [0, 2].map(|problems| manifests("/m", problems).verdict);
        assert_eq!(verdicts, [CheckResult::Pass, CheckResult::Warn]);
    }

    #[test]
    fn late_scheduled_backup_is_a_warning() {
        let check = |backup: Option<(u64, Option<u64>)>, found: &str, verdict: CheckResult| {
            let backup = backup.map(|(age_seconds, every_seconds)| LastBackup {
                file: "/b".to_owned(),
                age_seconds,
                every_seconds,
            });
            let cluster = Cluster {
                process: 1,
                failed_checks: Ok(Vec::new()),
                nodes: Vec::new(),
                dns: None,
                certificates: Vec::new(),
                store: Ok(1),
                backup,
                manifests: Vec::new(),
            };
            let row = super::backup(&cluster);
            assert!(row.found.starts_with(found), "{row:?}");
            assert_eq!(row.verdict, verdict, "{row:?}");
        };
        check(None, "none;", CheckResult::Pass);
        check(Some((7200, None)), "/b, 2 h ago", CheckResult::Pass);
        check(Some((7200, Some(3600))), "/b, 2 h ago", CheckResult::Pass);
        check(Some((7201, Some(3600))), "/b, 2 h ago", CheckResult::Warn);
        check(Some((72 * 3600, None)), "/b, 3 days ago", CheckResult::Pass);
    }
}
