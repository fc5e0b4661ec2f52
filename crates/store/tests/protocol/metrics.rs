//! Metrics have etcd's names and reflect activity.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::body::{Body, to_bytes};
use store::etcd::proto::etcdserverpb as pb;
use store::etcd::proto::v3electionpb::{LeaderRequest, election_client::ElectionClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::cluster::{Cluster, EtcdCluster};
use crate::common::Member;

const DEADLINE: Duration = Duration::from_secs(60);

/// Metric families that a cluster under load must have in addition to those of a single member.
const OF_PEERS: &[&str] = &[
    "etcd_network_active_peers",
    "etcd_network_peer_sent_bytes_total",
    "etcd_network_peer_received_bytes_total",
    "etcd_network_peer_round_trip_time_seconds",
];
const OF_CLIENTS: &[&str] = &[
    "etcd_network_client_grpc_received_bytes_total",
    "etcd_network_client_grpc_sent_bytes_total",
    "grpc_server_started_total",
    "grpc_server_handled_total",
];

/// Families that etcd does not have in this form.
const KNARR_ONLY: &[&str] = &["etcd_debugging_lease_total"];

/// Metric families by name, with type and label names.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

fn families(page: &str, known: &mut Families) {
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            known.entry(name.to_owned()).or_insert_with(|| (kind.to_owned(), BTreeSet::new()));
        } else if let Some((series, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let family = ["", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(|name| known.contains_key(*name)));
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            if let Some((_, names)) = family.and_then(|family| known.get_mut(family)) {
                names.extend(labels);
            }
        }
    }
}

async fn knarr_metrics(member: &Member) -> Result<String> {
    let response = member.router.clone().oneshot(http::Request::get("/metrics").body(Body::empty())?).await?;
    Ok(String::from_utf8(to_bytes(response.into_body(), 1 << 20).await?.to_vec())?)
}

async fn etcd_metrics(endpoint: &str) -> Result<String> {
    let address = endpoint.strip_prefix("http://").context("a URL")?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn put() -> pb::PutRequest {
    pb::PutRequest { key: "a".into(), value: "1".into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_etcds_names_types_and_labels() -> Result<()> {
    let cluster = Cluster::start().await?;
    let real = EtcdCluster::start().await?;
    let complete = |families: &Families| OF_PEERS.iter().chain(OF_CLIENTS).all(|name| families.contains_key(*name));
    let (mut expected, mut found) = (Families::new(), Families::new());
    let reported = async {
        while !complete(&expected) || !complete(&found) {
            for endpoint in real.endpoints() {
                families(&etcd_metrics(endpoint).await?, &mut expected);
            }
            for member in &cluster.members {
                member.kv().put(put()).await?;
                families(&knarr_metrics(member).await?, &mut found);
            }
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, reported).await.with_context(|| format!("not all metrics are reported: {found:?}"))??;
    let different = found
        .iter()
        .filter(|(name, reported)| !KNARR_ONLY.contains(&name.as_str()) && expected.get(*name) != Some(reported));
    let different: Vec<_> =
        different.map(|(name, reported)| format!("{name} is {reported:?}, not {:?}", expected.get(name))).collect();
    ensure!(different.is_empty(), "{}", different.join("\n"));
    cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_reflect_activity() -> Result<()> {
    let cluster = Cluster::start().await?;
    let leader = cluster.members[0].node.status().leader;
    let (leading, following): (Vec<_>, Vec<_>) = cluster.members.iter().partition(|member| member.node.id() == leader);
    let (leading, following) = (leading[0], following[0]);
    let (to, from) = (format!("{{To=\"{:x}\"}}", following.node.id()), format!("{{From=\"{leader:x}\"}}"));
    let remote = format!("{{Local=\"{leader:x}\",Remote=\"{:x}\"}}", following.node.id());
    let growing = [
        (leading, "etcd_network_client_grpc_received_bytes_total".to_owned()),
        (leading, "etcd_network_client_grpc_sent_bytes_total".to_owned()),
        (leading, format!("etcd_network_peer_sent_bytes_total{to}")),
        (leading, format!("etcd_network_peer_round_trip_time_seconds_count{to}")),
        (following, format!("etcd_network_peer_received_bytes_total{from}")),
    ];
    for (member, series) in growing {
        let before = value(&knarr_metrics(member).await?, &series).unwrap_or(0.0);
        let grown = async {
            while value(&knarr_metrics(member).await?, &series).is_none_or(|now| now <= before) {
                leading.kv().put(put()).await?;
            }
            anyhow::Ok(())
        };
        timeout(DEADLINE, grown).await.with_context(|| format!("{series} does not grow"))??;
    }
    ensure!(value(&knarr_metrics(leading).await?, &format!("etcd_network_active_peers{remote}")) == Some(1.0));
    cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_counted_by_status_code() -> Result<()> {
    let cluster = Cluster::start().await?;
    let member = &cluster.members[0];
    let labels = |service: &str, method: &str, kind: &str| {
        format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"}}")
    };
    let started = |of: &str| format!("grpc_server_started_total{{{of}");
    let handled = |code: &str, of: &str| format!("grpc_server_handled_total{{grpc_code=\"{code}\",{of}");
    let puts = labels("etcdserverpb.KV", "Put", "unary");
    let observations = labels("v3electionpb.Election", "Observe", "server_stream");
    let page = knarr_metrics(member).await?;
    ensure!(value(&page, &started(&puts)) == Some(0.0) && value(&page, &handled("OK", &puts)) == Some(0.0));

    member.kv().put(put()).await?;
    member.kv().put(put()).await?;
    ensure!(member.kv().put(pb::PutRequest::default()).await.is_err(), "a key is needed");
    // The request is complete, so only dropping the response can end the call.
    let observed = ElectionClient::new(member.channel.clone()).observe(LeaderRequest { name: "e".into() }).await?;
    let page = knarr_metrics(member).await?;
    ensure!(value(&page, &started(&puts)) == Some(3.0), "{page}");
    ensure!(value(&page, &handled("OK", &puts)) == Some(2.0), "{page}");
    ensure!(value(&page, &handled("InvalidArgument", &puts)) == Some(1.0), "{page}");
    ensure!(value(&page, &started(&observations)) == Some(1.0), "{page}");
    ensure!(value(&page, &handled("Canceled", &observations)).is_none(), "{page}");
    drop(observed);
    let counted = async {
        while value(&knarr_metrics(member).await?, &handled("Canceled", &observations)) != Some(1.0) {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, counted).await.context("an abandoned stream is not counted as completed")??;
    cluster.stop().await;
    Ok(())
}
