//! Addon objects that every Knarr cluster has in addition to upstream's bootstrap objects.

mod gateway;
mod ingress;
mod manifests;
mod metrics;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use apimachinery::{Resource, Value, value};
use auth::node::component;
use client::{Client, DeleteOptions, Patch, Target, WriteOptions};

use super::Options;
use super::plan::{INGRESS, KUBELET_CLIENT_USER, Layout};
use super::ready::admin;
use crate::join::{self, CONFIG_MAPS, GROUP, Network, SERVERS, SETTINGS, SHARED};

/// Field manager of these objects.
const MANAGER: &str = "knarr";

/// Applies all objects. Server-side apply restores our fields and keeps other managers' fields.
pub(crate) async fn apply(options: &Options, layout: &Layout) -> Result<()> {
    let client = admin(layout)?;
    metrics::delete_if_disabled(&client, options).await?;
    ingress::delete_if_disabled(&client, options).await?;
    gateway::delete_if_disabled(&client, options).await?;
    let objects = objects(options, layout)?.into_iter().chain(metrics::objects(options, layout)?);
    for (resource, object) in objects.chain(ingress::objects(options)).chain(manifests::objects(options)) {
        put(&client, &resource, object).await?;
    }
    for (resource, object) in initial(options) {
        let made = client.create(&Target::all(&resource), &object, &WriteOptions::default()).await;
        match made {
            Err(error) if !error.is_already_exists() => {
                return Err(error).with_context(|| format!("failed to create the default {}", resource.kind));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Installs the Gateway API unless the ingress controller is disabled. This takes longer than [`apply`], so it runs while
/// the other components start.
pub(crate) async fn apply_gateway_api(options: Options, layout: Layout) -> Result<()> {
    match ingress::is_disabled(&options) {
        true => Ok(()),
        false => gateway::install(&admin(&layout)?).await,
    }
}

/// Returns objects that are created once. Users may change or delete them.
fn initial(options: &Options) -> Vec<(Resource, Value)> {
    let is_on = |part: &str| !options.disable.iter().any(|disabled| disabled == part);
    let classes = [("local-path", local_path_class()), (INGRESS, ingress::class())];
    classes.into_iter().filter(|(part, _)| is_on(part)).map(|(_, class)| class).collect()
}

fn objects(options: &Options, layout: &Layout) -> Result<Vec<(Resource, Value)>> {
    let mut objects = grants();
    // A server that joined got the settings from the cluster, and may have outdated ones.
    if !options.joined {
        objects.push((CONFIG_MAPS.clone(), settings(options)));
    }
    let ca = layout.pki().join("ca.crt");
    let ca = std::fs::read(&ca).with_context(|| format!("failed to read {}", ca.display()))?;
    let server = format!("https://{}", SocketAddr::new(layout.advertised, layout.port));
    objects.push((CONFIG_MAPS.clone(), join::cluster_info(&server, &ca)));
    objects.push((Resource::namespaced("", "v1", "services", "Service"), dns_service(layout)));
    Ok(objects)
}

/// Returns the ConfigMap with the network settings for agents.
fn settings(options: &Options) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SETTINGS, "namespace": "kube-system"},
        "data": (Network::of(options).data()),
    })
}

fn dns_service(layout: &Layout) -> Value {
    let port = i64::from(layout.dns_port);
    let addresses: Vec<String> = layout.dns_services.iter().map(ToString::to_string).collect();
    value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {
            "clusterIP": (addresses[0].as_str()),
            "clusterIPs": (Value::Array(addresses.iter().cloned().map(Value::from).collect())),
            "ipFamilyPolicy": (if addresses.len() > 1 { "RequireDualStack" } else { "SingleStack" }),
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": port},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": port},
            ],
        },
    })
}

/// Publishes the EndpointSlices of a node's DNS server. The Node owns them, and its pods prefer their own node's
/// server.
pub(crate) async fn publish_dns(client: &Client, layout: &Layout) -> Result<()> {
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let node = client.get(&Target::named(&nodes, "", &layout.node_name)).await.context("the node is not registered")?;
    let slices = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
    for family in [Family::Four, Family::Six] {
        let name = family.slice_of("kube-dns", &layout.node_name);
        match layout.addresses.iter().find(|address| Family::of(address) == family) {
            Some(address) => put(client, &slices, dns_slice(layout, &node, &name, address)).await?,
            // The node may have had an address of this family before.
            None => delete_if_exists(client, &Target::named(&slices, "kube-system", &name)).await?,
        }
    }
    Ok(())
}

/// Deletes an object if it exists. The object is read first, so that a client without the permission to delete does not
/// fail if the object does not exist.
async fn delete_if_exists(client: &Client, target: &Target<'_>) -> Result<()> {
    let removed = match client.get(target).await {
        Ok(_) => client.delete(target, &DeleteOptions::default()).await.map(drop),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if !error.is_not_found() => Err(error).context("failed to delete an outdated EndpointSlice"),
        _ => Ok(()),
    }
}

fn dns_slice(layout: &Layout, node: &Value, slice: &str, address: &IpAddr) -> Value {
    let (name, port) = (layout.node_name.as_str(), i64::from(layout.dns_port));
    value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice,
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": (apimachinery::meta::Meta::of(node).uid())},
            ],
        },
        "addressType": (Family::of(address).name()),
        "endpoints": [{
            "addresses": [(address.to_string())],
            "nodeName": name,
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hints": {"forNodes": [{"name": name}]},
        }],
        "ports": [
            {"name": "dns", "port": port, "protocol": "UDP"},
            {"name": "dns-tcp", "port": port, "protocol": "TCP"},
        ],
    })
}

/// IP family of an EndpointSlice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Four,
    Six,
}

impl Family {
    const fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::Four } else { Self::Six }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Four => "IPv4",
            Self::Six => "IPv6",
        }
    }

    /// Returns the name of a node's EndpointSlice. Each family has its own name, because a slice never changes its
    /// family.
    fn slice_of(self, service: &str, node: &str) -> String {
        match self {
            Self::Four => format!("{service}-{node}"),
            Self::Six => format!("{service}-{node}-ipv6"),
        }
    }
}

/// Applies one object with server-side apply, overriding conflicts.
async fn put(client: &Client, resource: &Resource, object: Value) -> Result<()> {
    let meta = apimachinery::meta::Meta::of(&object);
    let (namespace, name) = (meta.namespace().to_owned(), meta.name().to_owned());
    let options = WriteOptions { field_manager: MANAGER.to_owned(), force: true, ..WriteOptions::default() };
    let applied = client.patch(&Target::named(resource, &namespace, &name), &Patch::Apply(object), &options).await;
    applied.map(drop).with_context(|| format!("failed to apply {name}"))
}

/// Returns the default StorageClass: directories of the node of the first pod.
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

/// Returns RBAC objects in addition to upstream's bootstrap policy.
fn grants() -> Vec<(Resource, Value)> {
    let user = |name: &str| value!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let group = |name: &str| value!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let joining = || value!([(group(GROUP))]);
    let nodes = || value!([(group("system:nodes"))]);
    let joining_and_nodes = || value!([(group(GROUP)), (group("system:nodes"))]);
    let mut grants = Vec::new();
    // A group has the permissions of a component. NodeRestriction limits each user of it to the objects of its node.
    for (name, rules) in [
        (component::DNS, rules_of_dns()),
        (component::NETWORK, rules_of_network()),
        (component::LOCAL_PATH, rules_of_local_path()),
    ] {
        grants.extend(granted("", name, rules, value!([(group(name))])));
    }
    let (dns, network) = (component::DNS, component::NETWORK);
    grants.extend(granted("kube-system", dns, rules_of_dns_slices(), value!([(group(dns))])));
    grants.extend(granted("kube-node-lease", network, rules_of_network_leases(), value!([(group(network))])));
    grants.extend(granted("kube-system", "knarr:join", rules_of_map(SETTINGS), joining_and_nodes()));
    grants.extend(granted(
        "kube-public",
        "knarr:join",
        rules_of_map("cluster-info"),
        value!([(user("system:anonymous"))]),
    ));
    grants.extend(granted("kube-system", "knarr:join-servers", rules_of_shared(), value!([(group(SERVERS))])));
    grants.extend(granted("", "knarr:node-components", rules_of_requests(), nodes()));
    let approver = value!({"kind": "ServiceAccount", "name": "certificate-controller", "namespace": "kube-system"});
    grants.extend(granted("", "knarr:approve-node-components", rules_of_approval(), value!([approver])));
    // Upstream does not bind these roles by default: kubeadm or other installers do.
    for (role, subjects) in [
        ("system:node-bootstrapper", joining()),
        ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", joining()),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", nodes()),
        ("system:kubelet-api-admin", value!([(user(KUBELET_CLIENT_USER))])),
    ] {
        let name = format!("knarr:{}", role.rsplit(':').next().unwrap_or(role));
        grants.push(binding("", &name, "ClusterRole", role, subjects));
    }
    grants
}

/// Returns a role and its binding, in a namespace or cluster-wide if `namespace` is empty.
fn granted(namespace: &str, name: &str, rules: Value, subjects: Value) -> [(Resource, Value); 2] {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let role = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": (named(namespace, name)),
        "rules": rules,
    });
    [(rbac(namespace, kind), role), binding(namespace, name, kind, name, subjects)]
}

fn binding(namespace: &str, name: &str, role_kind: &str, role: &str, subjects: Value) -> (Resource, Value) {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let binding = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": (named(namespace, name)),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    });
    (rbac(namespace, kind), binding)
}

fn named(namespace: &str, name: &str) -> Value {
    if namespace.is_empty() { value!({"name": name}) } else { value!({"name": name, "namespace": namespace}) }
}

fn rbac(namespace: &str, kind: &'static str) -> Resource {
    let plural = match kind {
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ClusterRole" => "clusterroles",
        _ => "clusterrolebindings",
    };
    let make = if namespace.is_empty() { Resource::cluster } else { Resource::namespaced };
    make("rbac.authorization.k8s.io", "v1", plural, kind)
}

fn rules_of_map(name: &str) -> Value {
    value!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]}])
}

fn rules_of_shared() -> Value {
    value!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SHARED], "verbs": ["get"]}])
}

fn rules_of_approval() -> Value {
    value!([{
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"],
        "verbs": ["approve"],
    }])
}

fn rules_of_requests() -> Value {
    value!([{
        "apiGroups": ["certificates.k8s.io"],
        "resources": [
            "certificatesigningrequests/nodecomponentclient",
            "certificatesigningrequests/selfnodeserver",
        ],
        "verbs": ["create"],
    }])
}

fn rules_of_dns_slices() -> Value {
    value!([{
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "create", "update", "patch", "delete"],
    }])
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
    ])
}

fn rules_of_network_leases() -> Value {
    value!([{
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    }])
}
