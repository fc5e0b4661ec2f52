//! Readiness of a starting cluster, as seen by its clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use ::store::client::{Member, Members, Remote};
use anyhow::{Context, Result, bail, ensure};
use api::view::Node;
use apimachinery::{Resource, Value};
use bytes::Bytes;
use client::config::Kubeconfig;
use client::{Client, Event, Settings, Target, WatchOptions};
use http::Request;
use kubelet::bootstrap::Purpose;
use tokio::net::UdpSocket;

use super::plan::{Layout, Store};
use super::{Options, addons};

/// Time limit of a start.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for a store member, whose peers may start later.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(600);
/// Time limit for the kubelet's serving certificate.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval of a store member.
const MEMBER_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polling interval of the API server, which cannot be watched before it responds.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of a single request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

type Wait = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Returns an admin client.
pub(crate) fn admin(layout: &Layout) -> Result<Client> {
    let config = Kubeconfig::load(&[layout.kubeconfig("admin")])?.config(None)?;
    Ok(Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// Waits until the API server responds and the bootstrap objects exist.
pub(crate) async fn server(layout: &Layout) -> Result<()> {
    let client = admin(layout)?;
    let ready = async {
        loop {
            let response = client.raw(Request::get("/readyz").body(Bytes::new())?).await;
            if response.is_ok_and(|response| response.status().is_success()) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, ready).await.context("the API server did not become ready")?
}

/// Checks that the API server responds. A store without a quorum is not a failure, because a restart would not help.
pub(crate) async fn is_alive(layout: &Layout) -> Result<()> {
    let response = admin(layout)?.raw(Request::get("/livez?exclude=etcd").body(Bytes::new())?).await?;
    ensure!(response.status().is_success(), "/livez of the API server returned {}", response.status());
    Ok(())
}

/// Waits until this host's store member is active: it serves linearizable reads, is a voter, and has its current peer
/// URL.
pub(crate) async fn member(options: &Options, layout: &Layout) -> Result<()> {
    let Store::Member { via, .. } = &options.store else { return Ok(()) };
    let here = layout.store_at("127.0.0.1");
    let own = ::store::client::Client::Remote(Box::new(Remote::new(&here)?));
    let own_members = Members::new(&here)?;
    let takes_part = async {
        loop {
            for host in others(&own_members, via.as_deref(), layout).await {
                // The member that added this one may be down. Then this member joined long ago.
                if let Ok(other) = Members::new(&layout.store_at(&host))
                    && is_in_order(&other, layout).await.is_some()
                {
                    break;
                }
            }
            let reads = tokio::time::timeout(REQUEST_TIMEOUT, own.revision()).await;
            if matches!(reads, Ok(Ok(_))) && is_in_order(&own_members, layout).await == Some(true) {
                return;
            }
            tokio::time::sleep(MEMBER_POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(MEMBER_TIMEOUT, takes_part).await.context(
        "the store did not become ready: a majority of its members must run; see `knarr members` on another server",
    )
}

/// Returns hosts of other members: the one that added this member, and those in its own member list. It may be unable
/// to reach them because they have its old address.
async fn others(own: &Members, via: Option<&str>, layout: &Layout) -> Vec<String> {
    let known = tokio::time::timeout(REQUEST_TIMEOUT, own.known()).await;
    let known = known.ok().and_then(Result::ok).unwrap_or_default();
    let others = known.into_iter().filter(|member| member.name != layout.node_name).flat_map(|it| it.client_urls);
    let hosts = others.filter_map(|url| url.parse::<http::Uri>().ok()?.host().map(str::to_owned));
    via.map(str::to_owned).into_iter().chain(hosts).collect()
}

/// Promotes this host's member when it has caught up, and updates its peer URL after an address change. Returns whether
/// neither is needed any more, or `None` if no member responds.
async fn is_in_order(members: &Members, layout: &Layout) -> Option<bool> {
    let url = layout.peer_url();
    let list = tokio::time::timeout(REQUEST_TIMEOUT, members.list()).await.ok()?.ok()?;
    Some(match own_member(&list, &layout.node_name, &url) {
        MemberState::Registered => true,
        MemberState::Learner(id) => members.promote(id).await.is_ok(),
        MemberState::OtherPeerUrl(id) => members.update(id, &[url]).await.is_ok(),
    })
}

/// State of a member according to the member list.
#[derive(Debug, PartialEq, Eq)]
enum MemberState {
    Registered,
    Learner(u64),
    /// The list has another peer URL.
    OtherPeerUrl(u64),
}

fn own_member(list: &[Member], name: &str, url: &String) -> MemberState {
    let here = list.iter().find(|member| member.peer_urls.contains(url));
    match (here, list.iter().find(|member| member.name == name)) {
        (Some(member), _) if member.learner => MemberState::Learner(member.id),
        (None, Some(member)) => MemberState::OtherPeerUrl(member.id),
        // A member without a name publishes itself.
        (Some(_), _) | (None, None) => MemberState::Registered,
    }
}

/// Returns the remaining waits in order, with their names.
pub(crate) fn rest(options: &Options, layout: &Layout, nodes: &[String]) -> Vec<(&'static str, Wait)> {
    let on = |part: &str| !options.disable.iter().any(|disabled| disabled == part);
    let mut waits: Vec<(&'static str, Wait)> = Vec::new();
    if on("controller-manager") {
        let layout = layout.clone();
        waits.push(("default service account", Box::pin(async move { account(&layout).await })));
    }
    if on("kubelet") {
        let layout = layout.clone();
        waits.push(("node", Box::pin(async move { node_as(admin(&layout)?, layout.node_name).await })));
    }
    if on("kubelet") && on("controller-manager") && expects_signed(options) {
        let layout = layout.clone();
        waits.push((
            "kubelet certificate",
            Box::pin(async move {
                serving_certificate(&layout).await;
                Ok(())
            }),
        ));
    }
    if on("kubelet") && on("dns") {
        let layout = layout.clone();
        waits.push((
            "DNS",
            Box::pin(async move {
                addons::publish_dns(&admin(&layout)?, &layout).await?;
                dns(&layout).await
            }),
        ));
    }
    if !nodes.is_empty() {
        let (layout, nodes) = (layout.clone(), nodes.to_vec());
        waits.push((
            "further nodes",
            Box::pin(async move {
                for name in nodes {
                    node_as(admin(&layout)?, name).await?;
                }
                Ok(())
            }),
        ));
    }
    waits
}

async fn account(layout: &Layout) -> Result<()> {
    let accounts = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");
    let wait = seen(admin(layout)?, Target::within(&accounts, "default"), "default", |_| true);
    tokio::time::timeout(TIMEOUT, wait).await.context("the default service account was not created")?
}

/// Waits until the node is ready.
pub(crate) async fn node_as(client: Client, node: String) -> Result<()> {
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let wait = seen(client, Target::all(&nodes), &node, |object| Node(object).is_ready());
    let waited = tokio::time::timeout(TIMEOUT, wait).await;
    waited.with_context(|| format!("node {node} did not become ready; see the log"))?
}

/// Whether the kubelet requests its serving certificate from the cluster, which it does unless one is configured.
pub(crate) fn expects_signed(options: &Options) -> bool {
    let mut own = options.own_flags.get("kubelet").into_iter().flatten();
    !own.any(|flag| flag.contains("tls-cert-file") || flag.contains("rotate-server-certificates"))
}

/// Waits until the kubelet's serving certificate is signed. Without it the API server rejects the kubelet: no logs, no
/// exec.
pub(crate) async fn serving_certificate(layout: &Layout) {
    let directory = layout.data_dir.join("kubelet").join("pki");
    let file = Purpose::Serving(Vec::new()).file(&directory);
    let signed = async {
        while !file.exists() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(SIGNING_TIMEOUT, signed).await.is_err() {
        tracing::warn!(
            "the kubelet's serving certificate was not signed, so logs and exec fail; see `kubectl get csr`"
        );
    }
}

/// Waits until this host's DNS server resolves the name of the API server.
pub(crate) async fn dns(layout: &Layout) -> Result<()> {
    let is_four = layout.first_services.first().is_none_or(IpAddr::is_ipv4);
    let resolved = async {
        for server in layout.dns_servers() {
            while !matches!(
                tokio::time::timeout(REQUEST_TIMEOUT, resolves_api_server(server, is_four)).await,
                Ok(Ok(true))
            ) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, resolved).await.context("the DNS server does not respond; see the log")
}

/// Whether a DNS server returns an address of an IP family for the API server's name.
async fn resolves_api_server(server: SocketAddr, is_four: bool) -> std::io::Result<bool> {
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(server).await?;
    // Header: ID 1, recursion desired, one question.
    let mut question = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["kubernetes", "default", "svc", "cluster", "local"] {
        question.push(u8::try_from(label.len()).expect("labels are short"));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, if is_four { 1 } else { 28 }, 0, 1]);
    socket.send(&question).await?;
    let mut response = [0; 512];
    let length = socket.recv(&mut response).await?;
    let (code, answers) = (response[3] & 15, u16::from_be_bytes([response[6], response[7]]));
    Ok(length > question.len() && response[..2] == question[..2] && code == 0 && answers > 0)
}

/// Watches until the object satisfies the condition.
async fn seen(client: Client, target: Target<'_>, called: &str, is_good: impl Fn(&Value) -> bool) -> Result<()> {
    let field_selector = format!("metadata.name={called}");
    let mut watch = client.watch(&target, &WatchOptions { field_selector, ..WatchOptions::default() }).await?;
    while let Some(event) = watch.next().await {
        match event? {
            Event::Added(object) | Event::Modified(object) if is_good(&object) => return Ok(()),
            _ => {}
        }
    }
    bail!("the watch ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learner_is_promoted_and_peer_url_is_updated() {
        let member = |id: u64, name: &str, url: &str, learner: bool| Member {
            id,
            name: name.to_owned(),
            peer_urls: vec![url.to_owned()],
            client_urls: Vec::new(),
            learner,
        };
        let check =
            |list: &[Member], expect: MemberState| assert_eq!(own_member(list, "a", &"here".to_owned()), expect);
        let other = member(2, "b", "there", false);
        check(&[other.clone(), member(1, "a", "here", false)], MemberState::Registered);
        check(&[other.clone(), member(1, "", "here", true)], MemberState::Learner(1));
        check(&[other.clone(), member(1, "a", "before", false)], MemberState::OtherPeerUrl(1));
        check(std::slice::from_ref(&other), MemberState::Registered);
        // Another host with the same name keeps its entry.
        check(&[member(2, "a", "there", false), member(1, "", "here", true)], MemberState::Learner(1));
    }
}
