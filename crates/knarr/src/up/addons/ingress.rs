//! Objects of the ingress controller: RBAC and the default IngressClass. Those of the Gateway API are in `gateway`.

use anyhow::{Context, Result};
use apimachinery::{Resource, Value, value};
use client::{Client, DeleteOptions, Target};
use ingress::plan::{CLASS, CONTROLLER};

use super::super::Options;
use super::super::plan::INGRESS;
use super::{MANAGER, granted};

static CLASSES: Resource = Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "IngressClass");

/// Returns the objects that are applied at each start, or none if the ingress controller is disabled.
pub(super) fn objects(options: &Options) -> Vec<(Resource, Value)> {
    if is_disabled(options) {
        return Vec::new();
    }
    let controller = || value!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "knarr:ingress"}]);
    let mut objects = Vec::from(granted("", "knarr:ingress", rules(options), controller()));
    objects.extend(granted("kube-system", "knarr:ingress", rules_of_lease(), controller()));
    objects
}

/// Returns the default IngressClass.
pub(super) fn class() -> (Resource, Value) {
    let class = value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {
            "name": CLASS,
            "labels": {"app.kubernetes.io/managed-by": MANAGER},
            "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
        },
        "spec": {"controller": CONTROLLER},
    });
    (CLASSES.clone(), class)
}

/// Deletes the IngressClass of a disabled ingress controller. Otherwise admission would give it to new Ingresses.
pub(super) async fn delete_if_disabled(client: &Client, options: &Options) -> Result<()> {
    if !is_disabled(options) {
        return Ok(());
    }
    let target = Target::named(&CLASSES, "", CLASS);
    let removed = match client.get(&target).await {
        Ok(found) if found.str_at(&["metadata", "labels", "app.kubernetes.io/managed-by"]) == Some(MANAGER) => {
            client.delete(&target, &DeleteOptions::default()).await.map(drop)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if !error.is_not_found() => Err(error).context("failed to delete the IngressClass"),
        _ => Ok(()),
    }
}

pub(super) fn is_disabled(options: &Options) -> bool {
    options.disable.iter().any(|part| part == INGRESS)
}

/// Whether the controller has an ACME server. Only then it may write Secrets.
fn obtains_certificates(options: &Options) -> bool {
    options.own_flags.get(INGRESS).into_iter().flatten().any(|flag| flag.starts_with("acme-directory="))
}

/// Returns the permissions of the ingress controller.
fn rules(options: &Options) -> Value {
    let mut rules = vec![
        value!({
            "apiGroups": ["networking.k8s.io"],
            "resources": ["ingresses", "ingressclasses"],
            "verbs": ["list", "watch"],
        }),
        value!({"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"]}),
        value!({
            "apiGroups": ["gateway.networking.k8s.io"],
            "resources": [
                "gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "backendtlspolicies",
            ],
            "verbs": ["list", "watch"],
        }),
        value!({
            "apiGroups": ["gateway.networking.k8s.io"],
            "resources": [
                "gatewayclasses/status", "gateways/status", "httproutes/status", "grpcroutes/status",
                "backendtlspolicies/status",
            ],
            "verbs": ["patch"],
        }),
        value!({
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "verbs": ["list", "watch"],
        }),
        value!({
            "apiGroups": [""],
            "resources": ["services", "secrets", "configmaps", "namespaces"],
            "verbs": ["list", "watch"],
        }),
        value!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}),
        value!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
    ];
    if obtains_certificates(options) {
        rules.push(value!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]}));
    }
    Value::Array(rules)
}

/// Returns the permissions for the Lease of the instance that writes statuses.
fn rules_of_lease() -> Value {
    value!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["knarr-ingress"],
            "verbs": ["get", "update"],
        },
    ])
}
