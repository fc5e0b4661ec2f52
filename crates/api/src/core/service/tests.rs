use super::*;

fn defaulted(mut service: Value) -> Value {
    Service.default(&mut service, "v1");
    service
}

#[test]
fn defaults_depend_on_the_type() {
    let spec = |service: Value| defaulted(service)["spec"].clone();
    assert_eq!(
        spec(value!({"spec": {"ports": [{"port": 80}]}})),
        value!({
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]
        })
    );
    assert_eq!(
        spec(value!({"spec": {"type": "ExternalName", "externalName": "x"}})),
        value!({"externalName": "x", "sessionAffinity": "None", "type": "ExternalName"})
    );
    let balancer = spec(value!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}}));
    assert_eq!(balancer["allocateLoadBalancerNodePorts"], value!(true));
    assert_eq!(balancer["externalTrafficPolicy"], value!("Cluster"));
    assert_eq!(balancer["sessionAffinityConfig"], value!({"clientIP": {"timeoutSeconds": 10800}}));
}

#[test]
fn change_to_external_name_releases_addresses_and_node_ports() {
    let old = value!({"spec": {
        "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30000}]
    }});
    let mut new = old.clone();
    let spec = spec_mut(&mut new).unwrap();
    spec.insert("type", "ExternalName");
    spec.insert("externalName", "x.example");
    drop_what_the_type_lacks(&mut new, &old);
    assert_eq!(new["spec"], value!({"type": "ExternalName", "externalName": "x.example", "ports": [{"port": 80}]}));
}

#[test]
fn fields_changed_by_the_client_are_not_dropped() {
    let old = value!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}});
    let mut new = value!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30001}]}});
    drop_what_the_type_lacks(&mut new, &old);
    assert_eq!(node_ports(&new), [30001]);
}

#[test]
fn ignored_fields_produce_warnings() {
    let check = |spec: Value, expect: &[&str]| assert_eq!(warnings(&value!({"spec": (spec)})), expect);
    check(value!({"type": "ClusterIP", "sessionAffinity": "None"}), &[]);
    check(
        value!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "externalName": "x"}),
        &[
            "spec.SessionAffinity is ignored for headless services",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ],
    );
}
