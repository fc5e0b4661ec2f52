use apimachinery::{Value, value};

use super::*;

fn pod(spec: Value) -> Pod {
    Pod::new(&value!({"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web", "v": "1"}}, "spec": spec}))
        .unwrap()
}

fn requests(cpu: &str) -> Value {
    value!({"requests": {"cpu": cpu}})
}

#[test]
fn pod_requests_are_the_maximum_over_init_and_main_phases() {
    let check = |spec: Value, cpu_milli: i64| assert_eq!(pod(spec).shape.requests.cpu_milli, cpu_milli);
    check(value!({"containers": [{"resources": (requests("1"))}, {"resources": (requests("500m"))}]}), 1500);
    let init = |restart: &str, cpu: &str| value!({"restartPolicy": restart, "resources": (requests(cpu))});
    check(value!({"containers": [{"resources": (requests("1"))}], "initContainers": [(init("", "3"))]}), 3000);
    check(
        value!({"containers": [{"resources": (requests("1"))}], "initContainers": [(init("Always", "2")), (init("", "3"))]}),
        5000,
    );
    check(
        value!({"containers": [{"resources": (requests("4"))}], "initContainers": [(init("Always", "2")), (init("", "3"))]}),
        6000,
    );
    check(value!({"containers": [{"resources": (requests("1"))}], "overhead": {"cpu": "250m"}}), 1250);
    check(
        value!({"containers": [{"resources": (requests("1"))}], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}}),
        4000,
    );
}

#[test]
fn scoring_assumes_defaults_for_missing_requests() {
    let nothing = pod(value!({"containers": [{"name": "a"}, {"name": "b"}]}));
    assert_eq!(nothing.shape.non_zero, [2 * MISSING_CPU_MILLI, 2 * MISSING_MEMORY]);
    assert_eq!(nothing.shape.requests, Resources::default());
    let whole = pod(value!({"containers": [{"name": "a"}], "resources": {"requests": {"memory": "1Gi"}}}));
    assert_eq!(whole.shape.non_zero, [MISSING_CPU_MILLI, 1 << 30]);
}

#[test]
fn resized_container_counts_maximum_of_actual_and_desired() {
    let resized = |conditions: Value| {
        let object = value!({
            "spec": {"containers": [{"name": "a", "resources": (requests("2"))}]},
            "status": {"conditions": conditions, "containerStatuses": [
                {"name": "a", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1500m"}}
            ]}
        });
        Pod::new(&object).unwrap().shape.requests.cpu_milli
    };
    assert_eq!(resized(value!([])), 2000);
    assert_eq!(resized(value!([{"type": "PodResizePending", "reason": "Infeasible"}])), 1500);
}

#[test]
fn resized_pod_level_requests_count_maximum_of_actual_and_desired() {
    let check = |status: Value, cpu_milli: i64| {
        let own = value!({"requests": {"cpu": "2", "example.com/gpu": "1"}});
        let spec = value!({"containers": [{"name": "a", "resources": (requests("1"))}], "resources": own});
        assert_eq!(Pod::new(&value!({"spec": spec, "status": status})).unwrap().shape.requests.cpu_milli, cpu_milli);
    };
    let actual_resources = value!({"requests": {"cpu": "1500m"}});
    let never = value!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    check(value!({}), 2000);
    check(value!({"resources": (actual_resources.clone()), "allocatedResources": {"cpu": "3"}}), 3000);
    check(value!({"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "3"}}), 4000);
    check(value!({"resources": (actual_resources.clone()), "allocatedResources": {"cpu": "1"}}), 2000);
    check(
        value!({"resources": actual_resources, "allocatedResources": {"cpu": "1"}, "conditions": (never.clone())}),
        1500,
    );
    // The kubelet reports allocated amounts of all resources, but only the pod-level ones count.
    let memory = value!({"cpu": "2", "memory": "8Gi"});
    let spec = value!({"containers": [{"name": "a", "resources": {"requests": {"memory": "1Gi"}}}],
        "resources": {"requests": {"cpu": "2"}}});
    let status = value!({"resources": {"requests": (memory.clone())}, "allocatedResources": memory});
    assert_eq!(Pod::new(&value!({"spec": spec, "status": status})).unwrap().shape.requests.memory, 1 << 30);
    // Without actual resources in the status, allocated resources do not count either.
    check(value!({"allocatedResources": {"cpu": "3"}}), 2000);
    let plain = value!({"spec": {"containers": [{"name": "a", "resources": (requests("1"))}]},
        "status": {"resources": {"requests": {"cpu": "4"}}, "conditions": never}});
    assert_eq!(Pod::new(&plain).unwrap().shape.requests.cpu_milli, 1000, "pod-level requests are absent");
}

#[test]
fn host_ports_of_containers_and_sidecars_are_used() {
    let port = |number: i64| value!({"ports": [{"hostPort": number}, {"containerPort": 1}]});
    let sidecar =
        value!({"restartPolicy": "Always", "ports": [{"hostPort": 2, "hostIP": "10.0.0.1", "protocol": "UDP"}]});
    let pod = pod(value!({"containers": [(port(1))], "initContainers": [sidecar, (port(3))]}));
    let names: Vec<_> =
        pod.shape.ports.iter().map(|it| format!("{}/{}/{}", it.address, it.port, it.protocol)).collect();
    assert_eq!(names, ["0.0.0.0/1/TCP", "10.0.0.1/2/UDP"]);
}

#[test]
fn wildcard_host_port_conflicts_with_a_specific_address() {
    let port =
        |address: &str, protocol: &str| HostPort { port: 80, protocol: protocol.into(), address: address.into() };
    assert!(port("0.0.0.0", "TCP").conflicts(&port("10.0.0.1", "TCP")));
    assert!(!port("10.0.0.2", "TCP").conflicts(&port("10.0.0.1", "TCP")));
    assert!(!port("0.0.0.0", "TCP").conflicts(&port("0.0.0.0", "UDP")));
}

#[test]
fn match_label_keys_restrict_the_counted_pods() {
    let pod = pod(value!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "z", "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["v", "no"]}
    ]}));
    assert_eq!(pod.spread[0].selector.to_string(), "app=web,v in (1)");
}

#[test]
fn image_without_tag_means_latest() {
    assert_eq!(tagged("host:5000/a"), "host:5000/a:latest");
    assert_eq!(tagged("a:1"), "a:1");
    assert_eq!(tagged("a"), "a:latest");
}

#[test]
fn node_names_are_restricted_only_if_every_term_names_nodes() {
    let named = |terms: Value| {
        let value = value!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        NodeAffinity::new(Some(&value)).named_nodes().map(|names| names.join(","))
    };
    let name = |name: &str| value!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
    assert_eq!(named(value!([(name("b")), (name("a"))])).as_deref(), Some("a,b"));
    assert_eq!(named(value!([(name("b")), {"matchExpressions": []}])), None);
}

#[test]
fn pod_volumes_yield_claims_and_disks() {
    let volumes = value!([{"persistentVolumeClaim": {"claimName": "a"}}, {"name": "v", "ephemeral": {}},
        {"gcePersistentDisk": {"pdName": "d", "readOnly": true}}, {"emptyDir": {}}]);
    let with_volumes = pod(value!({"volumes": volumes}));
    assert!(with_volumes.claims.iter().map(|claim| claim.ephemeral).eq([false, true]));
    assert_eq!(with_volumes.shape.volumes.len(), 3);
}
