//! The end points beside gRPC: health, metrics, version.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::State as Shared;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{StatusCode, header};
use mvcc::Alarm;

use super::{CLUSTER_VERSION, Server, VERSION};
use crate::backend::Backend;

pub(super) fn routes<B: Backend>(server: Server<B>) -> Router {
    Router::new()
        .route("/health", get(health::<B>))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready::<B>))
        .route("/version", get(version))
        .route("/metrics", get(metrics::<B>))
        .with_state(server)
}

async fn health<B: Backend>(Shared(server): Shared<Server<B>>) -> impl IntoResponse {
    let (code, body) = match unhealthy(&server).await {
        None => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!(r#"{{"health":"false","reason":"{reason}"}}"#)),
    };
    (code, [(header::CONTENT_TYPE, "application/json")], body)
}

async fn ready<B: Backend>(Shared(server): Shared<Server<B>>) -> impl IntoResponse {
    match unhealthy(&server).await {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("[-]{reason}\n")),
    }
}

/// Why a client should go elsewhere. The words are etcd's and need no escaping.
async fn unhealthy<B: Backend>(server: &Server<B>) -> Option<&'static str> {
    if server.backend.view(mvcc::State::is_full) {
        return Some("ALARM NOSPACE");
    }
    if server.backend.view(|state| state.has_alarm(Alarm::Corrupt)) {
        return Some("ALARM CORRUPT");
    }
    if server.backend.status().leader == 0 {
        return Some("RAFT NO LEADER");
    }
    server.backend.read_index().await.err().map(|_| "RANGE ERROR")
}

async fn version() -> impl IntoResponse {
    let body = format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{CLUSTER_VERSION}"}}"#);
    ([(header::CONTENT_TYPE, "application/json")], body)
}

async fn metrics<B: Backend>(Shared(server): Shared<Server<B>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render(&server))
}

fn render<B: Backend>(server: &Server<B>) -> String {
    let status = server.backend.status();
    let (watchers, behind) = server.backend.hub().counts();
    let (revision, compact, keys, bytes, leases) = server.backend.view(|state| {
        (state.revision(), state.compact_revision(), state.key_count(), state.size_bytes(), state.leases().count())
    });
    let quota = server.config.quota_bytes.unwrap_or(0);
    let leads = status.leader != 0 && status.leader == server.backend.id();
    let mut out = String::with_capacity(4096);
    let mut metric = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let (gauge, counter) = ("gauge", "counter");
    metric("etcd_server_has_leader", gauge, "Whether there is a leader.", &u8::from(status.leader != 0));
    metric("etcd_server_is_leader", gauge, "Whether this member is the leader.", &u8::from(leads));
    metric("etcd_server_is_learner", gauge, "Whether this member does not vote.", &u8::from(status.learner));
    metric("etcd_server_leader_changes_seen_total", counter, "Changes of leader seen.", &status.leader_changes);
    metric("etcd_server_proposals_committed_total", gauge, "Entries a majority has.", &status.commit_index);
    metric("etcd_server_proposals_applied_total", gauge, "Entries applied here.", &status.applied_index);
    metric("etcd_server_proposals_pending", gauge, "Commands proposed and not applied.", &status.pending);
    metric("etcd_server_quota_backend_bytes", gauge, "Bytes the records may take.", &quota);
    metric("etcd_mvcc_db_total_size_in_bytes", gauge, "Bytes of log and checkpoints.", &status.disk_bytes);
    metric("etcd_mvcc_db_total_size_in_use_in_bytes", gauge, "Bytes of the records.", &bytes);
    metric("etcd_debugging_mvcc_keys_total", gauge, "Keys.", &keys);
    metric("etcd_debugging_mvcc_current_revision", gauge, "The last revision.", &revision);
    metric("etcd_debugging_mvcc_compact_revision", gauge, "The oldest readable revision.", &compact.max(0));
    metric("etcd_debugging_mvcc_watcher_total", gauge, "Watchers.", &watchers);
    metric("etcd_debugging_mvcc_slow_watcher_total", gauge, "Watchers with something to read.", &behind);
    metric("etcd_debugging_lease_total", gauge, "Leases.", &leases);
    metric("process_resident_memory_bytes", gauge, "Resident memory size in bytes.", &resident_bytes());
    let _ = writeln!(
        out,
        "# HELP etcd_server_version The version this server says it is.\n# TYPE etcd_server_version gauge\n\
         etcd_server_version{{server_version=\"{VERSION}\"}} 1"
    );
    let _ = writeln!(
        out,
        "# HELP etcd_server_id This member's id.\n# TYPE etcd_server_id gauge\n\
         etcd_server_id{{server_id=\"{:x}\"}} 1",
        server.backend.id()
    );
    out
}

/// The memory of this process; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
