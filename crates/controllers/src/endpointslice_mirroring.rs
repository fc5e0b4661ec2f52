//! EndpointSlice mirroring: mirrors user-managed Endpoints of Services without a selector to EndpointSlices.

use std::convert::Infallible;

use api::resources::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use api::view::SERVICE_NAME;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Object, Value};
use controller::{Cache, Controller, Plan, Write, kinds};

use crate::endpoint_slices::{self, DesiredSlices, Group, Groups, MANAGED_BY};
use crate::endpoints::subsets::{self, Subset};
use crate::{adoption, service};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Upstream's defaults: maximum mirrored addresses of a subset, and endpoints of a slice.
const SUBSET_MAX: usize = 1000;
const SLICE_MAX: usize = 100;

/// EndpointSlice mirroring controller. Its keys are Endpoints, which have the names of Services.
pub struct EndpointSliceMirroring;

/// The Endpoints if they are to be mirrored, and the slices that mirror them.
pub struct Observation<'a> {
    endpoints: Option<&'a Value>,
    slices: Vec<&'a Value>,
}

impl Controller for EndpointSliceMirroring {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "endpointslice-mirroring-controller";
    const READS: &'static [GroupResource] = &[ENDPOINTS, SERVICES, ENDPOINT_SLICES];
    const WRITES: &'static [Write] = &[(ENDPOINT_SLICES, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            ENDPOINT_SLICES if meta.label(MANAGED_BY) == Some(MANAGER) => {
                keys.extend(meta.label(SERVICE_NAME).map(|name| Key::new(meta.namespace(), name)));
            }
            ENDPOINT_SLICES => {}
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let slices = cache.in_namespace(ENDPOINT_SLICES, &key.namespace).filter(|slice| {
            let meta = Meta::of(slice);
            meta.label(SERVICE_NAME) == Some(&key.name)
                && meta.label(MANAGED_BY) == Some(MANAGER)
                && !meta.is_deleting()
        });
        // For a Service with a selector the EndpointSlice controller creates slices from pods.
        let service = cache.get(SERVICES, key).filter(|service| !service::has_selector(service));
        let endpoints = cache.get(ENDPOINTS, key).filter(|it| service.is_some() && is_mirrored(it));
        Some(Observation { endpoints, slices: slices.collect() })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let delete = |slice: &&Value| endpoint_slices::delete(&kinds::ENDPOINT_SLICES, slice);
        let Some(endpoints) = observed.endpoints else {
            return Plan { actions: observed.slices.iter().map(delete).collect(), ..Plan::default() };
        };
        let subsets = subsets::read(endpoints);
        let desired = desired_slices(endpoints);
        let mut plan = Plan::default();
        for family in ["IPv4", "IPv6"] {
            let existing: Vec<&Value> =
                observed.slices.iter().copied().filter(|slice| slice.text_at(&["addressType"]) == family).collect();
            let changes = endpoint_slices::pack(&desired, family, &existing, groups(&subsets, family), false);
            plan.actions.extend(changes.actions());
        }
        plan
    }
}

fn is_mirrored(endpoints: &Value) -> bool {
    let meta = Meta::of(endpoints);
    !meta.is_deleting() && meta.label(SKIP) != Some("true") && meta.annotation(LEADER).is_none()
}

fn desired_slices(endpoints: &Value) -> DesiredSlices<'_> {
    let mut labels: Object = endpoints.entries_at(&["metadata", "labels"]).collect();
    labels.insert(SERVICE_NAME, Meta::of(endpoints).name());
    labels.insert(MANAGED_BY, MANAGER);
    let annotations =
        endpoints.entries_at(&["metadata", "annotations"]).filter(|(key, _)| *key != LAST_APPLIED).collect();
    DesiredSlices {
        owner: endpoints,
        reference: adoption::reference(endpoints),
        labels,
        annotations,
        slice_max: SLICE_MAX,
    }
}

fn groups(subsets: &[Subset], family: &str) -> Groups {
    let mut groups = Groups::new();
    for subset in subsets {
        let endpoints: Vec<Value> = subsets::of_family(subset, family)
            .take(SUBSET_MAX)
            .map(|(address, ready)| endpoint(address, ready))
            .collect();
        if endpoints.is_empty() {
            continue;
        }
        let ports: Vec<Value> = subset.ports.iter().map(port).collect();
        let group =
            groups.entry(endpoint_slices::ports_key(&ports)).or_insert_with(|| Group { ports, endpoints: Vec::new() });
        group.endpoints.extend(endpoints);
    }
    groups
}

fn port(port: &Value) -> Value {
    let mut port = port.clone();
    if let Some(port) = port.as_object_mut() {
        port.get_or_insert_with("name", || "".into());
        port.get_or_insert_with("protocol", || "TCP".into());
    }
    port
}

fn endpoint(address: &Value, ready: bool) -> Value {
    let mut endpoint = Object::new();
    endpoint.insert("addresses", vec![Value::from(address.text_at(&["ip"]))]);
    endpoint.insert("conditions", apimachinery::value!({"ready": ready}));
    for field in ["hostname", "nodeName", "targetRef"] {
        if let Some(value) = address.get(field) {
            endpoint.insert(field, value.clone());
        }
    }
    Value::Object(endpoint)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    fn new_cluster() -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(
            &kinds::SERVICES,
            value!({"metadata": {"namespace": "a", "name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        );
        cluster.add(
            &kinds::ENDPOINTS,
            value!({"metadata": {"namespace": "a", "name": "s", "labels": {"x": "y"}}, "subsets": [
                {"addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}],
                    "ports": [{"port": 8080, "protocol": "TCP"}]}]}),
        );
        cluster
    }

    #[test]
    fn addresses_are_mirrored_by_ip_family_and_deleted_with_the_endpoints() {
        let mut cluster = new_cluster();
        check_properties::<EndpointSliceMirroring>(&cluster, |_| false);
        run_until_stable::<EndpointSliceMirroring>(&mut cluster, |_| false);
        let slices = cluster.of(ENDPOINT_SLICES);
        let mut rendered: Vec<String> =
            slices.iter().map(|it| format!("{} {}", it.value["endpoints"], it.value["ports"])).collect();
        rendered.sort();
        assert_eq!(
            rendered,
            [
                r#"[{"addresses":["192.0.2.1"],"conditions":{"ready":true}},{"addresses":["192.0.2.2"],"conditions":{"ready":false}}] [{"name":"","port":8080,"protocol":"TCP"}]"#,
                r#"[{"addresses":["2001:db8::1"],"conditions":{"ready":true}}] [{"name":"","port":8080,"protocol":"TCP"}]"#,
            ]
        );
        cluster.remove(&kinds::ENDPOINTS, &Key::new("a", "s"));
        // After the deletion only the slices themselves trigger the key.
        let plan = controller::decide::<EndpointSliceMirroring>(
            &cluster.cache::<EndpointSliceMirroring>(),
            &(),
            &Key::new("a", "s"),
            cluster.now,
        );
        assert_eq!(plan.actions.len(), 2, "{plan}");
    }

    #[test]
    fn endpoints_with_skip_mirror_are_not_mirrored() {
        let mut cluster = new_cluster();
        cluster.change(&kinds::ENDPOINTS, &Key::new("a", "s"), |it| {
            apimachinery::meta::MetaMut::of(it).unwrap().set_label(SKIP, "true");
        });
        run_until_stable::<EndpointSliceMirroring>(&mut cluster, |_| false);
        assert!(cluster.of(ENDPOINT_SLICES).is_empty());
    }
}
