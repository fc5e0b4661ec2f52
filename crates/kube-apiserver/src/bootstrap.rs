//! Bootstrap objects: namespaces, default RBAC, priority classes and the Service `kubernetes`. Existing objects are
//! unchanged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use api::core::service::allocation::RandomSource;
use api::kind::{Context, Requester};
use api_registry::decode;
use api_registry::strategy;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Object, Value, value};

use crate::startup::Step;
use crate::state::{State, generate_ids, now};
use crate::{allocations, endpoint_lease, storage};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Creates the missing objects. Retries until the store accepts them.
pub async fn run(state: &State) {
    while let Err(status) = make_all(state).await {
        tracing::warn!(message = %status.message, "failed to create the bootstrap objects; retrying");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn make_all(state: &State) -> Result<(), Status> {
    state.catch_up().await?;
    for name in NAMESPACES {
        make(state, namespace(name)).await?;
    }
    state.startup.complete(Step::Namespaces);
    for object in auth::rbac::bootstrap::objects() {
        make(state, object).await?;
    }
    state.startup.complete(Step::Roles);
    for object in priority_classes() {
        make(state, object).await?;
    }
    state.startup.complete(Step::PriorityClasses);
    for object in flowcontrol::bootstrap::objects() {
        make(state, object).await?;
    }
    state.startup.complete(Step::FlowControlObjects);
    make(state, service_cidr(state)).await?;
    state.startup.complete(Step::ServiceCidr);
    make(state, own_service(state)).await?;
    if let Some(own) = state.advertised {
        endpoint_lease::start(state, own).await?;
    }
    state.startup.complete(Step::OwnService);
    Ok(())
}

/// Creates an object unless an object of that name exists.
pub async fn make(state: &State, object: Value) -> Result<(), Status> {
    let gvk = GroupVersionKind::of_object(&object).map_err(Status::internal_error)?;
    let table = state.table();
    let kind = table.kinds.iter().find(|kind| kind.group == gvk.group && kind.kind == gvk.kind);
    let kind = kind.ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let version = kind.version(&gvk.version).ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let meta = Meta::of(&object);
    let (namespace, name) = (meta.namespace().to_owned(), meta.name().to_owned());
    let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    if state.cache.kind_cache(kind).get(&key).is_some() {
        return Ok(());
    }
    let mut object = decode::again(object, kind, version, FieldValidation::Ignore)?.object;
    let requester = Requester { name: "system:apiserver".into(), ..Requester::default() };
    let context = Context { version, subresource: "", now: now(), requester: &requester };
    let target = strategy::Target {
        kind,
        version,
        namespace: &namespace,
        name: &name,
        subresource: "",
        manager: "kube-apiserver",
    };
    object = strategy::own(&target, None, object, context.now);
    let claims = allocations::plan(state, kind, &mut object, None, RandomSource::Seed(allocations::seed()))?;
    strategy::create(kind, &mut object, &generate_ids(), &context)?;
    let key = state.layout.key(kind, &namespace, &name);
    let mut txn = storage::create(key, storage::encode(&object));
    allocations::join(state, &mut txn, &claims, &object);
    // A conflict is harmless: another API server created the object.
    state.submit(txn).await.map(drop)
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
fn service_cidr(state: &State) -> Value {
    let cidrs = state.ranges.ranges.iter().map(|(address, bits)| Value::from(format!("{address}/{bits}")));
    value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": (Value::Array(cidrs.collect()))},
    })
}

/// Returns the Service `kubernetes`, with the first address of the service range.
fn own_service(state: &State) -> Value {
    let first = state.ranges.ranges.first().map(|(address, _)| next(*address)).unwrap_or_default();
    let port = state.external_address.rsplit_once(':').and_then(|(_, port)| port.parse::<i64>().ok()).unwrap_or(6443);
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
