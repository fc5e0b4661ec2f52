//! API objects, reduced to the fields that the planner reads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Str, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::routing::{Certificate, HostPattern, PathMatch};

/// Prefix of the annotations that this controller reads.
pub const ANNOTATION_PREFIX: &str = "knarr.io/";
/// The annotation that named the class before `spec.ingressClassName` existed.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Value of the label `app.kubernetes.io/managed-by` of Secrets that ACME issued.
pub const ISSUER: &str = "knarr-acme";
/// Label with the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq)]
pub struct Ingress {
    pub uid: Str,
    pub created: Option<Time>,
    pub class: ClassName,
    /// Annotations with [`ANNOTATION_PREFIX`], without the prefix.
    pub annotations: BTreeMap<String, String>,
    pub default_backend: Option<BackendRef>,
    pub rules: Vec<Rule>,
    pub tls: Vec<TlsHosts>,
    /// `status.loadBalancer.ingress`.
    pub published: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassName {
    /// `spec.ingressClassName`.
    Spec(String),
    Annotation(String),
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub host: HostPattern,
    pub paths: Vec<(PathMatch, BackendRef)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsHosts {
    /// If empty, the hosts of the Ingress.
    pub hosts: Vec<HostPattern>,
    /// If empty, the default certificate.
    pub secret: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendRef {
    Service {
        name: String,
        port: PortRef,
    },
    /// Another object, such as a storage bucket. This controller supports none.
    Resource {
        kind: String,
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    Name(String),
    Number(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub is_external_name: bool,
    pub prefers_ipv6: bool,
    /// TCP ports.
    pub ports: Vec<ServicePort>,
    /// `status.loadBalancer.ingress[].ip`.
    pub load_balancer_ips: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub name: String,
    pub port: u16,
    pub app_protocol: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub service: Key,
    pub endpoints: Vec<Endpoint>,
    /// TCP ports by name.
    pub ports: Vec<(String, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub ready: bool,
    /// Whether the endpoint accepts requests, even if it is terminating.
    pub serving: bool,
    pub terminating: bool,
}

/// A Secret of type `kubernetes.io/tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSecret {
    /// The certificate, or the reason why it cannot be used.
    pub certificate: Result<Arc<Certificate>, String>,
    /// Set if this controller obtained the certificate by ACME.
    pub issued: Option<AcmeCertificate>,
}

/// A certificate of an ACME server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    pub names: BTreeSet<String>,
    /// When two thirds of its lifetime have passed.
    pub renew_at: Time,
}

/// The controller of an IngressClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    pub controller: String,
}

impl Ingress {
    pub fn read(object: &Value) -> Self {
        let meta = Meta::of(object);
        let spec = object.get("spec");
        let field = |name: &str| spec.and_then(|spec| spec.get(name));
        let class = match (field("ingressClassName").and_then(Value::as_str), meta.annotation(CLASS_ANNOTATION)) {
            (Some(name), _) => ClassName::Spec(name.to_owned()),
            (None, Some(name)) => ClassName::Annotation(name.to_owned()),
            (None, None) => ClassName::Absent,
        };
        let annotations = meta.annotations().into_iter().flat_map(apimachinery::Object::iter);
        let own = annotations.filter_map(|(name, value)| {
            Some((name.strip_prefix(ANNOTATION_PREFIX)?.to_owned(), value.as_str()?.to_owned()))
        });
        Self {
            uid: meta.uid().into(),
            created: meta.creation_timestamp(),
            class,
            annotations: own.collect(),
            default_backend: field("defaultBackend").and_then(BackendRef::read),
            rules: list(field("rules")).iter().map(Rule::read).collect(),
            tls: list(field("tls")).iter().map(TlsHosts::read).collect(),
            published: list(object.at(&["status", "loadBalancer", "ingress"])).to_vec(),
        }
    }
}

impl Rule {
    fn read(value: &Value) -> Self {
        let path = |value: &Value| {
            let path = value.str_at(&["path"]).filter(|path| !path.is_empty()).unwrap_or("/");
            let path = match value.str_at(&["pathType"]) {
                Some("Exact") => PathMatch::Exact(path.to_owned()),
                // The implementation defines ImplementationSpecific; here it means Prefix.
                _ => PathMatch::Prefix(normalized_prefix(path)),
            };
            Some((path, BackendRef::read(value.get("backend")?)?))
        };
        Self {
            host: host_pattern(value.str_at(&["host"]).unwrap_or_default()),
            paths: list(value.at(&["http", "paths"])).iter().filter_map(path).collect(),
        }
    }
}

impl TlsHosts {
    fn read(value: &Value) -> Self {
        let hosts = list(value.get("hosts")).iter().filter_map(Value::as_str);
        Self {
            hosts: hosts.map(host_pattern).collect(),
            secret: value.str_at(&["secretName"]).unwrap_or_default().to_owned(),
        }
    }
}

impl BackendRef {
    fn read(value: &Value) -> Option<Self> {
        if let Some(resource) = value.get("resource") {
            let text = |name: &str| resource.str_at(&[name]).unwrap_or_default().to_owned();
            return Some(Self::Resource { kind: text("kind"), name: text("name") });
        }
        let service = value.get("service")?;
        let port = match service.str_at(&["port", "name"]).filter(|name| !name.is_empty()) {
            Some(name) => PortRef::Name(name.to_owned()),
            None => PortRef::Number(port(service.at(&["port", "number"]))?),
        };
        Some(Self::Service { name: service.str_at(&["name"])?.to_owned(), port })
    }
}

impl std::fmt::Display for PortRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Number(number) => number.fmt(formatter),
        }
    }
}

impl IngressClass {
    pub fn read(object: &Value) -> Self {
        Self { controller: object.str_at(&["spec", "controller"]).unwrap_or_default().to_owned() }
    }
}

impl Service {
    pub fn read(object: &Value) -> Self {
        let spec = object.get("spec");
        let field = |name: &str| spec.and_then(|spec| spec.get(name));
        let published = list(object.at(&["status", "loadBalancer", "ingress"]));
        Self {
            is_external_name: field("type").and_then(Value::as_str) == Some("ExternalName"),
            prefers_ipv6: list(field("ipFamilies")).first().and_then(Value::as_str) == Some("IPv6"),
            ports: list(field("ports")).iter().filter(|port| is_tcp(port)).filter_map(ServicePort::read).collect(),
            load_balancer_ips: published.iter().filter_map(|one| one.str_at(&["ip"])?.parse().ok()).collect(),
        }
    }

    /// Returns the port that a backend names.
    pub fn port(&self, wanted: &PortRef) -> Option<&ServicePort> {
        self.ports.iter().find(|port| match wanted {
            PortRef::Name(name) => port.name == *name,
            PortRef::Number(number) => port.port == *number,
        })
    }
}

impl ServicePort {
    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.str_at(&[name]).unwrap_or_default().to_owned();
        Some(Self { name: text("name"), port: port(value.get("port"))?, app_protocol: text("appProtocol") })
    }
}

impl Slice {
    /// Reads a slice. A slice without a Service has an empty key.
    pub fn read(object: &Value) -> Self {
        let meta = Meta::of(object);
        let one =
            |value: &Value| Some((value.str_at(&["name"]).unwrap_or_default().to_owned(), port(value.get("port"))?));
        Self {
            service: meta.label(SERVICE_NAME).map(|name| Key::new(meta.namespace(), name)).unwrap_or_default(),
            endpoints: list(object.get("endpoints")).iter().filter_map(Endpoint::read).collect(),
            ports: list(object.get("ports")).iter().filter(|port| is_tcp(port)).filter_map(one).collect(),
        }
    }
}

impl Endpoint {
    /// Reads an endpoint; `None` if its address is not an IP address.
    fn read(value: &Value) -> Option<Self> {
        let ip = value.get("addresses")?.as_array()?.first()?.as_str()?.parse().ok()?;
        let condition = |name: &str| value.at(&["conditions", name]).and_then(Value::as_bool);
        let ready = condition("ready").unwrap_or(true);
        Some(Self {
            ip,
            ready,
            serving: condition("serving").unwrap_or(ready),
            terminating: condition("terminating").unwrap_or(false),
        })
    }
}

impl TlsSecret {
    /// Reads and validates the certificate and the key.
    pub fn read(object: &Value) -> Self {
        let pem = |name: &str| {
            let text = object.str_at(&["data", name]).ok_or_else(|| format!("it has no {name}"))?;
            STANDARD.decode(text).map_err(|_| format!("{name} is not valid base64"))
        };
        let read = || {
            let certificate = Certificate { chain_pem: pem("tls.crt")?, key_pem: pem("tls.key")? };
            check_pair(&certificate)?;
            Ok(Arc::new(certificate))
        };
        let (certificate, meta) = (read(), Meta::of(object));
        let is_issued = meta.label("app.kubernetes.io/managed-by") == Some(ISSUER);
        let issued = certificate.as_ref().ok().filter(|_| is_issued);
        Self { issued: issued.and_then(|certificate| AcmeCertificate::read(&certificate.chain_pem)), certificate }
    }
}

impl AcmeCertificate {
    /// Reads the names and the lifetime of the first certificate of a chain.
    fn read(chain_pem: &[u8]) -> Option<Self> {
        let leaf = CertificateDer::from_pem_slice(chain_pem).ok()?;
        let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
        let names = leaf.subject_alternative_name().ok()??.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        let (start, end) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        Some(Self { names: names.collect(), renew_at: Time::from_unix(start + (end - start) / 3 * 2, 0) })
    }
}

/// Checks that the chain and the key can be parsed and belong together.
fn check_pair(certificate: &Certificate) -> Result<(), String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain_pem).collect();
    let chain = chain.map_err(|error| format!("tls.crt is not a PEM certificate chain: {error}"))?;
    if chain.is_empty() {
        return Err("tls.crt contains no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem)
        .map_err(|error| format!("tls.key is not a PEM private key: {error}"))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider())
        .map(drop)
        .map_err(|error| format!("tls.crt and tls.key cannot be used together: {error}"))
}

/// Parses the host of a rule. An empty host is any host.
fn host_pattern(host: &str) -> HostPattern {
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("*.") {
        Some(suffix) => HostPattern::Wildcard { suffix: suffix.to_owned(), many_labels: false },
        None if host.is_empty() => HostPattern::Any,
        None => HostPattern::Exact(host),
    }
}

/// Removes the trailing slash, which does not change what a prefix matches.
pub(super) fn normalized_prefix(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

fn is_tcp(port: &Value) -> bool {
    matches!(port.str_at(&["protocol"]), None | Some("" | "TCP"))
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

pub(super) fn port(value: Option<&Value>) -> Option<u16> {
    value.and_then(Value::as_int).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}
