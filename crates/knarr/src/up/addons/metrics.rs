//! Objects of the metrics server: APIService, Service, endpoints and RBAC.

use anyhow::{Context, Result};
use apimachinery::{Resource, Value, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, DeleteOptions, Target};

use super::super::Options;
use super::super::plan::{Layout, METRICS};
use super::{Family, MANAGER, granted};

static API_SERVICES: Resource = Resource::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
const API_SERVICE: &str = "v1beta1.metrics.k8s.io";

/// Returns all objects, or none if the metrics server is disabled.
pub(super) fn objects(options: &Options, layout: &Layout) -> Result<Vec<(Resource, Value)>> {
    if options.disable.iter().any(|part| part == METRICS) {
        return Ok(Vec::new());
    }
    let ca = layout.pki().join("ca.crt");
    let bundle = std::fs::read(&ca).with_context(|| format!("failed to read {}", ca.display()))?;
    let server = value!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "knarr:metrics"}]);
    let mut objects: Vec<(Resource, Value)> = granted("", "knarr:metrics", rules(), server).into_iter().collect();
    objects.extend([readers(), service(), endpoints(layout), registration(&STANDARD.encode(bundle))]);
    Ok(objects)
}

/// Deletes the APIService of a disabled metrics server. Otherwise discovery would list an unavailable group.
pub(super) async fn delete_if_disabled(client: &Client, options: &Options) -> Result<()> {
    if !options.disable.iter().any(|part| part == METRICS) {
        return Ok(());
    }
    let target = Target::named(&API_SERVICES, "", API_SERVICE);
    match client.get(&target).await {
        Ok(found) if found.str_at(&["metadata", "labels", "app.kubernetes.io/managed-by"]) == Some(MANAGER) => {
            client
                .delete(&target, &DeleteOptions::default())
                .await
                .context("failed to delete the APIService of the metrics server")?;
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error).context("failed to get the APIService of the metrics server"),
    }
}

/// Returns the permissions of the metrics server.
fn rules() -> Value {
    value!([
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        },
    ])
}

/// Returns the aggregated role: users who may read pods may read their metrics.
fn readers() -> (Resource, Value) {
    let role = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "system:aggregated-metrics-reader",
            "labels": {
                "rbac.authorization.k8s.io/aggregate-to-admin": "true",
                "rbac.authorization.k8s.io/aggregate-to-edit": "true",
                "rbac.authorization.k8s.io/aggregate-to-view": "true",
            },
        },
        "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    });
    (Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole"), role)
}

fn service() -> (Resource, Value) {
    let service = value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "metrics-server",
            "namespace": "kube-system",
            "labels": {"k8s-app": "metrics-server", "kubernetes.io/name": "Metrics-server"},
        },
        "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}]},
    });
    (Resource::namespaced("", "v1", "services", "Service"), service)
}

fn endpoints(layout: &Layout) -> (Resource, Value) {
    let slice = value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": (Family::of(&layout.address).slice_of("metrics-server", &layout.node_name)),
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "metrics-server",
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
        },
        "addressType": (Family::of(&layout.address).name()),
        "endpoints": [{
            "addresses": [(layout.address.to_string())],
            "nodeName": (layout.node_name.clone()),
            "conditions": {"ready": true, "serving": true, "terminating": false},
        }],
        "ports": [{"name": "https", "port": (i64::from(layout.metrics_port)), "protocol": "TCP"}],
    });
    (Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"), slice)
}

fn registration(bundle: &str) -> (Resource, Value) {
    let registration = value!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE, "labels": {"k8s-app": "metrics-server", "app.kubernetes.io/managed-by": MANAGER}},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": bundle,
            "service": {"namespace": "kube-system", "name": "metrics-server", "port": 443},
        },
    });
    (API_SERVICES.clone(), registration)
}
