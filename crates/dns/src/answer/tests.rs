//! Tests of the names in the DNS specification.

use apimachinery::{Key, Value, value};
use proptest::prelude::*;

use super::*;

fn slice(service: &str, endpoints: Value, ports: Value) -> Value {
    let mut slice = value!({"metadata": {"name": "x", "namespace": "default"}});
    let object = slice.as_object_mut().unwrap();
    object.insert("endpoints", endpoints);
    object.insert("ports", ports);
    slice
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .unwrap()
        .insert("labels", value!({"kubernetes.io/service-name": service}));
    slice
}

fn zone() -> Zone {
    let mut zone = Zone::new(&Name::from_ascii("cluster.local").unwrap());
    zone.complete = true;
    zone.servers = vec!["10.96.0.10".parse().unwrap()];
    for namespace in ["default", "empty"] {
        zone.set_namespace(namespace, true);
    }
    let mut service = |name: &str, spec: Value| {
        let mut object = value!({});
        object.as_object_mut().unwrap().insert("spec", spec);
        zone.set_service(&Key::new("default", name), Some(&object));
    };
    service(
        "kubernetes",
        value!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}),
    );
    service("db", value!({"clusterIP": "None", "ports": [{"name": "sql", "port": 1}]}));
    service("none", value!({"clusterIP": "None", "ports": [{"name": "sql", "port": 1}]}));
    service("waiting", value!({"clusterIP": "None", "ports": [{"name": "sql", "port": 1}]}));
    service("out", value!({"type": "ExternalName", "externalName": "example.org"}));
    let endpoints = value!([
        {"addresses": ["10.1.0.1"], "hostname": "db-0", "conditions": {"ready": true}},
        {"addresses": ["10.1.0.2"], "hostname": "db-1", "conditions": {"ready": false}},
        {"addresses": ["10.1.0.3"]}]);
    let db = slice("db", endpoints, value!([{"name": "sql", "port": 5432, "protocol": "TCP"}]));
    zone.set_slice(&Key::new("default", "db-a"), Some(&db));
    let six = slice("db", value!([{"addresses": ["fd00:1::1"], "hostname": "db-0"}]), value!([]));
    zone.set_slice(&Key::new("default", "db-b"), Some(&six));
    let unready = value!([{"addresses": ["10.1.0.4"], "conditions": {"ready": false}}]);
    let waiting = slice("waiting", unready, value!([{"name": "sql", "port": 5432, "protocol": "TCP"}]));
    zone.set_slice(&Key::new("default", "waiting"), Some(&waiting));
    let api = slice("kubernetes", value!([{"addresses": ["192.0.2.1"]}]), value!([{"name": "https", "port": 6443}]));
    zone.set_slice(&Key::new("default", "kubernetes"), Some(&api));
    zone
}

fn render(answer: Answer) -> String {
    let data = |records: Vec<Record>| -> String {
        records.iter().map(|record| record.data.to_string()).collect::<Vec<_>>().join(" | ")
    };
    match answer {
        Answer::Records { answers, additionals } if additionals.is_empty() => data(answers),
        Answer::Records { answers, additionals } => format!("{} + {}", data(answers), data(additionals)),
        Answer::NoData(soa) => format!("nothing {}", soa.name),
        Answer::NxDomain(soa) => format!("no name {}", soa.name),
        Answer::NotReady => "not yet".to_owned(),
        Answer::OutsideZone => "not ours".to_owned(),
    }
}

#[test]
fn names_resolve_as_specified() {
    let zone = zone();
    let check = |question: &str, expect: &str| {
        let (name, kind) = question.split_once(' ').unwrap();
        let name = Name::from_ascii(name).unwrap();
        assert_eq!(render(answer(&zone, &name, kind.parse().unwrap())), expect, "{question}");
    };
    check("kubernetes.default.svc.cluster.local. A", "10.96.0.1");
    check("KUBERNETES.Default.svc.Cluster.Local. A", "10.96.0.1");
    check("kubernetes.default.svc.cluster.local. AAAA", "fd00::1");
    check("kubernetes.default.svc.cluster.local. TXT", "nothing cluster.local.");
    check(
        "_https._tcp.kubernetes.default.svc.cluster.local. SRV",
        "0 100 443 kubernetes.default.svc.cluster.local. + 10.96.0.1 | fd00::1",
    );
    check("_https._udp.kubernetes.default.svc.cluster.local. SRV", "no name cluster.local.");
    check("_tcp.kubernetes.default.svc.cluster.local. A", "nothing cluster.local.");
    check("192-0-2-1.kubernetes.default.svc.cluster.local. A", "192.0.2.1");
    check("db.default.svc.cluster.local. A", "10.1.0.1 | 10.1.0.3");
    check("db.default.svc.cluster.local. AAAA", "fd00:1::1");
    check("db-0.db.default.svc.cluster.local. A", "10.1.0.1");
    check("db-0.db.default.svc.cluster.local. AAAA", "fd00:1::1");
    check("db-1.db.default.svc.cluster.local. A", "no name cluster.local.");
    check("10-1-0-3.db.default.svc.cluster.local. A", "10.1.0.3");
    check(
        "_sql._tcp.db.default.svc.cluster.local. SRV",
        "0 50 5432 db-0.db.default.svc.cluster.local. | 0 50 5432 10-1-0-3.db.default.svc.cluster.local. + 10.1.0.1 | 10.1.0.3",
    );
    // Without endpoints the name does not exist, for any type and any name below it.
    check("none.default.svc.cluster.local. A", "no name cluster.local.");
    check("none.default.svc.cluster.local. SRV", "no name cluster.local.");
    check("_tcp.none.default.svc.cluster.local. A", "no name cluster.local.");
    check("waiting.default.svc.cluster.local. A", "no name cluster.local.");
    check("_sql._tcp.waiting.default.svc.cluster.local. SRV", "no name cluster.local.");
    check("out.default.svc.cluster.local. A", "example.org.");
    check("out.default.svc.cluster.local. CNAME", "example.org.");
    check("10-1-2-3.default.pod.cluster.local. A", "10.1.2.3");
    check("10-1-2-3.nowhere.pod.cluster.local. A", "no name cluster.local.");
    check("1.0.96.10.in-addr.arpa. PTR", "kubernetes.default.svc.cluster.local.");
    check("1.0.1.10.in-addr.arpa. PTR", "db-0.db.default.svc.cluster.local.");
    check("3.0.1.10.in-addr.arpa. PTR", "10-1-0-3.db.default.svc.cluster.local.");
    check("9.9.9.9.in-addr.arpa. PTR", "not ours");
    check(
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR",
        "kubernetes.default.svc.cluster.local.",
    );
    check("dns-version.cluster.local. TXT", "1.1.0");
    check("cluster.local. NS", "ns.dns.cluster.local.");
    check("ns.dns.cluster.local. A", "10.96.0.10");
    check("empty.svc.cluster.local. A", "nothing cluster.local.");
    check("svc.cluster.local. A", "nothing cluster.local.");
    check("nothere.default.svc.cluster.local. A", "no name cluster.local.");
    check("a.b.c.d.e.svc.cluster.local. A", "no name cluster.local.");
    check("example.org. A", "not ours");
    check("notcluster.local. A", "not ours");
}

#[test]
fn incomplete_zone_denies_no_name() {
    let mut zone = zone();
    zone.complete = false;
    let name = Name::from_ascii("nothere.default.svc.cluster.local.").unwrap();
    assert_eq!(answer(&zone, &name, RecordType::A), Answer::NotReady);
}

proptest! {
    #[test]
    fn no_name_causes_a_panic(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..10)) {
        let Ok(name) = Name::from_labels(labels.iter().map(Vec::as_slice)) else { return Ok(()) };
        let mut within = name.clone();
        within.set_fqdn(false);
        let zone = zone();
        answer(&zone, &name, RecordType::A);
        if let Ok(within) = within.append_domain(zone.domain()) {
            answer(&zone, &within, RecordType::SRV);
        }
    }
}
