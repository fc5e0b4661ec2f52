//! Node lease: the node's heartbeat, renewed in a separate task so that no other work delays it.

use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Value, value};
use client::{Client, Error, Target, WriteOptions};
use component_base::clock;
use controller::kinds;

const NAMESPACE: &str = "kube-node-lease";
/// Delay after a failed renewal.
const RETRY: Duration = Duration::from_secs(2);

/// Renews the lease of a node forever, four times per lease duration.
pub async fn keep(client: Client, node: String, seconds: i64) {
    let every = Duration::from_secs((seconds.max(4) / 4).unsigned_abs());
    let mut known: Option<Value> = None;
    loop {
        match renew(&client, &node, seconds, known.take()).await {
            Ok(lease) => {
                known = Some(lease);
                tokio::time::sleep(every).await;
            }
            Err(error) => {
                if error.is_not_found() {
                    tracing::debug!(node, "the lease is not created before the node is registered");
                } else {
                    tracing::warn!(node, error = %error, "failed to renew the node lease");
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn renew(client: &Client, node: &str, seconds: i64, known: Option<Value>) -> Result<Value, Error> {
    let target = Target::named(&kinds::LEASES, NAMESPACE, node);
    let current = match known {
        Some(lease) => Some(lease),
        None => match client.get(&target).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        },
    };
    let is_new = current.is_none();
    let mut lease = current.unwrap_or_else(|| {
        value!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node, "namespace": NAMESPACE}})
    });
    if Meta::of(&lease).owner_references().next().is_none() {
        match client.get(&Target::named(&kinds::NODES, "", node)).await {
            Ok(owner) => set_owner(&mut lease, &owner),
            // A lease without an owner would outlive its node, so it is created after the node.
            Err(error) if is_new => return Err(error),
            Err(error) => tracing::debug!(node, %error, "failed to get the node; the lease has no owner"),
        }
    }
    let spec = lease.as_object_mut().map(|lease| lease.get_or_insert_with("spec", Value::object));
    if let Some(spec) = spec.and_then(Value::as_object_mut) {
        spec.insert("renewTime", clock::now().micro().to_string());
        spec.insert("holderIdentity", node);
        spec.insert("leaseDurationSeconds", seconds);
    }
    match is_new {
        true => client.create(&Target::within(&kinds::LEASES, NAMESPACE), &lease, &WriteOptions::default()).await,
        false => client.update(&target, &lease, &WriteOptions::default()).await,
    }
}

/// Sets the Node as owner, so that the garbage collector deletes the lease with it.
fn set_owner(lease: &mut Value, node: &Value) {
    let meta = Meta::of(node);
    let owner = value!([{"apiVersion": "v1", "kind": "Node", "name": (meta.name()), "uid": (meta.uid())}]);
    if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences", owner);
    }
}
