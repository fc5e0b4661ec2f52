//! Bootstrap objects: namespaces, default RBAC, priority classes and the Service `kubernetes`. Existing objects are
//! unchanged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use apimachinery::status::Status;
use apimachinery::{Object, Value, value};

use crate::endpoint_lease;
use crate::own_objects::create_missing;
use crate::startup::{Startup, Step};
use crate::storage::Storage;

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// The addresses of this server in the bootstrap objects.
pub struct ServerAddress {
    /// The address for clients outside the cluster.
    pub external: String,
    /// The address in the endpoints of the Service `kubernetes`, if the server is advertised.
    pub advertised: Option<SocketAddr>,
}

/// Creates the missing objects. Retries until the store accepts them.
pub async fn run(storage: &Storage, startup: &Startup, server: &ServerAddress) {
    while let Err(status) = create_all(storage, startup, server).await {
        tracing::warn!(message = %status.message, "failed to create the bootstrap objects; retrying");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn create_all(storage: &Storage, startup: &Startup, server: &ServerAddress) -> Result<(), Status> {
    storage.catch_up().await?;
    for name in NAMESPACES {
        create_missing(storage, namespace(name)).await?;
    }
    startup.complete(Step::Namespaces);
    for object in auth::rbac::bootstrap::objects() {
        create_missing(storage, object).await?;
    }
    startup.complete(Step::Roles);
    for object in priority_classes() {
        create_missing(storage, object).await?;
    }
    startup.complete(Step::PriorityClasses);
    for object in flowcontrol::bootstrap::objects() {
        create_missing(storage, object).await?;
    }
    startup.complete(Step::FlowControlObjects);
    create_missing(storage, service_cidr(storage)).await?;
    startup.complete(Step::ServiceCidr);
    create_missing(storage, own_service(storage, &server.external)).await?;
    if let Some(own) = server.advertised {
        endpoint_lease::start(storage, own).await?;
    }
    startup.complete(Step::OwnService);
    Ok(())
}

/// Returns the two system PriorityClasses.
fn priority_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| {
        value!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        })
    };
    [
        class("system-node-critical", 2_000_001_000, "For pods that the system needs on the very node they run on."),
        class("system-cluster-critical", 2_000_000_000, "For pods that the system needs, on whatever node."),
    ]
}

/// Returns the default ServiceCIDR object.
fn service_cidr(storage: &Storage) -> Value {
    let cidrs = storage.ranges.ranges.iter().map(|(address, bits)| Value::from(format!("{address}/{bits}")));
    value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": (Value::Array(cidrs.collect()))},
    })
}

/// Returns the Service `kubernetes`, with the first address of the service range.
fn own_service(storage: &Storage, external_address: &str) -> Value {
    let first = storage.ranges.ranges.first().map(|(address, _)| next(*address)).unwrap_or_default();
    let port = external_address.rsplit_once(':').and_then(|(_, port)| port.parse::<i64>().ok()).unwrap_or(6443);
    value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": first,
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    })
}

/// Returns the address after `address`, the base address of a range.
fn next(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address).saturating_add(1)).to_string(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address).saturating_add(1)).to_string(),
    }
}

fn namespace(name: &str) -> Value {
    let mut metadata = Object::new();
    metadata.insert("name", name);
    let mut namespace = Object::new();
    namespace.insert("apiVersion", "v1");
    namespace.insert("kind", "Namespace");
    namespace.insert("metadata", Value::Object(metadata));
    Value::Object(namespace)
}
