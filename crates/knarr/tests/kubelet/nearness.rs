//! Topology manager: exclusive CPUs and memory of a container on one NUMA node.

use apimachinery::{Value, json, value};

use crate::cluster::*;

/// `RESERVED` is replaced by the CPUs that no container gets.
const CONFIG: &str = "cpuManagerPolicy: static\nreservedSystemCPUs: \"RESERVED\"\nmemoryManagerPolicy: Static\n\
    topologyManagerPolicy: single-numa-node\nkubeReserved: {memory: 64Mi}\n\
    reservedMemory: [{numaNode: 0, limits: {memory: 64Mi}}]\n";

fn guaranteed(name: &str, script: &str) -> Value {
    let mut pod = pod(name, script);
    let amounts = value!({"cpu": "1", "memory": "32Mi"});
    set_container(&mut pod, "resources", value!({"requests": (amounts.clone()), "limits": amounts}));
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn cpus_and_memory_are_on_one_numa_node_or_the_pod_is_rejected() {
    // One CPU is left for containers.
    let last = test_requirements::cpus(2) - 1;
    let mut cluster = cluster_with_config(&CONFIG.replace("RESERVED", &format!("0-{}", last - 1))).await;
    let script = "grep allowed_list /proc/self/status; sleep 1000";
    let running = cluster.run(&guaranteed("first", script), "ready", is_ready).await;
    cluster.logged("first", "c", 0, "Mems_allowed_list:").await;
    assert_eq!(cluster.printed(&running, "c", 0), format!("Cpus_allowed_list:\t{last}\nMems_allowed_list:\t0\n"));
    let uid = running.str_at(&["metadata", "uid"]).unwrap();
    let state = std::fs::read(cluster.path("kubelet/memory_manager_state")).unwrap();
    let state = json::parse(&state).unwrap();
    let expect = value!([{"numaAffinity": [0], "type": "memory", "size": 33_554_432_i64}]);
    assert_eq!(state["entries"][uid]["c"], expect, "{state:?}");

    cluster.restart();
    let rejected = cluster.run(&guaranteed("second", "true"), "refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(rejected["status"]["reason"], Value::from("TopologyAffinityError"));
    let message = "Pod was rejected: Resources cannot be allocated with Topology locality";
    assert_eq!(rejected["status"]["message"], Value::from(message));

    cluster.delete_wholly("first").await;
    cluster.run(&guaranteed("third", "sleep 1000"), "ready", is_ready).await;
    cluster.finish().await;
}
