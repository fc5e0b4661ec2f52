//! EndpointSlice controller: publishes the pods of a Service as EndpointSlices.

mod hints;

use std::convert::Infallible;

use api::resources::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use api::view::{Pod, SERVICE_NAME};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Object, Value, value};
use controller::{Cache, Controller, Plan, Write};

use crate::endpoint_slices::{self, DesiredSlices, Group, Groups, MANAGED_BY};
use crate::{adoption, service};

const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum endpoints of a slice: `--max-endpoints-per-slice`.
    pub slice_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { slice_max: 100 }
    }
}

/// EndpointSlice controller. Its keys are Services.
pub struct EndpointSlice;

/// A Service, the pods it selects with their nodes, and its slices.
pub struct Observation<'a> {
    service: &'a Value,
    pods: Vec<(&'a Value, Option<&'a Value>)>,
    slices: Vec<&'a Value>,
    nodes: Vec<&'a Value>,
    config: Config,
}

impl Controller for EndpointSlice {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "endpointslice-controller";
    const READS: &'static [GroupResource] = &[SERVICES, PODS, ENDPOINT_SLICES, NODES];
    const WRITES: &'static [Write] = &[(ENDPOINT_SLICES, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            PODS => service::of_pod(cache, object, keys),
            NODES => cache.on_node(PODS, meta.name()).for_each(|pod| service::of_pod(cache, pod, keys)),
            SERVICES => keys.push(Key::of(object)),
            _ if meta.label(MANAGED_BY) == Some(MANAGER) => {
                keys.extend(meta.label(SERVICE_NAME).map(|name| Key::new(meta.namespace(), name)));
            }
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let service = cache.get(SERVICES, key).filter(|service| service::has_selector(service))?;
        let pods = cache.in_namespace(PODS, &key.namespace).filter(|pod| service::selects(service, pod));
        let with_node = pods.map(|pod| (pod, cache.get(NODES, &Key::cluster(Pod(pod).node_name()))));
        let slices = cache.in_namespace(ENDPOINT_SLICES, &key.namespace).filter(|slice| {
            let meta = Meta::of(slice);
            meta.label(SERVICE_NAME) == Some(&key.name)
                && meta.label(MANAGED_BY) == Some(MANAGER)
                && !meta.is_deleting()
        });
        let nodes =
            if hints::need_nodes(service) { cache.of(NODES).iter().map(|it| &it.value).collect() } else { vec![] };
        Some(Observation { service, pods: with_node.collect(), slices: slices.collect(), nodes, config: *config })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let service = observed.service;
        if Meta::of(service).is_deleting() || service.text_at(&["spec", "type"]) == "ExternalName" {
            return Plan::default();
        }
        let published: Vec<(&Value, Option<&Value>)> =
            observed.pods.iter().copied().filter(|(pod, _)| service::is_published(pod, true)).collect();
        let desired = desired_slices(observed, &published);
        let families = service::families(service);
        let mut plan = Plan::default();
        for family in &families {
            let existing: Vec<&Value> =
                observed.slices.iter().copied().filter(|slice| slice.text_at(&["addressType"]) == *family).collect();
            let mut groups = groups(service, &published, family);
            hints::add(service, &mut groups, &observed.nodes);
            plan.actions.extend(endpoint_slices::pack(&desired, family, &existing, groups, true).actions());
        }
        // The Service no longer has this IP family.
        let useless = observed.slices.iter().filter(|slice| !families.contains(&slice.text_at(&["addressType"])));
        plan.actions.extend(useless.map(|slice| endpoint_slices::delete(&controller::kinds::ENDPOINT_SLICES, slice)));
        plan
    }
}

fn desired_slices<'a>(observed: &Observation<'a>, published: &[(&Value, Option<&Value>)]) -> DesiredSlices<'a> {
    let service = observed.service;
    let mut labels: Object = service
        .entries_at(&["metadata", "labels"])
        .filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY, service::HEADLESS].contains(key))
        .collect();
    if service::is_headless(service) {
        labels.insert(service::HEADLESS, "");
    }
    labels.insert(SERVICE_NAME, Meta::of(service).name());
    labels.insert(MANAGED_BY, MANAGER);
    let pods: Vec<&Value> = published.iter().map(|(pod, _)| *pod).collect();
    let annotations = service::changed_at(service, &pods).map(|time| (service::TRIGGER, time.to_string()));
    DesiredSlices {
        owner: service,
        reference: adoption::reference(service),
        labels,
        annotations: annotations.into_iter().collect(),
        slice_max: observed.config.slice_max,
    }
}

/// Returns the endpoints of an IP family, grouped by ports.
fn groups(service: &Value, pods: &[(&Value, Option<&Value>)], family: &str) -> Groups {
    let mut groups = Groups::new();
    for (pod, node) in pods {
        // A pod whose node was deleted will be deleted. It is published only with publishNotReadyAddresses.
        if node.is_none() && !Pod(pod).node_name().is_empty() && !service::publishes_unready(service) {
            continue;
        }
        let addresses: Vec<Value> = service::addresses(pod, family).map(Value::from).collect();
        if addresses.is_empty() {
            continue;
        }
        let ports = ports(service, pod);
        let group =
            groups.entry(endpoint_slices::ports_key(&ports)).or_insert_with(|| Group { ports, endpoints: Vec::new() });
        group.endpoints.push(endpoint(service, pod, *node, addresses));
    }
    groups
}

fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let mut ports = Vec::new();
    for port in service.list_at(&["spec", "ports"]) {
        let Some(number) = service::target_port(pod, port) else { continue };
        let mut entry = Object::new();
        entry.insert("name", port.text_at(&["name"]));
        entry.insert("port", number);
        entry.insert("protocol", port.str_at(&["protocol"]).unwrap_or("TCP"));
        if let Some(app) = port.str_at(&["appProtocol"]) {
            entry.insert("appProtocol", app);
        }
        ports.push(Value::Object(entry));
    }
    ports
}

fn endpoint(service: &Value, pod: &Value, node: Option<&Value>, addresses: Vec<Value>) -> Value {
    let (serving, terminating) = (Pod(pod).is_ready(), Meta::of(pod).is_deleting());
    // Consumers that read only `ready` must not use terminating endpoints.
    let ready = service::publishes_unready(service) || (serving && !terminating);
    let mut endpoint = Object::new();
    endpoint.insert("addresses", addresses);
    endpoint.insert("conditions", value!({"ready": ready, "serving": serving, "terminating": terminating}));
    endpoint.insert("targetRef", service::target(pod));
    if !Pod(pod).node_name().is_empty() {
        endpoint.insert("nodeName", Pod(pod).node_name());
    }
    if let Some(zone) = node.and_then(|node| Meta::of(node).label(ZONE)).filter(|zone| !zone.is_empty()) {
        endpoint.insert("zone", zone);
    }
    if let Some(hostname) = service::hostname(pod, service) {
        endpoint.insert("hostname", hostname);
    }
    Value::Object(endpoint)
}

#[cfg(test)]
mod tests;
