//! The CSINode object: the CSI drivers of a node and the node ID of each.

use apimachinery::meta::Meta;
use apimachinery::{Object, Value, value};
use client::{Client, Error, Patch, Target, WriteOptions};
use controller::kinds;
use node_api::csi::NodeGetInfoResponse;

/// Adds a driver to the CSINode, and its topology labels to the Node.
pub(super) async fn add(client: &Client, node: &str, name: &str, about: &NodeGetInfoResponse) -> Result<(), Error> {
    let segments = about.accessible_topology.clone().unwrap_or_default().segments;
    if !segments.is_empty() {
        let labels: Object = segments.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let patch = Patch::Strategic(value!({"metadata": {"labels": labels}}));
        client.patch(&Target::named(&kinds::NODES, "", node), &patch, &WriteOptions::default()).await?;
    }
    let driver = driver(name, about);
    let target = Target::named(&kinds::CSI_NODES, "", node);
    let change = Patch::Strategic(value!({"spec": {"drivers": [(driver.clone())]}}));
    match client.patch(&target, &change, &WriteOptions::default()).await {
        Err(error) if error.is_not_found() => {}
        done => return done.map(drop),
    }
    let owner = client.get(&Target::named(&kinds::NODES, "", node)).await?;
    let object = value!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": node, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node, "uid": (Meta::of(&owner).uid())}]},
        "spec": {"drivers": [driver]}});
    match client.create(&Target::all(&kinds::CSI_NODES), &object, &WriteOptions::default()).await {
        // Another driver created the object concurrently.
        Err(error) if error.is_already_exists() => {
            client.patch(&target, &change, &WriteOptions::default()).await.map(drop)
        }
        done => done.map(drop),
    }
}

/// Removes a driver from the CSINode.
pub(super) async fn remove(client: &Client, node: &str, name: &str) -> Result<(), Error> {
    let patch = Patch::Strategic(value!({"spec": {"drivers": [{"$patch": "delete", "name": name}]}}));
    match client.patch(&Target::named(&kinds::CSI_NODES, "", node), &patch, &WriteOptions::default()).await {
        Err(error) if error.is_not_found() => Ok(()),
        done => done.map(drop),
    }
}

fn driver(name: &str, about: &NodeGetInfoResponse) -> Value {
    let mut keys: Vec<String> = about.accessible_topology.clone().unwrap_or_default().segments.into_keys().collect();
    keys.sort();
    let keys: Vec<Value> = keys.into_iter().map(Value::from).collect();
    let mut driver = Object::new();
    driver.insert("name", name);
    driver.insert("nodeID", about.node_id.as_str());
    driver.insert("topologyKeys", keys);
    if about.max_volumes_per_node > 0 {
        driver.insert("allocatable", value!({"count": (about.max_volumes_per_node)}));
    }
    Value::Object(driver)
}
