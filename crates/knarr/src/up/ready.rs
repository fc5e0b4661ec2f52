//! Whether a cluster can be used: asked of the cluster itself.

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use client::config::Kubeconfig;
use client::{Client, Event, Settings, Target, WatchOptions};
use http::Request;
use machinery::{Resource, Value};

use super::Options;
use super::plan::Layout;

/// After how long a start has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server is asked again after so long: it cannot be watched before it answers.
const LOOK: Duration = Duration::from_millis(5);

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

/// The rest, in the order in which it is waited for.
pub fn rest(options: &Options, layout: &Layout) -> Vec<(&'static str, Wait)> {
    let on = |part: &str| !options.disable.iter().any(|disabled| disabled == part);
    let mut waits: Vec<(&'static str, Wait)> = Vec::new();
    if on("controller-manager") {
        let layout = layout.clone();
        waits.push(("default service account", Box::pin(async move { account(&layout).await })));
    }
    if on("kubelet") {
        let layout = layout.clone();
        waits.push(("node", Box::pin(async move { node(&layout).await })));
    }
    waits
}

async fn account(layout: &Layout) -> Result<()> {
    let accounts = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");
    let wait = seen(layout, Target::within(&accounts, "default"), |object| name(object) == "default");
    tokio::time::timeout(PATIENCE, wait).await.context("the default service account is not made")?
}

async fn node(layout: &Layout) -> Result<()> {
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let is_ready = |object: &Value| {
        let conditions = object.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
        let ready = |condition: &Value| {
            condition.str_at(&["type"]) == Some("Ready") && condition.str_at(&["status"]) == Some("True")
        };
        name(object) == layout.node_name && conditions.iter().any(ready)
    };
    let wait = seen(layout, Target::all(&nodes), is_ready);
    tokio::time::timeout(PATIENCE, wait).await.context("the node does not become ready; see the log")?
}

/// Watches until an object is as it should be.
async fn seen(layout: &Layout, target: Target<'_>, is_good: impl Fn(&Value) -> bool) -> Result<()> {
    let client = admin(layout)?;
    let mut watch = client.watch(&target, &WatchOptions::default()).await?;
    while let Some(event) = watch.next().await {
        match event? {
            Event::Added(object) | Event::Modified(object) if is_good(&object) => return Ok(()),
            _ => {}
        }
    }
    bail!("the watch ended")
}

fn name(object: &Value) -> &str {
    machinery::meta::Meta::of(object).name()
}
