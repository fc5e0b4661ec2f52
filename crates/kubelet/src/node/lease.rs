//! The heartbeat of a node: a lease renewed in a task of its own, so that nothing else can delay it.

use std::time::Duration;

use client::{Client, Error, Target, WriteOptions};
use driver::clock;
use machinery::meta::Meta;
use machinery::{Object, Value, value};
use reconcile::kinds;

const NAMESPACE: &str = "kube-node-lease";
/// After a failure the next attempt is not far.
const RETRY: Duration = Duration::from_secs(2);

/// Renews the lease of a node for ever, four times in its duration.
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
                tracing::warn!(node, error = %error, "the node's lease could not be renewed");
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
    let now = clock::now().micro().to_string();
    match current {
        Some(mut lease) => {
            let spec = lease.as_object_mut().map(|lease| lease.get_or_insert_with("spec", Value::object));
            if let Some(spec) = spec.and_then(Value::as_object_mut) {
                spec.insert("renewTime", now);
                spec.insert("holderIdentity", node);
                spec.insert("leaseDurationSeconds", seconds);
            }
            client.update(&target, &lease, &WriteOptions::default()).await
        }
        None => {
            let mut metadata: Object = [("name", node), ("namespace", NAMESPACE)].into_iter().collect();
            let owner = client.get(&Target::named(&kinds::NODES, "", node)).await;
            if let Ok(owner) = owner {
                let owner =
                    value!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": (Meta::of(&owner).uid())}]);
                metadata.insert("ownerReferences", owner);
            }
            let lease = value!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
                "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": now}});
            client.create(&Target::within(&kinds::LEASES, NAMESPACE), &lease, &WriteOptions::default()).await
        }
    }
}
