use std::collections::BTreeMap;

use apimachinery::value;

use super::*;
use crate::kind::Rules as _;

/// Allocated values by owner.
#[derive(Default)]
struct Others(BTreeMap<Allocation, &'static str>);

impl AllocationLookup for Others {
    fn ip(&self, ip: IpAddr) -> Option<Str> {
        self.0.get(&Allocation::Ip(ip)).map(|owner| (*owner).into())
    }

    fn port(&self, port: u16) -> Option<Str> {
        self.0.get(&Allocation::Port(port)).map(|owner| (*owner).into())
    }
}

fn ip(text: &str) -> Allocation {
    Allocation::Ip(text.parse().unwrap())
}

fn config(ranges: &[&str]) -> Config {
    let ranges = ranges.iter().map(|range| apimachinery::names::parse_cidr(range).unwrap()).collect();
    Config { ranges, node_ports: 30000..=32767 }
}

fn service(spec: Value) -> Value {
    let mut service = value!({"metadata": {"name": "s"}, "spec": (spec)});
    super::super::Service.default(&mut service, "v1");
    service
}

fn planned(spec: Value, old: Option<&Value>, others: &[Allocation]) -> Result<(Value, Plan), AllocationError> {
    let others = Others(others.iter().map(|claim| (*claim, "other")).collect());
    let mut service = service(spec);
    let plan = plan(&mut service, old, &config(&["10.96.0.0/16"]), &others, RandomSource::Seed(1))?;
    Ok((service, plan))
}

fn assert_rejected(spec: Value, others: &[Allocation], expect: &str) {
    assert_eq!(planned(spec, None, others).unwrap_err().to_string(), expect);
}

#[test]
fn cluster_ip_is_allocated_from_the_upper_band() {
    let (service, plan) = planned(value!({"ports": [{"port": 80}]}), None, &[]).unwrap();
    let [Allocation::Ip(address)] = plan.claims[..] else { panic!("one claim: {plan:?}") };
    assert_eq!(texts(&service, "clusterIPs"), [address.to_string()]);
    assert_eq!(text(&service, "clusterIP"), address.to_string());
    assert_eq!((text(&service, "ipFamilyPolicy"), texts(&service, "ipFamilies")), ("SingleStack", vec!["IPv4"]));
    assert!(address > "10.96.1.0".parse::<IpAddr>().unwrap(), "256 addresses are left to choose from: {address}");
}

#[test]
fn requested_cluster_ip_must_be_free_and_in_range() {
    let spec = |ip: &str| value!({"clusterIP": ip, "ports": [{"port": 80}]});
    let (_, plan) = planned(spec("10.96.0.10"), None, &[]).unwrap();
    assert_eq!(plan.claims, [ip("10.96.0.10")]);
    assert_rejected(
        spec("10.96.0.10"),
        &[ip("10.96.0.10")],
        r#"spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated"#,
    );
    assert_rejected(
        spec("1.2.3.4"),
        &[],
        r#"spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range"#,
    );
    assert_rejected(
        spec("10.96.0.0"),
        &[],
        r#"spec.clusterIPs: Invalid value: ["10.96.0.0"]: failed to allocate IP 10.96.0.0: the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/16"#,
    );
    assert_rejected(
        spec("word"),
        &[],
        r#"spec.clusterIPs[0]: Invalid value: "word": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
    );
}

#[test]
fn headless_and_external_name_services_get_no_cluster_ip() {
    let (headless, plan) = planned(value!({"clusterIP": "None", "selector": {"a": "b"}}), None, &[]).unwrap();
    assert_eq!((plan, texts(&headless, "ipFamilies")), (Plan::default(), vec!["IPv4"]));
    let (free, plan) = planned(value!({"clusterIP": "None"}), None, &[]).unwrap();
    assert_eq!((plan, texts(&free, "ipFamilies")), (Plan::default(), vec!["IPv4", "IPv6"]));
    let (name, plan) = planned(value!({"type": "ExternalName", "externalName": "x"}), None, &[]).unwrap();
    assert_eq!((plan, texts(&name, "ipFamilies")), (Plan::default(), vec![]));
}

#[test]
fn families_must_be_configured() {
    let ports = value!([{"port": 80}]);
    assert_rejected(
        value!({"ipFamilyPolicy": "RequireDualStack", "ports": (ports.clone())}),
        &[],
        "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
    );
    assert_rejected(
        value!({"ipFamilies": ["IPv6"], "ports": (ports)}),
        &[],
        "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
    );
}

#[test]
fn dual_stack_cluster_allocates_one_address_per_family() {
    let mut dual = service(value!({"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}));
    let config = config(&["fd00::/112", "10.96.0.0/16"]);
    let first = plan(&mut dual, None, &config, &Others::default(), RandomSource::Seed(3)).unwrap();
    assert_eq!(texts(&dual, "ipFamilies"), ["IPv6", "IPv4"]);
    assert_eq!(first.claims.len(), 2);
    let mut single = dual.clone();
    spec_mut(&mut single).unwrap().insert("ipFamilyPolicy", "SingleStack");
    let second = plan(&mut single, Some(&dual), &config, &Others::default(), RandomSource::Seed(3)).unwrap();
    assert_eq!(second, Plan { claims: Vec::new(), releases: vec![first.claims[1]] });
    assert_eq!(texts(&single, "clusterIPs").len(), 1);
}

#[test]
fn node_port_is_shared_by_both_protocols() {
    let ports = value!([
        {"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "c", "port": 80, "nodePort": 30005}
    ]);
    let (service, plan) = planned(value!({"type": "NodePort", "ports": (ports)}), None, &[]).unwrap();
    let given = node_ports(&service);
    assert_eq!((given[0], given[2]), (given[1], 30005));
    assert!(given[0] >= 30086, "86 ports are left to choose from: {}", given[0]);
    assert_eq!(plan.claims.iter().filter(|claim| matches!(claim, Allocation::Port(_))).count(), 2);
}

#[test]
fn requested_node_port_must_be_free_and_in_range() {
    let spec = |port: i64| value!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    assert_rejected(
        spec(80),
        &[],
        "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
    );
    assert_rejected(
        spec(30001),
        &[Allocation::Port(30001)],
        "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
    );
}

#[test]
fn local_load_balancer_gets_a_health_check_node_port() {
    let spec = value!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let (service, plan) = planned(spec, None, &[]).unwrap();
    let health = u16::try_from(health_port(&service)).unwrap();
    assert!(plan.claims.contains(&Allocation::Port(health)));
    let mut all = plan.claims.clone();
    all.sort();
    assert_eq!(allocated_claims(&service), all);
}

#[test]
fn allocated_values_are_preserved_when_a_manifest_is_applied_again() {
    let file = value!({"type": "NodePort", "ports": [{"port": 80}]});
    let (old, _) = planned(file.clone(), None, &[]).unwrap();
    let (again, plan) = planned(file, Some(&old), &allocated_claims(&old)).unwrap();
    assert_eq!(plan, Plan::default());
    assert_eq!(again, old);
}

#[test]
fn type_change_allocates_and_releases() {
    let (plain, _) = planned(value!({"ports": [{"port": 80}]}), None, &[]).unwrap();
    let with = |base: &Value, field: &str, value: &str| {
        let mut spec = base["spec"].clone();
        spec.as_object_mut().unwrap().insert(field, value);
        spec
    };
    let (open, plan) = planned(with(&plain, "type", "NodePort"), Some(&plain), &allocated_claims(&plain)).unwrap();
    let port = node_ports(&open)[0];
    assert_eq!(plan.claims, [Allocation::Port(u16::try_from(port).unwrap())]);
    let (_, plan) = planned(with(&open, "type", "ExternalName"), Some(&open), &allocated_claims(&open)).unwrap();
    let mut releases = plan.releases;
    releases.sort();
    assert_eq!((plan.claims, releases), (Vec::new(), allocated_claims(&open)));
}

#[test]
fn full_range_is_reported() {
    let ports: Vec<Allocation> = (30000..=32767).map(Allocation::Port).collect();
    assert_rejected(
        value!({"type": "NodePort", "ports": [{"port": 80}]}),
        &ports,
        "failed to allocate a nodePort: range is full",
    );
}

#[test]
fn dry_run_gets_node_ports_outside_the_range() {
    let check = |spec: Value, expect: &[i64], health: i64| {
        let mut service = service(spec);
        let random = RandomSource::DryRun(1);
        plan(&mut service, None, &config(&["10.96.0.0/16"]), &Others::default(), random).unwrap();
        assert_eq!((node_ports(&service), health_port(&service)), (expect.to_vec(), health));
    };
    let ports = value!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    check(value!({"type": "NodePort", "ports": (ports)}), &[32769, 32770], 0);
    let local = value!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    check(local, &[32769], 32770);
    let chosen = value!([{"name": "a", "port": 80, "nodePort": 30100}, {"name": "b", "port": 81}]);
    check(value!({"type": "NodePort", "ports": (chosen)}), &[30100, 30101], 0);
}
