//! Objects that a cluster of ours has besides those of every cluster.

use anyhow::{Context, Result};
use client::{Patch, Target, WriteOptions};
use machinery::{Resource, Value, value};

use super::Options;
use super::plan::Layout;
use super::ready::admin;

/// Who set the fields of these objects.
const MANAGER: &str = "knarr";

/// Applies all of them: whoever changed one of our fields gets it back, other fields are theirs.
pub async fn apply(options: &Options, layout: &Layout) -> Result<()> {
    let client = admin(layout)?;
    for (resource, object) in objects(layout) {
        let meta = machinery::meta::Meta::of(&object);
        let target = Target::named(&resource, meta.namespace(), meta.name());
        let options = WriteOptions { field_manager: MANAGER.to_owned(), force: true, ..WriteOptions::default() };
        let name = meta.name().to_owned();
        client
            .patch(&target, &Patch::Apply(object.clone()), &options)
            .await
            .with_context(|| format!("apply {name}"))?;
    }
    for (resource, object) in initial(options) {
        let made = client.create(&Target::all(&resource), &object, &WriteOptions::default()).await;
        match made {
            Err(error) if !error.is_already_exists() => return Err(error).context("make the default StorageClass"),
            _ => {}
        }
    }
    Ok(())
}

/// Objects that are made once: whether they are the default, and whether they are at all, is the user's to change.
fn initial(options: &Options) -> Vec<(Resource, Value)> {
    if options.disable.iter().any(|part| part == "local-path") { Vec::new() } else { vec![local_path_class()] }
}

fn objects(layout: &Layout) -> Vec<(Resource, Value)> {
    let address = layout.dns_service.to_string();
    let port = i64::from(layout.dns_port);
    let family = if layout.address.is_ipv4() { "IPv4" } else { "IPv6" };
    let mut objects = Vec::from(role("knarr:dns", rules_of_dns()));
    objects.extend(role("knarr:network", rules_of_network()));
    objects.extend(role("knarr:local-path", rules_of_local_path()));
    objects.extend([
        (
            Resource::namespaced("", "v1", "services", "Service"),
            value!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "kube-dns",
                    "namespace": "kube-system",
                    "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
                },
                "spec": {
                    "clusterIP": address,
                    "ports": [
                        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": port},
                        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": port},
                    ],
                },
            }),
        ),
        (
            Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
            value!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": (format!("kube-dns-{}", layout.node_name)),
                    "namespace": "kube-system",
                    "labels": {
                        "kubernetes.io/service-name": "kube-dns",
                        "endpointslice.kubernetes.io/managed-by": MANAGER,
                    },
                },
                "addressType": family,
                "endpoints": [{
                    "addresses": [(layout.address.to_string())],
                    "nodeName": (layout.node_name.clone()),
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                }],
                "ports": [
                    {"name": "dns", "port": port, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": port, "protocol": "TCP"},
                ],
            }),
        ),
    ]);
    objects
}

/// The class of claims that name none: a folder of the node that the first pod goes to.
fn local_path_class() -> (Resource, Value) {
    let class = value!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local-path", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": (controllers::local_path::PROVISIONER),
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    (Resource::cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass"), class)
}

/// A role that one user has.
fn role(name: &str, rules: Value) -> [(Resource, Value); 2] {
    let rbac = |plural, kind| Resource::cluster("rbac.authorization.k8s.io", "v1", plural, kind);
    [
        (
            rbac("clusterroles", "ClusterRole"),
            value!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": name},
                "rules": rules,
            }),
        ),
        (
            rbac("clusterrolebindings", "ClusterRoleBinding"),
            value!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
            }),
        ),
    ]
}

fn rules_of_dns() -> Value {
    value!([
        {
            "apiGroups": [""],
            "resources": ["services", "namespaces", "pods", "nodes"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ])
}

fn rules_of_local_path() -> Value {
    value!([
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["persistentvolumes"],
            "verbs": ["get", "list", "watch", "create", "update", "delete"],
        },
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ])
}

fn rules_of_network() -> Value {
    value!([
        {
            "apiGroups": [""],
            "resources": ["namespaces", "pods", "nodes", "services"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        },
    ])
}
