//! Objects of the Gateway API: its CustomResourceDefinitions and the default GatewayClass.

use std::time::Duration;

use anyhow::{Context, Result};
use apimachinery::meta::Meta;
use apimachinery::{Resource, Value, value};
use client::{Client, DeleteOptions, Event, Target, WatchOptions, WriteOptions};
use ingress::crds;
use ingress::plan::CLASS;
use ingress::plan::gateway::CONTROLLER;

use super::super::Options;
use super::{MANAGER, put};

/// Label of objects that Knarr made.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Time until the API server serves a new kind.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);
/// Interval of attempts to create an object of a kind that is not served yet.
const RETRY: Duration = Duration::from_millis(20);

static CRDS: Resource =
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");
static CLASSES: Resource = Resource::cluster("gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass");

/// Installs the definitions and the GatewayClass. Definitions that Knarr did not make are kept: they may be of a later
/// release.
pub(super) async fn install(client: &Client) -> Result<()> {
    for mut definition in crds::gateway_api() {
        if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("labels", value!({"app.kubernetes.io/managed-by": MANAGER}));
        }
        let name = Meta::of(&definition).name().to_owned();
        match client.get(&Target::named(&CRDS, "", &name)).await {
            Ok(found) if is_current(&found) => {}
            Ok(_) => put(client, &CRDS, definition).await?,
            Err(error) if error.is_not_found() => put(client, &CRDS, definition).await?,
            Err(error) => return Err(error).with_context(|| format!("failed to read the definition {name}")),
        }
    }
    let created = async {
        established(client).await?;
        create_class(client).await
    };
    tokio::time::timeout(ESTABLISHED_WITHIN, created).await.context("the API server does not serve GatewayClasses")?
}

/// Creates the default GatewayClass.
async fn create_class(client: &Client) -> Result<()> {
    loop {
        match client.create(&Target::all(&CLASSES), &class(), &WriteOptions::default()).await {
            // The condition of the definition is visible a moment before the API server serves the kind.
            Err(error) if error.is_not_found() => tokio::time::sleep(RETRY).await,
            Err(error) if !error.is_already_exists() => {
                return Err(error).context("failed to create the default GatewayClass");
            }
            _ => return Ok(()),
        }
    }
}

/// Deletes the GatewayClass of a disabled ingress controller. The definitions stay, and with them the objects of users.
pub(super) async fn delete_if_disabled(client: &Client, options: &Options) -> Result<()> {
    if !super::ingress::is_disabled(options) {
        return Ok(());
    }
    let target = Target::named(&CLASSES, "", CLASS);
    let removed = match client.get(&target).await {
        Ok(found) if Meta::of(&found).label(MANAGED_BY) == Some(MANAGER) => {
            client.delete(&target, &DeleteOptions::default()).await.map(drop)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if !error.is_not_found() => Err(error).context("failed to delete the GatewayClass"),
        _ => Ok(()),
    }
}

/// Whether a definition needs no update: it has this release, or Knarr did not make it.
fn is_current(found: &Value) -> bool {
    let meta = Meta::of(found);
    meta.label(MANAGED_BY) != Some(MANAGER) || meta.annotation(crds::VERSION_ANNOTATION) == Some(crds::VERSION)
}

/// Waits until the definition of GatewayClasses is established.
async fn established(client: &Client) -> Result<()> {
    let name = format!("{}.{}", CLASSES.plural, CLASSES.group);
    let options = WatchOptions { field_selector: format!("metadata.name={name}"), ..WatchOptions::default() };
    let mut watch = client.watch(&Target::all(&CRDS), &options).await?;
    while let Some(event) = watch.next().await {
        match event? {
            Event::Added(definition) | Event::Modified(definition) if is_established(&definition) => return Ok(()),
            _ => {}
        }
    }
    anyhow::bail!("the watch of {name} ended")
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.str_at(&["type"]) == Some("Established") && condition.str_at(&["status"]) == Some("True")
    })
}

fn class() -> Value {
    value!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": CLASS, "labels": {"app.kubernetes.io/managed-by": MANAGER}},
        "spec": {"controllerName": CONTROLLER},
    })
}
