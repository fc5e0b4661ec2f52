//! PodSpec defaulting.
//!
//! This includes the effects of upstream's conversions on every spec: deprecated duplicates of fields are synchronized,
//! and fields of disabled features are dropped.

use apimachinery::quantity::Quantity;
use apimachinery::{Object, Value};

use crate::core::persistent_volume_claim;

use super::image::default_pull_policy;
use super::resources;
use crate::field_rules::quantity;

/// Obsolete alpha and beta annotations for init containers, which are dropped.
const DROPPED_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
];

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Default mode of files in secret, configMap, downwardAPI and projected volumes.
const FILE_MODE: i64 = 0o644;

/// Defaults a spec of a pod or a template.
pub(crate) fn spec(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    absent(spec, "dnsPolicy", "ClusterFirst");
    absent(spec, "restartPolicy", "Always");
    unset(spec, "securityContext", Value::object);
    unset(spec, "terminationGracePeriodSeconds", || 30.into());
    absent(spec, "schedulerName", "default-scheduler");
    service_account(spec);
    // Feature gate for pod groups: disabled.
    spec.remove("schedulingGroup");
    round_up(spec.get_mut("overhead"));
    for field in CONTAINERS {
        items(spec.get_mut(field)).for_each(container);
    }
    items(spec.get_mut("volumes")).for_each(volume);
    if let Some(resources) = spec.get_mut("resources") {
        round_up(resources.get_mut("limits"));
        round_up(resources.get_mut("requests"));
    }
}

/// Defaults fields that are set only on pods, not on templates.
pub(crate) fn pod(spec: &mut Value) {
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or_default();
    let Some(object) = spec.as_object_mut() else { return };
    for field in ["containers", "initContainers"] {
        for container in items(object.get_mut(field)) {
            if let Some(resources) = container.get_mut("resources") {
                requests_from_limits(resources);
            }
            if host_network {
                items(container.get_mut("ports")).for_each(host_port);
            }
        }
    }
    unset(object, "enableServiceLinks", || true.into());
    // Upstream stores 1 for a negative value in a pod and keeps it in a template.
    if object.get("terminationGracePeriodSeconds").and_then(Value::as_int).is_some_and(|seconds| seconds < 0) {
        object.insert("terminationGracePeriodSeconds", 1);
    }
    resources::default_pod_level(spec);
}

/// Drops obsolete annotations.
pub(crate) fn metadata(object: &mut Value) {
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !DROPPED_ANNOTATIONS.contains(&key));
    }
}

/// Synchronizes `serviceAccountName` and the deprecated `serviceAccount`; the former wins.
fn service_account(spec: &mut Object) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    match text(spec.get("serviceAccountName")).or_else(|| text(spec.get("serviceAccount"))) {
        Some(name) => {
            spec.insert("serviceAccountName", name.as_str());
            spec.insert("serviceAccount", name);
        }
        None => {
            spec.remove("serviceAccount");
        }
    }
}

fn container(container: &mut Value) {
    let image = container.text_at(&["image"]).to_owned();
    let Some(object) = container.as_object_mut() else { return };
    absent(object, "imagePullPolicy", default_pull_policy(&image));
    absent(object, "terminationMessagePath", "/dev/termination-log");
    absent(object, "terminationMessagePolicy", "File");
    for variable in items(object.get_mut("env")) {
        if let Some(from) = variable.get_mut("valueFrom") {
            field_ref(from);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(found)) = object.get_mut(name) {
            probe(found);
        }
    }
    if let Some(lifecycle) = object.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook) {
                http_get(hook);
            }
        }
        // Feature gate for container stop signals: disabled.
        lifecycle.as_object_mut().map(|lifecycle| lifecycle.remove("stopSignal"));
    }
    if let Some(resources) = object.get_mut("resources") {
        round_up(resources.get_mut("limits"));
        round_up(resources.get_mut("requests"));
    }
}

fn probe(probe: &mut Object) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).and_then(Value::as_int).unwrap_or_default() == 0 {
            probe.insert(field, value);
        }
    }
    if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
        http_action(get);
    }
}

fn http_get(handler: &mut Value) {
    if let Some(Value::Object(get)) = handler.get_mut("httpGet") {
        http_action(get);
    }
}

fn http_action(get: &mut Object) {
    absent(get, "path", "/");
    absent(get, "scheme", "HTTP");
}

fn field_ref(holder: &mut Value) {
    if let Some(Value::Object(reference)) = holder.get_mut("fieldRef") {
        absent(reference, "apiVersion", "v1");
    }
}

fn volume(volume: &mut Value) {
    let Some(object) = volume.as_object_mut() else { return };
    if object.iter().all(|(key, value)| key == "name" || value.is_null()) {
        object.insert("emptyDir", Value::object());
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = object.get_mut(source) {
            unset(source, "defaultMode", || FILE_MODE.into());
        }
    }
    if let Some(Value::Object(path)) = object.get_mut("hostPath") {
        unset(path, "type", || "".into());
    }
    if let Some(Value::Object(image)) = object.get_mut("image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default().to_owned();
        absent(image, "pullPolicy", default_pull_policy(&reference));
    }
    if let Some(downward) = object.get_mut("downwardAPI") {
        items(downward.get_mut("items")).for_each(field_ref);
    }
    if let Some(projected) = object.get_mut("projected") {
        items(projected.get_mut("sources")).for_each(projection);
    }
    let template = object.get_mut("ephemeral").and_then(|ephemeral| ephemeral.get_mut("volumeClaimTemplate"));
    if let Some(claim) = template.and_then(|template| template.get_mut("spec")) {
        persistent_volume_claim::default_spec(claim);
        if let Some(resources) = claim.get_mut("resources") {
            round_up(resources.get_mut("limits"));
            round_up(resources.get_mut("requests"));
            resources.as_object_mut().map(|resources| resources.remove("claims"));
        }
    }
}

fn projection(source: &mut Value) {
    if let Some(downward) = source.get_mut("downwardAPI") {
        items(downward.get_mut("items")).for_each(field_ref);
    }
    if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
        unset(token, "expirationSeconds", || 3600.into());
    }
    if let Some(source) = source.as_object_mut() {
        // Feature gates for cluster trust bundles and pod certificates: disabled.
        source.remove("clusterTrustBundle");
        source.remove("podCertificate");
    }
}

fn requests_from_limits(resources: &mut Value) {
    let Some(resources) = resources.as_object_mut() else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let Some(requests) = resources.get_or_insert_with("requests", Value::object).as_object_mut() else { return };
    for (name, limit) in limits {
        requests.get_or_insert_with(&name, || limit);
    }
}

fn host_port(port: &mut Value) {
    let Some(port) = port.as_object_mut() else { return };
    if port.get("hostPort").and_then(Value::as_int).unwrap_or_default() == 0 {
        let number = port.get("containerPort").and_then(Value::as_int).unwrap_or_default();
        if number != 0 {
            port.insert("hostPort", number);
        }
    }
}

/// Rounds quantities up to a multiple of one thousandth.
fn round_up(amounts: Option<&mut Value>) {
    let Some(amounts) = amounts.and_then(Value::as_object_mut) else { return };
    for (_, amount) in amounts.iter_mut() {
        let exact = quantity(amount);
        let milli = exact.milli_value();
        let rounded = Quantity::milli(milli, exact.format());
        let fits = milli.unsigned_abs() < i64::MAX.unsigned_abs();
        if fits && rounded != exact {
            *amount = rounded.to_string().into();
        }
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a string that is absent or empty: for plain Go strings.
fn absent(object: &mut Object, field: &str, text: &str) {
    if object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
        object.insert(field, text);
    }
}

/// Sets a value that is absent: for Go pointers.
fn unset(object: &mut Object, field: &str, make: impl FnOnce() -> Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object.insert(field, make());
    }
}
