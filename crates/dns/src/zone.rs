//! The DNS zone of the cluster: a projection of services, endpoint slices and namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::view::{self, EndpointSlice};
use apimachinery::{Key, Resource, Value};
use hickory_proto::rr::Name;

/// All names of the cluster.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The cluster domain, in lower case.
    domain: Name,
    /// Addresses of this server, for NS queries.
    pub servers: Vec<IpAddr>,
    /// Whether all objects are known, so that absent names do not exist.
    pub complete: bool,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    /// Indexes: slices by service, services and slices by address.
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
    services_at: BTreeMap<IpAddr, BTreeSet<Key>>,
    slices_at: BTreeMap<IpAddr, BTreeSet<Key>>,
    namespaces: BTreeSet<String>,
}

/// A service with a DNS name.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub target: Target,
    pub ports: Vec<Port>,
}

/// Target of a service name.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Cluster IPs.
    Addresses(Vec<IpAddr>),
    /// Endpoints of a headless service.
    Endpoints,
    /// `externalName`.
    External(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Empty for an unnamed port.
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    pub number: u16,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub service: Key,
    /// Ready endpoints.
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Label below the service name.
    pub label: String,
    pub ip: IpAddr,
}

impl Zone {
    /// Creates an empty, incomplete zone.
    pub fn new(domain: &Name) -> Self {
        let mut domain = domain.to_lowercase();
        domain.set_fqdn(true);
        Self {
            domain,
            servers: Vec::new(),
            complete: false,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            slices_of: BTreeMap::new(),
            services_at: BTreeMap::new(),
            slices_at: BTreeMap::new(),
            namespaces: BTreeSet::new(),
        }
    }

    /// Creates an empty zone from the text of its domain; fails if it is not a valid name.
    pub fn of(domain: &str) -> Result<Self, hickory_proto::ProtoError> {
        Ok(Self::new(&Name::from_ascii(domain)?))
    }

    pub const fn domain(&self) -> &Name {
        &self.domain
    }

    /// Updates a service; `None` means that it was deleted.
    pub fn set_service(&mut self, key: &Key, object: Option<&Value>) {
        if let Some(Service { target: Target::Addresses(old), .. }) = self.services.remove(key) {
            for ip in old {
                remove(&mut self.services_at, &ip, key);
            }
        }
        let Some(service) = object.and_then(Service::read) else { return };
        if let Target::Addresses(ips) = &service.target {
            for ip in ips {
                self.services_at.entry(*ip).or_default().insert(key.clone());
            }
        }
        self.services.insert(key.clone(), service);
    }

    /// Updates a slice; `None` means that it was deleted.
    pub fn set_slice(&mut self, key: &Key, object: Option<&Value>) {
        if let Some(old) = self.slices.remove(key) {
            remove(&mut self.slices_of, &old.service, key);
            for endpoint in old.endpoints {
                remove(&mut self.slices_at, &endpoint.ip, key);
            }
        }
        let Some(slice) = object.and_then(Slice::read) else { return };
        self.slices_of.entry(slice.service.clone()).or_default().insert(key.clone());
        for endpoint in &slice.endpoints {
            self.slices_at.entry(endpoint.ip).or_default().insert(key.clone());
        }
        self.slices.insert(key.clone(), slice);
    }

    /// Adds or removes a namespace.
    pub fn set_namespace(&mut self, name: &str, present: bool) {
        if present {
            self.namespaces.insert(name.to_owned());
        } else {
            self.namespaces.remove(name);
        }
    }

    /// Returns the keys of the known objects of a resource type.
    pub fn known(&self, resource: &Resource) -> Vec<Key> {
        match resource.plural.as_str() {
            "services" => self.services.keys().cloned().collect(),
            "endpointslices" => self.slices.keys().cloned().collect(),
            _ => self.namespaces.iter().map(|name| Key::cluster(name.as_str())).collect(),
        }
    }

    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services.get(&Key::new(namespace, name))
    }

    /// Returns the slices of a service.
    pub fn slices(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Slice> {
        let keys = self.slices_of.get(&Key::new(namespace, name)).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key))
    }

    /// Returns the services with this cluster IP.
    pub fn services_at(&self, ip: IpAddr) -> impl Iterator<Item = &Key> {
        self.services_at.get(&ip).into_iter().flatten()
    }

    /// Returns the endpoints with this address, with their services.
    pub fn endpoints_at(&self, ip: IpAddr) -> impl Iterator<Item = (&Key, &Endpoint)> {
        let slices = self.slices_at.get(&ip).into_iter().flatten().filter_map(|key| self.slices.get(key));
        slices.flat_map(move |slice| {
            slice.endpoints.iter().filter(move |have| have.ip == ip).map(|endpoint| (&slice.service, endpoint))
        })
    }
}

impl Service {
    fn read(object: &Value) -> Option<Self> {
        let spec = object.get("spec")?;
        let ports = spec.list_at(&["ports"]);
        let ports = ports.iter().filter_map(Port::read).collect();
        let target = match spec.str_at(&["type"]) {
            Some("ExternalName") => {
                let mut name = Name::from_ascii(spec.str_at(&["externalName"])?).ok()?;
                name.set_fqdn(true);
                Target::External(name)
            }
            _ if spec.str_at(&["clusterIP"]) == Some("None") => Target::Endpoints,
            _ => {
                let main = spec.str_at(&["clusterIP"]).into_iter();
                let all = spec.list_at(&["clusterIPs"]);
                let texts = all.iter().filter_map(Value::as_str).chain(main);
                let ips: BTreeSet<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
                // A service without an allocated address has no name yet.
                if ips.is_empty() {
                    return None;
                }
                Target::Addresses(ips.into_iter().collect())
            }
        };
        Some(Self { target, ports })
    }
}

impl Slice {
    fn read(object: &Value) -> Option<Self> {
        let slice = EndpointSlice(object);
        let endpoints = slice.ready_endpoints().filter_map(Endpoint::read).collect();
        Some(Self {
            service: slice.service()?,
            endpoints,
            ports: slice.ports().iter().filter_map(Port::read).collect(),
        })
    }
}

impl Endpoint {
    fn read(endpoint: view::Endpoint<'_>) -> Option<Self> {
        let ip: IpAddr = endpoint.address()?.parse().ok()?;
        let label = match endpoint.0.str_at(&["hostname"]) {
            Some(hostname) if !hostname.is_empty() => hostname.to_lowercase(),
            _ => dashed(ip),
        };
        Some(Self { label, ip })
    }
}

impl Port {
    fn read(value: &Value) -> Option<Self> {
        let number = value.get("port").and_then(Value::as_int).and_then(|port| u16::try_from(port).ok())?;
        let protocol = value.str_at(&["protocol"]).unwrap_or("TCP").to_lowercase();
        Some(Self { name: value.text_at(&["name"]).to_lowercase(), protocol, number })
    }
}

/// Formats an address as a label, with dashes.
pub fn dashed(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

/// Parses an address label with dashes.
pub fn undashed(label: &str) -> Option<IpAddr> {
    let four = label.replace('-', ".").parse::<std::net::Ipv4Addr>();
    four.map(IpAddr::V4).or_else(|_| label.replace('-', ":").parse::<std::net::Ipv6Addr>().map(IpAddr::V6)).ok()
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn deleted_objects_leave_no_records() {
        let mut zone = Zone::new(&Name::from_ascii("cluster.local").unwrap());
        let key = Key::new("a", "web");
        let service = value!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}});
        zone.set_service(&key, Some(&service));
        let slice = value!({"metadata": {"name": "web-1", "namespace": "a",
            "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2"], "conditions": {"ready": false}}]});
        zone.set_slice(&Key::new("a", "web-1"), Some(&slice));
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(zone.services_at(ip("fd00::1")).count(), 1);
        assert_eq!(zone.endpoints_at(ip("10.1.0.1")).count(), 1);
        assert_eq!(zone.endpoints_at(ip("10.1.0.2")).count(), 0, "it is not ready");
        zone.set_service(&key, Some(&value!({"spec": {"clusterIP": "None"}})));
        assert_eq!(zone.services_at(ip("fd00::1")).count(), 0);
        zone.set_service(&key, None);
        zone.set_slice(&Key::new("a", "web-1"), None);
        assert!(zone.services.is_empty() && zone.slices.is_empty() && zone.slices_of.is_empty());
        assert!(zone.services_at.is_empty() && zone.slices_at.is_empty());
    }

    #[test]
    fn address_labels_are_parsed_back() {
        for text in ["10.1.2.3", "fd00::1", "::1", "2001:db8::a:b"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(undashed(&dashed(ip)), Some(ip), "{text}");
        }
        assert_eq!(undashed("web-1"), None);
    }
}
