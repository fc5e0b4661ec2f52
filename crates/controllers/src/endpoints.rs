//! Endpoints controller: publishes the pods of a Service as Endpoints, the predecessor of EndpointSlices.

pub mod subsets;

use std::convert::Infallible;

use api::resources::{ENDPOINTS, PODS, SERVICES};
use api::view::Pod;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Object, Value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

use crate::service;

use subsets::{ADDRESSES_MAX, Subset};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
/// Annotation of Endpoints that list only a part of the addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Endpoints controller. Its keys are Services.
pub struct Endpoints;

/// The Service if it exists, the pods it selects, and the published Endpoints.
pub struct Observation<'a> {
    service: Option<&'a Value>,
    pods: Vec<&'a Value>,
    published: Option<&'a Value>,
}

impl Controller for Endpoints {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "endpoint-controller";
    const READS: &'static [GroupResource] = &[SERVICES, PODS, ENDPOINTS];
    const WRITES: &'static [Write] = &[(ENDPOINTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PODS => service::of_pod(cache, object, keys),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let service = cache.get(SERVICES, key);
        let published = cache.get(ENDPOINTS, key);
        let Some(service) = service else { return Some(Observation { service, pods: Vec::new(), published }) };
        let pods = cache.in_namespace(PODS, &key.namespace).filter(|pod| service::selects(service, pod));
        Some(Observation { service: Some(service), pods: pods.collect(), published })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let Some(service) = observed.service else {
            // DEVIATION: Endpoints not managed by this controller are kept when the Service is deleted; upstream
            // deletes them.
            let managed = observed.published.filter(|it| Meta::of(it).label(MANAGED_BY) == Some(MANAGER));
            return managed.map(|it| Plan::of(Action::delete(&kinds::ENDPOINTS, it))).unwrap_or_default();
        };
        if !service::has_selector(service)
            || service.text_at(&["spec", "type"]) == "ExternalName"
            || Meta::of(service).is_deleting()
        {
            return Plan::default();
        }
        let (subsets, truncated) = subsets::truncate(subsets(service, &observed.pods), ADDRESSES_MAX);
        let labels = labels(service);
        let is_truncated = |it: &Value| Meta::of(it).annotation(OVER_CAPACITY) == Some("truncated");
        if let Some(published) = observed.published
            && subsets::read(published) == subsets
            && Meta::of(published).labels() == Some(&labels)
            && is_truncated(published) == truncated
        {
            return Plan::default();
        }
        Plan::of(write(observed, service, &subsets, labels, truncated))
    }
}

/// Returns the Endpoints subsets, one for each group of addresses with the same ports.
fn subsets(service: &Value, pods: &[&Value]) -> Vec<Subset> {
    let unready_too = service::publishes_unready(service);
    let family = service::families(service).first().copied().unwrap_or("IPv4");
    let ports = service.list_at(&["spec", "ports"]);
    let mut found = Vec::new();
    for pod in pods.iter().copied().filter(|pod| service::is_published(pod, unready_too)) {
        let Some(address) = service::addresses(pod, family).next() else { continue };
        let entry = address_of(service, pod, address);
        let ready = unready_too || Pod(pod).is_ready();
        if ports.is_empty() && service::is_headless(service) {
            found.push(Subset::single(entry, None, ready));
            continue;
        }
        for port in ports {
            if let Some(number) = service::target_port(pod, port) {
                found.push(Subset::single(entry.clone(), Some(port_of(port, number)), ready));
            }
        }
    }
    subsets::repack(found)
}

fn address_of(service: &Value, pod: &Value, address: &str) -> Value {
    let mut entry = Object::new();
    entry.insert("ip", address);
    if !Pod(pod).node_name().is_empty() {
        entry.insert("nodeName", Pod(pod).node_name());
    }
    entry.insert("targetRef", service::target(pod));
    if let Some(hostname) = service::hostname(pod, service) {
        entry.insert("hostname", hostname);
    }
    Value::Object(entry)
}

fn port_of(port: &Value, number: i64) -> Value {
    let mut entry = Object::new();
    for field in ["name", "appProtocol"] {
        if let Some(value) = port.str_at(&[field]).filter(|value| !value.is_empty()) {
            entry.insert(field, value);
        }
    }
    entry.insert("port", number);
    entry.insert("protocol", port.str_at(&["protocol"]).unwrap_or("TCP"));
    Value::Object(entry)
}

fn labels(service: &Value) -> Object {
    let mut labels: Object =
        service.entries_at(&["metadata", "labels"]).filter(|(key, _)| *key != service::HEADLESS).collect();
    if service::is_headless(service) {
        labels.insert(service::HEADLESS, "");
    }
    labels.insert(MANAGED_BY, MANAGER);
    labels
}

fn write(observed: &Observation<'_>, service: &Value, subsets: &[Subset], labels: Object, truncated: bool) -> Action {
    let meta = Meta::of(service);
    let mut object = observed.published.cloned().unwrap_or_else(|| {
        apimachinery::value!({"apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"namespace": (meta.namespace()), "name": (meta.name())}})
    });
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set("labels", labels);
        if let Some(time) = service::changed_at(service, &observed.pods) {
            meta.set_annotation(service::TRIGGER, &time.to_string());
        }
        if truncated {
            meta.set_annotation(OVER_CAPACITY, "truncated");
        } else {
            meta.remove_annotation(OVER_CAPACITY);
        }
    }
    if let Some(object) = object.as_object_mut() {
        if subsets.is_empty() {
            object.remove("subsets");
        } else {
            object.insert("subsets", subsets.iter().map(Subset::to_value).collect::<Vec<_>>());
        }
    }
    let resource = kinds::ENDPOINTS.clone();
    match observed.published {
        Some(_) => Action::Update { resource, object, result_event: None },
        None => Action::Create { resource, object, result_event: None },
    }
}

#[cfg(test)]
mod tests;
