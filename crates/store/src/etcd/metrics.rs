//! Metrics of a member with etcd's names, formatted on request.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use super::{CLUSTER_VERSION, Server, VERSION};
use crate::backend::Backend;
use crate::member::{DiskStats, SYNC_BUCKETS_MICROS};
use crate::peer::{PeerTraffic, ROUND_TRIP_BUCKETS_MICROS};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

pub(super) fn text<B: Backend>(server: &Server<B>) -> String {
    let mut page = Page(String::with_capacity(32 << 10));
    member(&mut page, server);
    records(&mut page, server);
    syncs(&mut page, &server.backend.status().disk);
    calls(&mut page, server);
    peers(&mut page, server.backend.id(), &server.backend.peer_traffic());
    page.one("process_resident_memory_bytes", GAUGE, "Resident memory size in bytes.", resident_bytes());
    page.0
}

fn member<B: Backend>(page: &mut Page, server: &Server<B>) {
    let status = server.backend.status();
    let leads = status.leader != 0 && status.leader == server.backend.id();
    let failed = server.failed.load(Ordering::Relaxed);
    page.one("etcd_server_has_leader", GAUGE, "Whether there is a leader.", u8::from(status.leader != 0));
    page.one("etcd_server_is_leader", GAUGE, "Whether this member is the leader.", u8::from(leads));
    page.one("etcd_server_is_learner", GAUGE, "Whether this member is a learner.", u8::from(status.learner));
    page.one(
        "etcd_server_leader_changes_seen_total",
        COUNTER,
        "Number of leader changes that this member observed.",
        status.leader_changes,
    );
    page.one("etcd_server_proposals_committed_total", GAUGE, "Index of the last committed entry.", status.commit_index);
    page.one(
        "etcd_server_proposals_applied_total",
        GAUGE,
        "Index of the last entry applied on this member.",
        status.applied_index,
    );
    page.one("etcd_server_proposals_pending", GAUGE, "Number of proposals that are not applied yet.", status.pending);
    page.one("etcd_server_proposals_failed_total", COUNTER, "Number of failed proposals.", failed);
    page.head("etcd_server_version", GAUGE, "Reported version of the server; the value is always 1.");
    page.sample("etcd_server_version", &[("server_version", &VERSION)], 1);
    page.head("etcd_cluster_version", GAUGE, "Version of the cluster; the value is always 1.");
    page.sample("etcd_cluster_version", &[("cluster_version", &CLUSTER_VERSION)], 1);
    page.head("etcd_server_id", GAUGE, "ID of this member; the value is always 1.");
    page.sample("etcd_server_id", &[("server_id", &format_args!("{:x}", server.backend.id()))], 1);
}

fn records<B: Backend>(page: &mut Page, server: &Server<B>) {
    let disk_bytes = server.backend.status().disk_bytes;
    let (watchers, behind) = server.backend.hub().counts();
    let (leases, users) = server.backend.view(|state| (state.leases().count(), state.directory().revision()));
    let (revision, compact, keys, bytes) = server
        .backend
        .view(|state| (state.revision(), state.compact_revision(), state.key_count(), state.size_bytes()));
    let quota = server.config.quota_bytes.unwrap_or(0);
    page.one("etcd_server_quota_backend_bytes", GAUGE, "Storage quota in bytes; 0 if there is none.", quota);
    page.one(
        "etcd_mvcc_db_total_size_in_bytes",
        GAUGE,
        "Size of the log and the checkpoints on disk in bytes.",
        disk_bytes,
    );
    page.one("etcd_mvcc_db_total_size_in_use_in_bytes", GAUGE, "Size of all keys and values in bytes.", bytes);
    page.one("etcd_debugging_mvcc_keys_total", GAUGE, "Number of keys.", keys);
    page.one("etcd_debugging_mvcc_current_revision", GAUGE, "Current revision of the store.", revision);
    page.one("etcd_debugging_mvcc_compact_revision", GAUGE, "Revision of the last compaction.", compact.max(0));
    page.one("etcd_debugging_mvcc_watcher_total", GAUGE, "Number of watchers.", watchers);
    page.one("etcd_debugging_mvcc_slow_watcher_total", GAUGE, "Number of watchers with unsent events.", behind);
    page.one("etcd_debugging_lease_total", GAUGE, "Number of leases.", leases);
    page.one("etcd_debugging_auth_revision", GAUGE, "Revision of users and roles; each change increments it.", users);
}

fn syncs(page: &mut Page, disk: &DiskStats) {
    let name = "etcd_disk_wal_fsync_duration_seconds";
    page.head(name, HISTOGRAM, "Latency of log syncs to disk in seconds.");
    page.histogram(name, &[], &SYNC_BUCKETS_MICROS, &disk.buckets, disk.sync_micros, disk.syncs);
}

fn calls<B: Backend>(page: &mut Page, server: &Server<B>) {
    let (received, sent) = (server.calls.received_bytes(), server.calls.sent_bytes());
    page.one("etcd_network_client_grpc_received_bytes_total", COUNTER, "Bytes received from gRPC clients.", received);
    page.one("etcd_network_client_grpc_sent_bytes_total", COUNTER, "Bytes sent to gRPC clients.", sent);
    page.head("grpc_server_started_total", COUNTER, "Number of started gRPC calls.");
    for (labels, count) in server.calls.started() {
        page.sample("grpc_server_started_total", &display_labels(&labels), count);
    }
    page.head("grpc_server_handled_total", COUNTER, "Number of completed gRPC calls, by status code.");
    for (labels, count) in server.calls.handled() {
        page.sample("grpc_server_handled_total", &display_labels(&labels), count);
    }
}

// DEVIATION: peer round-trip times are measured with heartbeats, so only a current or former leader has them. etcd's
// members also probe each other.
fn peers(page: &mut Page, own: u64, peers: &[PeerTraffic]) {
    let (local, id) = (format!("{own:x}"), |peer: &PeerTraffic| format!("{:x}", peer.id));
    if peers.is_empty() {
        return;
    }
    page.head("etcd_network_active_peers", GAUGE, "Number of open connections to a peer.");
    for peer in peers {
        page.sample("etcd_network_active_peers", &[("Local", &local), ("Remote", &id(peer))], peer.connections);
    }
    page.head("etcd_network_peer_sent_bytes_total", COUNTER, "Bytes sent to a peer.");
    for peer in peers {
        page.sample("etcd_network_peer_sent_bytes_total", &[("To", &id(peer))], peer.sent_bytes);
    }
    page.head("etcd_network_peer_received_bytes_total", COUNTER, "Bytes received from a peer.");
    for peer in peers {
        page.sample("etcd_network_peer_received_bytes_total", &[("From", &id(peer))], peer.received_bytes);
    }
    let name = "etcd_network_peer_round_trip_time_seconds";
    page.head(name, HISTOGRAM, "Round-trip time of heartbeats to a peer in seconds.");
    for peer in peers.iter().filter(|peer| peer.round_trips > 0) {
        let (buckets, micros) = (&peer.round_trip_buckets, peer.round_trip_micros);
        page.histogram(name, &[("To", &id(peer))], &ROUND_TRIP_BUCKETS_MICROS, buckets, micros, peer.round_trips);
    }
}

fn display_labels<'a>(labels: &'a [(&'static str, &'static str)]) -> Vec<Label<'a>> {
    labels.iter().map(|(name, value)| (*name, value as &dyn Display)).collect()
}

/// A label name and value; values need no escaping.
type Label<'a> = (&'static str, &'a dyn Display);

/// Prometheus text format.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, label_value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{label_value}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Prints a histogram. `buckets` are per-bucket counts; the printed ones are cumulative.
    fn histogram(
        &mut self,
        name: &str,
        labels: &[Label<'_>],
        bounds_micros: &[u64],
        buckets: &[u64],
        sum_micros: u64,
        count: u64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (micros, count) in bounds_micros.iter().zip(buckets) {
            below += count;
            self.sample(&bucket, &bounded(labels, &seconds(*micros)), below);
        }
        self.sample(&bucket, &bounded(labels, &"+Inf"), count);
        self.sample(&format!("{name}_sum"), labels, seconds(sum_micros));
        self.sample(&format!("{name}_count"), labels, count);
    }
}

fn bounded<'a>(labels: &[Label<'a>], bound: &'a dyn Display) -> Vec<Label<'a>> {
    labels.iter().copied().chain([("le", bound)]).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a metric is approximate")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Returns the resident memory of this process, or 0 if unavailable.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_in_prometheus_text_format() {
        let mut page = Page(String::new());
        page.one("a_total", COUNTER, "As.", 3);
        page.head("b", HISTOGRAM, "Bs.");
        page.histogram("b", &[("To", &"x")], &[100, 200], &[1, 2], 1500, 4);
        let expect = "# HELP a_total As.\n# TYPE a_total counter\na_total 3\n# HELP b Bs.\n# TYPE b histogram\n\
                      b_bucket{To=\"x\",le=\"0.0001\"} 1\nb_bucket{To=\"x\",le=\"0.0002\"} 3\nb_bucket{To=\"x\",le=\"+Inf\"} 4\n\
                      b_sum{To=\"x\"} 0.0015\nb_count{To=\"x\"} 4\n";
        assert_eq!(page.0, expect);
    }

    #[test]
    fn peer_metrics_have_etcds_labels() {
        let mut page = Page(String::new());
        let peer = PeerTraffic { id: 0xb, connections: 1, sent_bytes: 7, received_bytes: 3, ..PeerTraffic::default() };
        peers(&mut page, 0xa, &[peer]);
        let samples: Vec<_> = page.0.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "etcd_network_active_peers{Local=\"a\",Remote=\"b\"} 1",
                "etcd_network_peer_sent_bytes_total{To=\"b\"} 7",
                "etcd_network_peer_received_bytes_total{From=\"b\"} 3",
            ]
        );
    }
}
