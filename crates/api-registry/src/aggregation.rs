//! APIServices: the extension API server of a group version, and its availability.

mod registration;

pub use registration::{Registration, own, register};

use api::view::{self, EndpointSlice, has_condition};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value, go};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::condition;

const AVAILABLE: &str = "Available";

/// A group version that an extension API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The name of the APIService.
    pub name: String,
    pub group: String,
    pub version: String,
    /// The namespace of the Service.
    pub namespace: String,
    pub service: String,
    pub port: u16,
    /// The CA bundle in PEM; empty for the system's CAs.
    pub bundle: Vec<u8>,
    /// Whether the serving certificate is not verified (`insecureSkipTLSVerify`).
    pub insecure: bool,
    /// The last known availability.
    pub available: bool,
    /// `groupPriorityMinimum`.
    pub group_priority: i64,
    /// `versionPriority`.
    pub version_priority: i64,
}

/// The Available condition of an APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The availability according to the Service and its EndpointSlices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AvailabilityCheck {
    /// The availability is known.
    Known(Availability),
    /// A discovery request is needed.
    NeedsDiscovery,
}

impl Remote {
    /// Parses an APIService. Returns `None` for a local one.
    pub fn of(object: &Value) -> Option<Self> {
        const HTTPS: u16 = 443;
        let spec = object.get("spec")?;
        let service = spec.get("service").filter(|service| !service.is_null())?;
        let text = |from: &Value, field: &str| from.text_at(&[field]).to_owned();
        let number = |field: &str| spec.get(field).and_then(Value::as_int).unwrap_or_default();
        let port = service.get("port").and_then(Value::as_int).and_then(|port| u16::try_from(port).ok());
        Some(Self {
            name: Meta::of(object).name().to_owned(),
            group: text(spec, "group"),
            version: text(spec, "version"),
            namespace: text(service, "namespace"),
            service: text(service, "name"),
            port: port.unwrap_or(HTTPS),
            bundle: BASE64.decode(text(spec, "caBundle")).unwrap_or_default(),
            insecure: spec.get("insecureSkipTLSVerify").and_then(Value::as_bool).unwrap_or_default(),
            available: has_condition(object, AVAILABLE),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
        })
    }

    /// Returns the discovery path: `/apis/<group>/<version>`, or `/api/<version>` for the core group.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Derives the availability from the Service and its EndpointSlices.
    pub fn check_service(&self, service: Option<&Value>, slices: &[Value]) -> AvailabilityCheck {
        let (name, namespace) = (&self.service, go::quote(&self.namespace));
        let lost = |reason, message| AvailabilityCheck::Known(Availability { status: "False", reason, message });
        let Some(service) = service else {
            return lost("ServiceNotFound", format!("service/{name} in {namespace} is not present"));
        };
        if !matches!(service.str_at(&["spec", "type"]), None | Some("" | "ClusterIP")) {
            return AvailabilityCheck::NeedsDiscovery;
        }
        let ports = service.list_at(&["spec", "ports"]);
        let port = ports.iter().find(|port| port.get("port").and_then(Value::as_int) == Some(self.port.into()));
        let Some(port) = port else {
            let port = self.port;
            return lost("ServicePortError", format!("service/{name} in {namespace} is not listening on port {port}"));
        };
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {namespace}");
            return lost("EndpointsNotFound", message);
        }
        let port = port.text_at(&["name"]);
        if slices.iter().any(|slice| has_ready(slice, port)) {
            return AvailabilityCheck::NeedsDiscovery;
        }
        let port = go::quote(port);
        let message =
            format!("endpointslices for service/{name} in {namespace} have no addresses with port name {port}");
        lost("MissingEndpoints", message)
    }
}

impl Availability {
    /// Returns the availability of local APIServices.
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { status: "True", reason: "Local", message }
    }

    /// Returns the availability after a discovery request.
    pub fn from_discovery(result: &Result<(), String>) -> Self {
        match result {
            Ok(()) => Self { status: "True", reason: "Passed", message: "all checks passed".to_owned() },
            Err(error) => Self { status: "False", reason: "FailedDiscoveryCheck", message: error.clone() },
        }
    }

    pub fn is_available(&self) -> bool {
        self.status == "True"
    }

    /// Returns the APIService with this condition, or `None` if it already has it.
    pub fn with_condition(&self, object: &Value, now: Time) -> Option<Value> {
        let has_value = |field: &str, text: &str| {
            view::condition(object, AVAILABLE).and_then(|have| have.str_at(&[field])) == Some(text)
        };
        if has_value("status", self.status) && has_value("reason", self.reason) && has_value("message", &self.message) {
            return None;
        }
        let mut next = object.clone();
        let mut available = Object::new();
        available.insert("type", AVAILABLE);
        available.insert("status", self.status);
        available.insert("lastTransitionTime", now.to_seconds().to_string());
        available.insert("reason", self.reason);
        available.insert("message", self.message.as_str());
        condition::set(&mut next, available);
        Some(next)
    }
}

/// Whether a slice has the port and a ready endpoint.
fn has_ready(slice: &Value, port: &str) -> bool {
    let slice = EndpointSlice(slice);
    slice.port(port).is_some() && slice.ready_endpoints().next().is_some()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    const NOW: Time = Time::from_unix(1_700_000_000, 0);

    fn registered() -> Value {
        value!({
            "metadata": {"name": "v1.g"},
            "spec": {"group": "g", "version": "v1", "service": {"namespace": "n", "name": "s", "port": 443}},
        })
    }

    fn check(service: Option<&Value>, slices: &[Value], expect: &str) {
        let found = match Remote::of(&registered()).unwrap().check_service(service, slices) {
            AvailabilityCheck::NeedsDiscovery => "ask".to_owned(),
            AvailabilityCheck::Known(Availability { reason, message, .. }) => format!("{reason}: {message}"),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn availability_follows_the_service_and_its_endpoints_before_discovery() {
        let service = |port: i64| value!({"spec": {"type": "ClusterIP", "ports": [{"name": "web", "port": port}]}});
        let slice = |port: &str, ready: bool| {
            value!({
                "ports": [{"name": port, "port": 8443}],
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
            })
        };
        check(None, &[], "ServiceNotFound: service/s in \"n\" is not present");
        check(Some(&service(80)), &[], "ServicePortError: service/s in \"n\" is not listening on port 443");
        check(Some(&service(443)), &[], "EndpointsNotFound: cannot find endpointslices for service/s in \"n\"");
        let missing =
            "MissingEndpoints: endpointslices for service/s in \"n\" have no addresses with port name \"web\"";
        check(Some(&service(443)), &[slice("web", false)], missing);
        check(Some(&service(443)), &[slice("other", true)], missing);
        check(Some(&service(443)), &[slice("web", true)], "ask");
        check(Some(&value!({"spec": {"type": "ExternalName"}})), &[], "ask");
    }

    #[test]
    fn unchanged_available_condition_is_not_written() {
        let object = registered();
        let failed = Availability::from_discovery(&Err("no".into()));
        let updated = failed.with_condition(&object, NOW).unwrap();
        assert_eq!(updated["status"]["conditions"][0]["reason"], "FailedDiscoveryCheck".into());
        assert!(failed.with_condition(&updated, NOW).is_none());
        let passed = Availability::from_discovery(&Ok(())).with_condition(&updated, NOW).unwrap();
        assert!(Remote::of(&passed).unwrap().available && !Remote::of(&updated).unwrap().available);
    }
}
