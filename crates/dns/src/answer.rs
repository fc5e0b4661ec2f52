//! Answers of the cluster DNS: the names of Kubernetes' DNS specification 1.1.
//!
//! ```text
//! <service>.<namespace>.svc.<domain>                      cluster IPs, addresses of ready endpoints, or a CNAME
//! _<port>._<protocol>.<service>.<namespace>.svc.<domain>  SRV
//! <endpoint>.<service>.<namespace>.svc.<domain>           address of one endpoint
//! <address>.<namespace>.pod.<domain>                      the address, written with dashes
//! <reversed address>.in-addr.arpa, .ip6.arpa              PTR
//! ```

use std::net::IpAddr;
use std::str::FromStr;

use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::zone::{Service, Target, Zone, undashed};

/// TTL of answers in seconds.
pub const TTL: u32 = 5;
/// Version of the specification, returned for the `dns-version` TXT query.
const VERSION: &str = "1.1.0";

/// Answer to a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Records {
        /// Records of the answer section.
        answers: Vec<Record>,
        /// Records that the client will probably query next.
        additionals: Vec<Record>,
    },
    /// NODATA with the SOA record: the name exists without records of that type.
    NoData(Record),
    /// NXDOMAIN with the SOA record.
    NxDomain(Record),
    /// The zone is not complete yet.
    NotReady,
    /// The name is outside the cluster.
    OutsideZone,
}

/// Answers a query. `name` may have any case, which the answer keeps.
pub fn answer(zone: &Zone, name: &Name, kind: RecordType) -> Answer {
    let lower = name.to_lowercase();
    let found = if zone.domain().zone_of(&lower) {
        let labels = labels(&lower, zone.domain().num_labels());
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        find(zone, name, &labels)
    } else {
        match reverse(zone, &lower) {
            Some(names) => Some(names.into_iter().map(|name| RData::PTR(PTR(name))).collect::<Vec<_>>().into()),
            None => return Answer::OutsideZone,
        }
    };
    if !zone.complete {
        return Answer::NotReady;
    }
    let Some(found) = found else { return Answer::NxDomain(soa_record(zone)) };
    let is_requested = |data: &RData| match (data, kind) {
        // An address query gets the CNAME, whose address is resolved elsewhere.
        (_, RecordType::ANY) | (RData::CNAME(_), RecordType::A | RecordType::AAAA) => true,
        (data, kind) => data.record_type() == kind,
    };
    let record = |name: &Name, data: RData| Record::from_rdata(name.clone(), TTL, data);
    let answers: Vec<Record> = found.data.into_iter().filter(is_requested).map(|data| record(name, data)).collect();
    if answers.is_empty() {
        return Answer::NoData(soa_record(zone));
    }
    let next = if kind == RecordType::SRV { found.next } else { Vec::new() };
    Answer::Records { answers, additionals: next.into_iter().map(|(name, ip)| record(&name, address(ip))).collect() }
}

/// Returns the SOA record, which specifies how long negative answers are valid.
pub fn soa_record(zone: &Zone) -> Record {
    let name = |text: &str| zone.domain().prepend_label(text).unwrap_or_else(|_| zone.domain().clone());
    let server = name("dns").prepend_label("ns").unwrap_or_else(|_| zone.domain().clone());
    // The serial number is constant: it matters only for zone transfers, which are not supported.
    let soa = SOA::new(server, name("hostmaster"), 1, 7200, 1800, 86_400, TTL);
    Record::from_rdata(zone.domain().clone(), TTL, RData::SOA(soa))
}

/// Records of a name.
#[derive(Default)]
struct NameRecords {
    data: Vec<RData>,
    /// Addresses of names mentioned in the records, for the additional section.
    next: Vec<(Name, IpAddr)>,
}

impl From<Vec<RData>> for NameRecords {
    fn from(data: Vec<RData>) -> Self {
        Self { data, next: Vec::new() }
    }
}

/// Returns the labels before the `last` ones as text; labels that are not text match nothing.
fn labels(name: &Name, last: u8) -> Vec<String> {
    let count = usize::from(name.num_labels().saturating_sub(last));
    name.iter().take(count).map(|label| String::from_utf8_lossy(label).into_owned()).collect()
}

fn find(zone: &Zone, name: &Name, labels: &[&str]) -> Option<NameRecords> {
    match labels {
        [] => {
            let server = zone.domain().prepend_label("dns").ok()?.prepend_label("ns").ok()?;
            Some(vec![soa_record(zone).data, RData::NS(NS(server))].into())
        }
        ["dns-version"] => Some(vec![RData::TXT(TXT::new(vec![VERSION.to_owned()]))].into()),
        ["ns", "dns"] => Some(zone.servers.iter().map(|ip| address(*ip)).collect::<Vec<_>>().into()),
        ["dns"] | ["svc"] | ["pod"] => Some(NameRecords::default()),
        [namespace, "svc" | "pod"] => zone.has_namespace(namespace).then(NameRecords::default),
        [label, namespace, "pod"] => {
            let ip = undashed(label).filter(|_| zone.has_namespace(namespace))?;
            Some(vec![address(ip)].into())
        }
        [service, namespace, "svc"] => {
            let found = named(zone, namespace, service)?;
            let mut all = of_service(zone, namespace, service, found);
            all.merge(srv(zone, name, (namespace, service), found, None));
            Some(all)
        }
        [endpoint, service, namespace, "svc"] => {
            let found = named(zone, namespace, service)?;
            if let Some(protocol) = endpoint.strip_prefix('_') {
                let has = |port: &crate::zone::Port| port.protocol == protocol && !port.name.is_empty();
                return found.ports.iter().any(has).then(NameRecords::default);
            }
            let ips: Vec<RData> = endpoints(zone, namespace, service)
                .filter(|(label, _)| label == endpoint)
                .map(|(_, ip)| address(ip))
                .collect();
            (!ips.is_empty()).then(|| ips.into())
        }
        [port, protocol, service, namespace, "svc"] => {
            let port_and_protocol = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
            let found = named(zone, namespace, service)?;
            let base = zone_name(zone, &[service, namespace, "svc"])?;
            let srv = srv(zone, &base, (namespace, service), found, Some(port_and_protocol));
            (!srv.data.is_empty()).then_some(srv)
        }
        _ => None,
    }
}

/// Returns a service that has a name: by the specification, a headless service has one only while it has endpoints.
fn named<'a>(zone: &'a Zone, namespace: &str, name: &str) -> Option<&'a Service> {
    let there = |service: &&Service| match service.target {
        Target::Addresses(_) | Target::External(_) => true,
        Target::Endpoints => endpoints(zone, namespace, name).next().is_some(),
    };
    zone.service(namespace, name).filter(there)
}

fn of_service(zone: &Zone, namespace: &str, name: &str, service: &Service) -> NameRecords {
    let data: Vec<RData> = match &service.target {
        Target::Addresses(ips) => ips.iter().map(|ip| address(*ip)).collect(),
        Target::External(other) => vec![RData::CNAME(CNAME(other.clone()))],
        Target::Endpoints => {
            let mut ips: Vec<IpAddr> = endpoints(zone, namespace, name).map(|(_, ip)| ip).collect();
            ips.sort_unstable();
            ips.dedup();
            ips.into_iter().map(address).collect()
        }
    };
    data.into()
}

/// Returns the SRV records of a service's ports, or of the `port_and_protocol` port and protocol: for the service itself, or for
/// each endpoint.
fn srv(
    zone: &Zone,
    base: &Name,
    of: (&str, &str),
    service: &Service,
    port_and_protocol: Option<(&str, &str)>,
) -> NameRecords {
    let matches = |port: &crate::zone::Port| match port_and_protocol {
        Some((name, protocol)) => port.name == name && port.protocol == protocol,
        None => true,
    };
    let mut found = NameRecords::default();
    match &service.target {
        Target::External(_) => {}
        Target::Addresses(ips) => {
            for port in service.ports.iter().filter(|port| matches(port)) {
                found.data.push(RData::SRV(SRV::new(0, 100, port.number, base.clone())));
            }
            found.next.extend(ips.iter().map(|ip| (base.clone(), *ip)));
        }
        Target::Endpoints => {
            let mut places = Vec::new();
            for slice in zone.slices(of.0, of.1) {
                for port in slice.ports.iter().filter(|port| matches(port)) {
                    places.extend(slice.endpoints.iter().map(|endpoint| (endpoint, port.number)));
                }
            }
            // All targets have equal weights, with a sum of about 100.
            let weight = u16::try_from(100 / places.len().max(1)).unwrap_or(1).max(1);
            for (endpoint, port) in places {
                let Ok(target) = base.prepend_label(endpoint.label.as_str()) else { continue };
                let data = RData::SRV(SRV::new(0, weight, port, target.clone()));
                if !found.data.contains(&data) {
                    found.data.push(data);
                }
                if !found.next.contains(&(target.clone(), endpoint.ip)) {
                    found.next.push((target, endpoint.ip));
                }
            }
        }
    }
    found
}

impl NameRecords {
    fn merge(&mut self, other: Self) {
        self.data.extend(other.data);
        self.next.extend(other.next);
    }
}

fn endpoints<'a>(zone: &'a Zone, namespace: &str, service: &str) -> impl Iterator<Item = (&'a str, IpAddr)> {
    zone.slices(namespace, service)
        .flat_map(|slice| slice.endpoints.iter().map(|endpoint| (endpoint.label.as_str(), endpoint.ip)))
}

/// Returns the names of an address, if the query name is a reverse name of a cluster address.
fn reverse(zone: &Zone, name: &Name) -> Option<Vec<Name>> {
    let ip = address_of(name)?;
    let services = zone.services_at(ip).filter_map(|key| zone_name(zone, &[&key.name, &key.namespace, "svc"]));
    let mut names: Vec<Name> = services.collect();
    if names.is_empty() {
        let endpoints = zone.endpoints_at(ip);
        names = endpoints
            .filter_map(|(key, endpoint)| zone_name(zone, &[&endpoint.label, &key.name, &key.namespace, "svc"]))
            .collect();
        names.sort();
        names.dedup();
    }
    // Unknown addresses are forwarded to other resolvers.
    (!names.is_empty()).then_some(names)
}

/// Parses a reverse name of `in-addr.arpa` or `ip6.arpa`.
fn address_of(name: &Name) -> Option<IpAddr> {
    let labels = labels(name, 0);
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [four @ .., "in-addr", "arpa"] if four.len() == 4 => {
            let parts: Vec<&str> = four.iter().rev().copied().collect();
            IpAddr::from_str(&parts.join(".")).ok()
        }
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 => {
            let mut bits = 0_u128;
            for digit in digits.iter().rev() {
                let value = u8::from_str_radix(digit, 16).ok().filter(|_| digit.len() == 1)?;
                bits = bits << 4 | u128::from(value);
            }
            Some(std::net::Ipv6Addr::from(bits).into())
        }
        _ => None,
    }
}

fn zone_name(zone: &Zone, labels: &[&str]) -> Option<Name> {
    let prefix = Name::from_labels(labels.iter().map(|label| label.as_bytes())).ok()?;
    let mut name = prefix;
    name.set_fqdn(false);
    name.append_domain(zone.domain()).ok()
}

fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

#[cfg(test)]
mod tests;
