//! Descriptions of objects for people: `kubectl describe`.
//!
//! A kind is a row of [`KINDS`]: the version to read, the related queries, the events to show, and a pure
//! function that writes the text. Objects of other kinds have a generic form.

mod autoscaling;
mod batch;
mod certificates;
pub mod clock;
pub mod common;
mod config;
mod containers;
mod fetch;
mod generic;
mod networking;
mod node;
mod pod;
mod policy;
pub mod query;
mod rbac;
pub mod read;
mod service;
mod storage;
mod volumes;
pub mod workloads;
pub mod writer;

#[cfg(test)]
mod tests;

use apimachinery::{Resource, Value};

pub use clock::Clock;
pub use fetch::{Error, Settings, describe};
use query::{Events, Query};
use writer::Writer;

/// The result of writing a description; the error is a message for the user.
pub type WriteResult = Result<(), String>;

/// The description of a kind.
pub struct Kind {
    /// The resource in the version that the description reads.
    pub resource: Resource,
    /// The same resource in an older version, for servers that lack the newer one.
    pub older: Option<Resource>,
    pub events: Events,
    /// Returns the queries for related objects.
    pub related: fn(&Value) -> Result<Vec<Query>, String>,
    pub render: fn(&mut Writer<'_>, &Value, &RelatedObjects) -> WriteResult,
}

/// The results of the queries for related objects.
#[derive(Debug, Default)]
pub struct RelatedObjects {
    /// The response to each query, or the message of a tolerated failure.
    pub responses: Vec<(Query, Result<Vec<Value>, String>)>,
    /// The events; `None` if they are not to be shown.
    pub events: Option<Vec<Value>>,
}

impl RelatedObjects {
    /// Returns the objects of the only query for a resource.
    pub fn list(&self, resource: &Resource) -> Result<&[Value], &str> {
        let response = self.responses.iter().find(|(query, _)| query.resource == resource);
        response.map_or(Ok(&[]), |(_, response)| response.as_deref().map_err(String::as_str))
    }

    /// Returns the objects of a query.
    pub fn response(&self, query: &Query) -> Result<&[Value], &str> {
        let response = self.responses.iter().find(|(have, _)| have == query);
        response.map_or(Ok(&[]), |(_, response)| response.as_deref().map_err(String::as_str))
    }
}

/// Returns the description of an object. `kind` is `None` for the generic form.
pub fn render(kind: Option<&Kind>, object: &Value, related: &RelatedObjects, clock: &Clock) -> Result<String, String> {
    let mut writer = Writer::new(clock);
    match kind {
        Some(kind) => (kind.render)(&mut writer, object, related)?,
        None => generic::render(&mut writer, object),
    }
    if let Some(events) = &related.events {
        common::events(&mut writer, events);
    }
    Ok(writer.finish())
}

/// Returns the description of a pod template, without aligned columns.
pub fn template(template: &Value) -> String {
    let clock = Clock::system();
    let mut writer = Writer::new(&clock);
    pod::write_template(&mut writer, template);
    writer.into_unaligned()
}

/// Returns the row of a kind.
pub fn find(group: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|row| row.resource.group == group && row.resource.kind == kind)
}

const fn no_queries(_: &Value) -> Result<Vec<Query>, String> {
    Ok(Vec::new())
}

/// Writes a row: scope, group, version, plural, kind; then events, related queries and the render function.
macro_rules! row {
    ($scope:ident $group:literal $version:literal $plural:literal $kind:literal, $events:ident, $related:expr, $render:expr) => {
        row!($scope $group $version $plural $kind, $events, $related, $render, None)
    };
    ($scope:ident $group:literal $version:literal $plural:literal $kind:literal, $events:ident, $related:expr, $render:expr, $older:expr) => {
        Kind {
            resource: Resource::$scope($group, $version, $plural, $kind),
            older: $older,
            events: Events::$events,
            related: $related,
            render: $render,
        }
    };
}

#[rustfmt::skip]
pub static KINDS: [Kind; 36] = [
    row!(namespaced "" "v1" "pods" "Pod", Pod, no_queries, pod::pod),
    row!(namespaced "" "v1" "replicationcontrollers" "ReplicationController", Object, workloads::controller_queries, workloads::controller),
    row!(namespaced "" "v1" "secrets" "Secret", None, no_queries, config::secret),
    row!(namespaced "" "v1" "services" "Service", Object, service::queries, service::service),
    row!(namespaced "" "v1" "serviceaccounts" "ServiceAccount", Object, no_queries, config::service_account),
    row!(cluster "" "v1" "nodes" "Node", Node, node::queries, node::node),
    row!(namespaced "" "v1" "limitranges" "LimitRange", None, no_queries, policy::limit_range),
    row!(namespaced "" "v1" "resourcequotas" "ResourceQuota", None, no_queries, policy::quota),
    row!(cluster "" "v1" "persistentvolumes" "PersistentVolume", Object, no_queries, storage::volume),
    row!(namespaced "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim", Object, storage::claim_queries, storage::claim),
    row!(cluster "" "v1" "namespaces" "Namespace", None, policy::namespace_queries, policy::namespace),
    row!(namespaced "" "v1" "endpoints" "Endpoints", Object, no_queries, service::endpoints),
    row!(namespaced "" "v1" "configmaps" "ConfigMap", Required, no_queries, config::config_map),
    row!(namespaced "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice", Object, no_queries, service::endpoint_slice),
    row!(namespaced "autoscaling" "v2" "horizontalpodautoscalers" "HorizontalPodAutoscaler", Object, no_queries, autoscaling::autoscaler,
        Some(Resource::namespaced("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"))),
    row!(namespaced "networking.k8s.io" "v1" "ingresses" "Ingress", Object, networking::ingress_queries, networking::ingress),
    row!(cluster "networking.k8s.io" "v1" "ingressclasses" "IngressClass", Object, no_queries, networking::ingress_class),
    row!(cluster "networking.k8s.io" "v1" "servicecidrs" "ServiceCIDR", Object, no_queries, networking::service_cidr,
        Some(Resource::cluster("networking.k8s.io", "v1beta1", "servicecidrs", "ServiceCIDR"))),
    row!(cluster "networking.k8s.io" "v1" "ipaddresses" "IPAddress", Object, no_queries, networking::ip_address,
        Some(Resource::cluster("networking.k8s.io", "v1beta1", "ipaddresses", "IPAddress"))),
    row!(namespaced "networking.k8s.io" "v1" "networkpolicies" "NetworkPolicy", None, no_queries, networking::network_policy),
    row!(namespaced "batch" "v1" "jobs" "Job", Object, no_queries, batch::job),
    row!(namespaced "batch" "v1" "cronjobs" "CronJob", Object, no_queries, batch::cron_job),
    row!(namespaced "apps" "v1" "statefulsets" "StatefulSet", Object, workloads::pod_queries, workloads::stateful_set),
    row!(namespaced "apps" "v1" "deployments" "Deployment", Object, workloads::deployment_queries, workloads::deployment),
    row!(namespaced "apps" "v1" "daemonsets" "DaemonSet", Object, workloads::pod_queries, workloads::daemon_set),
    row!(namespaced "apps" "v1" "replicasets" "ReplicaSet", Object, workloads::replica_set_queries, workloads::replica_set),
    row!(cluster "certificates.k8s.io" "v1" "certificatesigningrequests" "CertificateSigningRequest", Object, no_queries, certificates::request),
    row!(cluster "storage.k8s.io" "v1" "storageclasses" "StorageClass", Object, no_queries, storage::class_description),
    row!(cluster "storage.k8s.io" "v1" "csinodes" "CSINode", Object, no_queries, storage::csi_node),
    row!(cluster "storage.k8s.io" "v1" "volumeattributesclasses" "VolumeAttributesClass", Object, no_queries, storage::attributes_class),
    row!(namespaced "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget", Object, no_queries, policy::disruption_budget),
    row!(namespaced "rbac.authorization.k8s.io" "v1" "roles" "Role", None, no_queries, rbac::role),
    row!(cluster "rbac.authorization.k8s.io" "v1" "clusterroles" "ClusterRole", None, no_queries, rbac::role),
    row!(namespaced "rbac.authorization.k8s.io" "v1" "rolebindings" "RoleBinding", None, no_queries, rbac::binding),
    row!(cluster "rbac.authorization.k8s.io" "v1" "clusterrolebindings" "ClusterRoleBinding", None, no_queries, rbac::binding),
    row!(cluster "scheduling.k8s.io" "v1" "priorityclasses" "PriorityClass", Object, no_queries, policy::priority_class),
];
