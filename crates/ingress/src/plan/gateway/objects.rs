//! Objects of the Gateway API, reduced to the fields that the planner reads. Routes are in [`super::routes`].

use std::net::IpAddr;
use std::sync::Arc;

use apimachinery::labels::{self, Selector};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Object, Str, Value};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::objects::{list, port};
use super::hostnames::host_pattern;
use crate::routing::{AlternativeName, HostPattern};

/// API group of the Gateway API.
pub(super) const GROUP: &str = "gateway.networking.k8s.io";

/// The identity of an object, with its creation time for decisions by age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: Str,
    pub generation: i64,
    pub created: Option<Time>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GatewayClass {
    pub identity: Identity,
    pub controller: String,
    pub has_parameters: bool,
    pub status: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    pub identity: Identity,
    pub class: String,
    pub has_parameters: bool,
    /// The parts of `spec.tls` that request client certificates.
    pub client_tls: ClientTls,
    pub addresses: Vec<RequestedAddress>,
    pub listeners: Vec<Listener>,
    pub status: Value,
}

/// Parts of `spec.tls`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    pub frontend: bool,
    pub backend: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedAddress {
    /// An IP address of the controller's choice.
    Unspecified,
    Ip(IpAddr),
    /// A type that this controller does not support.
    Other {
        kind: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    pub name: String,
    pub port: u16,
    pub protocol: String,
    pub hostname: HostPattern,
    pub certificates: Vec<ObjectRef>,
    pub namespaces: AllowedNamespaces,
    /// Allowed kinds of routes as group and kind; empty: those of the protocol.
    pub kinds: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedNamespaces {
    All,
    Same,
    Selector(Selector),
}

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceGrant {
    /// Group, kind and namespace.
    pub from: Vec<(String, String, String)>,
    /// Group, kind and name; no name allows all objects of the kind.
    pub to: Vec<(String, String, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BackendTlsPolicy {
    pub identity: Identity,
    pub targets: Vec<PolicyTarget>,
    pub hostname: String,
    pub certificates: Vec<ObjectRef>,
    /// A name of a set of CAs instead of `certificates`.
    pub well_known: Option<String>,
    pub alternative_names: Vec<AlternativeName>,
    /// `status.ancestors`.
    pub ancestors: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTarget {
    pub group: String,
    pub kind: String,
    pub name: String,
    /// The name of a port of the Service.
    pub section: Option<String>,
}

/// The CAs of a ConfigMap: its key `ca.crt`, or the reason why it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle(pub Result<Arc<Vec<u8>>, String>);

/// Labels of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    pub labels: Object,
}

impl Identity {
    pub(super) fn of(meta: Meta<'_>) -> Self {
        Self { uid: meta.uid().into(), generation: meta.generation(), created: meta.creation_timestamp() }
    }
}

impl GatewayClass {
    pub fn read(object: &Value) -> Self {
        Self {
            identity: Identity::of(Meta::of(object)),
            controller: text(object.at(&["spec", "controllerName"])),
            has_parameters: object.at(&["spec", "parametersRef"]).is_some(),
            status: object.get("status").cloned().unwrap_or_default(),
        }
    }
}

impl Gateway {
    pub fn read(object: &Value) -> Self {
        let has = |keys: &[&str]| object.at(keys).is_some();
        Self {
            identity: Identity::of(Meta::of(object)),
            class: text(object.at(&["spec", "gatewayClassName"])),
            has_parameters: has(&["spec", "infrastructure", "parametersRef"]),
            client_tls: ClientTls {
                frontend: has(&["spec", "tls", "frontend"]),
                backend: has(&["spec", "tls", "backend"]),
            },
            addresses: list(object.at(&["spec", "addresses"])).iter().map(RequestedAddress::read).collect(),
            listeners: list(object.at(&["spec", "listeners"])).iter().filter_map(Listener::read).collect(),
            status: object.get("status").cloned().unwrap_or_default(),
        }
    }
}

impl RequestedAddress {
    fn read(value: &Value) -> Self {
        let kind = value.str_at(&["type"]).unwrap_or("IPAddress");
        match value.str_at(&["value"]).unwrap_or_default() {
            _ if kind != "IPAddress" => Self::Other { kind: kind.to_owned() },
            "" => Self::Unspecified,
            ip => ip.parse().map_or_else(|_| Self::Other { kind: kind.to_owned() }, Self::Ip),
        }
    }
}

impl Listener {
    fn read(value: &Value) -> Option<Self> {
        let kind = |kind: &Value| (kind.str_at(&["group"]).unwrap_or(GROUP).to_owned(), text(kind.get("kind")));
        let namespaces = value.at(&["allowedRoutes", "namespaces"]);
        let selector = namespaces.and_then(|namespaces| namespaces.get("selector"));
        Some(Self {
            name: text(value.get("name")),
            port: port(value.get("port"))?,
            protocol: text(value.get("protocol")),
            hostname: host_pattern(value.str_at(&["hostname"]).unwrap_or_default()),
            certificates: list(value.at(&["tls", "certificateRefs"])).iter().map(ObjectRef::secret).collect(),
            namespaces: match namespaces.and_then(|namespaces| namespaces.str_at(&["from"])) {
                Some("All") => AllowedNamespaces::All,
                // An invalid selector selects nothing.
                Some("Selector") => {
                    AllowedNamespaces::Selector(labels::from_object(selector).unwrap_or(Selector::Nothing))
                }
                _ => AllowedNamespaces::Same,
            },
            kinds: list(value.at(&["allowedRoutes", "kinds"])).iter().map(kind).collect(),
        })
    }
}

impl ObjectRef {
    fn secret(value: &Value) -> Self {
        Self::read(value, "Secret")
    }

    pub(super) fn read(value: &Value, default_kind: &str) -> Self {
        Self {
            group: text(value.get("group")),
            kind: value.str_at(&["kind"]).unwrap_or(default_kind).to_owned(),
            namespace: value.str_at(&["namespace"]).map(str::to_owned),
            name: text(value.get("name")),
        }
    }

    /// Returns the key of the referenced object for a reference in `namespace`.
    pub(super) fn key(&self, namespace: &str) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or(namespace), self.name.as_str())
    }

    pub(super) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

impl ReferenceGrant {
    pub fn read(object: &Value) -> Self {
        let from = |value: &Value| (text(value.get("group")), text(value.get("kind")), text(value.get("namespace")));
        let to = |value: &Value| {
            let name = value.str_at(&["name"]).filter(|name| !name.is_empty()).map(str::to_owned);
            (text(value.get("group")), text(value.get("kind")), name)
        };
        Self {
            from: list(object.at(&["spec", "from"])).iter().map(from).collect(),
            to: list(object.at(&["spec", "to"])).iter().map(to).collect(),
        }
    }
}

impl BackendTlsPolicy {
    pub fn read(object: &Value) -> Self {
        let validation = object.at(&["spec", "validation"]);
        let field = |name: &str| validation.and_then(|validation| validation.get(name));
        let target = |value: &Value| PolicyTarget {
            group: text(value.get("group")),
            kind: text(value.get("kind")),
            name: text(value.get("name")),
            section: value.str_at(&["sectionName"]).filter(|name| !name.is_empty()).map(str::to_owned),
        };
        let alternative_name = |value: &Value| match value.str_at(&["type"]) {
            Some("URI") => AlternativeName::Uri(text(value.get("uri"))),
            _ => AlternativeName::Dns(text(value.get("hostname"))),
        };
        Self {
            identity: Identity::of(Meta::of(object)),
            targets: list(object.at(&["spec", "targetRefs"])).iter().map(target).collect(),
            hostname: text(field("hostname")),
            certificates: list(field("caCertificateRefs")).iter().map(|one| ObjectRef::read(one, "")).collect(),
            well_known: field("wellKnownCACertificates").and_then(Value::as_str).map(str::to_owned),
            alternative_names: list(field("subjectAltNames")).iter().map(alternative_name).collect(),
            ancestors: list(object.at(&["status", "ancestors"])).to_vec(),
        }
    }
}

impl CaBundle {
    pub fn read(object: &Value) -> Self {
        let read = || {
            let pem = object.str_at(&["data", "ca.crt"]).ok_or("it has no key ca.crt")?.as_bytes();
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            match certificates {
                Ok(certificates) if !certificates.is_empty() => Ok(Arc::new(pem.to_vec())),
                Ok(_) => Err("ca.crt contains no certificate".to_owned()),
                Err(error) => Err(format!("ca.crt is not valid PEM: {error}")),
            }
        };
        Self(read())
    }
}

impl Namespace {
    pub fn read(object: &Value) -> Self {
        Self { labels: Meta::of(object).labels().cloned().unwrap_or_default() }
    }
}

pub(super) fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}
