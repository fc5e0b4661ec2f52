//! Views of a Service and of its EndpointSlices.

use apimachinery::meta::Meta;
use apimachinery::{Key, Value};

/// Label with the Service of an EndpointSlice.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Copy, Debug)]
pub struct Service<'a>(pub &'a Value);

#[derive(Clone, Copy, Debug)]
pub struct EndpointSlice<'a>(pub &'a Value);

/// An endpoint of an EndpointSlice.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a>(pub &'a Value);

impl<'a> Service<'a> {
    /// Returns the name of the port with this number, which identifies the port in EndpointSlices.
    pub fn port_name(self, number: i64) -> Option<&'a str> {
        let ports = self.0.list_at(&["spec", "ports"]);
        let found = ports.iter().find(|port| port.get("port").and_then(Value::as_int) == Some(number))?;
        Some(found.text_at(&["name"]))
    }
}

impl<'a> EndpointSlice<'a> {
    pub fn meta(self) -> Meta<'a> {
        Meta::of(self.0)
    }

    /// Returns the Service that the slice belongs to, if any.
    pub fn service(self) -> Option<Key> {
        let meta = self.meta();
        meta.label(SERVICE_NAME).map(|name| Key::new(meta.namespace(), name))
    }

    pub fn endpoints(self) -> impl Iterator<Item = Endpoint<'a>> {
        self.0.list_at(&["endpoints"]).iter().map(Endpoint)
    }

    /// Returns the endpoints to which traffic is sent by default.
    pub fn ready_endpoints(self) -> impl Iterator<Item = Endpoint<'a>> {
        self.endpoints().filter(|endpoint| endpoint.is_ready())
    }

    pub fn ports(self) -> &'a [Value] {
        self.0.list_at(&["ports"])
    }

    /// Returns the number of the port with this name.
    pub fn port(self, name: &str) -> Option<i64> {
        self.ports().iter().find(|port| port.text_at(&["name"]) == name)?.get("port")?.as_int()
    }
}

impl<'a> Endpoint<'a> {
    /// Returns the first address. All addresses of an endpoint are equivalent, and consumers use the first.
    pub fn address(self) -> Option<&'a str> {
        self.0.list_at(&["addresses"]).first()?.as_str()
    }

    /// Whether traffic may be sent to the endpoint. An unknown state counts as ready.
    pub fn is_ready(self) -> bool {
        self.condition("ready").unwrap_or(true)
    }

    /// Whether the endpoint can answer, even if it terminates. An unknown state counts as that of `ready`.
    pub fn is_serving(self) -> bool {
        self.condition("serving").unwrap_or_else(|| self.is_ready())
    }

    /// Whether the endpoint terminates. An unknown state counts as not terminating.
    pub fn is_terminating(self) -> bool {
        self.condition("terminating").unwrap_or(false)
    }

    /// Returns namespace and name of the target, if it is a pod.
    pub fn pod(self) -> Option<(&'a str, &'a str)> {
        let target = self.0.get("targetRef").filter(|target| target.str_at(&["kind"]) == Some("Pod"))?;
        let text = |field: &str| target.text_at(&[field]);
        Some((text("namespace"), text("name")))
    }

    fn condition(self, name: &str) -> Option<bool> {
        self.0.at(&["conditions", name])?.as_bool()
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn unknown_conditions_of_an_endpoint_have_defaults() {
        let check = |conditions: Value, expect: [bool; 3]| {
            let endpoint = value!({"addresses": ["10.0.0.1", "10.0.0.2"], "conditions": conditions});
            let endpoint = Endpoint(&endpoint);
            let found = [endpoint.is_ready(), endpoint.is_serving(), endpoint.is_terminating()];
            assert_eq!(found, expect, "{endpoint:?}");
            assert_eq!(endpoint.address(), Some("10.0.0.1"));
        };
        check(Value::Null, [true, true, false]);
        check(value!({}), [true, true, false]);
        check(value!({"ready": null}), [true, true, false]);
        check(value!({"ready": true}), [true, true, false]);
        check(value!({"ready": false}), [false, false, false]);
        check(value!({"ready": false, "serving": true, "terminating": true}), [false, true, true]);
        check(value!({"ready": true, "serving": false}), [true, false, false]);
    }

    #[test]
    fn service_port_is_found_in_its_slices_by_name() {
        let service = value!({"spec": {"ports": [{"name": "web", "port": 80}, {"port": 443}]}});
        let slice = value!({
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "s"}},
            "ports": [{"name": "web", "port": 8080}, {"name": "", "port": 8443}, {"name": "all"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "namespace": "a", "name": "p"}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}, "targetRef": {"kind": "Node", "name": "n"}}]
        });
        let (service, slice) = (Service(&service), EndpointSlice(&slice));
        let port = |number: i64| slice.port(service.port_name(number)?);
        assert_eq!([80, 443, 8080].map(port), [Some(8080), Some(8443), None]);
        assert_eq!(slice.port("all"), None);
        assert_eq!(slice.service(), Some(Key::new("a", "s")));
        let pods: Vec<_> = slice.endpoints().map(Endpoint::pod).collect();
        assert_eq!(pods, [Some(("a", "p")), None]);
        assert_eq!(slice.ready_endpoints().filter_map(Endpoint::address).collect::<Vec<_>>(), ["10.0.0.1"]);
    }
}
