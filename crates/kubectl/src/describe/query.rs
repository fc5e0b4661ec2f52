//! Queries for the events and related objects of a described object.

use apimachinery::{Resource, Str, Value};

use super::read::{Read, name, namespace};

/// A read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub resource: &'static Resource,
    /// Empty for all namespaces, or for a cluster-scoped resource.
    pub namespace: Str,
    /// Empty for a list.
    pub name: Str,
    pub label_selector: String,
    pub field_selector: String,
    pub tolerate: Tolerate,
}

/// The failures of a query that do not prevent the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerate {
    None,
    NotFound,
    Forbidden,
    All,
}

/// The events of an object that a description shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    None,
    Object,
    /// The events of the object, without which there is no description.
    Required,
    /// Events with any kind. A mirror pod has the events of its static pod.
    Pod,
    /// Events with the UID of the node, and events of the kubelet, which have its name as UID.
    Node,
}

pub static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
pub static EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");
pub static SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
pub static RESOURCE_QUOTAS: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");
pub static LIMIT_RANGES: Resource = Resource::namespaced("", "v1", "limitranges", "LimitRange");
pub static REPLICA_SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");
pub static LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
pub static ENDPOINT_SLICES: Resource =
    Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
pub static RESOURCE_SLICES: Resource = Resource::cluster("resource.k8s.io", "v1", "resourceslices", "ResourceSlice");

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

impl Query {
    pub fn list(resource: &'static Resource, namespace: &str) -> Self {
        Self {
            resource,
            namespace: namespace.into(),
            name: Str::default(),
            label_selector: String::new(),
            field_selector: String::new(),
            tolerate: Tolerate::None,
        }
    }

    pub fn get(resource: &'static Resource, namespace: &str, name: &str) -> Self {
        Self { name: name.into(), ..Self::list(resource, namespace) }
    }

    #[must_use]
    pub fn with_labels(self, label_selector: String) -> Self {
        Self { label_selector, ..self }
    }

    #[must_use]
    pub fn with_fields(self, field_selector: String) -> Self {
        Self { field_selector, ..self }
    }

    #[must_use]
    pub fn tolerating(self, tolerate: Tolerate) -> Self {
        Self { tolerate, ..self }
    }
}

impl Events {
    /// Returns the queries for the events of `object`.
    pub fn queries(self, object: &Value) -> Vec<Query> {
        let uid = object.text("metadata.uid");
        let (kind, uids) = match self {
            Self::None => return Vec::new(),
            Self::Object | Self::Required => (object.text("kind"), vec![uid]),
            Self::Pod => {
                let mirrored = object.map("metadata.annotations").get(MIRROR_ANNOTATION).and_then(Value::as_str);
                ("", vec![mirrored.unwrap_or(uid)])
            }
            Self::Node => (object.text("kind"), vec![uid, name(object)]),
        };
        let query = |uid: &str| {
            let mut fields = Vec::new();
            if !kind.is_empty() {
                fields.push(format!("involvedObject.kind={kind}"));
            }
            fields.push(format!("involvedObject.name={}", name(object)));
            fields.push(format!("involvedObject.namespace={}", namespace(object)));
            if !uid.is_empty() {
                fields.push(format!("involvedObject.uid={uid}"));
            }
            let list = Query::list(&EVENTS, namespace(object)).with_fields(fields.join(","));
            list.tolerating(if self == Self::Required { Tolerate::None } else { Tolerate::All })
        };
        uids.into_iter().map(query).collect()
    }
}
