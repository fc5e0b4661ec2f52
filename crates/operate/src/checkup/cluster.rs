//! Checks of a running cluster.

use super::{Cluster, Row, Verdict};

/// Certificates are renewed with a third of their year left: a certificate with less than this was not renewed.
const DAYS_MIN: u64 = 30;
/// Slower reads indicate an overloaded host or a slow disk.
const READ_SLOW_MICROS: u64 = 100_000;

pub fn judge(cluster: &Cluster) -> Vec<Row> {
    vec![api(cluster), store(cluster), nodes(cluster), dns(cluster), certificates(cluster)]
}

fn api(cluster: &Cluster) -> Row {
    let looks_at = "/readyz of the API server";
    match &cluster.failed_checks {
        Ok(failed) if failed.is_empty() => {
            Row::new("API server", looks_at, format!("ready, process {}", cluster.process))
        }
        Ok(failed) => Row::new("API server", looks_at, format!("not ready: {}", failed.join(", ")))
            .but(Verdict::Bad, "see knarr.log in the data folder for what these checks say"),
        Err(error) => Row::new("API server", looks_at, format!("does not answer: {error}")).but(
            Verdict::Bad,
            "see knarr.log in the data folder; `knarr down` and `knarr up` start it anew, pods go on",
        ),
    }
}

fn store(cluster: &Cluster) -> Row {
    let looks_at = "a read that needs a quorum";
    match &cluster.store {
        Ok(micros) if *micros < READ_SLOW_MICROS => Row::new("store", looks_at, millis(*micros)),
        Ok(micros) => Row::new("store", looks_at, millis(*micros))
            .but(Verdict::Doubtful, "the machine is busy or its disk is slow: see the row on its sync speed"),
        Err(error) => Row::new("store", looks_at, error.as_str())
            .but(Verdict::Bad, "a store without a quorum or without room on its disk does not answer: see knarr.log"),
    }
}

fn nodes(cluster: &Cluster) -> Row {
    let looks_at = "the condition Ready of nodes";
    let ready = cluster.nodes.iter().filter(|(_, ready)| *ready).count();
    let found = format!("{ready} of {} ready", cluster.nodes.len());
    let ill: Vec<&str> = cluster.nodes.iter().filter(|(_, ready)| !ready).map(|(name, _)| name.as_str()).collect();
    let row = Row::new("nodes", looks_at, found);
    if ill.is_empty() {
        return row;
    }
    let advice = format!("`kubectl describe node {}` says what its kubelet lacks", ill.join(" "));
    // A cluster with at least one ready node can still run pods.
    row.but(if ready == 0 { Verdict::Bad } else { Verdict::Doubtful }, advice)
}

fn dns(cluster: &Cluster) -> Row {
    let looks_at = "kubernetes.default.svc.cluster.local";
    match &cluster.dns {
        None => Row::new("DNS", looks_at, "not asked: the cluster has no name server here"),
        Some(Ok(address)) => Row::new("DNS", looks_at, address.as_str()),
        Some(Err(error)) => Row::new("DNS", looks_at, error.as_str())
            .but(Verdict::Bad, "pods find nobody by name: see knarr.log for what the name server says"),
    }
}

fn certificates(cluster: &Cluster) -> Row {
    let looks_at = "certificates' ends";
    let Some((name, days)) = cluster.certificates.iter().min_by_key(|(_, days)| days) else {
        return Row::new("certificates", looks_at, "there are none");
    };
    let row = Row::new("certificates", looks_at, format!("the first to end is {name}, in {days} days"));
    match days {
        0 => row.but(Verdict::Bad, "it has ended: `knarr certs rotate` makes it anew"),
        1..DAYS_MIN => row.but(Verdict::Doubtful, "it should have been renewed by now: `knarr certs rotate` does it"),
        _ => row,
    }
}

fn millis(micros: u64) -> String {
    format!("answers in {}.{:01} ms", micros / 1000, micros % 1000 / 100)
}
