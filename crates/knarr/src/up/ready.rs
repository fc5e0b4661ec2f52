//! Whether a cluster can be used: asked of the cluster itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use ::store::client::{Members, Remote};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use client::config::Kubeconfig;
use client::{Client, Event, Settings, Target, WatchOptions};
use http::Request;
use machinery::{Resource, Value};
use tokio::net::UdpSocket;

use super::plan::{Layout, Store};
use super::{Options, addons};

/// After how long a start has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Other members of the store may take their time to come.
const MEMBER_PATIENCE: Duration = Duration::from_secs(600);
/// How often a member of the store is asked.
const MEMBER_LOOK: Duration = Duration::from_millis(50);
/// The server is asked again after so long: it cannot be watched before it answers.
const LOOK: Duration = Duration::from_millis(5);
/// How long an answer is waited for that may never come.
const ANSWER: Duration = Duration::from_millis(500);

/// Something that is waited for.
type Wait = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A client that may do everything.
pub fn admin(layout: &Layout) -> Result<Client> {
    let config = Kubeconfig::load(&[layout.kubeconfig("admin")])?.config(None)?;
    Ok(Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// The API server answers, and what a cluster starts with is there.
pub async fn server(layout: &Layout) -> Result<()> {
    let client = admin(layout)?;
    let ready = async {
        loop {
            let answer = client.raw(Request::get("/readyz").body(Bytes::new())?).await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.context("the API server does not become ready")?
}

/// The store's member of this machine takes part: it reads what the others agreed on, and has a vote.
pub async fn member(options: &Options, layout: &Layout) -> Result<()> {
    let Store::Member { via, .. } = &options.store else { return Ok(()) };
    let own = ::store::client::Client::Remote(Box::new(Remote::new(&layout.store_at("127.0.0.1"))?));
    let others = via.as_ref().map(|host| Members::new(&layout.store_at(host))).transpose()?;
    let takes_part = async {
        loop {
            let has_vote = match &others {
                Some(others) => has_vote(others, layout).await,
                None => true,
            };
            if has_vote && own.revision().await.is_ok() {
                return;
            }
            tokio::time::sleep(MEMBER_LOOK).await;
        }
    };
    tokio::time::timeout(MEMBER_PATIENCE, takes_part).await.context(
        "the store does not become ready: a majority of its members must run, see `knarr members` on another server",
    )
}

/// Whether the member of this machine has a vote; one that has none is given it as soon as it has caught up.
async fn has_vote(others: &Members, layout: &Layout) -> bool {
    let url = layout.peer_url();
    let Ok(Ok(members)) = tokio::time::timeout(ANSWER, others.list()).await else {
        // Whoever took it in is not there now, so that was long ago.
        return true;
    };
    let learner = members.iter().find(|member| member.learner && member.peer_urls.contains(&url));
    match learner {
        Some(member) => others.promote(member.id).await.is_ok(),
        None => true,
    }
}

/// The rest, in the order in which it is waited for.
pub fn rest(options: &Options, layout: &Layout, nodes: &[String]) -> Vec<(&'static str, Wait)> {
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
    tokio::time::timeout(PATIENCE, wait).await.context("the default service account is not made")?
}

/// A node of this name is ready, as a client sees it.
pub async fn node_as(client: Client, node: String) -> Result<()> {
    let is_ready = |object: &Value| {
        let conditions = object.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
        let ready = |condition: &Value| {
            condition.str_at(&["type"]) == Some("Ready") && condition.str_at(&["status"]) == Some("True")
        };
        conditions.iter().any(ready)
    };
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let wait = seen(client, Target::all(&nodes), &node, is_ready);
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.with_context(|| format!("node {node} does not become ready; see the log"))?
}

/// The DNS server of this machine knows the API server's name.
pub async fn dns(layout: &Layout) -> Result<()> {
    let server = SocketAddr::new(layout.address, layout.dns_port);
    let answered = async {
        loop {
            if matches!(tokio::time::timeout(ANSWER, asked(server)).await, Ok(Ok(true))) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.context("the DNS server does not answer; see the log")
}

/// Whether a DNS server answers a question with something.
async fn asked(server: SocketAddr) -> std::io::Result<bool> {
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(server).await?;
    // Number 1, a plain question, one of it; an address of the Internet.
    let mut question = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["kubernetes", "default", "svc", "cluster", "local"] {
        question.push(u8::try_from(label.len()).expect("labels are short"));
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, if server.is_ipv4() { 1 } else { 28 }, 0, 1]);
    socket.send(&question).await?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).await?;
    let (code, answers) = (answer[3] & 15, u16::from_be_bytes([answer[6], answer[7]]));
    Ok(length > question.len() && answer[..2] == question[..2] && code == 0 && answers > 0)
}

/// Watches until an object is as it should be.
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
