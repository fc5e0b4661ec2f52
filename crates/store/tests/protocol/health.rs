//! The HTTP endpoints: health, probes, metrics, version.

use anyhow::{Context, Result, ensure};
use axum::body::{Body, to_bytes};
use mvcc::{Alarm, AlarmChange, Command};
use store::backend::Backend;
use store::etcd::{self, Routers};
use tower::ServiceExt;

use crate::common::Single;

async fn get(router: &axum::Router, path: &str) -> Result<(u16, String)> {
    let request = http::Request::get(path).body(Body::empty())?;
    let response = router.clone().oneshot(request).await?;
    let status = response.status().as_u16();
    Ok((status, String::from_utf8(to_bytes(response.into_body(), 1 << 20).await?.to_vec())?))
}

async fn check(router: &axum::Router, path: &str, status: u16, body: &str) -> Result<()> {
    let response = get(router, path).await?;
    ensure!(response == (status, body.to_owned()), "{path}: {response:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_probes_report_failures_except_excluded_ones() -> Result<()> {
    let single = Single::start(etcd::Config::default()).await?;
    single.backend.read_index().await?;
    let Routers { clients, observers } = etcd::routers(single.backend.clone(), etcd::Config::default());
    let (well, ready) = (r#"{"health":"true","reason":""}"#, "[+]data_corruption ok\n[+]linearizable_read ok\n");
    let ready = format!("{ready}[+]non_learner ok\n[+]serializable_read ok\nok\n");
    for router in [&clients, &observers] {
        check(router, "/health", 200, well).await?;
        check(router, "/livez", 200, "ok\n").await?;
        check(router, "/livez?verbose", 200, "[+]serializable_read ok\nok\n").await?;
        check(router, "/readyz", 200, "ok\n").await?;
        check(router, "/readyz?verbose", 200, &ready).await?;
        check(router, "/readyz/linearizable_read?verbose", 200, "[+]linearizable_read ok\nok\n").await?;
        check(router, "/readyz?verbose&allowlist=non_learner", 200, "[+]non_learner ok\nok\n").await?;
    }
    let raise = |alarm, change| single.backend.propose(Command::Alarm { change, alarm, member: single.backend.id() });
    raise(Alarm::NoSpace, AlarmChange::Raise).await?.result?;
    check(&clients, "/health", 503, r#"{"health":"false","reason":"ALARM NOSPACE"}"#).await?;
    check(&clients, "/health?exclude=NOSPACE", 200, well).await?;
    check(&clients, "/health?exclude=CORRUPT", 503, r#"{"health":"false","reason":"ALARM NOSPACE"}"#).await?;
    check(&clients, "/readyz", 200, "ok\n").await?;
    raise(Alarm::NoSpace, AlarmChange::Lower).await?.result?;
    raise(Alarm::Corrupt, AlarmChange::Raise).await?.result?;
    check(&clients, "/health?serializable=true", 503, r#"{"health":"false","reason":"ALARM CORRUPT"}"#).await?;
    let (status, body) = get(&clients, "/readyz").await?;
    ensure!(status == 503 && body.starts_with("[-]data_corruption failed: alarm activated: CORRUPT\n[+]"), "{body}");
    check(&clients, "/readyz?exclude=data_corruption", 200, "ok\n").await?;
    check(&clients, "/livez", 200, "ok\n").await?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_listener_serves_health_and_metrics_but_no_data() -> Result<()> {
    let single = Single::start(etcd::Config::default()).await?;
    single.backend.read_index().await?;
    let Routers { clients, observers } = etcd::routers(single.backend.clone(), etcd::Config::default());
    let (status, metrics) = get(&observers, "/metrics").await?;
    let value = |name: &str| -> Result<f64> {
        let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        Ok(line.with_context(|| format!("no {name} in\n{metrics}"))?[name.len() + 1..].parse()?)
    };
    ensure!(status == 200 && value("etcd_server_has_leader")? == 1.0 && value("etcd_server_is_leader")? == 1.0);
    ensure!(value("etcd_server_proposals_failed_total")? == 0.0);
    let syncs = value("etcd_disk_wal_fsync_duration_seconds_count")?;
    ensure!(syncs >= 1.0 && value("etcd_disk_wal_fsync_duration_seconds_sum")? > 0.0, "{metrics}");
    ensure!(value("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"}")? == syncs);
    ensure!(value("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"8.192\"}")? <= syncs);
    let version = format!(r#"{{"etcdserver":"{}","etcdcluster":"{}"}}"#, etcd::VERSION, etcd::CLUSTER_VERSION);
    check(&clients, "/version", 200, &version).await?;

    let call = |path: &str| http::Request::post(path).header("content-type", "application/grpc").body(Body::empty());
    let range = "/etcdserverpb.KV/Range";
    ensure!(clients.clone().oneshot(call(range)?).await?.status() == 200, "clients are served");
    for path in [range, "/etcdserverpb.KV/Put", "/etcdserverpb.Maintenance/Snapshot", "/etcdserverpb.Watch/Watch"] {
        let response_status = observers.clone().oneshot(call(path)?).await?.status();
        ensure!(response_status == 404, "{path}: {response_status}");
    }
    single.stop().await;
    Ok(())
}
