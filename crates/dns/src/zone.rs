//! What the cluster's names stand for: a projection of services, endpoint slices and namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hickory_proto::rr::Name;
use machinery::meta::Meta;
use machinery::{Key, Resource, Value};

/// The label of a slice that says whose endpoints it has.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Everything that has a name in the cluster.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The cluster's domain, in lower case.
    domain: Name,
    /// Where this server is, for those who ask who answers.
    pub servers: Vec<IpAddr>,
    /// Whether everything is known, so that what is not here does not exist.
    pub complete: bool,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    /// The slices of a service, and what belongs to an address.
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
    services_at: BTreeMap<IpAddr, BTreeSet<Key>>,
    slices_at: BTreeMap<IpAddr, BTreeSet<Key>>,
    namespaces: BTreeSet<String>,
}

/// A service, as far as names go.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// What its name leads to.
    pub target: Target,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// What a service's name leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Addresses of its own.
    Addresses(Vec<IpAddr>),
    /// Its endpoints.
    Endpoints,
    /// Another name.
    External(Name),
}

/// A port with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name; empty if it has none.
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// The number.
    pub number: u16,
}

/// Some endpoints of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The service.
    pub service: Key,
    /// Those that are ready.
    pub endpoints: Vec<Endpoint>,
    /// Their ports.
    pub ports: Vec<Port>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its label below the service's name.
    pub label: String,
    /// Where it is.
    pub ip: IpAddr,
}

impl Zone {
    /// A cluster of which nothing is known yet.
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

    /// A cluster whose domain is this text.
    pub fn of(domain: &str) -> Result<Self, hickory_proto::ProtoError> {
        Ok(Self::new(&Name::from_ascii(domain)?))
    }

    /// The cluster's domain.
    pub const fn domain(&self) -> &Name {
        &self.domain
    }

    /// A service is as an object says, or is gone.
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

    /// A slice is as an object says, or is gone.
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

    /// A namespace is there or gone.
    pub fn set_namespace(&mut self, name: &str, present: bool) {
        if present {
            self.namespaces.insert(name.to_owned());
        } else {
            self.namespaces.remove(name);
        }
    }

    /// What is known of a kind.
    pub fn known(&self, resource: &Resource) -> Vec<Key> {
        match resource.plural.as_str() {
            "services" => self.services.keys().cloned().collect(),
            "endpointslices" => self.slices.keys().cloned().collect(),
            _ => self.namespaces.iter().map(|name| Key::cluster(name.as_str())).collect(),
        }
    }

    /// Whether a namespace is there.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// A service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services.get(&Key::new(namespace, name))
    }

    /// The slices of a service.
    pub fn slices(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Slice> {
        let keys = self.slices_of.get(&Key::new(namespace, name)).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key))
    }

    /// The services at an address.
    pub fn services_at(&self, ip: IpAddr) -> impl Iterator<Item = &Key> {
        self.services_at.get(&ip).into_iter().flatten()
    }

    /// The endpoints at an address, with their services.
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
        let ports = spec.get("ports").and_then(Value::as_array).unwrap_or_default();
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
                let all = spec.get("clusterIPs").and_then(Value::as_array).unwrap_or_default();
                let texts = all.iter().filter_map(Value::as_str).chain(main);
                let ips: BTreeSet<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
                // One that has no address yet has no name yet.
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
        let meta = Meta::of(object);
        let service = Key::new(meta.namespace(), meta.label(SERVICE_NAME)?);
        let ports = object.get("ports").and_then(Value::as_array).unwrap_or_default();
        let endpoints = object.get("endpoints").and_then(Value::as_array).unwrap_or_default();
        let ready = |endpoint: &&Value| endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true);
        let endpoints = endpoints.iter().filter(ready).filter_map(Endpoint::read).collect();
        Some(Self { service, endpoints, ports: ports.iter().filter_map(Port::read).collect() })
    }
}

impl Endpoint {
    fn read(value: &Value) -> Option<Self> {
        // All addresses of one endpoint are equal, and the first is the one that is used.
        let ip: IpAddr = value.get("addresses")?.as_array()?.first()?.as_str()?.parse().ok()?;
        let label = match value.str_at(&["hostname"]) {
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
        Some(Self { name: value.str_at(&["name"]).unwrap_or_default().to_lowercase(), protocol, number })
    }
}

/// An address as a label.
pub fn dashed(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

/// The address that a label is.
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
    use machinery::value;

    use super::*;

    #[test]
    fn what_goes_takes_everything_it_brought() {
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
    fn labels_of_addresses_are_read_back() {
        for text in ["10.1.2.3", "fd00::1", "::1", "2001:db8::a:b"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(undashed(&dashed(ip)), Some(ip), "{text}");
        }
        assert_eq!(undashed("web-1"), None);
    }
}
