//! Evictions, node pressure and graceful node shutdown.

use apimachinery::{Value, value};

use crate::cluster::*;

fn is_evicted(pod: &Value) -> bool {
    phase(pod) == "Failed" && pod["status"]["reason"] == Value::from("Evicted")
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_over_their_ephemeral_storage_limit_are_evicted() {
    let cluster = cluster().await;
    let write = |path: &str| format!("dd if=/dev/zero of={path} bs=1024 count=2048 2>/dev/null; sleep 1000");
    let mut volume = pod("volume", &write("/v/file"));
    set(&mut volume, "volumes", value!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]));
    set_container(&mut volume, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    let mut root = pod("root", &write("/file"));
    set_container(&mut root, "resources", value!({"limits": {"ephemeral-storage": "1Mi"}}));
    let mut modest = pod("modest", "sleep 1000");
    set_container(&mut modest, "resources", value!({"limits": {"ephemeral-storage": "1Mi"}}));
    for pod in [&volume, &root, &modest] {
        cluster.create(&PODS, pod).await;
    }
    let found = cluster.wait(&PODS, "volume", "put out", is_evicted).await;
    assert_eq!(found["status"]["message"], "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ".into());
    let found = cluster.wait(&PODS, "root", "put out", is_evicted).await;
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(found["status"]["message"], message.into());
    cluster.event("Evicted: Usage of EmptyDir volume").await;
    assert!(is_ready(&cluster.get(&PODS, "modest").await));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_pressure_sets_the_condition_and_evicts_best_effort_pods() {
    // More memory than any host has, so that the node is under pressure from the first check.
    let cluster = cluster_with(&[
        "--eviction-soft=memory.available<900Ti",
        "--eviction-soft-grace-period=memory.available=1s",
        "--eviction-max-pod-grace-period=5",
        "--eviction-pressure-transition-period=1s",
    ])
    .await;
    let spare = cluster.run(&pod("spare", "sleep 1000"), "put out", is_evicted).await;
    let message = spare.str_at(&["status", "message"]).unwrap();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: 900Ti, available: "));
    let pressed = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().unwrap_or_default();
        let has_pressure = |one: &Value| one["type"] == "MemoryPressure".into() && one["status"] == "True".into();
        conditions.iter().any(has_pressure)
    };
    cluster.wait(&NODES, NODE, "under pressure", pressed).await;
    let late = cluster.run(&pod("late", "sleep 1000"), "refused", is_evicted).await;
    assert_eq!(late["status"]["message"], "The node had condition: [MemoryPressure]. ".into());
    cluster.finish().await;
}

/// Returns a predicate for the status of a node condition.
fn is_under(kind: &str, holds: bool) -> impl Fn(&Value) -> bool {
    let status = if holds { "True" } else { "False" };
    move |node| {
        let conditions = node["status"]["conditions"].as_array().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == kind.into() && one["status"] == status.into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_pressure_removes_dead_containers_and_then_evicts_only_the_pod_that_fills_the_disk() {
    let start = cluster_without_kubelet().await;
    // A small disk for the files of the kubelet and of the built-in runtime's containers.
    let (root, containers) = (start.machine.path("kubelet"), start.machine.path("runtime/containers"));
    let mount = |args: &[&std::ffi::OsStr]| {
        assert!(std::process::Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
    };
    for dir in [&root, &containers] {
        std::fs::create_dir_all(dir).unwrap();
    }
    mount(&["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), "size=200m".as_ref(), "tmpfs".as_ref(), root.as_ref()]);
    std::fs::create_dir(root.join("containers")).unwrap();
    mount(&["--bind".as_ref(), root.join("containers").as_ref(), containers.as_ref()]);
    let cluster =
        start.kubelet(&["--eviction-hard=nodefs.available<100Mi", "--eviction-pressure-transition-period=1s"], "");
    cluster.run(&pod("modest", "sleep 1000"), "ready", is_ready).await;
    let fill = "dd if=/dev/zero of=/file bs=1048576 count=150 2>/dev/null";
    let mut done = pod("done", fill);
    set(&mut done, "restartPolicy", "Never");
    cluster.run(&done, "over", |pod| phase(pod) == "Succeeded").await;
    cluster.wait(&NODES, NODE, "under pressure", is_under("DiskPressure", true)).await;
    cluster.wait(&NODES, NODE, "relieved by its dead containers", is_under("DiskPressure", false)).await;
    assert!(is_ready(&cluster.get(&PODS, "modest").await), "no pod was evicted");
    let finished = cluster.get(&PODS, "done").await;
    let code = finished["status"]["containerStatuses"][0].at(&["state", "terminated", "exitCode"]);
    assert_eq!((phase(&finished), code), ("Succeeded", Some(&0.into())), "the status is kept");
    cluster.run(&pod("greedy", &format!("{fill}; sleep 1000")), "evicted", is_evicted).await;
    cluster.wait(&NODES, NODE, "relieved by an eviction", is_under("DiskPressure", false)).await;
    assert!(is_ready(&cluster.get(&PODS, "modest").await), "only the greedy pod was evicted");
    for name in ["modest", "done", "greedy"] {
        cluster.delete_wholly(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn graceful_node_shutdown_terminates_pods_in_priority_order() {
    let mut cluster = cluster_with_config("shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n").await;
    let host = cluster.path("witness");
    std::fs::create_dir(&host).unwrap();
    let witness = |name: &str, class: Option<&str>| {
        let script = format!("trap 'echo {name} >>/w/ends; exit 0' TERM; while :; do sleep 0.1; done");
        let mut pod = pod(name, &script);
        set(&mut pod, "terminationGracePeriodSeconds", 10);
        set(&mut pod, "volumes", value!([{"name": "w", "hostPath": {"path": (host.display().to_string())}}]));
        set_container(&mut pod, "volumeMounts", value!([{"name": "w", "mountPath": "/w"}]));
        if let Some(class) = class {
            set(&mut pod, "priorityClassName", class);
        }
        pod
    };
    for pod in [witness("vital", Some("system-node-critical")), witness("plain", None)] {
        cluster.run(&pod, "ready", is_ready).await;
    }
    cluster.terminate();
    assert_eq!(std::fs::read_to_string(host.join("ends")).unwrap(), "plain\nvital\n");
    for name in ["plain", "vital"] {
        let pod = cluster.get(&PODS, name).await;
        assert_eq!((phase(&pod), &pod["status"]["reason"]), ("Failed", &"Terminated".into()));
    }
    let node = cluster.get(&NODES, NODE).await;
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|one| one["type"] == "Ready".into()).unwrap();
    assert_eq!(ready["message"], "node is shutting down".into());
    cluster.restart();
    cluster.finish().await;
}
