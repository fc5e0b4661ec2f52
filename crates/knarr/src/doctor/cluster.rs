//! Doctor checks of the cluster that runs on this host.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use apimachinery::meta::Meta;
use apimachinery::{Resource, Value};
use client::{Client, ListOptions, Target};
use diagnostics::checkup::{Cluster, LastBackup};
use pki::{Pki, days_left};
use tokio::net::UdpSocket;

use crate::admin_client;
use crate::last_backup::Record;

/// Timeout of each request to a part of the cluster.
const TIMEOUT: Duration = Duration::from_secs(5);
const NAME: &[&str] = &["kubernetes", "default", "svc", "cluster", "local"];
/// Offsets in a DNS response: response code, answer count, start of the question section.
const CODE: usize = 3;
const ANSWER_COUNT: usize = 7;
const HEADER: usize = 12;

/// DNS record types A and AAAA, and the length of their data.
const KINDS: [(u8, usize); 2] = [(1, 4), (28, 16)];

/// Queries all parts of the cluster. A part that does not respond is reported as such.
pub(super) async fn observe(data_dir: &Path, process: u32) -> Cluster {
    let now = SystemTime::now();
    let certificates = Pki::at(&data_dir.join("pki")).list().unwrap_or_default();
    let mut cluster = Cluster {
        process,
        failed_checks: Err("not checked".to_owned()),
        nodes: Vec::new(),
        dns: None,
        certificates: certificates.into_iter().map(|(name, seen)| (name, days_left(seen.not_after, now))).collect(),
        store: Err("not checked".to_owned()),
        backup: Record::read(data_dir).as_ref().map(last_backup),
        manifests: Vec::new(),
    };
    let client = match admin_client::config(data_dir).and_then(|config| admin_client::admin(&config)) {
        Ok(client) => client,
        Err(error) => {
            cluster.failed_checks = Err(format!("{error:#}"));
            return cluster;
        }
    };
    cluster.failed_checks = within(admin_client::failed_checks(&client)).await;
    cluster.store = within(read(&client)).await;
    cluster.nodes = within(nodes(&client)).await.unwrap_or_default();
    cluster.manifests = within(manifest_problems(&client)).await.unwrap_or_default();
    cluster.dns = match within(server(&client)).await {
        Ok(Some(server)) => Some(within(resolve(server)).await),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    };
    cluster
}

fn last_backup(record: &Record) -> LastBackup {
    let age = component_base::clock::now().unix_seconds().saturating_sub(record.time.unix_seconds());
    LastBackup {
        file: record.file.display().to_string(),
        age_seconds: u64::try_from(age).unwrap_or_default(),
        every_seconds: record.every.map(|every| every.as_secs()),
    }
}

async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
    }
}

/// Reads an object without a resourceVersion, which needs a quorum of the store.
async fn read(client: &Client) -> Result<u64> {
    let namespaces = Resource::cluster("", "v1", "namespaces", "Namespace");
    let start = Instant::now();
    client.get(&Target::named(&namespaces, "", "kube-system")).await?;
    Ok(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
}

async fn nodes(client: &Client) -> Result<Vec<(String, bool)>> {
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let all = client.list_all(&Target::all(&nodes), &ListOptions::default()).await?.items;
    Ok(all.iter().map(|node| (Meta::of(node).name().to_owned(), admin_client::is_ready(node) == Some(true))).collect())
}

async fn manifest_problems(client: &Client) -> Result<Vec<(String, u64)>> {
    let problems = |report: Value| {
        let count = report.int_at(&["problemCount"]).unwrap_or_default();
        (report.text_at(&["directory"]).to_owned(), u64::try_from(count).unwrap_or_default())
    };
    Ok(manifests::reports(client).await?.into_iter().map(|(_, report)| problems(report)).collect())
}

/// Returns the address of the cluster's DNS server from the EndpointSlices of its Service.
async fn server(client: &Client) -> Result<Option<SocketAddr>> {
    let slices = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
    let options =
        ListOptions { label_selector: "kubernetes.io/service-name=kube-dns".to_owned(), ..ListOptions::default() };
    let all = client.list_all(&Target::within(&slices, "kube-system"), &options).await?.items;
    Ok(all.iter().find_map(endpoint))
}

fn endpoint(slice: &Value) -> Option<SocketAddr> {
    let ports = slice.get("ports")?.as_array()?;
    let port = ports.iter().find(|port| port.str_at(&["protocol"]) == Some("UDP"))?.get("port")?.as_int()?;
    let address = slice.get("endpoints")?.as_array()?.first()?.get("addresses")?.as_array()?.first()?;
    Some(SocketAddr::new(address.as_str()?.parse().ok()?, u16::try_from(port).ok()?))
}

async fn resolve(server: SocketAddr) -> Result<String> {
    let here: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((here, 0)).await?;
    socket.connect(server).await?;
    let mut last = Err(anyhow::anyhow!("no query was sent"));
    for (kind, length) in KINDS {
        let question = question(kind);
        socket.send(&question).await.with_context(|| format!("failed to send a query to {server}"))?;
        let mut response = [0; 512];
        let read = socket.recv(&mut response).await.with_context(|| format!("no response from {server}"))?;
        last = address(response.get(..read).unwrap_or_default(), question.len(), length);
        if last.is_ok() {
            break;
        }
    }
    Ok(format!("{}, resolved by {server}", last?))
}

/// Builds the query for the address of the `kubernetes` Service.
fn question(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0x4b, 0x4e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in NAME {
        bytes.push(u8::try_from(label.len()).expect("labels of a constant are short"));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend([0, 0, kind, 0, 1]);
    bytes
}

/// Returns the first address of a response. The answer section follows the question directly.
fn address(response: &[u8], question: usize, length: usize) -> Result<IpAddr> {
    ensure!(response.len() >= HEADER, "the response is too short");
    let code = response[CODE] & 0xf;
    if code != 0 || response[ANSWER_COUNT] == 0 {
        bail!("the name does not resolve (response code {code})");
    }
    // A compressed name that points into the question has two bytes; type, class, TTL and length have ten more.
    let record = response.get(question..).unwrap_or_default();
    let name = if record.first().is_some_and(|byte| byte & 0xc0 == 0xc0) { 2 } else { question - HEADER - 4 };
    let data = record.get(name + 10..name + 10 + length).context("the response has no address")?;
    Ok(match <[u8; 4]>::try_from(data) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(data)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_response_address_is_parsed_and_malformed_response_is_rejected() {
        for (kind, bytes) in KINDS {
            let question = question(kind);
            let mut response = question.clone();
            response[2] |= 0x80;
            response[ANSWER_COUNT] = 1;
            response.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 5, 0, u8::try_from(bytes).unwrap()]);
            response.extend((1..).take(bytes));
            let expect = if bytes == 4 { "1.2.3.4" } else { "102:304:506:708:90a:b0c:d0e:f10" };
            assert_eq!(address(&response, question.len(), bytes).unwrap().to_string(), expect);
            for length in 0..response.len() {
                assert!(address(&response[..length], question.len(), bytes).is_err());
            }
            response[CODE] |= 3;
            assert!(address(&response, question.len(), bytes).unwrap_err().to_string().contains("code 3"));
        }
    }
}
